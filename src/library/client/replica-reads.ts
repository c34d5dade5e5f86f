/**
 * Pulls that replicas answer. What goes to a shard is asked of a replica that holds it, and of the next one
 * when that one refuses, does not answer or is gone. Replicas are found in the status of the job, which is
 * asked for anew when those that are known do not do, and now and then.
 */

import { type ErrorCode, KintsugiError } from '../../common/errors.js';
import { joined } from '../../core/shared/bytes.js';
import { loadNative } from '../../engine/native.js';
import { monotonicMs } from '../../net/log.js';
import { ItemList } from '../../protocol/items.js';
import { type ClusterMap, locate, poolOf, shardCount, type TableSpec } from '../../protocol/map.js';
import type { ReplicaStatus } from '../../protocol/status.js';
import type { ReplicaAnswer, ReplicaOptions } from './options.js';
import { type ReplicaAccess, ReplicaLink } from './replica-link.js';
import { INTO_CHANGED, rowBytes } from './sections.js';

/** Keys and rows of one section, and of one message. */
const SECTION_BYTES = 4 << 20;
const MESSAGE_BYTES = 16 << 20;
/** Replicas are looked for again at most so often, and at least so often while there are pulls. */
const LOOK_MS = 250;
const LOOK_AGAIN_MS = 5000;
/** A replica that failed is asked last for so long. */
const AVOID_MS = 1000;

/** Codes after which another replica is asked. Every other code is thrown to the caller. */
const ELSEWHERE: ReadonlySet<ErrorCode> = new Set([
  ...(['STALE_REPLICA', 'UNREACHABLE', 'TIMEOUT', 'CLOSED', 'UNAUTHORIZED'] as const),
  // The replica may know an older map, or serve other tables.
  ...(['UNKNOWN_TABLE', 'MEMORY_LIMIT', 'BAD_FRAME', 'INTERNAL'] as const),
]);

/** Keys of one table, and where their rows go. */
export interface ReplicaCall {
  spec: TableSpec;
  keys: BigUint64Array;
  into: Float32Array;
}

/** The parts of a session that reads from replicas use. */
export interface ReplicaReadsHost {
  readonly map: ClusterMap;
  access(): ReplicaAccess;
  replicas(): Promise<readonly ReplicaStatus[]>;
}

/** Keys of one call that go to one shard. */
interface ReadPiece {
  call: ReplicaCall;
  order: Uint32Array;
  start: number;
  end: number;
  /** Number of the shard in its pool. */
  shard: number;
  g: number;
  m: number;
  bytes: number;
  /** Replicas that were asked. */
  asked: Set<string>;
  error?: KintsugiError;
}

interface KnownReplica {
  status: ReplicaStatus;
  link: ReplicaLink;
  /** Asked last until then. */
  avoidUntil: number;
}

export class ReplicaReads {
  private readonly native = loadNative();
  /** By address. */
  private known = new Map<string, KnownReplica>();
  private lookedAt = Number.NEGATIVE_INFINITY;
  private looking: Promise<void> | undefined;
  /** Clients differ in whom they ask first. */
  private readonly first = Math.random();
  private closed = false;

  constructor(
    private readonly host: ReplicaReadsHost,
    private readonly options: ReplicaOptions,
  ) {}

  /**
   * Fills `into` of each call. Returns the pieces that no replica answered, if owners may be asked for them.
   * @throws STALE_REPLICA, and what the replicas refuse with
   */
  async pull(
    calls: readonly ReplicaCall[],
    signal: AbortSignal | undefined,
    answer: ReplicaAnswer,
  ): Promise<ReadPiece[]> {
    const began = monotonicMs();
    if (began - this.lookedAt > LOOK_AGAIN_MS) {
      const looked = this.look();
      if (this.known.size === 0) await looked;
    }
    let open = calls.flatMap((call) => this.pieces(call));
    for (;;) {
      const rest: ReadPiece[] = [];
      const asked = this.assign(open, rest);
      if (asked.size === 0) {
        if (rest.length === 0) return [];
        // Somebody may have come since the status was asked for.
        if (this.lookedAt < began && (await this.lookAgain(rest))) {
          open = rest;
          continue;
        }
        if (this.options.owners) return rest;
        throw staleness(rest);
      }
      const failed = await Promise.all([...asked].map(([known, mine]) => this.ask(known, mine, answer)));
      if (this.closed) throw new KintsugiError('CLOSED', 'the client is closed');
      if (signal?.aborted) throw new KintsugiError('ABORTED', 'the operation was aborted');
      open = [...failed.flat(), ...rest];
    }
  }

  /** Keys of a piece, and a place for their rows, for who asks an owner. */
  keysOf({ call: { keys }, order, start, end }: ReadPiece): BigUint64Array {
    return BigUint64Array.from(order.subarray(start, end), (at) => keys[at]!);
  }

  /** Puts rows that an owner answered to their places. */
  put({ call: { spec, into }, order, start, end }: ReadPiece, rows: Float32Array): void {
    const { dim } = spec;
    for (let i = start; i < end; i++)
      into.set(rows.subarray((i - start) * dim, (i - start + 1) * dim), order[i]! * dim);
  }

  private pieces(call: ReplicaCall): ReadPiece[] {
    const { spec, keys } = call;
    const pool = poolOf(this.host.map, spec.pool)!;
    const { order, starts } = this.native.partition(keys, shardCount(pool));
    const most = Math.max(1, Math.floor(SECTION_BYTES / rowBytes(spec.dim)));
    const pieces: ReadPiece[] = [];
    for (let shard = 0; shard + 1 < starts.length; shard++) {
      const { group: g, member: m } = locate(pool, shard);
      for (let start = starts[shard]!; start < starts[shard + 1]!; start += most) {
        const end = Math.min(start + most, starts[shard + 1]!);
        const bytes = (end - start) * rowBytes(spec.dim);
        pieces.push({ call, order, start, end, shard, g, m, bytes, asked: new Set() });
      }
    }
    return pieces;
  }

  // ---- whom to ask

  /** Gives each replica its pieces. `rest` gets the pieces for which no replica is left to ask. */
  private assign(pieces: readonly ReadPiece[], rest: ReadPiece[]): Map<KnownReplica, ReadPiece[]> {
    const now = monotonicMs();
    const rank = ({ avoidUntil }: KnownReplica) => (avoidUntil > now ? 1 : 0);
    const all = [...this.known.values()];
    const turn = Math.floor(this.first * all.length);
    const turned = [...all.slice(turn), ...all.slice(0, turn)];
    const order = turned.sort((one, other) => rank(one) - rank(other));
    const assigned = new Map<KnownReplica, ReadPiece[]>();
    for (const piece of pieces) {
      const known = order.find(({ status }) => !piece.asked.has(status.address) && holds(status, piece));
      if (!known) {
        rest.push(piece);
        continue;
      }
      piece.asked.add(known.status.address);
      const mine = assigned.get(known);
      if (mine) mine.push(piece);
      else assigned.set(known, [piece]);
    }
    return assigned;
  }

  /** Looks for replicas again. True: a replica holds one of these pieces and was not asked for it yet. */
  private async lookAgain(pieces: readonly ReadPiece[]): Promise<boolean> {
    await this.look();
    return pieces.some((piece) =>
      [...this.known.values()].some(({ status }) => holds(status, piece) && !piece.asked.has(status.address)),
    );
  }

  private look(): Promise<void> {
    if (monotonicMs() - this.lookedAt < LOOK_MS) return Promise.resolve();
    this.looking ??= this.find().finally(() => {
      this.looking = undefined;
    });
    return this.looking;
  }

  private async find(): Promise<void> {
    const began = monotonicMs();
    // When the scheduler does not answer, the known replicas stay in use.
    const found = await this.host.replicas().catch(() => undefined);
    if (!found || this.closed) return;
    const before = this.known;
    this.known = new Map();
    for (const status of found) {
      const { address } = status;
      const known = before.get(address);
      before.delete(address);
      const link = known?.link ?? new ReplicaLink(address, this.host.access());
      this.known.set(address, { status, link, avoidUntil: known?.avoidUntil ?? 0 });
    }
    for (const { link } of before.values()) link.close();
    this.lookedAt = began;
  }

  // ---- asking

  /**
   * Returns the pieces that another replica is to be asked for. @throws errors that every replica would give
   */
  private async ask(
    known: KnownReplica,
    pieces: readonly ReadPiece[],
    answer: ReplicaAnswer,
  ): Promise<ReadPiece[]> {
    const batches: ReadPiece[][] = [];
    let bytes = Number.POSITIVE_INFINITY;
    for (const piece of pieces) {
      if (bytes + piece.bytes > MESSAGE_BYTES) {
        batches.push([]);
        bytes = 0;
      }
      batches.at(-1)!.push(piece);
      bytes += piece.bytes;
    }
    const failed = await Promise.all(batches.map((batch) => this.askBatch(known, batch, answer)));
    return failed.flat();
  }

  private async askBatch(
    known: KnownReplica,
    pieces: ReadPiece[],
    answer: ReplicaAnswer,
  ): Promise<ReadPiece[]> {
    const { maxLagMs, missing } = this.options;
    const items = new ItemList('pull');
    const sections = pieces.map(({ call: { spec, keys }, order, start, end, g, m }) => {
      const part = { table: spec.id, width: spec.dim, keys, order, start, end };
      const memory = this.native.encodeRequest(0, [part]);
      items.add(g, m, memory.byteLength);
      return { memory, start: 0, size: memory.byteLength };
    });
    const message = {
      items: items.bytes(),
      ...(maxLagMs !== undefined && { maxLagMs }),
      ...(missing !== undefined && { missing: new Uint8Array(Float32Array.of(missing).buffer) }),
    };
    try {
      await known.link.read(message, joined(sections), ({ states, lagMs }, rows) => {
        if (states.length !== pieces.length)
          throw new KintsugiError('BAD_FRAME', `${states.length} states for ${pieces.length} sections`);
        this.scatter(pieces, rows);
        answer.lagMs = Math.max(answer.lagMs, lagMs);
        for (const [i, { call, shard }] of pieces.entries()) {
          const [generation, position] = states[i]!;
          answer.states.push({ pool: call.spec.pool, shard, generation, position });
        }
      });
      return [];
    } catch (error) {
      if (!(error instanceof KintsugiError) || !ELSEWHERE.has(error.code)) throw error;
      known.avoidUntil = monotonicMs() + AVOID_MS;
      for (const piece of pieces) piece.error = error;
      return pieces;
    }
  }

  private scatter(pieces: readonly ReadPiece[], rows: Uint8Array): void {
    let at = 0;
    for (const { call, order, start, end } of pieces) {
      const { dim } = call.spec;
      // The caller's own memory: it may have been transferred to somewhere else by now.
      if (call.into.length !== call.keys.length * dim) throw new KintsugiError('BAD_ARGUMENT', INTO_CHANGED);
      const size = Math.ceil(((end - start) * dim) / 2) * 8;
      const section = rows.subarray(at, at + size);
      if (this.native.scatterRows(call.into, dim, order, start, end, section, 0) === 0)
        throw new KintsugiError('BAD_FRAME', 'rows that are shorter than was asked for');
      at += size;
    }
  }

  close(): void {
    this.closed = true;
    for (const { link } of this.known.values()) link.close();
  }
}

function holds({ share: [part, of], tables }: ReplicaStatus, { shard, call }: ReadPiece): boolean {
  return shard % of === part - 1 && (tables?.includes(call.spec.name) ?? true);
}

function staleness(rest: readonly ReadPiece[]): KintsugiError {
  const [{ error, call, shard }] = rest as [ReadPiece];
  const where = `table "${call.spec.name}", shard ${shard}`;
  if (!error) return new KintsugiError('STALE_REPLICA', `no replica serves ${where}`);
  const text = `no replica answers for ${where}: ${error.message}`;
  return new KintsugiError('STALE_REPLICA', text, { cause: error });
}

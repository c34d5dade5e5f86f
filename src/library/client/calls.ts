/**
 * Pulls and pushes on their way from the caller to the session: checked, split by shard, encoded in rounds.
 * Also under the numbers of another session, see sequence.ts.
 */
import { KintsugiError } from '../../common/errors.js';
import { checkArray, checkAttached, checkFields, checkKeys, checkOptions } from '../../common/options.js';
import { loadNative, type SplitCall } from '../../engine/native.js';
import { PartMemory } from '../../net/transport/index.js';
import { locate, shardCount, type TableSpec } from '../../protocol/map.js';
import { FLOAT_BYTES } from '../../protocol/section-header.js';
import { auditKeys, auditTable } from './audit.js';
import {
  PULL_INTO,
  PULL_OPTIONS,
  PULL_REQUEST,
  PUSH_REQUEST,
  type PullInto,
  type PullOptions,
  type PullRequest,
  type PushCounts,
  type PushRequest,
  REQUEST_OPTIONS,
  type ReplicaAnswer,
  type RequestOptions,
} from './options.js';
import { distinctExtras, pushExtras } from './push-extras.js';
import type { ReplicaReads } from './replica-reads.js';
import {
  encodeRounds,
  INTO_CHANGED,
  type PoolCalls,
  type PushRound,
  ROUND_BYTES,
  rowBytes,
  SECTION_BYTES,
  scatter,
  sectionCounts,
} from './sections.js';
import type { Session } from './session.js';
import { KnownTables } from './tables.js';

/** An array of so many bytes or more is not filled with zeros first. */
const ZEROED_BYTES = 64 << 10;
/** A larger array is made by V8, because Node may have no buffer of that size. */
const BUFFER_BYTES = 1 << 30;

/** The part of a request for one table: keys, and the rows that go with them. */
interface TableCall extends SplitCall {
  spec: TableSpec;
}

/** The contents of rows: values and their gradients, or whole rows with optimizer state. */
export type PullMode = 'values' | 'rows';

/** A push of a sequence: waits until those before it have their numbers. */
export interface CallTurn {
  client: number;
  begins: Promise<void>;
  /** Throws when there are no numbers any more. */
  check(): void;
  /** Called when the push has all its numbers. */
  end(): void;
}

export class ClientRequests {
  private readonly native = loadNative();
  private readonly memory = new PartMemory();
  private readonly tables = new KnownTables(() => this.session.map);

  constructor(
    private readonly session: Session,
    private readonly audit: boolean,
    /** Replicas answer pulls in place of owners. */
    private readonly replicas?: ReplicaReads | undefined,
  ) {}

  /** @throws UNKNOWN_TABLE, BAD_ARGUMENT */
  specOf(table: PullRequest['table']): TableSpec {
    return this.tables.specOf(table);
  }

  /** Floats of a whole row: values, optimizer state, words of its life. */
  rowWidth(spec: TableSpec): number {
    return this.native.rowWidth(spec.dim, spec.optimizer, spec.policy);
  }

  private widthOf(spec: TableSpec, mode: PullMode): number {
    return mode === 'rows' ? this.rowWidth(spec) : spec.dim;
  }

  /** A request of no keys asks nobody. @throws CLOSED, or what has ended the session */
  private refuseClosed(): void {
    if (this.session.closed) throw this.session.closed;
  }

  // ---- pull

  async pull(requests: readonly PullInto[], mode: PullMode, options: PullOptions): Promise<Float32Array[]> {
    checkOptions('pull', options, PULL_OPTIONS);
    checkArray('pull: requests', requests);
    this.refuseClosed();
    const calls = requests.map((request): TableCall => {
      checkFields<PullInto>('a request to pull', request, mode === 'rows' ? ONLY_PULL : PULL_INTO);
      const spec = this.specOf(request.table);
      return { spec, table: spec.id, keys: checkKeys(request.keys), width: this.widthOf(spec, mode) };
    });
    const results = calls.map((call, i) => target(call, requests[i]?.into));
    if (calls.length > 1) checkApart(requests.flatMap(({ into }) => into ?? []));
    if (this.replicas && mode === 'values') await this.pullReplicas(this.replicas, calls, results, options);
    else await this.pullOwners(calls, results, mode, options);
    return results;
  }

  private async pullReplicas(
    replicas: ReplicaReads,
    calls: readonly TableCall[],
    results: readonly Float32Array[],
    { signal, onAnswer }: PullOptions,
  ): Promise<void> {
    const answer: ReplicaAnswer = { lagMs: 0, states: [] };
    // Replicas are asked later, and again, when the caller may have written other keys there.
    const own = calls.map(({ spec, keys }, i) => ({ spec, keys: keys.slice(), into: results[i]! }));
    const rest = await replicas.pull(own, signal, answer);
    const left = rest.map((piece): TableCall => {
      const { spec } = piece.call;
      return { spec, table: spec.id, keys: replicas.keysOf(piece), width: spec.dim };
    });
    const rows = left.map((call) => target(call));
    await this.pullOwners(left, rows, 'values', { signal });
    for (const [i, piece] of rest.entries()) replicas.put(piece, rows[i]!);
    onAnswer?.(answer);
  }

  private async pullOwners(
    calls: readonly TableCall[],
    results: readonly Float32Array[],
    mode: PullMode,
    options: RequestOptions,
  ): Promise<void> {
    const pools = this.pools(calls);
    const targets = pools.map(({ calls: mine }) => ({
      rows: mine.map((call) => results[calls.indexOf(call as TableCall)]!),
      widths: Uint32Array.from(mine, ({ width }) => width),
    }));
    const { answers } = this.session;
    const lengths = results.map(({ length }) => length);
    const bytes = roundBytes(calls);
    for (const round of this.encoded(pools, mode)) {
      const { lists, done } = round;
      const onRows = (items: Uint32Array, rows: Uint8Array) => {
        // The caller's own memory: it may have been transferred to somewhere else, or resized, by now.
        if (results.some(({ length }, i) => length !== lengths[i]))
          throw new KintsugiError('BAD_ARGUMENT', INTO_CHANGED);
        scatter(this.native, round, targets, items, rows);
      };
      if (!answers.takeNow(bytes)) await answers.take(bytes, options.signal);
      try {
        await this.session.request((ticket) => ({ kind: 'pull', ticket, lists }), options, { onRows });
      } finally {
        answers.free(bytes);
        done();
      }
    }
  }

  // ---- push

  /** @param turn pushes under the numbers of another session than this client's own */
  async push(
    requests: readonly PushRequest[],
    mode: PullMode,
    options: RequestOptions,
    turn?: CallTurn,
  ): Promise<void> {
    checkOptions('push', options, REQUEST_OPTIONS);
    checkArray('push: requests', requests);
    this.refuseClosed();
    const calls = requests.map((request) => this.pushCall(request, mode));
    checkTablesOnce(calls);
    await this.send(calls, mode, options, turn);
  }

  /**
   * Deletes rows: pushes of keys with rows of no width. What a push deletes is limited as what it brings,
   * because parities get as many bytes.
   */
  async delete(requests: readonly PullRequest[], options: RequestOptions): Promise<void> {
    checkOptions('delete', options, REQUEST_OPTIONS);
    checkArray('delete: requests', requests);
    this.refuseClosed();
    if (this.audit) throw new KintsugiError('BAD_ARGUMENT', 'a client with an audit cannot delete rows');
    const calls = requests.map((request): TableCall => {
      checkFields('a request to delete', request, PULL_REQUEST);
      const spec = this.specOf(request.table);
      // Pieces after the first one leave later, when the caller may have written other keys there.
      return { spec, table: spec.id, keys: checkKeys(request.keys).slice(), width: 0, rows: NO_ROWS };
    });
    checkTablesOnce(calls);
    for (const some of inRounds(calls, (spec) => rowBytes(this.rowWidth(spec))))
      await this.send(some, 'values', options);
  }

  private async send(
    calls: TableCall[],
    mode: PullMode,
    options: RequestOptions,
    turn?: CallTurn,
  ): Promise<void> {
    const pools = this.pools(mode === 'values' ? this.distinct(calls) : calls);
    if (this.audit) for (const each of pools) this.addAudit(each, mode, turn?.client);
    const rounds = this.encoded(pools, mode);
    await turn?.begins;
    const later = this.session.holding.enter(options.signal);
    if (later) await later;
    try {
      for (const [index, round] of rounds.entries()) {
        const last = index === rounds.length - 1;
        // Once the last section has its numbers, the next push may take the following ones.
        const whose = turn && { ...turn, numbered: () => last && turn.end() };
        await this.session.push(round, options, whose);
      }
    } finally {
      this.session.holding.leave();
    }
  }

  private pushCall(request: PushRequest, mode: PullMode): TableCall {
    checkFields('a request to push', request, PUSH_REQUEST);
    const spec = this.specOf(request.table);
    const keys = checkKeys(request.keys);
    const width = this.widthOf(spec, mode);
    if (!(request.gradients instanceof Float32Array)) {
      throw new KintsugiError('BAD_ARGUMENT', 'gradients must be a Float32Array');
    }
    const [wanted, given] = [keys.length * width, request.gradients.length];
    if (given !== wanted) {
      checkAttached('gradients', request.gradients);
      const text = `${keys.length} keys x ${width} values need ${wanted} floats, not ${given}`;
      const code = given % width === 0 ? 'LENGTH_MISMATCH' : 'DIM_MISMATCH';
      throw new KintsugiError(code, `table "${spec.name}": ${text}`);
    }
    const extras = pushExtras(request, spec, mode === 'rows');
    return { spec, table: spec.id, keys, width, rows: request.gradients, ...extras };
  }

  /**
   * A gradient is summed over the whole call before its optimizer sees it, also when the call is cut into
   * sections. Its key was seen as often as it came, and has the highest of its scores.
   */
  private distinct(calls: TableCall[]): TableCall[] {
    let bytes = 0;
    for (const call of calls) bytes += call.keys.length * rowBytes(call.width);
    if (bytes <= SECTION_BYTES) return calls;
    return calls.map((call) => {
      const { keys, inverse } = this.native.unique(call.keys);
      if (keys.length === call.keys.length || !call.rows) return call;
      const rows = new Float32Array(keys.length * call.width);
      this.native.sumRows(rows, call.width, call.rows, inverse);
      return { ...call, keys, rows, ...distinctExtras(call, call.spec, keys.length, inverse) };
    });
  }

  /** Takes the numbers of session `client` that a push with these (unique) keys has taken. */
  skip(requests: readonly PullRequest[], client: number): void {
    const calls = requests.map(({ table, keys }): TableCall => {
      const spec = this.specOf(table);
      return { spec, table: spec.id, keys: checkKeys(keys), width: spec.dim };
    });
    const items = this.pools(calls).flatMap((each) =>
      [...sectionCounts(this.native, this.session.map, each)].map(([shard, count]) => {
        const { group, member } = locate(each.pool, shard);
        return { g: group, m: member, count };
      }),
    );
    this.session.step({ kind: 'skip', client, items });
  }

  /** Calls with keys, by the pool of their tables. */
  private pools(calls: readonly TableCall[]): PoolCalls[] {
    return this.session.map.pools.flatMap((pool) => {
      const mine = calls.filter(({ spec, keys }) => spec.pool === pool.name && keys.length > 0);
      return mine.length > 0 ? [{ pool, calls: mine }] : [];
    });
  }

  /** A section per shard with all its tables, or several where that would be too large. */
  private encoded(pools: readonly PoolCalls[], mode: PullMode): PushRound[] {
    return encodeRounds(this.native, this.memory, this.session.map, mode === 'rows' ? 1 : 0, pools);
  }

  // ---- audit

  /** Every section of a push also adds to a row that counts the pushes of session `client` to its shard. */
  private addAudit(pushed: PoolCalls, mode: PullMode, client = this.session.id): void {
    if (mode === 'rows') throw new KintsugiError('BAD_ARGUMENT', 'a client with an audit cannot assign rows');
    const { pool, calls } = pushed;
    const { id: table } = this.specOf(auditTable(pool).name);
    const keys = auditKeys(this.native, pool, client);
    const rows = new Float32Array(shardCount(pool)).fill(1);
    pushed.calls = [...calls, { table, width: 1, keys, rows }];
    pushed.each = calls.length;
  }

  /** Pushes per shard under the numbers of session `client`; default: this client's own. */
  counts(client?: number): PushCounts[] {
    const { core, map } = this.session;
    return core.counts(client).map(({ g, m, sent, acknowledged, refused }) => {
      const pool = map.pools.find((p) => g >= p.firstGroup && g < p.firstGroup + p.groups)!;
      return { pool: pool.name, shard: (g - pool.firstGroup) * pool.k + m, sent, acknowledged, refused };
    });
  }
}

const NO_ROWS = new Float32Array(0);

/** The calls in pieces, in order. Rows of the keys of a piece are not more bytes than a round has. */
function* inRounds(
  calls: readonly TableCall[],
  bytesOf: (spec: TableSpec) => number,
): Generator<TableCall[]> {
  let [some, room]: [TableCall[], number] = [[], ROUND_BYTES];
  for (const call of calls) {
    const each = bytesOf(call.spec);
    for (let at = 0; at < call.keys.length; ) {
      const count = Math.max(1, Math.floor(room / each));
      const keys = call.keys.subarray(at, at + count);
      some.push({ ...call, keys });
      at += keys.length;
      room -= keys.length * each;
      if (room >= each) continue;
      yield some;
      [some, room] = [[], ROUND_BYTES];
    }
  }
  if (some.length > 0) yield some;
}

/** The most bytes of rows that one round of these calls brings. */
function roundBytes(calls: readonly TableCall[]): number {
  return Math.min(
    ROUND_BYTES,
    calls.reduce((sum, { keys, width }) => sum + keys.length * width * FLOAT_BYTES, 0),
  );
}

/** Whole rows go to new arrays only. */
const ONLY_PULL = PULL_REQUEST as typeof PULL_INTO;

/** The array for the rows of a call: the caller's, or a new one. */
function target(call: TableCall, into?: Float32Array): Float32Array {
  const length = call.keys.length * call.width;
  if (into === undefined) return arrayOf(length, call.spec.name);
  if (!(into instanceof Float32Array))
    throw new KintsugiError('BAD_ARGUMENT', '"into" must be a Float32Array');
  if (into.length === length) return into;
  const text = `rows of ${length} floats do not fit "into", which has ${into.length}`;
  throw new KintsugiError('LENGTH_MISMATCH', `table "${call.spec.name}": ${text}`);
}

/** Rows of two requests would be written to one place. @throws BAD_ARGUMENT */
function checkApart(given: readonly Float32Array[]): void {
  const ends = new Map<ArrayBufferLike, number>();
  for (const { buffer, byteOffset, byteLength } of given.toSorted((a, b) => a.byteOffset - b.byteOffset)) {
    if (byteLength === 0) continue;
    if (byteOffset < (ends.get(buffer) ?? 0))
      throw new KintsugiError('BAD_ARGUMENT', '"into" of two requests of one pull are the same memory');
    ends.set(buffer, byteOffset + byteLength);
  }
}

/** A large one has any numbers in it: each of them is written by a row, or nobody gets the array. */
function arrayOf(floats: number, table: string): Float32Array {
  const bytes = floats * FLOAT_BYTES;
  try {
    if (bytes < ZEROED_BYTES || bytes > BUFFER_BYTES) return new Float32Array(floats);
    return new Float32Array(Buffer.allocUnsafeSlow(bytes).buffer);
  } catch {
    const text = `no array of this process holds ${floats} floats: pull fewer keys at once`;
    throw new KintsugiError('BAD_ARGUMENT', `table "${table}": ${text}`);
  }
}

/** Owners sum what goes to a row of one table, and refuse a section that names a table twice. */
function checkTablesOnce(calls: readonly TableCall[]): void {
  const named = new Set<number>();
  for (const { spec, keys } of calls) {
    if (keys.length === 0) continue;
    if (named.has(spec.id))
      throw new KintsugiError('BAD_ARGUMENT', `table "${spec.name}" is named twice; give all its keys once`);
    named.add(spec.id);
  }
}

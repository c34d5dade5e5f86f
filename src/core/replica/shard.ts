/**
 * One shard of a replica: what it answers from, what it is being filled with, and the stream of the owner. A
 * new owner resumes the stream at the state that is here, as for a sink, if it can. If it cannot, the replica
 * asks for all blocks again, and until all of them are here it answers from the old state, whose age grows.
 */
import type { EngineTable, NativeAddon, NativeMemory, NativeShard } from '../../engine/native.js';
import type { DataEntry, Group } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import type { ServedRows } from '../../protocol/saving.js';
import { bytes, words } from '../shared/bytes.js';
import { takingForeign } from '../shared/engine.js';
import type { Outbox } from '../shared/outbox.js';
import { Retry } from '../shared/retry.js';
import { selected } from '../shared/sections.js';
import { ShardCopy } from './copy.js';
import type { DeltaMemory } from './delta-memory.js';

export interface ReplicaPolicy {
  /** A question without an answer is asked again after this time. */
  retryMs: number;
  /** Owners are asked where they are so often. */
  probeMs: number;
  /** Shards that are filled at once. */
  fills: number;
  /** Blocks that are asked for at once, of each of them. */
  fillBlocks: number;
}

/** The parts of a replica that its shards use. */
export interface ReplicaShardHost {
  readonly out: Outbox;
  readonly policy: ReplicaPolicy;
  readonly native: NativeAddon;
  readonly memory: NativeMemory;
  readonly deltas: DeltaMemory;
  readonly served: ServedRows;
  readonly now: number;
  /** When the newest map was known to be the newest. */
  readonly mapAt: number;
  /** Tables of a pool that are served here. */
  tables(pool: number): readonly EngineTable[];
  /** The map has this table and it is not one that is served here, or the job has dropped it. */
  leavesOut(table: number): boolean;
  /** The map has this table, or had it. */
  knows(table: number): boolean;
  newId(): number;
  /** Another shard may begin to be filled; asked at most once for each. */
  mayFill(): boolean;
}

/** Where a stream is. `asked`: for it; `live`: its deltas come. */
interface Subscription {
  id: number;
  gen: number;
  state: 'asked' | 'live';
}

/** An owner that serves less than this of its baseline gets no further question in the same tick. */
const BUSY_RATIO = 0.95;

export class ReplicaShard {
  /** Complete: pulls are answered from it. */
  private serving: ShardCopy | undefined;
  /** Empty at first; it takes the place of `serving` when it is complete. */
  private filling: ShardCopy | undefined;
  private stream: Subscription | undefined;
  /** True if the state that is here cannot be resumed, so that all blocks have to be asked for. */
  private needsFill = true;
  /** `serving` has everything that was acknowledged before this time; -Infinity: not known. */
  freshAt = Number.NEGATIVE_INFINITY;
  /**
   * When the owner was asked for its position, of the newest such question whose answer `serving` has
   * reached.
   */
  private probedAt = Number.NEGATIVE_INFINITY;
  /** The highest position that is known. */
  head = 0;
  private readonly asking: Retry;
  private readonly wanting: Retry;

  constructor(
    private group: Group,
    readonly m: number,
    private readonly host: ReplicaShardHost,
  ) {
    this.asking = new Retry({ waitMs: host.policy.retryMs });
    this.wanting = new Retry({ waitMs: host.policy.retryMs });
  }

  get g(): number {
    return this.group.id;
  }

  get pool(): number {
    return this.group.pool;
  }

  private get entry(): DataEntry {
    return this.group.data[this.m]!;
  }

  get owner(): number {
    return this.entry.node;
  }

  get isFilling(): boolean {
    return this.filling !== undefined || (this.needsFill && this.stream !== undefined);
  }

  /** The state that pulls are answered from. */
  get state(): ShardCopy | undefined {
    return this.serving;
  }

  /** Batches that are known of and not in `serving`. */
  get behind(): number {
    return this.serving ? Math.max(0, this.head - this.serving.seq) : this.head;
  }

  /** The map has changed. */
  onGroup(group: Group): void {
    const { gen } = this.entry;
    this.group = group;
    for (const copy of [this.serving, this.filling]) this.addTables(copy?.native);
    if (this.entry.gen !== gen) this.again();
  }

  onTables(): void {
    for (const copy of [this.serving, this.filling]) this.addTables(copy?.native);
  }

  /** Rule 47: the tables are gone. */
  dropTables(tables: readonly number[]): void {
    for (const copy of [this.serving, this.filling]) for (const id of tables) copy?.native.dropTable(id);
    this.filled();
  }

  private addTables(native: NativeShard | undefined): void {
    if (native) for (const table of this.host.tables(this.group.pool)) native.addTable(table);
  }

  /** The stream is asked for anew, at once: of another owner, or after a connection was lost. */
  again(): void {
    this.stream = undefined;
    this.asking.reset();
    this.ask();
  }

  private ask(): void {
    const { host, entry } = this;
    if (entry.node === 0 || this.stream?.state === 'live' || !this.asking.overdue(host.now)) return;
    const have = this.needsFill ? undefined : (this.filling ?? this.serving);
    if (!have && !this.stream && !host.mayFill()) return;
    this.asking.asked(host.now);
    // A repeated question keeps its number: its answer may take longer than the time to the next repeat.
    const id = this.stream?.id ?? host.newId();
    this.stream = { id, gen: entry.gen, state: 'asked' };
    const { id: g, version: v } = this.group;
    const message = { t: 'follow' as const, g, m: this.m, gen: entry.gen, id, v };
    host.out.send(
      entry.node,
      have ? { ...message, have: [have.gen, have.trim, have.seq] as [number, number, number] } : message,
    );
  }

  /** The stream that a message is of; undefined: it is of an earlier one. */
  private live(id: number): ShardCopy | undefined {
    if (this.stream?.id !== id || this.stream.state !== 'live') return undefined;
    return this.filling ?? this.serving;
  }

  onFollowed(message: MessageOf<'followed'>): void {
    const { stream } = this;
    if (stream?.id !== message.id || stream.state !== 'asked') return;
    this.asking.answered(this.host.now);
    if (message.how === 'gone') {
      this.refill();
      return;
    }
    if (message.how === 'resumed') {
      (this.filling ?? this.serving)?.rollBack(stream.gen, message.base, this.own);
      // Answers of the earlier owner about its position do not hold for the stream of this owner.
      this.probedAt = Number.NEGATIVE_INFINITY;
      stream.state = 'live';
      this.head = message.base;
      const { gen } = stream;
      this.host.out.event('replica.resumed', { group: this.g, member: this.m, gen, seq: message.base });
      return;
    }
    // The owner may know a table that the next map has.
    if (message.extents.some(([table]) => !this.host.knows(table))) {
      this.refill();
      return;
    }
    const extents = message.extents.filter(([table]) => !this.host.leavesOut(table));
    stream.state = 'live';
    this.head = message.base;
    this.filling?.close();
    this.needsFill = false;
    const native = this.host.native.createShard(this.host.memory, this.m, this.group.data.length, 1);
    const { minFrequency = 0, maxAge = 0, maxAgeSeconds = 0 } = this.host.served;
    native.serve(minFrequency, maxAge, maxAgeSeconds);
    this.filling = new ShardCopy(native, this.host.deltas, stream.gen, message.base);
    this.addTables(native);
    takingForeign(() => {
      native.checkExtents(extents);
      for (const [table, , extent] of extents) native.adopt(table, extent);
    });
    this.filled();
    this.want();
  }

  /** The owner cannot resume the state that is here: all blocks are asked for again. */
  private refill(): void {
    this.filling?.close();
    this.filling = undefined;
    this.stream = undefined;
    this.needsFill = true;
    this.asking.reset();
  }

  /** The part of a delta that is of tables here: they may have become fewer since it came. */
  private readonly own = (delta: Uint8Array): Uint8Array =>
    selected(delta, (table) => !this.host.leavesOut(table));

  /** True: it was applied. */
  onDelta({ id, seq, committed }: MessageOf<'followDelta'>, delta: Uint8Array): boolean {
    const copy = this.live(id);
    if (!copy || seq <= copy.seq) return false;
    this.head = Math.max(this.head, seq);
    if (seq > copy.seq + 1 || !copy.apply(seq, this.own(delta), committed)) {
      // A batch was lost, or is of a table that the next map has.
      this.stream = undefined;
      return false;
    }
    return true;
  }

  /** Content is exact only at the position where the copy is. */
  onContent(
    { id, seq, servedRatio }: MessageOf<'followContent'>,
    blocks: Uint8Array,
    content: Uint8Array,
  ): void {
    const { filling } = this;
    if (!filling || this.live(id) !== filling || seq !== filling.seq) return;
    const list = words(blocks);
    // Rule 47: it was wanted before a table was dropped.
    for (let i = 0; i < list.length; i += 2) if (this.host.leavesOut(list[i]! >>> 1)) return;
    takingForeign(() => filling.native.install(list, content));
    this.wanting.reset();
    this.filled();
    if (servedRatio === undefined || servedRatio >= BUSY_RATIO) this.want();
  }

  private filled(): void {
    const { filling } = this;
    if (!filling?.complete) return;
    this.serving?.close();
    this.serving = filling;
    this.filling = undefined;
    // Answers about the old state do not hold for the new one.
    this.probedAt = Number.NEGATIVE_INFINITY;
    this.host.out.event('replica.filled', {
      group: this.g,
      member: this.m,
      gen: filling.gen,
      seq: filling.seq,
    });
  }

  private want(): void {
    const { filling, host, stream } = this;
    if (!filling || stream?.state !== 'live' || !this.wanting.overdue(host.now)) return;
    const kind = filling.native.absentKeyBlocks > 0 ? 0 : 1;
    const blocks = filling.native.nextAbsent(kind, host.policy.fillBlocks);
    if (blocks.length === 0) return;
    this.wanting.asked(host.now);
    const { id, gen } = stream;
    host.out.send(this.owner, { t: 'followWant', g: this.g, m: this.m, gen, id }, [bytes(blocks)]);
  }

  get streamId(): number | undefined {
    return this.stream?.id;
  }

  /** For a probe: the stream and the position here. */
  position(): [id: number, applied: number] | undefined {
    const { stream } = this;
    if (!stream) return undefined;
    return [stream.id, this.live(stream.id)?.seq ?? 0];
  }

  /**
   * The owner was asked for its position at the time `at`. `seq`: the answer; undefined: the owner does not
   * send this stream any more. `upTo`: the newest stream that this replica had asked for by then.
   */
  onProbed(at: number, seq: number | undefined, upTo: number): void {
    const { stream } = this;
    if (!stream || stream.id > upTo) return;
    if (stream.state === 'asked') {
      // The owner sends this stream, and its `followed` came before this answer if it was not lost.
      if (seq !== undefined) this.stream = undefined;
      return;
    }
    const copy = this.filling ?? this.serving;
    if (seq === undefined || !copy || copy.seq < seq) {
      // The owner has forgotten this replica, or batches were lost. They cannot be on their way, because a
      // batch that was sent before the answer arrives before it.
      this.stream = undefined;
      return;
    }
    if (copy !== this.serving) return;
    this.probedAt = Math.max(this.probedAt, at);
    this.refresh();
  }

  /**
   * `serving` has everything that was acknowledged before the older of two moments: the moment when its owner
   * was asked for its position, and the moment when the map, by which the owner is still the owner, was known
   * to be the newest.
   */
  refresh(): void {
    if (this.serving?.gen !== this.entry.gen) return;
    this.freshAt = Math.max(this.freshAt, Math.min(this.probedAt, this.host.mapAt));
  }

  tick(): void {
    this.ask();
    this.want();
  }

  close(): void {
    this.serving?.close();
    this.filling?.close();
    this.serving = this.filling = this.stream = undefined;
  }
}

/**
 * The owner of a data shard: applies pushes, emits one ordered stream of deltas to every sink of the shard, and counts a
 * push as durable when every sink has its delta (rules 7-11). A new owner first agrees with all sinks on a common position
 * (rules 19-21, takeover.ts), then serves while lost blocks are decoded on demand and in the background (recovery.ts).
 */
import { type BlockList, type Extent, type NativeShard, PushStatus } from '../native.js';
import type { ClusterMap, DataEntry, Group, PeerId, SinkEntry, TableSpec } from '../protocol/map.js';
import { SCHEDULER, tablesOf } from '../protocol/map.js';
import type { MessageOf, PushId, RecoveryStats, Refusal } from '../protocol/messages.js';
import { Dedup } from './dedup.js';
import { bytes, type CoreHost, words } from './effects.js';
import { PushLines } from './lines.js';
import { ParkedPulls } from './pulls.js';
import { Recovery } from './recovery.js';
import { agreedBase, mergeExtents } from './takeover.js';

export type Phase = 'FENCE' | 'START' | 'ACTIVE';

/** What an owner knows of one sink on its stream. */
export interface Follower {
  entry: SinkEntry;
  /** silent: nothing known; opened: it promised; starting: Start sent; started: it follows our generation. */
  state: 'silent' | 'opened' | 'starting' | 'started';
  /** It had no stream of this shard when it promised. */
  none: boolean;
  /** Its position when it promised. */
  applied: number;
  dedup: Dedup | undefined;
  extents: Extent[];
  /** Everything up to here it has acknowledged to us. */
  acked: number;
  /** Where its stream starts (new sinks). */
  base: number;
  sentAt: number;
  /** When it last moved on, or was not behind. */
  movedAt: number;
  reportedAt: number;
}

interface Batch {
  seq: number;
  delta: Uint8Array;
  ids: PushId[];
}

const REFUSALS: Record<number, Refusal> = {
  [PushStatus.UNKNOWN_TABLE]: 'UNKNOWN_TABLE',
  [PushStatus.DIM_MISMATCH]: 'DIM_MISMATCH',
  [PushStatus.KEY_RESERVED]: 'KEY_RESERVED',
  [PushStatus.MEMORY_LIMIT]: 'MEMORY_LIMIT',
  [PushStatus.BAD_FRAME]: 'BAD_FRAME',
};

/** What the node lends to its owners. */
export interface OwnerHost extends CoreHost {
  /** Acknowledgements of a step are collected into one message per client. */
  acknowledge(client: PeerId, g: number, m: number, cseq: number, refused?: Refusal): void;
  /** Rows of one item of a pull; items of a step are collected into one message per pull. */
  answer(client: PeerId, id: number, item: number, rows: Uint8Array): void;
  /** The owner has an open batch: flush it at the end of the tick. */
  markDirty(owner: Owner): void;
}

export class Owner {
  readonly gen: number;
  phase: Phase;
  private seq = 0;
  private committed = 0;
  /** De-duplication at the head and at the committed position. */
  private head = new Dedup();
  private committedDedup = new Dedup();
  private buffer: Batch[] = [];
  private bufferBytes = 0;
  private openIds: PushId[] = [];
  /** When each client was last told of a gap. */
  private readonly gapAt = new Map<PeerId, number>();
  readonly followers = new Map<number, Follower>();
  private readonly lines: PushLines;
  private readonly pulls: ParkedPulls;
  private readonly recovery: Recovery;
  private tables: TableSpec[] = [];
  private announced = { keys: false, whole: false };

  constructor(
    public group: Group,
    readonly member: number,
    private readonly entry: DataEntry,
    readonly native: NativeShard,
    private readonly host: OwnerHost,
  ) {
    this.gen = entry.gen;
    this.phase = entry.init ? 'ACTIVE' : 'FENCE';
    this.lines = new PushLines(host.policy);
    this.pulls = new ParkedPulls(native, host);
    this.recovery = new Recovery(this, host);
    if (entry.init) this.announced = { keys: true, whole: true };
  }

  get present(): boolean {
    return this.phase === 'ACTIVE' && this.native.absentKeyBlocks === 0 && this.native.absentRowBlocks === 0;
  }

  /** Rule 11 and 17: the set of sinks follows the map; recoveries of an older version are void. */
  onGroup(group: Group, map: ClusterMap): void {
    const changed = group.version !== this.group.version;
    this.group = group;
    this.tables = tablesOf(map, group);
    if (this.phase === 'ACTIVE') for (const table of this.tables) this.native.addTable(table);
    const wanted = new Map(
      group.sinks.filter((s) => s.kind === 'P' || s.index === this.member).map((s) => [s.sid, s]),
    );
    for (const sid of this.followers.keys()) if (!wanted.has(sid)) this.followers.delete(sid);
    for (const entry of wanted.values()) {
      const known = this.followers.get(entry.sid);
      if (known) known.entry = entry;
      else this.followers.set(entry.sid, this.newFollower(entry));
    }
    if (changed) this.recovery.restart();
    this.drive();
    if (this.phase === 'ACTIVE') this.serveWaiting();
  }

  close(): void {
    this.native.close();
  }

  // ---- pushes (rule 7)

  onPush(client: PeerId, cseq: number, section: Uint8Array): void {
    if (this.phase !== 'ACTIVE' || this.lines.waiting(client)) this.lines.hold(client, cseq, section);
    else if (this.offer(client, cseq, section) === 'wait') this.lines.hold(client, cseq, section);
    if (this.recovery.unrecoverable) this.giveUp();
  }

  /** Applies a push, or answers it, or says that it has to wait in its client's line. */
  private offer(client: PeerId, cseq: number, section: Uint8Array): 'done' | 'wait' | 'gap' {
    const last = this.head.last(client);
    if (cseq <= last) {
      if (cseq <= this.committedDedup.last(client)) {
        this.host.acknowledge(
          client,
          this.group.id,
          this.member,
          cseq,
          this.committedDedup.refusal(client, cseq),
        );
      }
      return 'done';
    }
    if (cseq > last + 1) {
      this.tellGap(client, last + 1);
      return 'gap';
    }
    const { maxUncommittedBytes, requireRedundancy } = this.host.policy;
    if (this.bufferBytes > maxUncommittedBytes || (requireRedundancy && this.followers.size === 0))
      return 'wait';
    const status = this.native.push(section);
    if (status === PushStatus.ABSENT) {
      this.recovery.demand(this.native.missing());
      return 'wait';
    }
    const id: PushId =
      status === PushStatus.APPLIED ? [client, cseq] : [client, cseq, REFUSALS[status] ?? 'INTERNAL'];
    this.head.record(id);
    this.openIds.push(id);
    this.host.markDirty(this);
    return 'done';
  }

  /** Once per retry time: a client answers by sending everything again. */
  private tellGap(client: PeerId, expected: number): void {
    const { now, policy, out } = this.host;
    if (this.recovery.unrecoverable || now - (this.gapAt.get(client) ?? -Infinity) < policy.retryMs / 4)
      return;
    this.gapAt.set(client, now);
    out.send(client, { t: 'gap', g: this.group.id, m: this.member, expected });
  }

  /** Pushes and pulls that waited for this shard, for blocks, or for acknowledgements to make room. */
  private serveWaiting(): void {
    if (this.phase !== 'ACTIVE') return;
    for (const client of this.lines.clients()) {
      for (let held = this.lines.first(client); held; held = this.lines.first(client)) {
        const result = this.offer(client, held.cseq, held.section);
        if (result === 'wait') break;
        if (result === 'gap') this.lines.drop(client);
        else this.lines.shift(client);
      }
    }
    this.pulls.serve((blocks) => this.recovery.demand(blocks));
  }

  /** Rule 8: one atomic delta for everything since the last flush, to every started sink. */
  flush(): void {
    if (this.phase !== 'ACTIVE' || (this.openIds.length === 0 && !this.native.dirty)) return;
    const batch: Batch = { seq: ++this.seq, delta: this.native.flush(), ids: this.openIds };
    this.openIds = [];
    this.buffer.push(batch);
    this.bufferBytes += batch.delta.byteLength;
    for (const follower of this.followers.values()) {
      if (follower.state === 'starting' || follower.state === 'started') this.sendDelta(follower, batch);
    }
    this.commit();
  }

  /** Rule 9: durable is what all sinks of the newest map known have. */
  private commit(): void {
    if (this.phase !== 'ACTIVE') return;
    let durable = this.seq;
    for (const follower of this.followers.values()) durable = Math.min(durable, follower.acked);
    let count = 0;
    for (const batch of this.buffer) {
      if (batch.seq > durable) break;
      this.committed = batch.seq;
      this.bufferBytes -= batch.delta.byteLength;
      for (const id of batch.ids) {
        this.committedDedup.record(id);
        this.host.acknowledge(id[0], this.group.id, this.member, id[1], id[2]);
      }
      count++;
    }
    if (count === 0) return;
    this.buffer.splice(0, count);
    if (this.lines.any) this.serveWaiting();
  }

  // ---- pulls

  onPull(client: PeerId, id: number, item: number, section: Uint8Array): void {
    if (this.phase === 'ACTIVE') {
      const rows = this.native.pull(section);
      if (typeof rows !== 'number') {
        this.pulls.answer(client, id, item, rows);
        return;
      }
      if (rows !== PushStatus.ABSENT) {
        this.pulls.reject(client, id, item, REFUSALS[rows] ?? 'INTERNAL');
        return;
      }
      this.recovery.demand(this.native.missing());
    }
    if (this.recovery.unrecoverable) this.pulls.reject(client, id, item, 'UNRECOVERABLE');
    else this.pulls.park(client, id, item, section);
  }

  // ---- streams

  private newFollower(entry: SinkEntry): Follower {
    const bornTogether = this.entry.init && entry.init;
    return {
      entry,
      state: bornTogether ? 'started' : 'silent',
      none: !bornTogether,
      applied: 0,
      dedup: undefined,
      extents: [],
      acked: bornTogether ? 0 : -1,
      base: 0,
      sentAt: Number.NEGATIVE_INFINITY,
      movedAt: this.host.now,
      reportedAt: Number.NEGATIVE_INFINITY,
    };
  }

  /** Moves every follower and the take-over as far as they can go now. */
  drive(): void {
    if (this.phase === 'FENCE') this.fence();
    if (this.phase === 'START') this.start();
    if (this.phase !== 'ACTIVE') return;
    for (const follower of this.followers.values()) {
      if (follower.state === 'silent' || follower.state === 'opened') {
        // Rule 10: a sink that is new to us counts for acknowledgement from now on.
        follower.base = this.committed;
        follower.acked = this.committed;
        this.sendStart(follower, true);
      } else if (this.behind(follower) && this.host.now - follower.sentAt > this.host.policy.retryMs) {
        this.sendOpen(follower);
      }
    }
    this.commit();
  }

  private behind(follower: Follower): boolean {
    return follower.state === 'starting' || follower.acked < this.seq;
  }

  /** Rule 19. */
  private fence(): void {
    let complete = true;
    for (const follower of this.followers.values()) {
      if (follower.state !== 'silent') continue;
      complete = false;
      if (this.host.now - follower.sentAt > this.host.policy.retryMs) this.sendOpen(follower);
    }
    if (!complete) return;
    const base = agreedBase(this.followers.values());
    if (base === undefined) {
      this.recovery.report('no sink has this shard', 0);
      return;
    }
    this.seq = this.committed = base;
    this.phase = 'START';
    for (const follower of this.followers.values()) follower.base = base;
  }

  /**
   * Rules 20 and 21. A sink that the map added meanwhile is not waited for: it is younger than this generation, so it can
   * have nothing of the shard, and gets its Start as a new one once we are active.
   */
  private start(): void {
    let complete = true;
    let source: Dedup | undefined;
    for (const follower of this.followers.values()) {
      if (follower.none || follower.state === 'silent') continue;
      if (follower.state === 'started') source = follower.dedup ?? source;
      else {
        complete = false;
        const due = follower.state === 'opened' || this.host.now - follower.sentAt > this.host.policy.retryMs;
        if (due) this.sendStart(follower, false);
      }
    }
    if (!complete) return;
    if (!source) {
      this.recovery.report('the sinks that had this shard are gone', 0);
      return;
    }
    this.activate(source);
  }

  private activate(source: Dedup): void {
    this.phase = 'ACTIVE';
    this.head = source.copy();
    this.committedDedup = source;
    for (const table of this.tables) this.native.addTable(table);
    for (const [table, , extent] of mergeExtents(this.followers.values())) this.native.adopt(table, extent);
    for (const follower of this.followers.values()) {
      if (follower.state === 'started') follower.acked = Math.max(follower.acked, this.committed);
    }
    this.recovery.begin();
    this.host.out.event('shard.active', {
      group: this.group.id,
      member: this.member,
      gen: this.gen,
      base: this.committed,
    });
    this.progress();
    this.serveWaiting();
  }

  onOpenAck(message: MessageOf<'openAck'>): void {
    const follower = this.followers.get(message.sid);
    if (!follower) return;
    if (this.phase === 'FENCE') {
      if (follower.state !== 'silent') return;
      follower.state = 'opened';
      follower.none = message.none;
      follower.applied = message.applied;
      this.drive();
      return;
    }
    if (this.phase !== 'ACTIVE' || follower.state === 'silent' || follower.state === 'opened') return;
    if (message.sgen !== this.gen) {
      // It has not seen our Start; an old promise that comes late says nothing about a sink that has.
      if (follower.state === 'starting') this.sendStart(follower, true);
      return;
    }
    follower.state = 'started';
    this.acknowledged(follower, message.applied);
    for (const batch of this.buffer) if (batch.seq > message.applied) this.sendDelta(follower, batch);
  }

  onStartAck(message: MessageOf<'startAck'>): void {
    const follower = this.followers.get(message.sid);
    if (follower?.state !== 'starting') return;
    follower.state = 'started';
    if (this.phase === 'START') {
      follower.acked = message.applied;
      follower.dedup = Dedup.from(message.dedup);
      follower.extents = message.extents;
      this.drive();
    } else this.acknowledged(follower, message.applied);
  }

  onApplied(message: MessageOf<'applied'>): void {
    const follower = this.followers.get(message.sid);
    if (follower && this.phase === 'ACTIVE') this.acknowledged(follower, message.applied);
  }

  private acknowledged(follower: Follower, applied: number): void {
    if (applied <= follower.acked) return;
    follower.acked = applied;
    follower.movedAt = follower.sentAt = this.host.now;
    this.commit();
  }

  /** Rule 11: a connection came back; find out what the sink has and resend the rest. */
  onPeerUp(node: PeerId): void {
    for (const follower of this.followers.values()) {
      if (follower.entry.node === node && this.phase === 'ACTIVE' && this.behind(follower))
        this.sendOpen(follower);
      else if (follower.entry.node === node && follower.state === 'silent')
        follower.sentAt = Number.NEGATIVE_INFINITY;
    }
    this.drive();
  }

  private sendOpen(follower: Follower): void {
    follower.sentAt = this.host.now;
    const { id: g, version: v } = this.group;
    this.host.out.send(follower.entry.node, {
      t: 'open',
      g,
      m: this.member,
      sid: follower.entry.sid,
      gen: this.gen,
      v,
    });
  }

  /** Start of a stream at the follower's base; `fresh`: for an empty sink, with everything after it right behind. */
  private sendStart(follower: Follower, fresh: boolean): void {
    follower.state = 'starting';
    follower.sentAt = this.host.now;
    this.host.out.send(follower.entry.node, {
      t: 'start',
      g: this.group.id,
      m: this.member,
      sid: follower.entry.sid,
      gen: this.gen,
      v: this.group.version,
      base: follower.base,
      dedup: fresh ? this.committedDedup.entries() : [],
      // At the head, not at the base: blocks in between count as not included and are fetched as content.
      extents: fresh ? this.native.extents() : [],
    });
    if (fresh)
      for (const batch of this.buffer) if (batch.seq > follower.base) this.sendDelta(follower, batch);
  }

  private sendDelta(follower: Follower, batch: Batch): void {
    const { seq, ids, delta } = batch;
    follower.sentAt = this.host.now;
    this.host.out.send(
      follower.entry.node,
      {
        t: 'delta',
        g: this.group.id,
        m: this.member,
        sid: follower.entry.sid,
        gen: this.gen,
        seq,
        ids,
        committed: this.committed,
      },
      [delta],
    );
  }

  // ---- content and recovery

  /** Rule 18: flush first, so that content is the state exactly after delta `seq`. */
  onWant(message: MessageOf<'want'>, blocks: Uint8Array, from: PeerId): void {
    if (this.phase !== 'ACTIVE') return;
    const follower = this.followers.get(message.sid);
    if (!follower || follower.state === 'silent' || follower.state === 'opened') return;
    const list = words(blocks);
    // The sink may have heard of a table before we did; it asks again.
    if (!this.knowsTablesOf(list)) return;
    this.flush();
    const { present, bytes: content, lacking } = this.native.read(list);
    const stream = { g: this.group.id, m: this.member, sid: message.sid, gen: this.gen, seq: this.seq };
    if (present.length > 0) this.host.out.send(from, { t: 'content', ...stream }, [bytes(present), content]);
    if (lacking.length === 0) return;
    // What a mirror here still holds is not lacking in the group: it is taken over now, and the sink asks again.
    if (this.usableMirror) this.recovery.demand(lacking);
    else this.host.out.send(from, { t: 'lacking', ...stream, v: message.v }, [bytes(lacking)]);
  }

  private knowsTablesOf(blocks: BlockList): boolean {
    const newest = this.tables.at(-1)?.id ?? 0;
    for (let i = 0; i < blocks.length; i += 2) if (blocks[i]! >>> 1 > newest) return false;
    return true;
  }

  onEquation(message: MessageOf<'equation'>, blocks: Uint8Array, content: Uint8Array): void {
    if (this.phase !== 'ACTIVE' || message.gen !== this.gen || message.v !== this.group.version) return;
    this.recovery.onEquation(message, words(blocks), content);
    this.progress();
  }

  /** Rule 25: another new owner solved blocks of ours, too. */
  onInstall(blocks: Uint8Array, content: Uint8Array): void {
    if (this.phase !== 'ACTIVE') return;
    this.recovery.onInstall(words(blocks), content);
    this.progress();
  }

  sendRecover(follower: Follower, blocks: BlockList): void {
    this.host.out.send(
      follower.entry.node,
      {
        t: 'recover',
        g: this.group.id,
        m: this.member,
        sid: follower.entry.sid,
        gen: this.gen,
        seq: this.seq,
        v: this.group.version,
        extents: this.native.extents(),
      },
      [bytes(blocks)],
    );
  }

  /** Tells of milestones once, and lets waiting requests go on. */
  private progress(): void {
    const where = { group: this.group.id, member: this.member, gen: this.gen };
    if (!this.announced.keys && this.native.keysReady) {
      this.announced.keys = true;
      this.host.out.event('shard.keysReady', where);
    }
    if (!this.announced.whole && this.present) {
      this.announced.whole = true;
      this.host.out.event('shard.whole', { ...where, ...this.recovery.stats() });
    }
    if (this.lines.any || this.pulls.any) this.serveWaiting();
  }

  recoveryStats(): RecoveryStats | undefined {
    if (this.entry.init) return undefined;
    return { g: this.group.id, m: this.member, gen: this.gen, ...this.recovery.stats() };
  }

  /** A sink that does not answer holds up every acknowledgement: the scheduler can give us another. */
  private reportStalled(): void {
    const { now, policy } = this.host;
    for (const follower of this.followers.values()) {
      const waiting =
        this.phase === 'ACTIVE' ? this.behind(follower) : follower.state !== 'started' && !follower.none;
      if (!waiting) follower.movedAt = now;
      if (now - Math.max(follower.movedAt, follower.reportedAt) <= policy.sinkStallMs) continue;
      follower.reportedAt = now;
      const { id: g, version: v } = this.group;
      const { sid, node } = follower.entry;
      this.host.out.send(SCHEDULER, { t: 'stalled', g, m: this.member, sid, gen: this.gen, v });
      this.host.out.event('sink.stalled', { group: g, member: this.member, sid, node });
    }
  }

  tick(): void {
    this.flush();
    this.drive();
    this.reportStalled();
    this.pulls.expire();
    if (this.phase === 'ACTIVE') {
      this.recovery.tick();
      this.progress();
      if (this.lines.any) this.serveWaiting();
    }
  }

  /** Fails what waits when the shard is beyond repair in this version of its group. */
  giveUp(): void {
    this.pulls.rejectAll('UNRECOVERABLE');
    for (const client of this.lines.clients()) {
      this.lines.drop(client);
      this.host.out.send(client, { t: 'lost', g: this.group.id, m: this.member });
    }
  }

  /** The scheduler agrees that in the newest version of the group too few members are left. */
  onConfirmedLost(message: MessageOf<'confirmedLost'>): void {
    if (message.v === this.group.version) this.recovery.confirm();
  }

  /** Parities that had this shard when we took over: what can be decoded, they can decode. */
  get usableParities(): Follower[] {
    const byIndex = new Map<number, Follower>();
    for (const follower of this.followers.values()) {
      if (follower.entry.kind !== 'P' || follower.none) continue;
      const other = byIndex.get(follower.entry.index);
      // Of two sinks with one index the older one is complete: it is dropped only when the newer one is.
      if (!other || follower.entry.sid < other.entry.sid) byIndex.set(follower.entry.index, follower);
    }
    return [...byIndex.values()];
  }

  /** A mirror that had this shard when we took over: it needs nobody else to give a block. */
  get usableMirror(): Follower | undefined {
    for (const follower of this.followers.values())
      if (follower.entry.kind === 'M' && !follower.none) return follower;
    return undefined;
  }
}

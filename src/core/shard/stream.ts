/**
 * The stream of one ownership: agrees with all sinks on where it starts (rules 19-21), then emits numbered
 * batches to each of them, keeps what is not acknowledged everywhere, and knows what is durable (rules 8-11).
 */
import { invariant, KintsugiError } from '../../errors.js';
import type { Extent } from '../../native.js';
import { type Group, type PeerId, SCHEDULER, type SinkEntry } from '../../protocol/map.js';
import type { MessageOf, StreamId } from '../../protocol/messages.js';
import { Dedup } from '../shared/dedup.js';
import type { CoreHost } from '../shared/host.js';
import { type Follower, newFollower } from './follower.js';
import type { ReadBatch } from './readers.js';
import { agreedBase, mergeExtents, oldestStream } from './takeover.js';

/** RESTORE: the shard is loaded from a checkpoint, and no sink has heard of it. */
export type Phase = 'RESTORE' | 'FENCE' | 'START' | 'ACTIVE';

interface Batch {
  seq: number;
  delta: Uint8Array;
  ids: StreamId[];
  /** When it was closed, by the clock of `Meter`. */
  at: number;
}

/** Whose stream it is, and whom it tells. */
export interface StreamOwner {
  readonly group: Group;
  readonly member: number;
  readonly gen: number;
  /** The shard was made with its group, empty: there is nothing to take over. */
  readonly born: boolean;
  /** It is to be loaded from a checkpoint: there is nothing to take over either. */
  readonly restores: boolean;
  extents(): Extent[];
  /** @throws BAD_FRAME when the shard cannot have had these extents */
  checkExtents(extents: readonly Extent[]): void;
  /** All sinks have agreed on this state: the owner serves from here. */
  activated(dedup: Dedup, extents: Extent[]): void;
  /** A batch has left to the sinks. */
  appended(batch: ReadBatch): void;
  /** These pushes, and ends of sessions, are durable. */
  committed(ids: readonly StreamId[]): void;
  /** No sink has the shard. */
  lost(reason: string): void;
}

export class Stream {
  phase: Phase;
  /** Position of the newest batch. */
  seq = 0;
  /** De-duplication at the committed position. */
  committedDedup = new Dedup();
  bufferBytes = 0;
  readonly followers = new Map<number, Follower>();
  /** Position of the newest batch that is durable. */
  committed = 0;
  /** The newest ownership before this one that was active, and the position that this one begins at. */
  before: { gen: number; base: number } | undefined;
  private buffer: Batch[] = [];
  /** When `reportStalled` last ran. */
  private lookedAt: number;

  constructor(
    private readonly owner: StreamOwner,
    private readonly host: CoreHost,
  ) {
    this.phase = owner.born ? 'ACTIVE' : owner.restores ? 'RESTORE' : 'FENCE';
    this.lookedAt = host.now;
  }

  private get group(): Group {
    return this.owner.group;
  }

  /** Rule 11: the set of sinks follows the map. */
  follow(sinks: readonly SinkEntry[]): void {
    const wanted = new Map(sinks.map((sink) => [sink.sid, sink]));
    for (const sid of this.followers.keys()) if (!wanted.has(sid)) this.followers.delete(sid);
    for (const entry of wanted.values()) {
      const known = this.followers.get(entry.sid);
      if (known) known.entry = entry;
      else
        this.followers.set(entry.sid, newFollower(entry, this.owner.born, this.host.policy, this.host.now));
    }
  }

  /** Rule 8: one atomic delta. A sink that has not answered its Start gets it when it does. */
  append(delta: Uint8Array, ids: StreamId[]): void {
    const batch: Batch = { seq: ++this.seq, delta, ids, at: this.host.meter.at };
    this.buffer.push(batch);
    this.addBytes(delta.byteLength);
    for (const follower of this.followers.values()) {
      if (follower.state === 'started') this.sendDelta(follower, batch);
    }
    this.owner.appended(batch);
    this.commit();
  }

  /** Batches above a position that are not committed yet. */
  uncommitted(above: number): ReadBatch[] {
    return this.buffer.filter(({ seq }) => seq > above);
  }

  private addBytes(bytes: number): void {
    this.bufferBytes += bytes;
    this.host.deltaBytes.addUncommitted(bytes);
  }

  /** The ownership is over. Clients send what was not committed to the next owner. */
  close(): void {
    this.addBytes(-this.bufferBytes);
    this.buffer = [];
  }

  /** The node of a sink has no room for more deltas. */
  get sinksAtLimit(): boolean {
    for (const follower of this.followers.values()) if (follower.atLimit) return true;
    return false;
  }

  /** Rule 9: durable is what all sinks of the newest map known have, of those that acknowledge. */
  private commit(): void {
    if (this.phase !== 'ACTIVE') return;
    let durable = this.seq;
    for (const follower of this.followers.values()) {
      if (follower.entry.acknowledges) durable = Math.min(durable, follower.acked);
    }
    let count = 0;
    const durableIds: StreamId[] = [];
    for (const batch of this.buffer) {
      if (batch.seq > durable) break;
      invariant(batch.seq === this.committed + 1, 'batches are committed in order, without gaps', {
        seq: batch.seq,
        committed: this.committed,
      });
      this.committed = batch.seq;
      this.addBytes(-batch.delta.byteLength);
      for (const id of batch.ids) this.committedDedup.append(id);
      this.host.meter.commit.add(this.host.meter.at - batch.at, batch.ids.length);
      durableIds.push(...batch.ids);
      count++;
    }
    if (count === 0) return;
    for (const { acked, entry } of this.followers.values())
      invariant(acked >= this.committed, 'what is committed is in every sink', { acked, sid: entry.sid });
    for (const batch of this.buffer.splice(0, count)) this.host.discard(batch.delta);
    this.owner.committed(durableIds);
  }

  /** Moves every follower and the take-over as far as they can go now. */
  drive(): void {
    if (this.phase === 'FENCE') this.fence();
    if (this.phase === 'START') this.start();
    if (this.phase !== 'ACTIVE') return;
    for (const follower of this.followers.values()) {
      if (follower.state === 'silent' || follower.state === 'opened') {
        // Rule 10: pushes from now on wait for the acknowledgement of a new sink.
        follower.base = this.committed;
        follower.acked = this.committed;
        this.sendStart(follower, true);
      } else if (!this.behind(follower)) follower.asking.answered(this.host.now);
      // New deltas to the sink do not postpone the question: a sink that missed one delta drops all later
      // ones.
      else if (follower.asking.overdue(this.host.now)) this.sendOpen(follower);
    }
    this.commit();
  }

  /**
   * The shard is loaded, and that is durable. The stream begins at position 0 without a take-over, and every
   * sink gets its Start as a new sink (rule 10). `dedup`: of the checkpoint.
   */
  begin(dedup: Dedup): void {
    this.phase = 'ACTIVE';
    this.committedDedup = dedup;
    this.drive();
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
      if (follower.asking.overdue(this.host.now)) this.sendOpen(follower);
    }
    if (!complete) return;
    const base = agreedBase(this.followers.values());
    if (base === undefined) {
      this.owner.lost('no sink has this shard');
      return;
    }
    this.seq = this.committed = base;
    // An ownership that was active had started all sinks, so the one that all of them follow is the newest.
    this.before = { gen: oldestStream(this.followers.values()), base };
    this.phase = 'START';
    for (const follower of this.followers.values()) follower.base = base;
  }

  /**
   * Rules 20 and 21. A sink that the map added meanwhile is not waited for: it is younger than this
   * generation, so it can have nothing of the shard, and gets its Start as a new one once we are active.
   */
  private start(): void {
    let complete = true;
    let source: Dedup | undefined;
    for (const follower of this.followers.values()) {
      if (follower.none || follower.state === 'silent') continue;
      if (follower.state === 'started') source = follower.dedup ?? source;
      else {
        complete = false;
        const due = follower.state === 'opened' || follower.asking.overdue(this.host.now);
        if (due) this.sendStart(follower, false);
      }
    }
    if (!complete) return;
    if (!source) {
      this.owner.lost('the sinks that had this shard are gone');
      return;
    }
    this.phase = 'ACTIVE';
    this.committedDedup = source;
    for (const follower of this.followers.values()) {
      if (follower.state === 'started') follower.acked = Math.max(follower.acked, this.committed);
    }
    this.owner.activated(source.copy(), mergeExtents(this.followers.values()));
  }

  onOpenAck(message: MessageOf<'openAck'>): void {
    const follower = this.followers.get(message.sid);
    if (!follower) return;
    if (this.phase === 'FENCE') {
      if (follower.state !== 'silent') return;
      follower.state = 'opened';
      this.moved(follower);
      follower.none = message.none;
      follower.applied = message.applied;
      follower.sgen = message.sgen;
      this.drive();
      return;
    }
    if (this.phase !== 'ACTIVE' || follower.state === 'silent' || follower.state === 'opened') return;
    const follows = message.sgen === this.owner.gen;
    if (follows) this.checkPosition(message.applied);
    if (message.attempt <= follower.coveredAttempt) {
      if (follows && follower.state === 'started') this.acknowledged(follower, message.applied);
    } else if (follows) this.resume(follower, message.applied);
    // The sink follows another generation, so it did not get the Start. A sink that has started is sent none:
    // its answer is of an older Open.
    else if (follower.state === 'starting') this.sendStart(follower, true);
  }

  /** It follows our generation and is at `applied`: it gets what comes after that. */
  private resume(follower: Follower, applied: number): void {
    follower.state = 'started';
    follower.coveredAttempt = follower.attempt;
    follower.asking.asked(this.host.now);
    this.acknowledged(follower, applied);
    for (const batch of this.buffer) if (batch.seq > applied) this.sendDelta(follower, batch);
  }

  onStartAck(message: MessageOf<'startAck'>): void {
    const follower = this.followers.get(message.sid);
    if (follower?.state !== 'starting') return;
    this.checkPosition(message.applied);
    this.owner.checkExtents(message.extents);
    this.moved(follower);
    if (this.phase === 'START') {
      follower.state = 'started';
      follower.acked = message.applied;
      follower.dedup = Dedup.from(message.dedup);
      follower.extents = message.extents;
      this.drive();
    } else this.resume(follower, message.applied);
  }

  /** A sink that follows us has at most what we have sent. @throws BAD_FRAME */
  private checkPosition(applied: number): void {
    if (applied > this.seq)
      throw new KintsugiError('BAD_FRAME', `a sink is at position ${applied} of a stream of ${this.seq}`);
  }

  /** For the log. */
  state(): Record<string, unknown> {
    const { phase, seq, committed, bufferBytes } = this;
    const sinks = [...this.followers.values()].map(({ entry, state, acked }) => [entry.sid, state, acked]);
    return { phase, seq, committed, bufferBytes, sinks };
  }

  onApplied(message: MessageOf<'applied'>): void {
    const follower = this.followers.get(message.sid);
    if (!follower || this.phase !== 'ACTIVE') return;
    this.checkPosition(message.applied);
    follower.atLimit = message.atLimit === true;
    this.acknowledged(follower, message.applied);
  }

  private acknowledged(follower: Follower, applied: number): void {
    if (applied <= follower.acked) return;
    follower.acked = applied;
    this.moved(follower);
    this.commit();
  }

  private moved(follower: Follower): void {
    follower.asking.answered(this.host.now);
    follower.stall.answered(this.host.now);
  }

  /** Rule 11: a connection came back; find out what the sink has and resend the rest. */
  onPeerUp(node: PeerId): void {
    for (const follower of this.followers.values()) {
      // The committed position that it was told may not have arrived.
      if (follower.entry.node === node) follower.told = 0;
      if (follower.entry.node === node && this.phase === 'ACTIVE' && this.behind(follower))
        this.sendOpen(follower);
      else if (follower.entry.node === node && follower.state === 'silent') follower.asking.reset();
    }
    this.drive();
  }

  private sendOpen(follower: Follower): void {
    follower.asking.asked(this.host.now);
    follower.attempt++;
    const { id: g, version: v } = this.group;
    this.host.out.send(follower.entry.node, {
      t: 'open',
      g,
      m: this.owner.member,
      sid: follower.entry.sid,
      gen: this.owner.gen,
      v,
      attempt: follower.attempt,
    });
  }

  /** Start of a stream at the follower's base; `fresh`: for an empty sink. */
  private sendStart(follower: Follower, fresh: boolean): void {
    follower.state = 'starting';
    follower.asking.asked(this.host.now);
    follower.coveredAttempt = follower.attempt;
    this.host.out.send(follower.entry.node, {
      t: 'start',
      g: this.group.id,
      m: this.owner.member,
      sid: follower.entry.sid,
      gen: this.owner.gen,
      v: this.group.version,
      base: follower.base,
      dedup: fresh ? this.committedDedup.entries() : [],
      // The extents are those at the head, not at the base: blocks that only deltas above the base have
      // touched count as not included, and the sink fetches them as content.
      extents: fresh ? this.owner.extents() : [],
    });
  }

  private sendDelta(follower: Follower, batch: Batch): void {
    const { seq, ids, delta } = batch;
    this.told(follower);
    this.host.out.send(
      follower.entry.node,
      {
        t: 'delta',
        g: this.group.id,
        m: this.owner.member,
        sid: follower.entry.sid,
        gen: this.owner.gen,
        seq,
        ids,
        committed: this.committed,
      },
      [delta],
    );
  }

  private told(follower: Follower): void {
    follower.told = this.committed;
    follower.telling.asked(this.host.now);
  }

  /**
   * A sink keeps a log of deltas that are not committed. Without further deltas this message tells it that it
   * may trim the log.
   */
  tellCommitted(): void {
    if (this.phase !== 'ACTIVE') return;
    const { now, out } = this.host;
    for (const follower of this.followers.values()) {
      if (follower.state !== 'started' || follower.told >= this.committed) continue;
      if (!follower.telling.overdue(now)) continue;
      this.told(follower);
      const { sid, node } = follower.entry;
      const stream = { g: this.group.id, m: this.owner.member, sid, gen: this.owner.gen };
      out.send(node, { t: 'committed', ...stream, committed: this.committed });
    }
  }

  /** True if this phase cannot end without an answer of this sink. */
  private waitsFor(follower: Follower): boolean {
    if (this.phase === 'ACTIVE') return this.behind(follower);
    if (this.phase === 'FENCE') return follower.state === 'silent';
    return !follower.none && (follower.state === 'opened' || follower.state === 'starting');
  }

  /** Acknowledgements wait for every sink. One that does not answer is reported: it can be replaced. */
  reportStalled(): void {
    const { now, policy } = this.host;
    // This process did not run for a while (stopped, swapped out), so answers of sinks are not read yet.
    const slept = now - this.lookedAt > policy.sinkStallMs / 2;
    this.lookedAt = now;
    for (const follower of this.followers.values()) {
      if (slept || !this.waitsFor(follower)) follower.stall.answered(now);
      if (!follower.stall.overdue(now)) continue;
      follower.stall.asked(now);
      const { id: g, version: v } = this.group;
      const { sid, node } = follower.entry;
      this.host.out.send(SCHEDULER, { t: 'stalled', g, m: this.owner.member, sid, gen: this.owner.gen, v });
      this.host.out.event('sink.stalled', { group: g, member: this.owner.member, sid, node });
    }
  }

  /** Parities that had this shard at the take-over: lost blocks are decoded from these. */
  get usableParities(): Follower[] {
    const byIndex = new Map<number, Follower>();
    for (const follower of this.followers.values()) {
      const { protects, index, movesMember } = follower.entry;
      if (!protects || follower.none) continue;
      // The target of a move may be incomplete. The parity in use is dropped only when the target is
      // complete.
      if (movesMember === undefined || !byIndex.has(index)) byIndex.set(index, follower);
    }
    return [...byIndex.values()];
  }

  /** A mirror that had this shard at the take-over: it gives blocks without decoding. */
  get usableMirror(): Follower | undefined {
    for (const follower of this.followers.values())
      if (follower.entry.kind === 'M' && !follower.none) return follower;
    return undefined;
  }
}

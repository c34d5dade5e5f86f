/**
 * The stream of one ownership. First it agrees with all sinks on the position at which it starts: they
 * promise, then all go to the minimum of their positions (rules 19-21). Then it sends numbered batches to
 * each sink, keeps those that are not acknowledged everywhere, and knows which are durable (rules 8-11).
 */
import { invariant, KintsugiError } from '../../common/errors.js';
import { type Group, type PeerId, SCHEDULER, type SinkEntry } from '../../protocol/map.js';
import type { MessageOf, StreamId } from '../../protocol/messages.js';
import { Dedup } from '../shared/dedup.js';
import type { CoreHost } from '../shared/host.js';
import { type Follower, newFollower } from './follower.js';
import type { StreamOwner, StreamPhase } from './host.js';
import type { StreamBatch } from './replicas.js';
import { agreedBase, mergeExtents, oldestStream } from './takeover.js';

/** Rule 8: a batch is sent again as it was; nobody changes it. */
interface DeltaBatch {
  /** Position of the batch in the stream. */
  seq: number;
  delta: Uint8Array;
  /** The pushes of the batch, with ends of sessions and skips, in the order in which they were recorded. */
  ids: StreamId[];
  /** When the batch was flushed, by the clock of `Meter`. */
  at: number;
}

export class Stream {
  /**
   * FENCE, START, ACTIVE in this order; a restored shard goes from RESTORE to ACTIVE, a born one is ACTIVE.
   */
  phase: StreamPhase;
  /** Position of the newest batch; the base of the ownership before its first one. Each flush adds 1. */
  seq = 0;
  /** De-duplication state at `committed`. It has a push only when the push is durable. */
  committedDedup = new Dedup();
  /** Bytes of the deltas in `batches`; the account of the node (`deltaBytes`) contains them. */
  uncommittedBytes = 0;
  /** Sid -> sink of the shard. The sids are those of the newest map that the owner knows (rule 11). */
  readonly followers = new Map<number, Follower>();
  /** Position of the newest durable batch: never above `seq`, never decreases once active (rule 9). */
  committed = 0;
  /**
   * Generation of the newest ownership before this one that was active, and the position at which this one
   * begins. Undefined: no take-over, or not past FENCE yet.
   */
  before: { gen: number; base: number } | undefined;
  /** The batches from `committed` + 1 to `seq`, without gaps: kept to be sent again, then discarded. */
  private batches: DeltaBatch[] = [];
  /** When `reportStalled` last ran, in milliseconds. */
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

  /** Sets the followers to the sinks of a new map: commits wait for these and no others (rule 9). */
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

  /**
   * Rule 8: a flush makes one numbered batch, which is sent to every started sink. Rule 11: a sink that has
   * not answered its Start gets the batch when it does.
   */
  append(delta: Uint8Array, ids: StreamId[]): void {
    const batch: DeltaBatch = { seq: ++this.seq, delta, ids, at: this.host.meter.at };
    this.batches.push(batch);
    this.addBytes(delta.byteLength);
    for (const follower of this.followers.values()) {
      if (follower.state === 'started') this.sendDelta(follower, batch);
    }
    this.owner.appended(batch);
    this.commit();
  }

  /** Uncommitted batches above a position. */
  uncommitted(above: number): StreamBatch[] {
    return this.batches.filter(({ seq }) => seq > above);
  }

  private addBytes(bytes: number): void {
    this.uncommittedBytes += bytes;
    this.host.deltaBytes.addUncommitted(bytes);
  }

  /** The ownership is over. Clients send what was not committed to the next owner. */
  close(): void {
    this.addBytes(-this.uncommittedBytes);
    this.batches = [];
  }

  /** The node of a sink has no room for more deltas. */
  get sinksAtLimit(): boolean {
    for (const follower of this.followers.values()) if (follower.atLimit) return true;
    return false;
  }

  /** Rule 9: a batch is durable when every sink that acknowledges has it, by the newest map that is known. */
  private commit(): void {
    if (this.phase !== 'ACTIVE') return;
    let durable = this.seq;
    for (const follower of this.followers.values()) {
      if (follower.entry.acknowledges) durable = Math.min(durable, follower.acked);
    }
    let count = 0;
    const durableIds: StreamId[] = [];
    for (const batch of this.batches) {
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
    for (const batch of this.batches.splice(0, count)) this.host.discard(batch.delta);
    this.owner.committed(durableIds);
  }

  /** Moves every follower and the take-over as far as they can go now. */
  drive(): void {
    if (this.phase === 'FENCE') this.fence();
    if (this.phase === 'START') this.start();
    if (this.phase !== 'ACTIVE') return;
    for (const follower of this.followers.values()) {
      if (follower.state === 'silent' || follower.state === 'opened') {
        // Rule 10: a new sink starts at the committed position, and commits wait for it from now on.
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
   * Begins the stream of a shard that is loaded, durably: at position 0, without a take-over (rule 37). Every
   * sink gets its Start as a new sink. `dedup`: the de-duplication state of the checkpoint.
   */
  begin(dedup: Dedup): void {
    this.phase = 'ACTIVE';
    this.committedDedup = dedup;
    this.drive();
  }

  private behind(follower: Follower): boolean {
    return follower.state === 'starting' || follower.acked < this.seq;
  }

  /** Rule 19: waits for the promises of all sinks. The base is the minimum of their positions. */
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
   * Rules 20 and 21: waits until all sinks that promised are at the base; then the owner is active, and no
   * block is present. A sink that the map added meanwhile is not waited for: it is younger than this
   * generation, so it has nothing of the shard, and gets its Start as a new sink once we are active.
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

  /** The sink follows our generation and is at `applied`: it gets the batches above. */
  private resume(follower: Follower, applied: number): void {
    follower.state = 'started';
    follower.coveredAttempt = follower.attempt;
    follower.asking.asked(this.host.now);
    this.acknowledged(follower, applied);
    for (const batch of this.batches) if (batch.seq > applied) this.sendDelta(follower, batch);
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
    const { phase, seq, committed, uncommittedBytes } = this;
    const sinks = [...this.followers.values()].map(({ entry, state, acked }) => [entry.sid, state, acked]);
    return { phase, seq, committed, uncommittedBytes, sinks };
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

  /** Notes a sign that the sink moved on. */
  private moved(follower: Follower): void {
    follower.asking.answered(this.host.now);
    follower.stall.answered(this.host.now);
  }

  /** Rule 11: after a reconnect, Open asks for the sink's position, and the batches above it are resent. */
  onPeerUp(node: PeerId): void {
    for (const follower of this.followers.values()) {
      // The newest committed position may not have arrived.
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

  /** Sends the Start of the stream at the follower's base; `fresh`: to an empty sink. */
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

  private sendDelta(follower: Follower, batch: DeltaBatch): void {
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

  /** True if the take-over, or a commit, cannot go on without an answer of this sink. */
  private waitsFor(follower: Follower): boolean {
    if (this.phase === 'ACTIVE') return this.behind(follower);
    if (this.phase === 'FENCE') return follower.state === 'silent';
    return !follower.none && (follower.state === 'opened' || follower.state === 'starting');
  }

  /** Acknowledgements wait for every sink. A sink that does not answer is reported: it can be replaced. */
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
      const stream = { g, m: this.owner.member, sid, gen: this.owner.gen };
      const forMs = Math.round(follower.stall.quietMs(now));
      this.host.out.send(SCHEDULER, { t: 'stalled', ...stream, v, forMs });
      this.host.out.event('sink.stalled', { group: g, member: this.owner.member, sid, node });
    }
  }

  /**
   * The parities that had this shard at the take-over, one of each index: lost blocks are decoded from them.
   */
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

  /** The mirror that had this shard at the take-over: it gives blocks without decoding. */
  get usableMirror(): Follower | undefined {
    for (const follower of this.followers.values())
      if (follower.entry.kind === 'M' && !follower.none) return follower;
    return undefined;
  }
}

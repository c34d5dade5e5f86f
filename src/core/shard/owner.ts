/**
 * The owner of a data shard: applies pushes (rule 7), sends one ordered stream of deltas to every sink of the
 * shard, and acknowledges a push when every sink has its delta (rules 8-11, stream.ts). A new owner first
 * agrees with all sinks on a common position (rules 19-21), then serves while lost blocks are decoded on
 * demand and in the background (recovery.ts).
 */
import { invariant } from '../../common/errors.js';
import { type Extent, type NativeShard, PushStatus } from '../../engine/native.js';
import { type ClusterMap, type DataEntry, followersOf, type Group, type PeerId } from '../../protocol/map.js';
import type { DedupEntry, MessageOf, PushId, RecoveryStats, StreamId } from '../../protocol/messages.js';
import type { ServedRows } from '../../protocol/saving.js';
import { bytes, words } from '../shared/bytes.js';
import { Dedup, isSkip, isTombstone } from '../shared/dedup.js';
import { takingForeign } from '../shared/engine.js';
import type { SessionRange } from '../shared/session-ranges.js';
import { readBlocks } from './contents.js';
import { ShardEvictions } from './evictions.js';
import { Gaps } from './gaps.js';
import type { OwnerHost, PullItem, RowsBuffer, StreamOwner } from './host.js';
import { type PulledShard, Pulls } from './pulls.js';
import { Recovery, type RecoveryOwner } from './recovery.js';
import { REFUSALS, TOO_LARGE, WITHDRAWN } from './refusals.js';
import { ShardReplicas, type StreamBatch } from './replicas.js';
import { ShardSnapshot } from './snapshot.js';
import { Stream } from './stream.js';
import { ShardTables } from './tables.js';
import { WaitingPushes } from './waiting-pushes.js';

/** Pushes of one batch, because one header names them all. */
const MAX_OPEN_IDS = 16_384;
/** The delta of a batch that no sink follows. */
const NOTHING = new Uint8Array(0);

export class Owner implements StreamOwner, RecoveryOwner, PulledShard {
  /** Generation of this ownership: an owner has one for its whole life (rule 1). */
  readonly gen: number;
  readonly born: boolean;
  readonly restores: boolean;
  /** De-duplication state of the checkpoint that the shard was loaded from; undefined: not loaded yet. */
  private loadedDedup: Dedup | undefined;
  /** Phase, position, committed position, the batches between them, and the sinks (rule 3). */
  readonly stream: Stream;
  readonly replicas: ShardReplicas;
  readonly evictions: ShardEvictions;
  /** Sections of pushes and pulls that were received. Only grows. */
  requests = 0;
  /** De-duplication at the head: it has each id of `openIds`, and what the stream has at `committed`. */
  private head = new Dedup();
  /** The pushes, skips and ends of sessions since the last flush: the header of the next batch. */
  private openIds: StreamId[] = [];
  private readonly gaps: Gaps;
  /** Pushes that wait. While a client has a line, its further pushes join it, so they keep their order. */
  private readonly lines: WaitingPushes;
  readonly pulls: Pulls;
  private readonly recovery: Recovery;
  readonly tables: ShardTables;
  /** Milestones of the recovery that were reported, each once; a later roll-back does not take them back. */
  private announced = { keys: false, complete: false };

  constructor(
    public group: Group,
    readonly member: number,
    entry: DataEntry,
    readonly native: NativeShard,
    private readonly host: OwnerHost,
  ) {
    this.gen = entry.gen;
    this.born = entry.init;
    this.restores = entry.restore === true;
    this.tables = new ShardTables(native, group.pool, group.id, member);
    this.stream = new Stream(this, host);
    this.replicas = new ShardReplicas(this, host);
    this.evictions = new ShardEvictions(entry.gen, native, host);
    this.gaps = new Gaps(this, host);
    this.lines = new WaitingPushes(host);
    this.pulls = new Pulls(this, host);
    this.recovery = new Recovery(this, host);
    if (this.born) this.announced = { keys: true, complete: true };
  }

  get phase(): Stream['phase'] {
    return this.stream.phase;
  }

  get complete(): boolean {
    return this.phase === 'ACTIVE' && this.native.absentKeyBlocks === 0 && this.native.absentRowBlocks === 0;
  }

  /** The shard was complete once, so without it the group would lack one more member. */
  get wasComplete(): boolean {
    return this.announced.complete;
  }

  /** Lost beyond repair, as the scheduler has confirmed. */
  get unrecoverable(): boolean {
    return this.recovery.unrecoverable;
  }

  demandMissing(): void {
    this.recovery.demandMissing();
  }

  /** Lost rows are being decoded, and answers come. */
  get decoding(): boolean {
    return this.phase === 'ACTIVE' && this.recovery.decoding;
  }

  /** The set of sinks follows the map. Rule 17: recoveries of an older version of the group are void. */
  onGroup(group: Group, map: ClusterMap): void {
    const changed = group.version !== this.group.version;
    this.group = group;
    this.tables.follow(map);
    this.stream.follow(followersOf(group, this.member));
    if (changed) this.recovery.restart();
    if (this.phase === 'RESTORE' && !group.data[this.member]?.restore) this.beginRestored();
    this.stream.drive();
    this.host.serveLater(this);
  }

  /** The map has new tables, or other settings of them. */
  onTables(map: ClusterMap): void {
    this.tables.follow(map);
    this.host.serveLater(this);
  }

  /** Rule 47: the tables are gone, and so is all that was lost of them or was asked for. */
  dropTables(tables: readonly number[]): void {
    this.evictions.dropTables(tables);
    for (const id of tables) this.native.dropTable(id);
    this.recovery.restart();
    if (this.phase === 'ACTIVE') this.progress();
    this.host.serveLater(this);
  }

  close(): void {
    this.lines.clear();
    this.pulls.clear();
    this.stream.close();
    this.evictions.close();
    this.native.close();
  }

  // ---- pushes (rule 7: only when active, in the order of their numbers, all or nothing)

  onPush(client: PeerId, cseq: number, section: Uint8Array): void {
    this.requests++;
    if (this.phase !== 'ACTIVE' || this.lines.waiting(client)) this.lines.add(client, cseq, section);
    else if (this.offer(client, cseq, section) === 'wait') this.lines.add(client, cseq, section);
    if (this.recovery.unrecoverable) this.giveUp();
  }

  /** Applies a push or answers it. 'wait': it has to, in its client's line. 'gap': the client was told. */
  private offer(client: PeerId, cseq: number, section: Uint8Array): 'done' | 'wait' | 'gap' {
    const last = this.head.last(client);
    const { group, member } = this;
    const { committedDedup } = this.stream;
    if (cseq <= last) {
      if (cseq <= committedDedup.last(client))
        this.host.acknowledge(client, group.id, member, cseq, committedDedup.refusal(client, cseq));
      return 'done';
    }
    if (last === 0 && this.head.hasEnded(client)) {
      this.host.acknowledge(client, group.id, member, cseq, 'SESSION_EXPIRED');
      return 'done';
    }
    if (cseq > last + 1) {
      if (!this.recovery.unrecoverable) this.gaps.tell(client, last + 1);
      return 'gap';
    }
    if (!this.mayApply) return 'wait';
    const { openBytes } = this.native;
    const isFull = openBytes > this.host.policy.maxOpenBytes || this.openIds.length > MAX_OPEN_IDS;
    let status = isFull ? PushStatus.BATCH_FULL : this.apply(section);
    while (status === PushStatus.BATCH_FULL) {
      this.flush();
      if (!this.mayApply) return 'wait';
      status = this.apply(section);
    }
    if (status === PushStatus.ABSENT) {
      this.recovery.demandMissing();
      return 'wait';
    }
    const id: PushId =
      status === PushStatus.APPLIED ? [client, cseq] : [client, cseq, REFUSALS[status] ?? 'INTERNAL'];
    this.head.append(id);
    this.openIds.push(id);
    this.host.markDirty(this);
    return 'done';
  }

  /** There is room for another batch. */
  private get mayApply(): boolean {
    const { policy, deltaBytes } = this.host;
    const { uncommittedBytes, followers } = this.stream;
    if (policy.requireRedundancy && followers.size === 0) return false;
    if (uncommittedBytes > policy.maxUncommittedBytes) return false;
    // A shard with nothing uncommitted may always apply a batch: other shards may fill the account for long.
    return uncommittedBytes === 0 || !(deltaBytes.full || this.stream.sinksAtLimit);
  }

  private apply(section: Uint8Array): number {
    const { maxSectionBytes, maxBatchBytes } = this.host.policy;
    if (section.byteLength === 0) return WITHDRAWN;
    if (section.byteLength > maxSectionBytes) return TOO_LARGE;
    const push = (taken: Uint8Array) => this.native.push(taken, maxBatchBytes);
    const status = push(section);
    // Rule 47: a client may have an older map. Its push to tables that are gone came before the drop.
    return status === PushStatus.UNKNOWN_TABLE ? push(this.host.gone.push(section)) : status;
  }

  /** Rule 50: rows of tables that count seconds may go without a push. */
  onTime(): void {
    const mayGo = this.phase === 'ACTIVE' && this.mayApply;
    this.native.tell(this.host.seconds, mayGo ? this.host.policy.maxBatchBytes : 0);
    this.flush();
  }

  /** Clients with pushes here. The session of none of them is known to have ended. */
  clients(): PeerId[] {
    return this.head.clients();
  }

  /**
   * Rule 31: ends of sessions go into the stream, so that owner and sinks forget a client at one position.
   */
  onSessionsEnded(ranges: readonly SessionRange[]): void {
    if (this.phase !== 'ACTIVE') return;
    const ended = this.head.tombstones(ranges);
    if (ended.length === 0) return;
    for (const id of ended) this.head.record(id);
    this.gaps.forget((client) => this.head.hasEnded(client));
    this.openIds.push(...ended);
    this.host.markDirty(this);
  }

  /**
   * Rule 41: the client was answered all numbers below `next`; the stream records the ones forgotten here.
   */
  onSkipTo(client: PeerId, next: number): void {
    const id: StreamId = [client, next - 1, 'SKIPPED'];
    if (this.phase !== 'ACTIVE' || !this.gaps.rewound || !this.mayApply) return;
    if (id[1] <= this.head.last(client) || this.head.hasEnded(client)) return;
    this.head.append(id);
    this.openIds.push(id);
    this.host.markDirty(this);
  }

  /** Pushes and pulls that waited for this shard, for blocks, or for acknowledgements to make room. */
  serveWaiting(): void {
    if (this.phase !== 'ACTIVE') return;
    for (const client of this.lines.clients()) this.serveLine(client);
    this.pulls.serve();
  }

  private serveLine(client: PeerId): void {
    for (let held = this.lines.first(client); held; held = this.lines.first(client)) {
      if (!this.host.turn.takes(held)) return this.host.serveLater(this);
      const result = this.offer(client, held.cseq, held.section);
      if (result === 'wait') break;
      if (result === 'gap') this.lines.drop(client);
      else this.lines.shift(client);
    }
  }

  /** Rule 8: makes one numbered batch of all pushes since the last flush. */
  flush(): void {
    if (this.phase !== 'ACTIVE' || (this.openIds.length === 0 && !this.native.dirty)) return;
    const ids = this.openIds;
    this.openIds = [];
    this.evictions.flushing(this.stream.seq + 1);
    if (this.stream.followers.size > 0 || this.replicas.any) this.stream.append(this.native.flush(), ids);
    else {
      this.native.dropBatch();
      this.stream.append(NOTHING, ids);
    }
  }

  // ---- StreamOwner
  extents(): Extent[] {
    return this.native.extents();
  }

  checkExtents(extents: Extent[]): void {
    takingForeign(() => this.native.checkExtents(this.host.gone.extents(extents)));
  }

  activated(dedup: Dedup, extents: Extent[]): void {
    this.head = dedup;
    for (const [table, , extent] of this.host.gone.extents(extents)) this.native.adopt(table, extent);
    this.recovery.begin();
    const { group, member, gen, stream } = this;
    this.host.out.event('shard.active', { group: group.id, member, gen, base: stream.seq });
    this.replicas.activated();
    this.progress();
    this.host.serveLater(this);
  }

  appended(batch: StreamBatch): void {
    this.replicas.appended(batch);
  }

  committed(ids: readonly StreamId[]): void {
    this.evictions.committed(this.stream.committed);
    for (const id of ids) {
      if (isTombstone(id) || isSkip(id)) continue;
      this.host.acknowledge(id[0], this.group.id, this.member, id[1], id[2]);
    }
    if (this.lines.any) this.host.serveLater(this);
  }

  lost(reason: string): void {
    this.recovery.report(reason, 0);
  }

  // ---- pulls

  /** `buffer`: where the rows go if they are read now. Default: memory of the engine. */
  onPull(pull: PullItem, section: Uint8Array, buffer?: RowsBuffer): void {
    this.requests++;
    this.pulls.onPull(pull, section, buffer);
  }

  /** The link of a client is closed. */
  gone(client: PeerId): void {
    this.pulls.gone(client);
    this.replicas.gone(client);
  }

  /** Rule 37: all rows of the checkpoint are here, and the shard serves when the map has lost its mark. */
  loaded(sessions: readonly DedupEntry[]): void {
    this.loadedDedup = Dedup.from(sessions);
  }

  get isLoaded(): boolean {
    return this.loadedDedup !== undefined;
  }

  private beginRestored(): void {
    const { group, member, gen, loadedDedup } = this;
    invariant(loadedDedup, 'a shard is called loaded by who has loaded it', { group: group.id, member, gen });
    this.head = loadedDedup.copy();
    this.stream.begin(loadedDedup);
    this.host.out.event('shard.active', { group: group.id, member, gen, base: 0 });
    this.replicas.activated();
    this.progress();
  }

  /** Rule 34: a snapshot is taken after a flush, so its rows and its de-duplication are of one position. */
  snapshot(since: number, served: ServedRows | undefined): ShardSnapshot {
    this.flush();
    return new ShardSnapshot(this, this.stream.seq, this.head.entries(), since, served);
  }

  // ---- content and recovery

  /** Rule 18: an owner flushes before it reads content, so the content is the state after delta `seq`. */
  onWant(message: MessageOf<'want'>, blocks: Uint8Array, from: PeerId): void {
    if (this.phase !== 'ACTIVE') return;
    const follower = this.stream.followers.get(message.sid);
    if (!follower || follower.state === 'silent' || follower.state === 'opened') return;
    const list = this.host.gone.blocks(words(blocks));
    // The sink may have a newer map with a table that this owner does not know yet. It asks again.
    if (!this.tables.knowsAll(list)) return;
    // The link of a node that takes slowly holds much. Content is on the way already, or is asked for again.
    if (!this.host.contentBytes.mayGive(from)) return;
    this.flush();
    const { present, lacking, parts } = readBlocks(this.native, list, this.host);
    const shard = { g: this.group.id, m: this.member, gen: this.gen };
    const stream = { ...shard, sid: message.sid, seq: this.stream.seq };
    if (present.length > 0) {
      const answer = { t: 'content' as const, ...stream, servedRatio: this.host.pace.give() };
      this.host.out.send(from, answer, parts);
      this.host.contentBytes.give(from, parts[1].byteLength);
    }
    if (lacking.length === 0) return;
    // Blocks that the mirror on this node holds are not lacking in the group. They are taken over now, and
    // the sink asks again.
    if (this.stream.usableMirror) this.recovery.demand(lacking);
    else this.host.out.send(from, { t: 'lacking', ...stream, v: message.v }, [bytes(lacking)]);
  }

  /** Sends blocks to a replica, which asks again for those that are not here yet. */
  onFollowWant(message: MessageOf<'followWant'>, blocks: Uint8Array, from: PeerId): void {
    const list = this.host.gone.blocks(words(blocks));
    if (this.phase !== 'ACTIVE' || !this.tables.knowsAll(list)) return;
    this.replicas.onWant(from, message, () => readBlocks(this.native, list, this.host));
  }

  onEquation(message: MessageOf<'equation'>, blocks: Uint8Array, content: Uint8Array): void {
    if (this.phase !== 'ACTIVE' || message.gen !== this.gen || message.v !== this.group.version) return;
    // Rule 47: all absent blocks were asked for again when the table was dropped.
    if (this.host.gone.touches(words(blocks))) return;
    this.recovery.onEquation(message, words(blocks), content);
    this.progress();
  }

  /** Rule 25: another owner solved equations in which these blocks of this shard were unknown, too. */
  onInstall(blocks: Uint8Array, content: Uint8Array): void {
    if (this.phase !== 'ACTIVE' || this.host.gone.touches(words(blocks))) return;
    this.recovery.onInstall(words(blocks), content);
    this.progress();
  }

  /** Reports each milestone of a recovery once, and asks to serve the requests that wait. */
  private progress(): void {
    const where = { group: this.group.id, member: this.member, gen: this.gen };
    if (!this.announced.keys && this.native.keysReady) {
      this.announced.keys = true;
      this.host.out.event('shard.keysReady', where);
    }
    if (!this.announced.complete && this.complete) {
      this.announced.complete = true;
      this.host.out.event('shard.complete', { ...where, ...this.recovery.stats() });
    }
    if (this.lines.any || this.pulls.any) this.host.serveLater(this);
  }

  recoveryStats(): RecoveryStats | undefined {
    if (this.born) return undefined;
    return { g: this.group.id, m: this.member, gen: this.gen, ...this.recovery.stats() };
  }

  tick(): void {
    this.flush();
    this.stream.drive();
    this.stream.reportStalled();
    this.stream.tellCommitted();
    this.replicas.tick();
    this.evictions.tick();
    this.pulls.tick();
    if (this.phase === 'ACTIVE') {
      this.recovery.tick();
      this.progress();
    }
  }

  /** Fails the requests that wait: the shard is beyond repair in this version of its group. */
  giveUp(): void {
    this.pulls.rejectAll('UNRECOVERABLE');
    for (const client of this.lines.clients()) {
      this.lines.drop(client);
      this.host.tell(client, { t: 'lost', g: this.group.id, m: this.member, v: this.group.version });
    }
  }

  /** Rule 26: the shard is lost when the scheduler confirms that the owner's map was the newest. */
  onConfirmedLost(message: MessageOf<'confirmedLost'>): void {
    if (message.v === this.group.version) this.recovery.confirm();
  }
}

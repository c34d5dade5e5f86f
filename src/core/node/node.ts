/**
 * A PS node: hosts owners (data shards) and sinks (parities), follows the map, and routes messages to them.
 * One input at a time, effects out; batching policy arrives as `flush`, time as `tick`.
 */
import { describe, isRefusal, KintsugiError } from '../../errors.js';
import type { NativeAddon, NativeMemory, NativeShard } from '../../native.js';
import { shardKey } from '../../protocol/items.js';
import {
  type ClusterMap,
  EMPTY_MAP,
  type Group,
  hasMove,
  isParted,
  type PeerId,
  SCHEDULER,
} from '../../protocol/map.js';
import { changeBy, hasNewOwner } from '../../protocol/map-diff.js';
import type { Message, MessageOf, Refusal } from '../../protocol/messages.js';
import { checkSender } from '../../protocol/senders.js';
import type { NodeTelemetry } from '../../protocol/telemetry.js';
import type { Deferred, OwnerHost } from '../shard/host.js';
import { Owner } from '../shard/owner.js';
import { DeltaBytes } from '../shared/delta-bytes.js';
import { Meter } from '../shared/meter.js';
import { type Effect, Outbox } from '../shared/outbox.js';
import { Pace } from '../shared/pace.js';
import type { Policy } from '../shared/policy.js';
import { RateLimit } from '../shared/rate.js';
import { WaitingBytes } from '../shared/waiting-bytes.js';
import type { Sink } from '../sink/sink.js';
import { isLacking, movesLeft, Reporter } from './heartbeat.js';
import { DEFAULT_HOOKS, type NodeHooks, type NodeInput } from './inputs.js';
import { Loading } from './loading.js';
import { Queries } from './queries.js';
import { RefusedShards } from './refused.js';
import { type PushReply, Replies } from './replies.js';
import { Requests } from './requests.js';
import { Saving } from './saving.js';
import { NodeSessions } from './sessions.js';
import { Sinks } from './sinks.js';
import { stateOf } from './state.js';
import { telemetryOf } from './telemetry.js';
import { WaitingMessages } from './waiting-messages.js';

export type { NodeHooks, NodeInput } from './inputs.js';

const EMPTY = new Uint8Array(0);

export class PsNode implements OwnerHost {
  readonly out = new Outbox();
  readonly pace = new Pace();
  readonly meter = new Meter();
  /** Groups with a planned move. */
  private readonly moving = new Set<number>();
  readonly moveRate: RateLimit;
  map: ClusterMap = EMPTY_MAP;
  now = 0;
  /** By `shardKey`. */
  readonly owners = new Map<number, Owner>();
  private readonly refused: RefusedShards;
  readonly sinks: Sinks;
  /** Messages that name a newer map than ours; they are served as soon as it comes. */
  private readonly parked: WaitingMessages;
  readonly waiting: WaitingBytes;
  readonly deltaBytes: DeltaBytes;
  private readonly hooks: NodeHooks;
  /** Owners with an open batch. */
  private readonly dirty = new Set<Deferred>();
  /** Owners that serve who waits at the end of this step. */
  private readonly serving = new Set<Deferred>();
  private readonly replies: Replies;
  private readonly requests: Requests;
  private readonly queries: Queries;
  private readonly saving: Saving;
  private readonly loading: Loading;
  private readonly reporter: Reporter;
  private readonly sessions = new NodeSessions(this);

  constructor(
    readonly id: PeerId,
    readonly inc: number,
    readonly native: NativeAddon,
    readonly memory: NativeMemory,
    readonly policy: Policy,
    hooks: Partial<NodeHooks> = {},
  ) {
    this.hooks = { ...DEFAULT_HOOKS, ...hooks };
    this.waiting = new WaitingBytes(policy.maxParkedBytes);
    this.deltaBytes = new DeltaBytes(policy.maxDeltaBytes);
    this.parked = new WaitingMessages(policy, this.waiting);
    this.moveRate = new RateLimit(policy.moveRate, this.pace, 'move');
    this.replies = new Replies(this.out, this.meter, policy.maxRowsBytes, (bytes) =>
      this.hooks.discard(bytes),
    );
    this.requests = new Requests(this, this.replies, this.hooks.holds);
    this.queries = new Queries(this, (shards) => this.telemetry(shards));
    this.saving = new Saving(this);
    this.loading = new Loading(this);
    this.sinks = new Sinks(this, native, memory);
    this.refused = new RefusedShards(
      this.out,
      policy.retryMs,
      (key, owner) => this.dropOwner(key, owner),
      (g, m) => this.sinks.completeMirrorOf(this.map.groups[g], m),
    );
    this.reporter = new Reporter(policy.heartbeatMs);
  }

  step(input: NodeInput): Effect[] {
    switch (input.kind) {
      case 'message':
        checkSender(input.role, 'node', input.message.t);
        this.receive(input.from, input.message, input.parts);
        break;
      case 'peerUp':
        for (const owner of this.owners.values()) owner.stream.onPeerUp(input.peer);
        break;
      case 'flush':
        this.flush();
        break;
      case 'turn':
        this.saving.turn();
        break;
      case 'stored':
      case 'storeFailed':
        this.saving.onStore(input);
        break;
      case 'fetched':
      case 'fetchFailed':
        this.loading.onFetch(input);
        break;
      case 'tick':
        this.tick(input.now);
        break;
    }
    this.serveWaiting();
    this.replies.send();
    return this.out.take();
  }

  /** Serving one owner may make room for others, or for the same one again. */
  private serveWaiting(): void {
    for (const owner of this.serving) {
      this.serving.delete(owner);
      owner.serveWaiting();
    }
  }

  /** An owner has deltas that are not sent yet: the runtime should hand in a `flush` soon. */
  get needsFlush(): boolean {
    return this.dirty.size > 0;
  }

  /** Rows may be read for a checkpoint: the runtime should hand in a `turn` when nothing else is waiting. */
  get needsTurn(): boolean {
    return this.saving.needsTurn;
  }

  close(): void {
    for (const owner of this.owners.values()) owner.close();
    this.owners.clear();
    this.sinks.close();
  }

  // ---- OwnerHost

  acknowledge(client: PeerId, g: number, m: number, cseq: number, refused?: Refusal): void {
    this.replies.acknowledge(client, g, m, cseq, refused);
  }

  answer(client: PeerId, id: number, item: number, rows: Uint8Array): void {
    this.replies.answer(client, id, item, rows);
  }

  tell(client: PeerId, message: PushReply): void {
    this.replies.tell(client, message);
  }

  markDirty(owner: Deferred): void {
    this.dirty.add(owner);
  }

  serveLater(owner: Deferred): void {
    this.serving.add(owner);
  }

  pull(shard: NativeShard, section: Uint8Array): Uint8Array | number {
    return this.hooks.pull(shard, section);
  }

  discard(bytes: Uint8Array): void {
    this.hooks.discard(bytes);
  }

  private flush(): void {
    for (const owner of this.dirty) owner.flush();
    this.dirty.clear();
  }

  // ---- map

  /**
   * Looks at the groups that changed only. After a gap the scheduler sends a whole map: heartbeats tell it
   * which one is here.
   */
  private onMap(message: MessageOf<'map'> | MessageOf<'mapDiff'>): void {
    // It comes with a welcome, too: a scheduler that was started again knows nothing of this node.
    if (message.t === 'map') this.reporter.everything();
    const change = changeBy(this.map, message);
    if (typeof change === 'string') return;
    const before = this.map;
    const { map, groups } = change;
    if (groups.some((group) => hasNewOwner(before.groups[group.id], group))) this.pace.disturbed(this.now);
    this.map = map;
    for (const group of groups) {
      if (hasMove(group) && isParted(group)) this.moving.add(group.id);
      else this.moving.delete(group.id);
      this.placeOwners(map, group);
    }
    this.sinks.onMap(map, groups);
    this.applyVersions(map, groups);
    if (map.tables !== before.tables) for (const owner of this.owners.values()) owner.onTables(map);
    for (const { from, message: parked, parts } of this.parked.takeAll())
      this.receiveParked(from, parked, parts);
  }

  /** Owners of the group's data shards that this node has now, and no others. */
  private placeOwners(map: ClusterMap, group: Group): void {
    for (const [m, entry] of group.data.entries()) {
      const key = shardKey(group.id, m);
      const known = this.owners.get(key);
      const here = entry.node === this.id && entry.inc === this.inc;
      if (known && !(here && known.gen === entry.gen)) this.dropOwner(key, known);
      if (this.refused.has(key, here ? entry.gen : undefined) || !here || this.owners.has(key)) continue;
      // r is at least 1 for the engine: a shard without parities can be decoded from a mirror, which has
      // the coefficients of parity 0.
      const r = Math.max(1, map.pools[group.pool]?.r ?? 0);
      const shard = this.native.createShard(this.memory, m, group.data.length, r);
      this.owners.set(key, new Owner(group, m, entry, shard, this));
    }
  }

  /**
   * A message that is refused is logged, and the others are handled. Its connection may be closed by now, so
   * it is not closed for it.
   */
  private receiveParked(from: PeerId, message: Message, parts: readonly Uint8Array[]): void {
    try {
      this.receive(from, message, parts);
    } catch (error) {
      if (!isRefusal(error)) throw error;
      this.out.event('message.refused', { from, kind: message.t, message: describe(error) });
    }
  }

  private applyVersions(map: ClusterMap, groups: readonly Group[]): void {
    this.sinks.applyVersions(groups);
    for (const group of groups)
      for (const m of group.data.keys()) {
        const owner = this.owners.get(shardKey(group.id, m));
        if (owner) this.refused.during(owner, () => owner.onGroup(group, map));
      }
  }

  private dropOwner(key: number, owner: Owner): void {
    this.owners.delete(key);
    this.dirty.delete(owner);
    this.serving.delete(owner);
    this.saving.dropped(owner);
    this.loading.dropped(owner);
    owner.close();
  }

  // ---- messages

  private newer(message: Message): boolean {
    if ('epoch' in message && message.t !== 'heartbeat') return message.epoch > this.map.epoch;
    if ('v' in message) return message.v > (this.map.groups[message.g]?.version ?? 0);
    return false;
  }

  private receive(from: PeerId, message: Message, parts: readonly Uint8Array[]): void {
    if (this.newer(message)) {
      this.parked.add(from, message, parts);
      return;
    }
    switch (message.t) {
      case 'map':
      case 'mapDiff':
        return this.onMap(message);
      case 'push':
        return this.requests.onPush(from, message, parts);
      case 'skipTo':
        return this.requests.onSkipTo(from, message);
      case 'pull':
        return this.requests.onPull(from, message, parts);
      case 'keys':
        return this.queries.onKeys(from, message);
      case 'shardStats':
        return this.queries.onShardStats(from, message);
      case 'open':
        return this.sinks.to(message.sid, (sink) => sink.onOpen(message, from));
      case 'start':
        return this.sinks.to(message.sid, (sink) => sink.onStart(message, from));
      case 'committed':
        return this.sinks.to(message.sid, (sink) => sink.onCommitted(message));
      case 'delta':
        return this.sinks.to(message.sid, (sink) => sink.onDelta(message, part(parts, 0), from));
      case 'content':
        return this.sinks.to(message.sid, (sink) => sink.onContent(message, part(parts, 0), part(parts, 1)));
      case 'lacking':
        return this.sinks.to(message.sid, (sink) => sink.onLacking(message, part(parts, 0)));
      case 'recover':
        return this.sinks.to(message.sid, (sink) => sink.onRecover(message, part(parts, 0)));
      case 'observe':
        return this.queries.onObserve(from, message);
      case 'check':
        return this.sinks.unlessRefused(message.sid, () => this.queries.onCheck(from, message));
      case 'openAck':
        return this.toOwner(message, (owner) => owner.stream.onOpenAck(message));
      case 'startAck':
        return this.toOwner(message, (owner) => owner.stream.onStartAck(message));
      case 'applied':
        return this.toOwner(message, (owner) => owner.stream.onApplied(message));
      case 'confirmedLost':
        return this.ownerOf(message)?.onConfirmedLost(message);
      case 'movePace':
        return this.onMovePace(message);
      case 'reach':
        return this.onReach(message);
      case 'openSessions':
        return this.sessions.onOpen(message);
      case 'sessionsEnded':
        return this.sessions.ended(message.ranges);
      case 'saveShards':
        return this.saving.onSave(message);
      case 'saveEnded':
        return this.saving.onEnded(message);
      case 'loadShard':
        return this.loading.onLoad(message);
      case 'want':
        return this.ownerOf(message)?.onWant(message, part(parts, 0), from);
      case 'equation':
        return this.toOwner(message, (to) => to.onEquation(message, part(parts, 0), part(parts, 1)));
      case 'follow':
      case 'followWant':
      case 'followProbe':
        return this.queries.onReplica(from, message, part(parts, 0));
      case 'install':
        return this.toOwner(message, (owner) => owner.onInstall(part(parts, 0), part(parts, 1)));
      default:
        throw new KintsugiError('BAD_FRAME', `a PS node does not take messages of kind "${message.t}"`);
    }
  }

  /** The owner that a stream message is for: this shard in exactly this generation. */
  private ownerOf(message: { g: number; m: number; gen: number }): Owner | undefined {
    const owner = this.owners.get(shardKey(message.g, message.m));
    return owner?.gen === message.gen ? owner : undefined;
  }

  private toOwner(message: { g: number; m: number; gen: number }, step: (owner: Owner) => void): void {
    const owner = this.ownerOf(message);
    if (owner) this.refused.during(owner, () => step(owner));
  }

  private onReach({ node, inc }: MessageOf<'reach'>): void {
    const ms = this.hooks.unacknowledgedMs(node, inc);
    const silentMs = ms && Math.round(ms);
    this.out.send(SCHEDULER, { t: 'reached', node, inc, ...(silentMs !== undefined && { silentMs }) });
  }

  private onMovePace({ bytesPerSecond }: MessageOf<'movePace'>): void {
    this.pace.need(bytesPerSecond);
    const items = movesLeft(this.sinks.all());
    if (items.length > 0) this.out.send(SCHEDULER, { t: 'moveProgress', items });
  }

  // ---- timers

  private tick(now: number): void {
    this.now = now;
    const [owners, sinks] = [[...this.owners.values()], this.sinks.all()];
    const lacking = isLacking(owners, sinks);
    const decoding = this.loading.isBusy || owners.some((owner) => owner.decoding);
    this.pace.tick(
      now,
      lacking || sinks.some(({ complete }) => !complete),
      decoding,
      this.moving.size > 0 && !lacking,
    );
    this.moveRate.tick(now);
    for (const owner of owners) this.refused.during(owner, () => owner.tick());
    this.refused.tick(now);
    this.dirty.clear();
    this.sinks.tick();
    this.saving.tick();
    this.heartbeat(now, owners, this.sinks.all());
    this.sessions.tick(now);
  }

  /** Sent at a fixed rate, and at once when a sink or a shard becomes complete or incomplete. */
  private heartbeat(now: number, owners: readonly Owner[], sinks: readonly Sink[]): void {
    const report = this.reporter.report(now, owners, sinks);
    if (!report) return;
    const { inc, map, memory } = this;
    this.out.send(SCHEDULER, { t: 'heartbeat', inc, epoch: map.epoch, bytes: memory.usedBytes, ...report });
  }

  ownerAt(g: number, m: number): Owner | undefined {
    return this.owners.get(shardKey(g, m));
  }

  sinkAt(sid: number): Sink | undefined {
    return this.sinks.get(sid);
  }

  /** For the log, when this node fails. */
  state(): Record<string, unknown> {
    const { id, inc, now, map } = this;
    return { id, inc, now, epoch: map.epoch, ...stateOf(this.owners.values(), this.sinks.all()) };
  }

  /** What it tells whoever observes it. `shards`: of each of them, too. */
  telemetry(shards: boolean): NodeTelemetry {
    return telemetryOf(this, this.hooks.surroundings(), shards);
  }
}

/** A part of a message; empty when it is missing, which the engine refuses. */
function part(parts: readonly Uint8Array[], index: number): Uint8Array {
  return parts[index] ?? EMPTY;
}

/**
 * A PS node: hosts owners (data shards) and sinks (parities), follows the map, and routes messages to them.
 * One input at a time, effects out; batching policy arrives as `flush`, time as `tick`.
 *
 * Its parts are made from the ground up: each knows only parts that were made before it.
 */
import { describe, isRefusal, KintsugiError } from '../../common/errors.js';
import type { NativeAddon, NativeMemory } from '../../engine/native.js';
import { type ClusterMap, hasMove, isParted, type PeerId, SCHEDULER } from '../../protocol/map.js';
import { changeBy, hasNewOwner } from '../../protocol/map-diff.js';
import type { Message, MessageOf } from '../../protocol/messages.js';
import { checkMessage, type MessageTo } from '../../protocol/senders.js';
import type { NodeTelemetry } from '../../protocol/telemetry.js';
import type { RowsBuffer } from '../shard/host.js';
import type { Owner } from '../shard/owner.js';
import type { ContentBytes, LinkBytes } from '../shared/content-bytes.js';
import type { DeltaBytes } from '../shared/delta-bytes.js';
import type { Meter } from '../shared/meter.js';
import type { Effect } from '../shared/outbox.js';
import type { Policy } from '../shared/policy.js';
import type { WaitingBytes } from '../shared/waiting-bytes.js';
import type { Sink } from '../sink/sink.js';
import type { AnswerBytes } from './answer-bytes.js';
import { isLacking, movesLeft, Reporter } from './heartbeat.js';
import { DEFAULT_HOOKS, type NodeHooks } from './hooks.js';
import { NodeHost } from './host.js';
import type { NodeInput } from './inputs.js';
import { Loading } from './loading.js';
import { Owners } from './owners.js';
import { Queries } from './queries.js';
import { RequestQueue, type RowsBuffers } from './request-queue.js';
import { isRequest, NodeRequests } from './requests.js';
import { Saving } from './saving.js';
import { NodeSessions } from './sessions.js';
import { Shards } from './shards.js';
import { Sinks } from './sinks.js';
import { stateOf } from './state.js';
import { type ObservedParts, partBytesOf, telemetryOf } from './telemetry.js';
import { WaitingMessages } from './waiting-messages.js';

export type { NodeHooks } from './hooks.js';
export type { NodeInput } from './inputs.js';

const EMPTY = new Uint8Array(0);

export class PsNode {
  private readonly host: NodeHost;
  private readonly hooks: NodeHooks;
  private readonly owners = new Owners();
  private readonly sinks: Sinks;
  private readonly saving: Saving;
  private readonly loading: Loading;
  private readonly shards: Shards;
  private readonly queue: RequestQueue;
  private readonly queries: Queries;
  private readonly sessions: NodeSessions;
  private readonly reporter: Reporter;
  /** Messages that name a newer map than the node has. They are served as soon as that map comes. */
  private readonly parked: WaitingMessages;
  /** Groups of the newest map with a planned move. */
  private readonly moving = new Set<number>();

  constructor(
    readonly id: PeerId,
    readonly inc: number,
    native: NativeAddon,
    private readonly memory: NativeMemory,
    policy: Policy,
    hooks: Partial<NodeHooks> = {},
  ) {
    const { owners } = this;
    this.hooks = { ...DEFAULT_HOOKS, ...hooks };
    const host = new NodeHost(id, inc, policy, this.hooks);
    this.host = host;
    this.sinks = new Sinks(host, native, memory);
    this.saving = new Saving(host, owners);
    this.loading = new Loading(host, owners, native);
    this.shards = new Shards(host, native, memory, owners, this.saving, this.loading, this.sinks);
    this.queries = new Queries(host, owners, this.sinks);
    const requests = new NodeRequests(host, owners, this.queries, this.hooks.holds);
    this.queue = new RequestQueue(host, requests);
    this.sessions = new NodeSessions(host.out, policy, owners);
    this.reporter = new Reporter(policy.heartbeatMs);
    this.parked = new WaitingMessages(policy, host.waiting);
  }

  /** The newest map that came. */
  get map(): ClusterMap {
    return this.host.map;
  }

  /** Milliseconds of the newest tick. */
  get now(): number {
    return this.host.now;
  }

  /** A process that begins knows the time before its first tick. */
  set now(now: number) {
    this.host.now = now;
  }

  get meter(): Meter {
    return this.host.meter;
  }

  get waiting(): WaitingBytes {
    return this.host.waiting;
  }

  /** Answers to clients that their sockets have not taken. */
  get answers(): AnswerBytes {
    return this.host.answers.bytes;
  }

  get deltaBytes(): DeltaBytes {
    return this.host.deltaBytes;
  }

  get contentBytes(): ContentBytes {
    return this.host.contentBytes;
  }

  /** True: the runtime should report soon what links have taken. */
  get needsReport(): boolean {
    return this.answers.needsReport || this.contentBytes.needsReport;
  }

  /** Takes over the bytes of the links to nodes. */
  reportOutgoing(links: ReadonlyMap<PeerId, LinkBytes>): void {
    let total = 0;
    for (const { held } of links.values()) total += held;
    this.host.deltaBytes.setOutgoing(total);
    this.host.contentBytes.report(links);
  }

  step(input: NodeInput): Effect[] {
    switch (input.kind) {
      case 'message':
        checkMessage(input.role, 'node', input.message);
        this.receive(input.from, input.message, input.parts, input.buffer);
        break;
      case 'peerUp':
        for (const owner of this.owners.values()) owner.stream.onPeerUp(input.peer);
        break;
      case 'taken':
        this.host.answers.report(input.links);
        break;
      case 'gone':
        this.host.answers.gone(input.client);
        this.parked.gone(input.client);
        this.queue.gone(input.client);
        for (const owner of this.owners.values()) owner.gone(input.client);
        break;
      case 'flush':
        this.host.flush();
        break;
      case 'turn':
        this.turn(input.buffers);
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
    this.host.replies.send();
    return this.host.out.take();
  }

  /** True: an owner has deltas that are not sent yet, so the runtime should hand in a `flush` soon. */
  get needsFlush(): boolean {
    return this.host.isDirty;
  }

  /**
   * True: requests wait or were served, or rows can be read for a checkpoint. The runtime should hand in a
   * `turn` when sockets and timers have been looked at.
   */
  get needsTurn(): boolean {
    return this.hasRequests || this.saving.needsTurn;
  }

  /** True: requests wait for the next turn, or were served in this one. */
  get hasRequests(): boolean {
    return this.host.turn.isUsed || this.queue.any || this.host.needsTurn;
  }

  /** True: a request that comes now waits for a turn. */
  get isBehind(): boolean {
    return this.queue.any || this.host.turn.isFull;
  }

  /** Bytes of the requests of a client that wait for a turn. */
  queuedBytes(client: PeerId): number {
    return this.queue.bytesOf(client);
  }

  close(): void {
    this.shards.close();
    this.sinks.close();
  }

  // ---- map

  /**
   * Looks only at the groups that changed. Changes that do not follow the node's map are ignored: heartbeats
   * tell the scheduler which map is here, and it sends a whole one.
   */
  private onMap(message: MessageOf<'map'> | MessageOf<'mapDiff'>): void {
    // A whole map comes with a welcome, too: a scheduler that was started again knows nothing of this node.
    if (message.t === 'map') this.reporter.everything();
    const { host, owners, sinks } = this;
    const before = host.map;
    const change = changeBy(before, message);
    if (typeof change === 'string') return;
    const { map, groups } = change;
    if (groups.some((group) => hasNewOwner(before.groups[group.id], group))) host.disturbed();
    host.map = map;
    // Rule 47: tables are gone with the map that does not have them.
    const dropped = host.gone.since(before);
    if (dropped.length > 0) for (const each of [...sinks.all(), owners]) each.dropTables(dropped);
    for (const group of groups) {
      if (hasMove(group) && isParted(group)) this.moving.add(group.id);
      else this.moving.delete(group.id);
      this.shards.place(group);
    }
    sinks.onMap(map, groups);
    sinks.applyVersions(groups);
    this.shards.applyVersions(groups);
    if (map.tables !== before.tables) for (const owner of owners.values()) owner.onTables(map);
    for (const { from, message: parked, parts } of this.parked.takeAll())
      this.receiveParked(from, parked, parts);
  }

  /**
   * A parked message that is refused is logged, and the others are handled. Its connection may have been
   * closed and opened again by now, so no connection is closed for it.
   */
  private receiveParked(from: PeerId, message: MessageTo<'node'>, parts: readonly Uint8Array[]): void {
    try {
      // Other messages of the scheduler and of nodes stand behind the one in hand.
      if (isRequest(message) && !this.newer(message)) this.queue.later(from, message, parts);
      else this.receive(from, message, parts);
    } catch (error) {
      if (!isRefusal(error)) throw error;
      this.host.out.event('message.refused', { from, kind: message.t, message: describe(error) });
    }
  }

  // ---- messages

  private newer(message: Message): boolean {
    if ('epoch' in message && message.t !== 'heartbeat') return message.epoch > this.host.map.epoch;
    if ('v' in message) return message.v > (this.host.map.groups[message.g]?.version ?? 0);
    return false;
  }

  private receive(
    from: PeerId,
    message: MessageTo<'node'>,
    parts: readonly Uint8Array[],
    buffer?: RowsBuffer,
  ): void {
    if (this.newer(message)) {
      this.parked.add(from, message, parts);
      return;
    }
    switch (message.t) {
      case 'map':
      case 'mapDiff':
        return this.onMap(message);
      case 'push':
      case 'skipTo':
      case 'pull':
      case 'keys':
        return this.queue.arrived(from, message, parts, buffer);
      case 'shardStats':
      case 'evictions':
        return this.queries.onAsked(from, message);
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
        return this.onObserve(from, message);
      case 'check':
        return this.sinks.unlessRefused(message.sid, () => this.queries.onCheck(from, message));
      case 'openAck':
        return this.shards.to(message, (owner) => owner.stream.onOpenAck(message));
      case 'startAck':
        return this.shards.to(message, (owner) => owner.stream.onStartAck(message));
      case 'applied':
        return this.shards.to(message, (owner) => owner.stream.onApplied(message));
      case 'confirmedLost':
        return this.owners.of(message)?.onConfirmedLost(message);
      case 'time':
        return this.shards.tell(message.seconds);
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
        return this.owners.of(message)?.onWant(message, part(parts, 0), from);
      case 'equation':
        return this.shards.to(message, (to) => to.onEquation(message, part(parts, 0), part(parts, 1)));
      case 'follow':
      case 'followWant':
      case 'followProbe':
        return this.queries.onReplica(from, message, part(parts, 0));
      case 'install':
        return this.shards.to(message, (owner) => owner.onInstall(part(parts, 0), part(parts, 1)));
      // The runtime takes these itself (src/roles/ps): a node has nothing to do with them.
      case 'hello':
      case 'welcome':
      case 'stale':
      case 'redirect':
      case 'changeReply':
      case 'leave':
        throw notTaken(message);
      default:
        throw notTaken(message satisfies never);
    }
  }

  private onObserve(from: PeerId, { id, shards = false }: MessageOf<'observe'>): void {
    this.host.out.send(from, { t: 'observed', id, node: this.telemetry(shards) });
  }

  private onReach({ node, inc, round }: MessageOf<'reach'>): void {
    const ms = this.hooks.unacknowledgedMs(node, inc);
    const reached = { t: 'reached' as const, node, inc, ...(round !== undefined && { round }) };
    this.host.out.send(SCHEDULER, { ...reached, ...(ms !== undefined && { silentMs: Math.round(ms) }) });
  }

  private onMovePace({ bytesPerSecond }: MessageOf<'movePace'>): void {
    this.host.pace.need(bytesPerSecond);
    const items = movesLeft(this.sinks.all());
    if (items.length > 0) this.host.out.send(SCHEDULER, { t: 'moveProgress', items });
  }

  // ---- turns and timers

  /** Requests that wait are served, each kind first in every third turn; then background work goes on. */
  private turn(buffers: RowsBuffers | undefined): void {
    const { host, queue } = this;
    host.turn.begin();
    const kinds = [() => host.serveOwners(), () => host.answers.serve(), () => queue.serve(buffers)];
    for (const i of kinds.keys()) kinds[(host.turn.number + i) % kinds.length]!();
    this.saving.turn();
  }

  private tick(now: number): void {
    const { host } = this;
    host.now = now;
    const [owners, sinks] = [this.owners.all(), this.sinks.all()];
    const lacking = isLacking(owners, sinks);
    this.loading.tick();
    const decoding = this.loading.isBusy || owners.some((owner) => owner.decoding);
    host.pace.tick(
      now,
      lacking || sinks.some(({ complete }) => !complete),
      decoding,
      this.moving.size > 0 && !lacking,
    );
    host.moveRate.tick(now);
    this.shards.tick(now, owners);
    host.flushed();
    host.answers.tick();
    host.replies.owed.tick(now);
    this.sinks.tick();
    this.saving.tick();
    this.heartbeat(now, owners, this.sinks.all());
    this.sessions.tick(now);
  }

  /** Heartbeats go at a fixed rate, and at once when a sink or a shard becomes complete or incomplete. */
  private heartbeat(now: number, owners: readonly Owner[], sinks: readonly Sink[]): void {
    const report = this.reporter.report(now, owners, sinks);
    if (!report) return;
    const { inc, map, memory, host } = this;
    const limit = memory.limitBytes > 0 && { limit: memory.limitBytes };
    const told = { inc, epoch: map.epoch, bytes: memory.usedBytes, ...limit, ...report };
    host.out.send(SCHEDULER, { t: 'heartbeat', ...told, ...host.heardTime });
  }

  ownerAt(g: number, m: number): Owner | undefined {
    return this.owners.at(g, m);
  }

  sinkAt(sid: number): Sink | undefined {
    return this.sinks.get(sid);
  }

  /** State for the log when the node fails. */
  state(): Record<string, unknown> {
    const { id, inc, now, map } = this;
    return { id, inc, now, epoch: map.epoch, ...stateOf(this.owners.values(), this.sinks.all()) };
  }

  /** Counters and sizes for an observer. `shards`: also those of each shard. */
  telemetry(shards: boolean): NodeTelemetry {
    return telemetryOf(this.observed, this.hooks.surroundings(), shards);
  }

  /** Bytes that the node accounts for. `receivedBytes`, `readerBytes`: as `Surroundings`. */
  heldBytes(receivedBytes: number, readerBytes: number): number {
    const parts = partBytesOf(this.observed, receivedBytes, readerBytes);
    return Object.values(parts).reduce((sum, bytes) => sum + bytes, 0);
  }

  private get observed(): ObservedParts {
    const { host, owners, sinks, queue, memory, saving, loading } = this;
    return { host, owners, sinks, queue, memory, saving, loading };
  }
}

function notTaken({ t }: Message): KintsugiError {
  return new KintsugiError('BAD_FRAME', `a PS node does not take messages of kind "${t}"`);
}

/** A part of a message; empty when it is missing, which the engine refuses. */
function part(parts: readonly Uint8Array[], index: number): Uint8Array {
  return parts[index] ?? EMPTY;
}

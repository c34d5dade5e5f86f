/**
 * The scheduler: knows who is alive, decides who holds what, and is the only one that makes maps. What it
 * decides goes through the ledger, which makes it durable first (rule 2).
 *
 * Liveness and what is complete are soft state: after a restart they come back with heartbeats (rule 29).
 */
import type { ClusterMap, Group, NodeEntry, PeerId, SinkEntry } from '../../protocol/map.js';
import type { Heartbeat, JobStatus, Message, MessageOf, Redundancy } from '../../protocol/messages.js';
import { formGroups } from '../placement/form.js';
import { type ClusterView, canDoWithout, isIndispensable } from '../placement/health.js';
import { keepSinks, repair } from '../placement/repair.js';
import type { SchedulerPolicy } from '../shared/policy.js';
import { Ledger, type SchedulerEffect, type SchedulerInput } from './ledger.js';
import { type NodeLiveness, newLiveness } from './liveness.js';
import { Reports } from './reports.js';
import { Samples } from './samples/samples.js';
import { Scaler } from './scaling/scaler.js';
import { Sessions } from './sessions.js';
import { type DurableState, withCapabilities } from './state.js';
import { type LostShard, redundancyOf, type StatusInput, statusOf } from './status.js';
import { addTables } from './tables.js';

export { DEFAULT_SCHEDULER_POLICY, type SchedulerPolicy } from '../shared/policy.js';
export type { SchedulerEffect, SchedulerInput } from './ledger.js';
export { type DurableState, newJob } from './state.js';

/** ps-2 before ps-10. */
const BY_NUMBER = new Intl.Collator('en', { numeric: true });

export class Scheduler {
  private readonly ledger: Ledger;
  private readonly sessions: Sessions;
  private readonly samples: Samples;
  private readonly liveness = new Map<PeerId, NodeLiveness>();
  private readonly reports = new Reports();
  /** Node -> time until which it gets nothing new. */
  private readonly avoided = new Map<PeerId, number>();
  private readonly lost = new Map<string, LostShard>();
  private readonly scaler: Scaler;
  private now = 0;
  private redundancyBefore: Redundancy = 'forming';
  /** Something that placement depends on changed since repair last had nothing to do. */
  private unsettled = true;
  private unannounced = true;

  constructor(
    state: DurableState,
    private readonly policy: SchedulerPolicy,
    restarted: boolean,
  ) {
    this.ledger = new Ledger(restarted ? withCapabilities(state) : state, restarted);
    this.sessions = new Sessions(this.ledger, policy);
    this.scaler = new Scaler({
      ledger: this.ledger,
      policy,
      loads: this.reports.loads,
      view: () => this.view(),
      isLost: (group) => this.isLost(group),
      unsettle: () => this.changed(),
      forget: (node) => this.forget(node),
    });
    this.samples = new Samples(this.ledger, policy);
    if (restarted) for (const node of state.map.nodes) this.liveness.set(node.id, newLiveness(node.inc, 0));
  }

  /** The newest map, durable or not: for tests and status only. */
  get map(): ClusterMap {
    return this.ledger.map;
  }

  status(): JobStatus {
    return statusOf(this.statusInput());
  }

  private get state(): DurableState {
    return this.ledger.state;
  }

  step(input: SchedulerInput): SchedulerEffect[] {
    // Most inputs are heartbeats and ticks without news: those say themselves when they have some.
    if (input.kind !== 'tick' && input.kind !== 'persisted' && input.kind !== 'message') this.changed();
    switch (input.kind) {
      case 'join':
        this.onJoin(input.link, input.message);
        break;
      case 'attach':
        this.onAttach(input.link, input.message);
        break;
      case 'message':
        this.onMessage(input.from, input.message);
        break;
      case 'closed':
        if (this.sessions.closed(input.peer, input.link, this.now)) this.samples.closed(input.peer);
        this.onClosed(input.peer, input.inc);
        break;
      case 'refused':
        this.onRefused(input.node, input.inc);
        break;
      case 'move':
        this.scaler.move(input.g, input.member, input.index, input.node);
        break;
      case 'listening':
        this.onListening(input.node, input.inc);
        break;
      case 'persisted':
        this.ledger.persisted(input.version);
        break;
      case 'tick':
        this.onTick(input.now);
        break;
    }
    if (this.unannounced) {
      this.scaler.advance();
      this.announceRedundancy();
    }
    return this.ledger.commit();
  }

  private changed(): void {
    this.unsettled = this.unannounced = true;
  }

  // ---- membership

  /**
   * Rule 1: a new process gets a new incarnation; a reconnecting one keeps its own unless a newer one exists.
   */
  private onJoin(link: number, join: MessageOf<'join'>): void {
    const known = this.state.names[join.name];
    if (join.id !== undefined && join.inc !== undefined) {
      if (known?.id !== join.id || known.inc !== join.inc || this.isForeign(join.job)) {
        this.ledger.afterwards({ kind: 'reply', link, message: { t: 'stale', code: 'STALE_NODE' } });
        return;
      }
      if (known.left) {
        this.ledger.afterwards({ kind: 'reply', link, message: { t: 'leave', inc: join.inc } });
        return;
      }
    } else {
      const id = known?.id ?? this.state.nextPeer++;
      this.state.names[join.name] = { id, inc: (known?.inc ?? 0) + 1 };
      this.ledger.touch();
    }
    const { id, inc } = this.state.names[join.name]!;
    const previous = this.liveness.get(id);
    const liveness = previous?.inc === inc ? previous : newLiveness(inc, this.now);
    liveness.connected = true;
    liveness.dead = false;
    liveness.heardAt = this.now;
    this.liveness.set(id, liveness);
    const entry: NodeEntry = {
      id,
      inc,
      name: join.name,
      host: join.host,
      address: join.address,
      standby: join.standby,
    };
    const listed = this.state.map.nodes.find((node) => node.id === id);
    if (!listed || listed.inc !== inc || listed.address !== join.address) {
      const nodes = [...this.state.map.nodes.filter((node) => node.id !== id), entry];
      nodes.sort((a, b) => BY_NUMBER.compare(a.name, b.name));
      this.ledger.setMap({ nodes }, 'join', { node: id, name: join.name, inc });
    }
    const running = this.state.map.groups.length > 0;
    this.form();
    this.reconfigure('join');
    if (running && listed?.inc !== inc) this.scaler.joined(entry);
    this.ledger.afterwards({
      kind: 'reply',
      link,
      message: { t: 'welcome', id, inc, map: this.state.map },
      admit: { peer: id, inc },
    });
  }

  private onAttach(link: number, attach: MessageOf<'attach'>): void {
    const known = attach.id !== undefined;
    const resumed = known && !this.isForeign(attach.job) && this.sessions.resume(attach.id!, link);
    const id = known ? (resumed ? attach.id : undefined) : this.sessions.lease(link);
    if (id === undefined) {
      const code = known ? 'SESSION_EXPIRED' : 'LIMIT';
      this.ledger.afterwards({ kind: 'reply', link, message: { t: 'stale', code } });
      return;
    }
    this.samples.attached(id);
    this.ledger.afterwards({
      kind: 'reply',
      link,
      message: { t: 'welcome', id, inc: 0, map: this.state.map },
      admit: { peer: id, inc: 0 },
    });
  }

  private forget(node: PeerId): void {
    this.liveness.delete(node);
    this.reports.heartbeats.delete(node);
  }

  /** A peer that comes back from another job, whose ids mean nothing here. */
  private isForeign(job: string | undefined): boolean {
    return job !== undefined && job !== this.state.map.job;
  }

  private onClosed(peer: PeerId, inc: number): void {
    const liveness = this.liveness.get(peer);
    if (!liveness || liveness.inc !== inc) return;
    liveness.connected = false;
    liveness.closedAt = this.now;
    const node = this.state.map.nodes.find((entry) => entry.id === peer);
    if (node) this.probe(node);
  }

  /** It is given up as a silent one then, not as one that does not come back. */
  private onListening(node: PeerId, inc: number): void {
    const liveness = this.liveness.get(node);
    if (liveness?.inc === inc) liveness.closedAt = this.now;
  }

  private onRefused(node: PeerId, inc: number): void {
    const liveness = this.liveness.get(node);
    if (liveness && liveness.inc === inc && !liveness.connected) this.lose([node, 'refused']);
  }

  private indispensable(node: PeerId): boolean {
    const { groups, pools } = this.state.map;
    return isIndispensable(node, groups, pools, this.view(), (group) => this.isLost(group));
  }

  private isLost(group: Group): boolean {
    return [...this.lost.values()].some((lost) => lost.g === group.id && lost.v === group.version);
  }

  /**
   * Whoever is lost at once is lost in one decision: before the second is known, the first one's repair would
   * count on it.
   */
  private lose(...late: [node: PeerId, reason: string][]): void {
    for (const fields of late.flatMap(([node, reason]) => this.giveUp(node, reason)))
      this.reconfigure('lost', fields);
  }

  private giveUp(node: PeerId, reason: string): Record<string, unknown>[] {
    const liveness = this.liveness.get(node);
    if (!liveness || liveness.dead) return [];
    const lost = { node, inc: liveness.inc, reason };
    if (reason !== 'refused' && this.indispensable(node)) {
      if (!liveness.suspected) this.ledger.now({ kind: 'event', name: 'node.suspected', fields: lost });
      liveness.suspected = true;
      return [];
    }
    this.changed();
    liveness.dead = true;
    const name = this.state.map.nodes.find((entry) => entry.id === node)?.name;
    this.ledger.now({ kind: 'event', name: 'node.lost', fields: { ...lost, name } });
    return [{ node, name, inc: liveness.inc }];
  }

  private onTick(now: number): void {
    const first = this.now === 0;
    // Time in which this process did not run (stopped, swapped out) is nobody's silence.
    const slept = first ? 0 : Math.max(0, now - this.now - this.policy.reconnectMs);
    this.now = now;
    if (first) this.onFirstTick(now);
    else this.sessions.tick(now, slept);
    this.samples.tick(now, slept);
    for (const [node, until] of this.avoided) {
      if (until > now) continue;
      this.avoided.delete(node);
      this.changed();
    }
    const late: [PeerId, string][] = [];
    for (const [id, liveness] of this.liveness) {
      liveness.heardAt = first ? now : liveness.heardAt + slept;
      liveness.closedAt = first ? now : liveness.closedAt + slept;
      if (liveness.dead) continue;
      const gone = !liveness.connected && now - liveness.closedAt > this.policy.reconnectMs;
      if (gone || now - liveness.heardAt > this.policy.silentMs)
        late.push([id, gone ? 'did not reconnect' : 'silent']);
    }
    this.lose(...late);
    this.scaler.tick(now);
  }

  /** Who died while no scheduler ran may be found out at once; the others come back by themselves. */
  private onFirstTick(now: number): void {
    this.sessions.restartLeases(now);
    for (const node of this.state.map.nodes) this.probe(node);
  }

  private probe({ id: node, inc, address }: NodeEntry): void {
    this.ledger.now({ kind: 'probe', node, inc, address });
  }

  private onMessage(from: PeerId, message: Message): void {
    if (message.t === 'heartbeat') return this.onHeartbeat(from, message);
    if (this.samples.receive(from, message)) return;
    this.changed();
    switch (message.t) {
      case 'unrecoverable':
        return this.onUnrecoverable(from, message);
      case 'stalled':
        return this.onStalled(from, message);
      case 'replaceSink': {
        const done = this.replaceSink(message.g, message.sid, 'scrub');
        return this.ledger.answer(from, { t: 'sinkReplaced', id: message.id, done });
      }
      case 'scale':
      case 'drain':
      case 'rebalance':
        return this.scaler.onMessage(from, message);
      case 'createTables':
        return this.onCreateTables(from, message);
      case 'detach':
        this.samples.closed(from); // Now: when the connection closes it has no session any more.
        return this.sessions.end(from);
      case 'sessions':
        return this.ledger.answer(from, this.sessions.answer());
      case 'status':
        this.ledger.now({
          kind: 'send',
          to: from,
          message: { t: 'statusReply', id: message.id, status: this.status() },
          parts: [],
        });
        return;
      default:
        return;
    }
  }

  private onHeartbeat(from: PeerId, heartbeat: Heartbeat): void {
    const liveness = this.liveness.get(from);
    if (!liveness) this.scaler.stranger(from, heartbeat.inc);
    if (!liveness || liveness.inc !== heartbeat.inc) return;
    liveness.heardAt = this.now;
    const revived = liveness.dead;
    const news = this.reports.learn(from, heartbeat, this.now);
    if (news || liveness.dead || !liveness.connected) this.changed();
    liveness.dead = false;
    liveness.suspected = false;
    liveness.connected = true;
    if (heartbeat.epoch < this.state.map.epoch) {
      this.ledger.answer(from, { t: 'map', map: this.state.map });
    }
    if (this.unsettled) this.reconfigure(revived ? 'revived' : 'progress');
  }

  private onUnrecoverable(from: PeerId, report: MessageOf<'unrecoverable'>): void {
    const { g, m, gen, v, blocks } = report;
    if (this.state.map.groups[g]?.version !== v) return;
    this.lost.set(`${g}/${m}`, { g, m, v, blocks });
    this.ledger.answer(from, { t: 'confirmedLost', g, m, gen, v });
  }

  // ---- placement

  /**
   * A sink that its owner cannot reach, or that is too slow, is replaced if the group can do without it
   * meanwhile.
   */
  private onStalled(from: PeerId, report: MessageOf<'stalled'>): void {
    const group = this.state.map.groups[report.g];
    const owner = group?.data[report.m];
    if (group?.version !== report.v || owner?.gen !== report.gen || owner.node !== from) return;
    const sink = group.sinks.find((entry) => entry.sid === report.sid);
    if (!sink) return;
    if (!this.canDoWithout(group, sink)) return;
    this.avoided.set(sink.node, this.now + this.policy.avoidMs);
    this.replaceSink(report.g, report.sid, 'stalled');
  }

  private canDoWithout(group: Group, sink: SinkEntry): boolean {
    return this.isLost(group) || canDoWithout(group, sink, this.state.map.pools[group.pool]!, this.view());
  }

  /** Drops a sink; repair puts another in its place. */
  private replaceSink(g: number, sid: number, reason: string): boolean {
    const { map } = this.state;
    const group = map.groups[g];
    const wrong = group?.sinks.find((sink) => sink.sid === sid);
    if (!group || !wrong || !this.canDoWithout(group, wrong)) return false;
    const sinks = keepSinks(group, (sink) => sink.sid !== sid);
    this.reports.completeSinks.delete(sid);
    this.ledger.setGroup({ ...group, sinks }, `replace sink: ${reason}`, { group: g, sid });
    this.reconfigure(reason);
    return true;
  }

  private view(): ClusterView {
    return {
      nodes: this.state.map.nodes.filter((node) => this.isPresent(node)),
      alive: (id, inc) => this.isAlive(id, inc),
      sinkComplete: (sid) => this.reports.completeSinks.has(sid),
      shardComplete: (group, member, gen) => this.reports.isShardComplete(group, member, gen),
      avoid: new Set(this.avoided.keys()),
      leaving: this.scaler.leaving,
    };
  }

  private isAlive(id: PeerId, inc: number): boolean {
    const liveness = this.liveness.get(id);
    return liveness !== undefined && !liveness.dead && liveness.inc === inc;
  }

  /**
   * Alive and connected: something new can be put there. After a restart most are alive until we know better.
   */
  private isPresent(node: NodeEntry): boolean {
    return this.isAlive(node.id, node.inc) && this.liveness.get(node.id)?.connected === true;
  }

  /** Forms the groups once enough nodes have joined. */
  private form(): void {
    const { map, nodesWanted } = this.state;
    if (map.groups.length > 0) return;
    const ready = this.view().nodes.filter((node) => !node.standby);
    if (ready.length < nodesWanted) return;
    const groups = formGroups(map.pools, ready.slice(0, nodesWanted), map.epoch + 1, this.ledger.nextSid);
    this.ledger.setMap({ groups }, 'formed');
  }

  private reconfigure(reason: string, fields: Record<string, unknown> = {}): void {
    const { map } = this.state;
    if (map.groups.length === 0) return;
    const groups = repair(map.groups, map.pools, this.view(), map.epoch + 1, this.ledger.nextSid);
    this.unsettled = groups !== undefined;
    if (groups) this.ledger.setMap({ groups }, reason, fields);
    else if (reason === 'lost') this.ledger.setMap({}, reason, fields);
  }

  // ---- tables

  private onCreateTables(from: PeerId, message: MessageOf<'createTables'>): void {
    const { map } = this.state;
    const { all, asked, problem } = addTables(map, message.specs, this.policy.maxTables);
    if (all.length > map.tables.length) this.ledger.setMap({ tables: all }, 'tables');
    this.ledger.answer(from, { t: 'tablesCreated', id: message.id, tables: asked, ...problem });
  }

  // ---- status

  private statusInput(): StatusInput {
    return {
      state: this.state,
      view: this.view(),
      lost: [...this.lost.values()],
      heartbeats: this.reports.heartbeats,
      rows: (g, m) => this.reports.rows(g, m),
      scaling: () => this.scaler.status(),
    };
  }

  private announceRedundancy(): void {
    this.unannounced = false;
    const { state } = redundancyOf(this.statusInput());
    if (state === this.redundancyBefore) return;
    this.redundancyBefore = state;
    const fields = { state, epoch: this.state.map.epoch };
    this.ledger.afterwards({ kind: 'event', name: 'redundancy', fields });
  }
}

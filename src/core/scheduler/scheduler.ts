/**
 * The scheduler: knows who is alive, decides who holds what, and is the only one that makes maps. What it
 * decides goes through the ledger, which makes it durable first (rule 2).
 *
 * Liveness and what is complete are soft state: after a restart they come back with heartbeats (rule 29).
 */
import type { ClusterMap, Group, NodeEntry, PeerId, SinkEntry } from '../../protocol/map.js';
import type {
  Heartbeat,
  JobStatus,
  JobSummary,
  Message,
  MessageOf,
  Redundancy,
} from '../../protocol/messages.js';
import { formGroups } from '../placement/form.js';
import { type ClusterView, canDoWithout, isIndispensable } from '../placement/health.js';
import { keepSinks, repair } from '../placement/repair.js';
import type { SchedulerPolicy } from '../shared/policy.js';
import { Ledger, type SchedulerEffect, type SchedulerInput } from './ledger.js';
import { Liveness } from './liveness.js';
import { Names } from './names.js';
import { Reports } from './reports.js';
import { Samples } from './samples/samples.js';
import { Scaler } from './scaling/scaler.js';
import { Sessions } from './sessions.js';
import { type DurableState, withCapabilities } from './state.js';
import { type Condition, conditionOf, type StatusInput, statusOf, summaryOf } from './status.js';
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
  private readonly names: Names;
  private readonly liveness: Liveness;
  private readonly reports: Reports;
  /** Node -> time until which it gets nothing new. */
  private readonly avoided = new Map<PeerId, number>();
  private readonly scaler: Scaler;
  private now = 0;
  /** Undefined when something changed since. */
  private computed: Condition | undefined;
  private redundancyBefore: Redundancy = 'forming';
  private warningsBefore = '';
  /** Something that placement depends on changed since repair had nothing to do. */
  private unsettled = true;
  private unannounced = true;

  constructor(
    state: DurableState,
    private readonly policy: SchedulerPolicy,
    restarted: boolean,
  ) {
    this.ledger = new Ledger(restarted ? withCapabilities(state) : state, restarted);
    this.names = new Names(this.ledger, policy);
    this.liveness = new Liveness(policy);
    this.reports = new Reports(() => this.ledger.map.groups);
    this.samples = new Samples(this.ledger, policy);
    this.sessions = new Sessions(this.ledger, policy, (client) => this.samples.ended(client));
    this.scaler = new Scaler({
      ledger: this.ledger,
      policy,
      names: this.names,
      loads: this.reports.loads,
      view: () => this.view(),
      isLost: (group) => this.reports.isLost(group),
      unsettle: () => this.changed(),
      forget: (node) => this.forget(node),
    });
    if (restarted) for (const node of state.map.nodes) this.liveness.expect(node);
  }

  /** The newest map, durable or not: for tests and status only. */
  get map(): ClusterMap {
    return this.ledger.map;
  }

  /** Work for every node and group: for people. */
  status(): JobStatus {
    return statusOf(this.statusInput(), this.condition);
  }

  /** Costs nothing while nothing happens: for those who ask often. */
  summary(): JobSummary {
    return summaryOf(this.condition);
  }

  private get state(): DurableState {
    return this.ledger.state;
  }

  step(input: SchedulerInput): SchedulerEffect[] {
    // Ticks and heartbeats mark a change themselves, because most of them bring none.
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
    this.computed = undefined;
  }

  // ---- membership

  private onJoin(link: number, join: MessageOf<'join'>): void {
    const identity = this.names.identify(join);
    if (identity === 'stale') return this.refuse(link, { t: 'stale', code: 'STALE_NODE' });
    if (identity === 'left') return this.refuse(link, { t: 'leave', inc: join.inc ?? 0 });
    const { id, inc } = identity;
    this.liveness.joined(id, inc, this.now);
    const { name, host, address, machine, standby } = join;
    const entry: NodeEntry = { id, inc, name, host, address, ...(machine && { machine }), standby };
    const listed = this.map.nodes.find((node) => node.id === id);
    if (!listed || listed.inc !== inc || listed.address !== address) {
      const nodes = [...this.map.nodes.filter((node) => node.id !== id), entry];
      nodes.sort((a, b) => BY_NUMBER.compare(a.name, b.name));
      this.ledger.setMap({ nodes }, 'join', { node: id, name, inc });
    }
    const running = this.map.groups.length > 0;
    this.form();
    this.reconfigure('join');
    if (running && listed?.inc !== inc) this.scaler.joined(entry);
    if (listed?.inc !== inc) this.forgetAbsent();
    this.admit(link, id, inc);
  }

  private refuse(link: number, message: Message): void {
    this.ledger.afterwards({ kind: 'reply', link, message });
  }

  private admit(link: number, peer: PeerId, inc: number): void {
    const message: Message = { t: 'welcome', id: peer, inc, map: this.map };
    this.ledger.afterwards({ kind: 'reply', link, message, admit: { peer, inc } });
  }

  /** Nodes that are given up and hold nothing are remembered up to a limit. */
  private forgetAbsent(): void {
    const { holders } = this.scaler;
    const { leaving } = this.scaler;
    const isAbsent = (id: PeerId): boolean =>
      this.liveness.newest(id)?.dead !== false && !holders.has(id) && !leaving.has(id);
    for (const node of this.names.forgetAbsent(isAbsent)) this.forget(node);
  }

  private onAttach(link: number, attach: MessageOf<'attach'>): void {
    const known = attach.id !== undefined;
    const resumed = known && !this.isForeign(attach.job) && this.sessions.resume(attach.id!, link);
    const id = known ? (resumed ? attach.id : undefined) : this.sessions.lease(link);
    if (id === undefined) {
      return this.refuse(link, { t: 'stale', code: known ? 'SESSION_EXPIRED' : 'LIMIT' });
    }
    this.samples.attached(id);
    this.admit(link, id, 0);
  }

  private forget(node: PeerId): void {
    this.liveness.forget(node);
    this.reports.forget(node);
  }

  /** A peer that comes back from another job, whose ids mean nothing here. */
  private isForeign(job: string | undefined): boolean {
    return job !== undefined && job !== this.map.job;
  }

  private onClosed(peer: PeerId, inc: number): void {
    const known = this.liveness.of(peer, inc);
    if (!known) return;
    known.connected = false;
    known.closedAt = this.now;
    const node = this.map.nodes.find((entry) => entry.id === peer);
    if (node) this.probe(node);
  }

  /**
   * The process lives: it is given up when it stays silent, and not because it does not come back at once.
   */
  private onListening(node: PeerId, inc: number): void {
    const known = this.liveness.of(node, inc);
    if (known) known.closedAt = this.now;
  }

  private onRefused(node: PeerId, inc: number): void {
    if (this.liveness.of(node, inc)?.connected === false) this.lose([node, 'refused']);
  }

  private indispensable(node: PeerId): boolean {
    const { groups, pools } = this.map;
    return isIndispensable(node, groups, pools, this.view(), (group) => this.reports.isLost(group));
  }

  /**
   * Nodes that are lost together are lost in one decision. Otherwise the repair of the first would count on
   * the second.
   */
  private lose(...late: [node: PeerId, reason: string][]): void {
    for (const fields of late.flatMap(([node, reason]) => this.giveUp(node, reason)))
      this.reconfigure('lost', fields);
  }

  private giveUp(node: PeerId, reason: string): Record<string, unknown>[] {
    const known = this.liveness.newest(node);
    if (!known || known.dead) return [];
    const lost = { node, inc: known.inc, reason };
    if (reason !== 'refused' && this.indispensable(node)) {
      if (!known.suspected) this.ledger.now({ kind: 'event', name: 'node.suspected', fields: lost });
      known.suspected = true;
      return [];
    }
    this.changed();
    known.dead = true;
    const name = this.map.nodes.find((entry) => entry.id === node)?.name;
    this.ledger.now({ kind: 'event', name: 'node.lost', fields: { ...lost, name } });
    return [{ node, name, inc: known.inc }];
  }

  private onTick(now: number): void {
    const first = this.now === 0;
    // Time in which this process did not run (stopped, swapped out) does not count as silence of others.
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
    if (first) this.liveness.startAt(now);
    else this.liveness.slept(slept);
    this.lose(...this.liveness.late(now));
    this.scaler.tick(now);
  }

  /**
   * Nodes are probed at once, so that those that died while no scheduler ran are found. The others reconnect.
   */
  private onFirstTick(now: number): void {
    this.sessions.restartLeases(now);
    for (const node of this.map.nodes) this.probe(node);
  }

  private probe({ id: node, inc, address }: NodeEntry): void {
    this.ledger.now({ kind: 'probe', node, inc, address });
  }

  private onMessage(from: PeerId, message: Message): void {
    if (message.t === 'heartbeat') return this.onHeartbeat(from, message);
    if (this.sessions.isOpen(from) && this.samples.receive(from, message)) return;
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
    if (!this.liveness.newest(from)) this.scaler.stranger(from, heartbeat.inc);
    const known = this.liveness.of(from, heartbeat.inc);
    if (!known) return;
    known.heardAt = this.now;
    const revived = known.dead;
    const news = this.reports.learn(from, heartbeat, this.now);
    if (news || known.dead || !known.connected) this.changed();
    known.dead = false;
    known.suspected = false;
    known.connected = true;
    if (heartbeat.epoch < this.map.epoch) this.ledger.answer(from, { t: 'map', map: this.map });
    if (this.unsettled) this.reconfigure(revived ? 'revived' : 'progress');
  }

  private onUnrecoverable(from: PeerId, report: MessageOf<'unrecoverable'>): void {
    if (!this.reports.lose(from, report)) return;
    const { g, m, gen, v } = report;
    this.ledger.answer(from, { t: 'confirmedLost', g, m, gen, v });
  }

  // ---- placement

  /**
   * A sink that its owner cannot reach, or that is too slow, is replaced if the group can do without it
   * meanwhile.
   */
  private onStalled(from: PeerId, report: MessageOf<'stalled'>): void {
    const group = this.map.groups[report.g];
    const owner = group?.data[report.m];
    if (group?.version !== report.v || owner?.gen !== report.gen || owner.node !== from) return;
    const sink = group.sinks.find((entry) => entry.sid === report.sid);
    if (!sink) return;
    if (!this.canDoWithout(group, sink)) return;
    this.avoided.set(sink.node, this.now + this.policy.avoidMs);
    this.replaceSink(report.g, report.sid, 'stalled');
  }

  private canDoWithout(group: Group, sink: SinkEntry): boolean {
    return this.reports.isLost(group) || canDoWithout(group, sink, this.map.pools[group.pool]!, this.view());
  }

  /** Drops a sink; repair puts another in its place. */
  private replaceSink(g: number, sid: number, reason: string): boolean {
    const { map } = this.state;
    const group = map.groups[g];
    const wrong = group?.sinks.find((sink) => sink.sid === sid);
    if (!group || !wrong || !this.canDoWithout(group, wrong)) return false;
    const sinks = keepSinks(group, (sink) => sink.sid !== sid);
    this.ledger.setGroup({ ...group, sinks }, `replace sink: ${reason}`, { group: g, sid });
    this.reconfigure(reason);
    return true;
  }

  private view(): ClusterView {
    return {
      nodes: this.map.nodes.filter((node) => this.liveness.isPresent(node)),
      alive: (id, inc) => this.liveness.isAlive(id, inc),
      sinkComplete: (sid) => this.reports.isSinkComplete(sid),
      shardComplete: (group, member, gen) => this.reports.isShardComplete(group, member, gen),
      avoid: new Set(this.avoided.keys()),
      leaving: this.scaler.leaving,
    };
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
      lost: this.reports.lost,
      reports: this.reports.nodes,
      rows: (g, m) => this.reports.rows(g, m),
      scaling: () => this.scaler.status(),
    };
  }

  private get condition(): Condition {
    if (this.computed?.map !== this.map) this.computed = conditionOf(this.statusInput());
    return this.computed;
  }

  private announceRedundancy(): void {
    this.unannounced = false;
    const { state, warnings } = this.condition;
    const message = warnings.join('; ');
    if (message !== '' && message !== this.warningsBefore)
      this.ledger.afterwards({ kind: 'event', name: 'hosts.warning', fields: { message } });
    this.warningsBefore = message;
    if (state === this.redundancyBefore) return;
    this.redundancyBefore = state;
    const fields = { state, epoch: this.map.epoch };
    this.ledger.afterwards({ kind: 'event', name: 'redundancy', fields });
  }
}

/**
 * The scheduler: knows who is alive, decides who holds what, and is the only one that makes maps. What it
 * decides goes through the ledger, which makes it durable first (rule 2).
 *
 * Liveness and what is complete are soft state: after a restart they come back with heartbeats (rule 29).
 */
import type { ClusterMap, Group, PeerId } from '../../protocol/map.js';
import type { Heartbeat, JobStatus, JobSummary, Message, MessageOf } from '../../protocol/messages.js';
import { checkSender } from '../../protocol/senders.js';
import type { PlanStatus } from '../../protocol/status.js';
import { formGroups } from '../placement/form.js';
import { GroupIndex } from '../placement/group-index.js';
import { type ClusterView, isIndispensable } from '../placement/health.js';
import { repair } from '../placement/repair.js';
import type { SchedulerPolicy } from '../shared/policy.js';
import { Announcer } from './announcer.js';
import type { EventLog } from './events.js';
import { LateMaps } from './late-maps.js';
import { Ledger, QUIET, type SchedulerEffect, type SchedulerInput } from './ledger.js';
import { Membership } from './membership.js';
import { Names } from './names.js';
import { Recoveries } from './recoveries.js';
import { refuse } from './refusing.js';
import { Replacing } from './replacing.js';
import { Replicas } from './replicas.js';
import { Reports } from './reports.js';
import { Samples } from './samples/samples.js';
import { Restorer } from './saving/restorer.js';
import { Saver } from './saving/saver.js';
import { Scaler } from './scaling/scaler.js';
import { Sessions } from './sessions.js';
import { Standing } from './standing.js';
import type { Change, DurableState } from './state.js';
import { TableBook } from './tables.js';
import { ToldEvents } from './told-events.js';
import { Waking } from './waking.js';
import { Workers } from './workers.js';

export { DEFAULT_SCHEDULER_POLICY, type SchedulerPolicy } from '../shared/policy.js';
export { stateOf } from './entries.js';
export type { SchedulerEffect, SchedulerInput } from './ledger.js';
export { restoredJob } from './saving/restored.js';
export { type DurableState, newJob } from './state.js';

export class Scheduler {
  private readonly ledger: Ledger;
  private readonly sessions: Sessions;
  readonly samples: Samples;
  private readonly membership: Membership;
  readonly reports: Reports;
  private readonly lateMaps: LateMaps;
  private readonly replacing: Replacing;
  private readonly scaler: Scaler;
  private readonly saver: Saver;
  private readonly restorer: Restorer;
  private readonly replicas: Replicas;
  private readonly announcer: Announcer;
  private readonly told: ToldEvents;
  private readonly recoveries: Recoveries;
  private readonly waking: Waking;
  readonly workers = new Workers((id) => this.sessions.isOpen(id));
  private readonly groups = new GroupIndex();
  private readonly tables = new TableBook();
  private readonly standing: Standing;
  private now = 0;
  /** Something that placement depends on changed since repair had nothing to do. */
  private unsettled = true;
  private unannounced = true;
  /** Why the store cannot be reached. */
  private storeProblem: string | undefined;

  constructor(
    state: DurableState,
    private readonly policy: SchedulerPolicy,
    restarted: boolean,
    /** What the store holds is of an older layout, or nothing: the first decision writes the whole state. */
    unwritten = !restarted,
  ) {
    this.ledger = new Ledger(state, unwritten);
    const names = new Names(this.ledger, policy);
    this.reports = new Reports(() => this.ledger.map.groups);
    this.lateMaps = new LateMaps(this.ledger, policy);
    this.samples = new Samples(this.ledger, policy);
    this.replicas = new Replicas(this.ledger, (id) => this.sessions.isOpen(id));
    this.announcer = new Announcer(this.ledger);
    this.told = new ToldEvents(this.ledger);
    const isAlive = (id: PeerId, inc: number) => this.membership.isAlive(id, inc);
    this.recoveries = new Recoveries({
      ledger: this.ledger,
      isAlive,
      isShardComplete: (g, m, gen) => this.reports.isShardComplete(g, m, gen),
      isSinkComplete: (sid) => this.reports.isSinkComplete(sid),
    });
    const { ledger, reports, recoveries } = this;
    ledger.onGroups = (before, after) => recoveries.decided(before, after);
    this.waking = new Waking({ ledger, policy, isAlive, reports, recoveries }, restarted);
    this.sessions = new Sessions(this.ledger, policy, (client) => {
      this.samples.ended(client);
      this.workers.ended(client);
    });
    this.saver = new Saver({
      ledger: this.ledger,
      policy,
      samples: this.samples,
      sessions: this.sessions,
      isLost: (group) => this.reports.isLost(group),
    });
    this.restorer = new Restorer({
      ledger: this.ledger,
      policy,
      sessions: this.sessions,
      lost: () => this.reports.lost.filter(({ g, v }) => this.map.groups[g]?.version === v),
      isComplete: (g, m, gen) => this.reports.isShardComplete(g, m, gen),
      unsettle: () => this.changed(),
    });
    this.standing = new Standing({
      ...{ ledger, reports, replicas: this.replicas, saver: this.saver, restorer: this.restorer },
      scaler: () => this.scaler,
      view: () => this.view(),
      index: () => this.index,
    });
    this.scaler = new Scaler({
      ledger: this.ledger,
      policy,
      names,
      loads: this.reports.loads,
      view: () => this.view(),
      recoveries: () => this.reports.recoveries(),
      index: () => this.index,
      settled: () => this.standing.settled,
      isLost: (group) => this.reports.isLost(group),
      unsettle: () => this.changed(),
      forget: (node) => this.membership.forget(node),
    });
    this.replacing = new Replacing({
      ledger: this.ledger,
      policy,
      viewOfHeard: () => this.without(this.membership.silentOnes),
      isLost: (group) => this.reports.isLost(group),
      reconfigure: (reason) => this.reconfigure(reason),
    });
    this.membership = new Membership(
      {
        ledger: this.ledger,
        policy,
        names,
        sessions: this.sessions,
        samples: this.samples,
        scaler: this.scaler,
        changed: () => this.changed(),
        form: () => this.form(),
        reconfigure: (reason, fields) => this.reconfigure(reason, fields),
        heldBy: (node) => this.heldBy(node),
        indispensable: (node, besides) => this.indispensable(node, besides),
        forgetReports: (node) => this.reports.forget(node),
      },
      restarted,
    );
  }

  /** The newest map, durable or not: for tests and status only. */
  get map(): ClusterMap {
    return this.ledger.map;
  }

  /** The newest, durable or not, likewise. */
  get changes(): readonly Change[] {
    return this.scaler.list;
  }

  /** Work for every node and group: for people. */
  status(): JobStatus {
    const { storeProblem } = this;
    if (storeProblem === undefined) return this.standing.status(this.now, []);
    const full = this.isFull ? '; so many that requests are refused' : '';
    return this.standing.status(this.now, [`decisions wait for the store: ${storeProblem}${full}`]);
  }

  /** Undefined: the job has never had a save plan. */
  plans(): PlanStatus[] | undefined {
    return this.saver.status();
  }

  /** Costs nothing while nothing happens: for those who ask often. */
  summary(): JobSummary {
    return this.standing.summary();
  }

  /** Recoveries of data shards that are under way, as far as this process has decided them. */
  get recovering(): number {
    return this.recoveries.underWay;
  }

  /** Of the job. Nobody is told of those that are not durable. */
  get events(): Pick<EventLog, 'durable' | 'since'> {
    return this.ledger.events;
  }

  private get state(): DurableState {
    return this.ledger.state;
  }

  step(input: SchedulerInput): SchedulerEffect[] {
    if (this.isFull && refuse(input, this.ledger)) return this.ledger.commit();
    if (!QUIET.has(input.kind)) this.changed();
    switch (input.kind) {
      case 'join':
        this.membership.join(input.link, input.message);
        break;
      case 'attach':
        this.membership.attach(input.link, input.message);
        break;
      case 'message':
        checkSender(input.role, 'scheduler', input.message.t);
        this.onMessage(input.from, input.message);
        break;
      case 'closed':
        if (this.sessions.closed(input.peer, input.link, this.now)) this.samples.closed(input.peer);
        this.membership.closed(input.peer, input.inc);
        break;
      case 'refused':
        this.membership.refused(input.node, input.inc);
        break;
      case 'silent':
        this.membership.silent(input.links);
        break;
      case 'move':
        this.scaler.move(input.g, input.member, input.index, input.node);
        break;
      case 'listening':
        this.membership.listening(input.node, input.inc);
        break;
      case 'persisted':
        this.ledger.persisted(input.version);
        this.told.answer();
        break;
      case 'published':
      case 'publishFailed':
        this.saver.onPublished(input);
        break;
      case 'restoreLost':
        this.restorer.restoreLost(input);
        break;
      case 'store':
        this.storeProblem = input.problem;
        break;
      case 'tick':
        this.onTick(input.now, input.wall ?? input.now);
        break;
    }
    if (this.unannounced) {
      this.scaler.advance();
      this.announceRedundancy();
    }
    return this.ledger.commit();
  }

  /** More than the store can be told soon waits for it. */
  private get isFull(): boolean {
    return this.ledger.heldEffects >= this.policy.maxHeldEffects;
  }

  private changed(): void {
    this.unsettled = this.unannounced = true;
    this.standing.changed();
  }

  private heldBy(node: PeerId): Group[] {
    return this.index.groupsOf(node).map((g) => this.map.groups[g]!);
  }

  private indispensable(node: PeerId, besides: readonly PeerId[]): boolean {
    const isLost = (group: Group): boolean => this.reports.isLost(group);
    return isIndispensable(node, this.heldBy(node), this.map.pools, this.without(besides), isLost);
  }

  private get index(): GroupIndex {
    return this.groups.follow(this.map.groups, this.map.pools);
  }

  private onTick(now: number, wall: number): void {
    const first = this.now === 0;
    this.ledger.events.tick(now, wall);
    this.recoveries.tick(now, wall);
    this.waking.tick(now);
    // Time in which this process did not run (stopped, swapped out) does not count as silence of others.
    const slept = first ? 0 : Math.max(0, now - this.now - this.policy.reconnectMs);
    this.now = now;
    if (first) {
      this.sessions.restartLeases(now);
      this.membership.start(now);
    } else {
      this.sessions.tick(now, slept);
      this.membership.tick(now, slept);
    }
    this.samples.tick(now, slept);
    if (this.replacing.tick(now)) this.changed();
    this.membership.lose();
    this.scaler.tick(now, slept);
    this.saver.tick(now, slept);
    this.restorer.tick(now);
    this.lateMaps.tick(now);
  }

  private onMessage(from: PeerId, message: Message): void {
    if (message.t === 'heartbeat') return this.onHeartbeat(from, message);
    if (message.t === 'moveProgress') return this.scaler.onProgress(from, message);
    if (message.t === 'mapRequest') return this.lateMaps.heard(from, message.epoch, this.now);
    if (message.t === 'replicaReport') return this.replicas.onReport(from, message, this.now);
    if (message.t === 'tellEvent') return this.told.note(from, message);
    if (message.t === 'reached') return this.membership.reached(from, message);
    if (message.t === 'workerReport') return this.workers.onReport(from, message.report, this.now);
    if (this.sessions.isOpen(from) && this.samples.receive(from, message)) return;
    if (this.saver.receive(from, message) || this.restorer.receive(from, message)) return;
    this.changed();
    switch (message.t) {
      case 'unrecoverable':
        return this.onUnrecoverable(from, message);
      case 'stalled':
        return this.replacing.onStalled(from, message);
      case 'shardRefused':
        return this.replacing.onShardRefused(from, message);
      case 'replaceSink': {
        const done = this.replacing.replaceSink(message.g, message.sid, 'scrub');
        return this.ledger.answer(from, { t: 'sinkReplaced', id: message.id, done });
      }
      case 'scale':
      case 'drain':
      case 'rebalance':
        return this.scaler.onMessage(from, message);
      case 'createTables':
        return this.tables.create(this.ledger, from, message, this.policy.maxTables);
      case 'detach':
        this.samples.closed(from); // Now: when the connection closes it has no session any more.
        return this.sessions.end(from);
      case 'sessions':
        return this.ledger.answer(from, this.sessions.answer());
      case 'status':
        return this.ledger.tell(from, { t: 'statusReply', id: message.id, status: this.status() });
      default:
        return;
    }
  }

  private onHeartbeat(from: PeerId, heartbeat: Heartbeat): void {
    if (!this.membership.isKnown(from)) this.scaler.stranger(from, heartbeat.inc);
    const known = this.membership.of(from, heartbeat.inc);
    if (!known) return;
    known.heardAt = this.now;
    const revived = known.dead;
    const news = this.reports.learn(from, heartbeat, this.now);
    this.recoveries.heard(heartbeat.recoveries ?? []);
    const absent = known.dead || !known.connected;
    if (news || absent) this.changed();
    if (absent) this.membership.isBack(known);
    known.suspected = false;
    this.lateMaps.heard(from, heartbeat.epoch, this.now);
    if (this.unsettled) this.reconfigure(revived ? 'revived' : 'progress');
    if (revived) this.membership.revived(from);
  }

  private onUnrecoverable(from: PeerId, report: MessageOf<'unrecoverable'>): void {
    if (!this.reports.lose(from, report)) return;
    const { g, m, gen, v } = report;
    this.recoveries.forget(g, m);
    this.announcer.lost(g, m, gen, this.saver.newestWith(g, m));
    this.ledger.answer(from, { t: 'confirmedLost', g, m, gen, v });
  }

  // ---- placement

  private view(): ClusterView {
    return {
      nodes: this.membership.present,
      alive: (id, inc) => this.membership.isAlive(id, inc),
      sinkComplete: (sid) => this.reports.isSinkComplete(sid),
      shardComplete: (group, member, gen) => this.reports.isShardComplete(group, member, gen),
      avoid: this.replacing.avoided,
      full: this.replacing.full,
      leaving: this.scaler.leaving,
    };
  }

  /** As if these nodes were gone. */
  private without(gone: readonly PeerId[]): ClusterView {
    const view = this.view();
    return { ...view, nodes: view.nodes.filter(({ id }) => !gone.includes(id)) };
  }

  /** Forms the groups once enough nodes have joined. */
  private form(): void {
    const { map, nodesWanted } = this.state;
    if (map.groups.length > 0) return;
    const ready = this.view().nodes.filter((node) => !node.standby);
    if (ready.length < nodesWanted) return;
    const first = ready.slice(0, nodesWanted);
    const restored = (g: number, m: number) => this.restorer.toLoad(g, m);
    const groups = formGroups(map.pools, first, map.epoch + 1, this.ledger.nextSid, restored);
    this.ledger.setMap({ groups }, 'formed');
  }

  private reconfigure(reason: string, fields: Record<string, unknown> = {}): void {
    const { map } = this.state;
    if (map.groups.length === 0) return;
    const { nextSid } = this.ledger;
    const groups = repair(map.groups, map.pools, this.view(), map.epoch + 1, nextSid, this.groups);
    this.unsettled = groups !== undefined;
    if (groups) this.ledger.setMap({ groups }, reason, fields);
    else if (reason === 'lost') this.ledger.setMap({}, reason, fields);
  }

  private announceRedundancy(): void {
    this.unannounced = this.waking.isAsleep;
    if (!this.unannounced) this.announcer.announce(this.standing.condition);
  }
}

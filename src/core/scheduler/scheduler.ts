/**
 * The scheduler: knows who is alive, decides who holds what, and is the only one that makes maps. Its
 * decisions go through the ledger, which makes them durable first (rule 2).
 *
 * Liveness and what is complete are soft state: after a restart they come back with heartbeats (rule 29).
 *
 * Its parts are made from the ground up: each knows only parts that were made before it. Facts lie low
 * (facts.ts), so that a part writes what a later one reads, and none has to call a later one.
 */
import { KintsugiError } from '../../common/errors.js';
import type { ClusterMap, PeerId } from '../../protocol/map.js';
import type { Heartbeat, JobStatus, JobSummary, Message, MessageOf } from '../../protocol/messages.js';
import { checkMessage, type MessageTo } from '../../protocol/senders.js';
import type { PlanStatus } from '../../protocol/status.js';
import type { SchedulerPolicy } from '../shared/policy.js';
import { Announcer } from './announcer.js';
import { Avoided } from './avoided.js';
import type { EventLog } from './events.js';
import { ClusterFacts } from './facts.js';
import { JobTime } from './job-time.js';
import { LateMaps } from './late-maps.js';
import { Ledger, QUIET, type SchedulerEffect, type SchedulerInput } from './ledger.js';
import { Liveness } from './liveness.js';
import { Membership } from './membership.js';
import { Names } from './names.js';
import { Overview } from './overview.js';
import { OwnersMaps } from './owners-maps.js';
import { Placing } from './placing.js';
import { Recoveries } from './recoveries.js';
import { refuse } from './refusing.js';
import { Replacing } from './replacing.js';
import { Replicas } from './replicas.js';
import { Reports } from './reports.js';
import { Samples } from './samples/samples.js';
import { Restorer } from './saving/restorer.js';
import { Saver } from './saving/saver.js';
import { Changes } from './scaling/changes.js';
import { Scaler } from './scaling/scaler.js';
import { Sessions } from './sessions.js';
import { Standing } from './standing.js';
import type { Change, DurableState } from './state.js';
import { TableBook } from './tables.js';
import { ToldEvents } from './told-events.js';
import { Waking } from './waking.js';
import { Workers } from './workers.js';

export { DEFAULT_SCHEDULER_POLICY, type SchedulerPolicy } from '../shared/policy.js';
export { entriesOf, OWNER_KEY, type StateEntries, type StoredEntries, stateOf } from './entries.js';
export type { SchedulerEffect, SchedulerInput } from './ledger.js';
export { restoredJob } from './saving/restored.js';
export { type DurableState, newJob } from './state.js';

/** Messages after which placement and redundancy are looked at again. Others say so themselves if need be. */
const STIRRING: ReadonlySet<Message['t']> = new Set([
  ...(['unrecoverable', 'stalled', 'shardRefused', 'replaceSink'] as const),
  ...(['scale', 'drain', 'rebalance', 'createTables', 'detach', 'sessions', 'status'] as const),
]);

export class Scheduler {
  private readonly ledger: Ledger;
  private readonly liveness: Liveness;
  readonly reports: Reports;
  private readonly avoided: Avoided;
  private readonly facts: ClusterFacts;
  private readonly recoveries: Recoveries;
  private readonly placing: Placing;
  private readonly standing: Standing;
  private readonly scaler: Scaler;
  private readonly membership: Membership;
  private readonly replacing: Replacing;
  readonly samples: Samples;
  readonly workers: Workers;
  private readonly sessions: Sessions;
  private readonly saver: Saver;
  private readonly restorer: Restorer;
  private readonly replicas: Replicas;
  private readonly lateMaps: LateMaps;
  private readonly time: JobTime;
  private readonly ownersMaps: OwnersMaps;
  private readonly tables: TableBook;
  private readonly told: ToldEvents;
  private readonly announcer: Announcer;
  private readonly waking: Waking;
  private readonly overview: Overview;
  /** Milliseconds of the newest tick; 0 before the first one. */
  private now = 0;
  /** Version of the facts up to which changes are announced; -1: of none. */
  private announcedAt = -1;
  /** Why the store cannot be reached; undefined: it can be. */
  private storeProblem: string | undefined;

  constructor(
    state: DurableState,
    private readonly policy: SchedulerPolicy,
    restarted: boolean,
    /** True: the store holds nothing, or an older layout, so the first decision writes the whole state. */
    unwritten = !restarted,
  ) {
    this.ledger = new Ledger(state, unwritten);
    const { ledger } = this;
    // Facts, and what reads and writes them.
    this.liveness = new Liveness(policy);
    this.reports = new Reports(ledger);
    this.avoided = new Avoided(policy);
    const { liveness, reports, avoided } = this;
    const changes = new Changes(ledger);
    this.facts = new ClusterFacts(ledger, liveness, reports, avoided, changes);
    this.recoveries = new Recoveries(ledger, liveness, reports);
    this.waking = new Waking(ledger, policy, liveness, reports, this.recoveries, restarted);
    // Decisions about placement.
    this.placing = new Placing(ledger, this.facts, this.recoveries);
    this.standing = new Standing(ledger, this.facts, reports);
    const { facts, placing, standing } = this;
    const names = new Names(ledger, policy);
    this.scaler = new Scaler(ledger, policy, names, liveness, reports, changes, facts, placing, standing);
    const { scaler } = this;
    this.membership = new Membership(ledger, policy, names, liveness, facts, placing, scaler, restarted);
    this.replacing = new Replacing(ledger, avoided, reports, facts, placing, this.membership);
    // Clients, what they train, and checkpoints.
    this.samples = new Samples(ledger, policy);
    this.workers = new Workers(ledger);
    this.sessions = new Sessions(ledger, policy, this.samples, this.workers);
    this.saver = new Saver(ledger, policy, this.samples, this.sessions, reports);
    this.restorer = new Restorer(ledger, policy, this.sessions, reports, facts, placing);
    this.ownersMaps = new OwnersMaps(ledger, liveness, reports);
    this.tables = new TableBook(ledger, policy, this.ownersMaps, reports);
    this.replicas = new Replicas(ledger);
    // News for peers and people.
    this.lateMaps = new LateMaps(ledger, policy);
    this.time = new JobTime(ledger, policy, liveness);
    this.told = new ToldEvents(ledger);
    this.announcer = new Announcer(ledger);
    const { replicas, saver, restorer, membership } = this;
    this.overview = new Overview(ledger, facts, reports, replicas, saver, restorer, scaler, membership);
  }

  /** The newest map, durable or not: for tests and status only. */
  get map(): ClusterMap {
    return this.ledger.map;
  }

  /** Changes of the set of nodes, running and ended, durable or not: for tests and status only. */
  get changes(): readonly Change[] {
    return this.scaler.list;
  }

  /** Status for people. It costs work for every node and group. */
  status(): JobStatus {
    const { storeProblem } = this;
    if (storeProblem === undefined) return this.overview.status(this.now, []);
    const full = this.isFull ? '; so many that requests are refused' : '';
    return this.overview.status(this.now, [`decisions wait for the store: ${storeProblem}${full}`]);
  }

  /** Undefined: the job has never had a save plan. */
  plans(): PlanStatus[] | undefined {
    return this.saver.status();
  }

  /** The summary costs nothing while nothing happens, so it may be asked for often. */
  summary(): JobSummary {
    return this.standing.summary();
  }

  /** Recoveries of data shards that are under way, as far as this process has decided them. */
  get recovering(): number {
    return this.recoveries.underWay;
  }

  /** Events of the job. Nobody is told of those that are not durable. */
  get events(): Pick<EventLog, 'durable' | 'since'> {
    return this.ledger.events;
  }

  step(input: SchedulerInput): SchedulerEffect[] {
    if (this.isFull && refuse(input, this.ledger)) return this.ledger.commit();
    if (!QUIET.has(input.kind)) this.facts.changed();
    switch (input.kind) {
      case 'join':
        this.membership.join(input.link, input.message);
        break;
      case 'attach':
        this.sessions.attach(input.link, input.message, this.now);
        break;
      case 'message':
        checkMessage(input.role, 'scheduler', input.message);
        this.onMessage(input.from, input.message);
        break;
      case 'closed':
        this.sessions.closed(input.peer, input.link, this.now);
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
    if (this.announcedAt !== this.facts.version) {
      this.scaler.advance();
      this.announceRedundancy();
    }
    return this.ledger.commit();
  }

  /** More decisions than the store can be told soon wait for it. */
  private get isFull(): boolean {
    return this.ledger.heldEffects >= this.policy.maxHeldEffects;
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
      this.replacing.startAt(now);
    } else {
      this.sessions.tick(now, slept);
      this.membership.tick(now, slept);
    }
    this.samples.tick(now, slept);
    if (this.avoided.tick(now)) this.facts.changed();
    this.membership.lose();
    this.scaler.tick(now, slept);
    this.saver.tick(now, slept, wall);
    this.restorer.tick(now);
    this.lateMaps.tick(now);
    this.time.tick(now, slept);
    this.ownersMaps.tick(now);
  }

  private onMessage(from: PeerId, message: MessageTo<'scheduler'>): void {
    if (STIRRING.has(message.t)) this.facts.changed();
    switch (message.t) {
      // From nodes.
      case 'heartbeat':
        return this.onHeartbeat(from, message);
      case 'moveProgress':
        return this.scaler.onProgress(from, message);
      case 'pulse':
        return this.membership.pulsed(message);
      case 'reached':
        this.membership.reached(from, message);
        return this.replacing.reached(from, message);
      case 'unrecoverable':
        return this.onUnrecoverable(from, message);
      case 'stalled':
        return this.replacing.onStalled(from, message);
      case 'shardRefused':
        return this.replacing.onShardRefused(from, message);
      case 'sessions':
        return this.ledger.answer(from, this.sessions.answer());
      case 'shardSaved':
      case 'saveProgress':
      case 'saveFailed':
        return this.saver.heard(from, message);
      case 'shardLoaded':
        return this.restorer.onLoaded(from, message);
      case 'loadFailed':
        return this.restorer.onFailed(from, message);
      // From clients, replicas among them; `drain` also from nodes.
      case 'mapRequest':
        return this.lateMaps.heard(from, message.epoch, this.now);
      case 'replicaReport':
        return this.replicas.onReport(from, message, this.now);
      case 'workerReport':
        return this.workers.onReport(from, message.report, this.now);
      case 'tellEvent':
        return this.told.note(from, message);
      case 'openDataset':
      case 'extendDataset':
      case 'acquire':
      case 'rangeProgress':
      case 'release':
      case 'advance':
      case 'datasetStatus':
        return this.ledger.isLeased(from) ? this.samples.receive(from, message) : undefined;
      case 'setPlan':
        return this.saver.setPlan(from, message);
      case 'saveNow':
        return this.saver.saveNow(from, message);
      case 'held':
        return this.saver.onHeld(from, message);
      case 'createTables':
        return this.tables.create(from, message);
      case 'setTable':
        return this.tables.set(from, message);
      case 'dropTable':
        if (this.tables.drop(from, message)) this.saver.tableDropped();
        return;
      case 'scale':
      case 'drain':
      case 'rebalance':
        return this.scaler.onMessage(from, message);
      case 'replaceSink': {
        const done = this.replacing.replaceSink(message.g, message.sid, 'scrub');
        return this.ledger.answer(from, { t: 'sinkReplaced', id: message.id, done });
      }
      case 'detach':
        return this.sessions.detach(from);
      case 'status':
        return this.ledger.tell(from, { t: 'statusReply', id: message.id, status: this.status() });
      // The runtime answers these itself, or makes inputs of their own of them.
      case 'join':
      case 'attach':
      case 'observe':
      case 'events':
      case 'restoreLost':
        throw notTaken(message);
      default:
        throw notTaken(message satisfies never);
    }
  }

  private onHeartbeat(from: PeerId, heartbeat: Heartbeat): void {
    const { facts, liveness, placing } = this;
    if (!liveness.newest(from)) this.scaler.stranger(from, heartbeat.inc);
    const known = liveness.of(from, heartbeat.inc);
    if (!known) return;
    known.heardAt = this.now;
    known.epoch = heartbeat.epoch;
    const revived = known.dead;
    const news = this.reports.learn(from, heartbeat, this.now);
    this.recoveries.heard(heartbeat.recoveries ?? []);
    const absent = known.dead || !known.connected;
    if (news || absent) facts.changed();
    if (absent) liveness.mark(known, { connected: true, dead: false });
    known.suspected = false;
    this.lateMaps.heard(from, heartbeat.epoch, this.now);
    this.time.heard(heartbeat.seconds ?? 0);
    if (!placing.isSettled) placing.reconfigure(revived ? 'revived' : 'progress');
    if (revived) this.membership.revived(from);
  }

  private onUnrecoverable(from: PeerId, report: MessageOf<'unrecoverable'>): void {
    if (!this.reports.lose(from, report)) return;
    const { g, m, gen, v } = report;
    this.recoveries.forget(g, m);
    this.announcer.lost(g, m, gen, this.saver.newestWith(g, m));
    this.ledger.answer(from, { t: 'confirmedLost', g, m, gen, v });
  }

  private announceRedundancy(): void {
    if (this.waking.isAsleep) return;
    this.announcedAt = this.facts.version;
    this.announcer.announce(this.standing.condition);
  }
}

function notTaken({ t }: Message): KintsugiError {
  return new KintsugiError('BAD_FRAME', `a scheduler does not take messages of kind "${t}"`);
}

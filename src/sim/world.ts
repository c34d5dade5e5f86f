/**
 * One schedule: a whole cluster in one process, stepped by one random source. The scheduler, node and client
 * machines are real, and so is the engine, on small tables. Network, clock, disk and crashes are simulated.
 * Safety is checked all the time; then everything heals, and the job must complete.
 */

import type { Owner } from '../core/shard/owner.js';
import type { NativeAddon } from '../engine/native.js';
import { type Group, hasMove, SCHEDULER } from '../protocol/map.js';
import { SimulatedCluster } from './cluster.js';
import { drawConfig, type SimConfig } from './config.js';
import { Control } from './control.js';
import {
  answersOf,
  busyOf,
  crowdsOf,
  deletionsOf,
  dropsOf,
  evictionsOf,
  expiryOf,
  filtersOf,
  scoresOf,
  secondsOf,
  settingsOf,
  slowOf,
  turnsOf,
  zonesOf,
} from './draws.js';
import { Faults, goneOf } from './faults.js';
import { policiesOf } from './governors.js';
import { Impostors } from './impostors.js';
import { MAX_STEPS } from './limits.js';
import { Lives } from './lives.js';
import { Random } from './random.js';
import { replicasOf, SimulatedReplicas } from './replicas.js';
import { Saves } from './saves.js';
import { specOf } from './tables.js';
import { Traffic } from './traffic.js';
import { Violation } from './violation.js';
import { Watchers } from './watchers.js';

/** Least steps of a schedule: one that would be over earlier gets more pushes. */
export const MIN_STEPS = 300;
/** Offset of the seeds for checkpoints. */
const SAVES_SEEDS = 2 ** 31;
/** Each of these draws from randomness of its own. */
const ofSeed = (seed: number) => ({
  ...replicasOf(seed),
  ...goneOf(seed),
  ...zonesOf(seed),
  ...slowOf(seed),
  ...answersOf(seed),
  ...busyOf(seed),
  ...turnsOf(seed),
  ...settingsOf(seed),
  ...policiesOf(seed),
  ...dropsOf(seed),
  ...deletionsOf(seed),
  ...evictionsOf(seed),
  ...expiryOf(seed),
  ...crowdsOf(seed),
  ...scoresOf(seed),
  ...secondsOf(seed),
  ...filtersOf(seed),
});

export interface ScheduleOutcome {
  seed: number;
  result: 'complete' | 'unrecoverable' | 'violation';
  message: string;
  steps: number;
  /** A group lacked more than r seats at some time. */
  overwhelmed: boolean;
  stats: Record<string, number>;
  config: SimConfig;
}

export class World {
  private readonly cluster: SimulatedCluster;
  private readonly control: Control;
  private readonly faults: Faults;
  private readonly traffic: Traffic;
  private readonly impostors: Impostors;
  private readonly watchers: Watchers;
  private readonly lives: Lives;
  private readonly saves: Saves;
  private steps = 0;
  /** Shards ("group/member") that were beyond repair at the last check. */
  private lost: ReadonlySet<string> = new Set();

  constructor(
    readonly seed: number,
    pinned: Partial<SimConfig>,
    native: NativeAddon,
    trace = false,
  ) {
    const random = new Random(seed);
    const cluster = new SimulatedCluster(
      random,
      drawConfig(random, new Random(seed + SAVES_SEEDS), { ...ofSeed(seed), ...pinned }),
      native,
      trace,
    );
    this.cluster = cluster;
    this.control = new Control(cluster);
    cluster.control = this.control;
    this.lives = new Lives(cluster);
    this.control.lives = this.lives;
    this.faults = new Faults(cluster, this.control, seed);
    this.impostors = new Impostors(cluster, this.control, seed);
    this.watchers = new Watchers(cluster, this.control, seed);
    this.traffic = new Traffic(cluster, () => {
      cluster.phase = 'running';
    });
    cluster.traffic = this.traffic;
    this.saves = new Saves(cluster);
    cluster.saves = this.saves;
    cluster.replicas = new SimulatedReplicas(cluster, seed);
    this.control.start();
  }

  get transcript(): string[] | undefined {
    return this.cluster.transcript;
  }

  run(): ScheduleOutcome {
    let result: ScheduleOutcome['result'] = 'complete';
    let message = '';
    const { cluster } = this;
    try {
      while (cluster.phase !== 'done') {
        this.step();
        if (this.steps > MAX_STEPS) throw new Violation(`no progress: ${this.stuck()}`);
      }
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      result = 'violation';
      message = error instanceof Violation ? error.message : `${error.stack ?? error.message}`;
    }
    if (result === 'complete' && this.lost.size > 0) result = 'unrecoverable';
    cluster.close();
    cluster.replicas.close();
    const { stats, config, overwhelmed } = cluster;
    return { seed: this.seed, result, message, steps: this.steps, overwhelmed, stats, config };
  }

  private step(): void {
    const { cluster, faults, control } = this;
    const { random, config } = cluster;
    this.steps++;
    // The clock goes slower when many messages are in flight: timers of a busy machine do not get faster.
    if (random.chance(this.pace())) cluster.now++;
    faults.heal();
    control.events();
    cluster.breaks.reconnect();
    faults.strike();
    this.killAll();
    if (this.steps % 32 === 0) this.reload();
    this.impostors.strike();
    this.watchers.strike();
    this.traffic.setters.strike();
    this.traffic.droppers.strike();
    this.lives.step();
    if (cluster.phase !== 'forming' && this.steps % 8 === 0) faults.restarts();
    control.disks();
    this.saves.step();
    if (this.steps % 32 === 0) this.advance();
    if (random.chance(config.tickRate * this.pace()) || !this.deliver()) cluster.tickSomebody();
  }

  /** Kills every process and restores the job from a kept checkpoint. */
  private killAll(): void {
    const { cluster, saves } = this;
    if (!cluster.stormy || cluster.config.saveEvery === 0 || !cluster.random.chance(cluster.config.killAll))
      return;
    const checkpoint = saves.pick();
    if (!checkpoint) return;
    cluster.faultsLeft--;
    cluster.count('killAll');
    cluster.log(() => `** ALL ARE KILLED; restored from ${checkpoint.draft.number}`);
    for (const actor of cluster.nodes) {
      actor.node?.close();
      Object.assign(actor, {
        up: true,
        gone: false,
        node: undefined,
        identity: undefined,
        link: 0,
        awayUntil: 0,
      });
    }
    this.faults.forget();
    this.traffic.rewind(checkpoint.draft, checkpoint.contents, checkpoint.reshaped);
    this.control.restore(checkpoint.url, checkpoint.draft, checkpoint.reshaped);
    cluster.replicas.restartAll();
  }

  /** Asks for the lost shards to be loaded from a checkpoint. */
  private reload(): void {
    const { cluster, control, saves } = this;
    if (!cluster.config.reload || !control.unrecoverable || cluster.phase !== 'running') return;
    if (!control.scheduler || !cluster.random.chance(0.2) || this.calledLost.size === 0) return;
    const from = cluster.clients[0]?.id;
    const checkpoint = saves.kept();
    if (from === undefined || !checkpoint) return;
    const { url, draft, contents } = checkpoint;
    cluster.log(() => `** LOST SHARDS ARE LOADED from ${draft.number}`);
    const isReloaded = control.reload(from, this.steps, url, draft);
    this.traffic.reload(draft, contents, isReloaded);
  }

  private pace(): number {
    const backlog = this.cluster.network.inFlight;
    return backlog > 40 ? 40 / backlog : 1;
  }

  private deliver(): boolean {
    const { cluster } = this;
    const next = cluster.network.next(cluster.now);
    if (!next) return false;
    const { from, to, message } = next;
    if (message.t !== 'heartbeat')
      cluster.log(() => `${from}->${to} ${JSON.stringify(message).slice(0, 300)}`);
    cluster.receive(next);
    this.faults.afterDelivery(message.t, from, to);
    return true;
  }

  // ---- phases

  private advance(): void {
    const { cluster } = this;
    if (cluster.phase === 'forming') this.form();
    else if (cluster.phase === 'running' && this.quiet()) {
      if (this.steps < MIN_STEPS) {
        this.traffic.more();
        return;
      }
      this.check();
    } else if (cluster.phase === 'running' && this.steps >= MIN_STEPS && this.givenUp()) this.check();
    else if (cluster.phase === 'checking' && this.traffic.checked) cluster.phase = 'done';
  }

  private form(): void {
    if (this.control.disk.map.groups.length === 0) return;
    if (this.traffic.known()) {
      this.cluster.phase = 'running';
      return;
    }
    const index = 1 + this.cluster.nodes.length;
    const specs = this.traffic.tables.map(specOf);
    if (this.cluster.clients[0]?.id !== undefined)
      this.cluster.transmit(index, SCHEDULER, { t: 'createTables', id: 1, specs }, []);
  }

  private settled(): boolean {
    if (!this.faults.over || !this.control.settled) return false;
    return this.cluster.nodes.every((actor) => actor.gone || (actor.up && actor.node !== undefined));
  }

  private quiet(): boolean {
    if (!this.settled() || !this.traffic.finished || !this.saves.finished) return false;
    if (!this.traffic.setters.finished || !this.traffic.droppers.finished) return false;
    if (!this.cluster.replicas.finished) return false;
    if (!this.control.sessionsSettled) return false;
    const { scheduler } = this.control;
    if (!scheduler || scheduler.map.groups.some(hasMove)) return false;
    // An event tells the end of every recovery.
    if (scheduler.recovering > 0) return false;
    const { scaling, redundancy } = scheduler.status();
    // Every change is done or was taken back.
    if (redundancy !== 'full' || scaling.changes.some((change) => change.state === 'running')) return false;
    return scheduler.map.groups.every((group) => group.data.every((_, m) => this.hasExpired(group, m)));
  }

  /** Nobody pushes any more: the shard has no row left whose time passes (rule 50). */
  private hasExpired(group: Group, m: number): boolean {
    const timed = this.control.disk.map.tables.find(({ policy }) => policy?.clock === 'seconds');
    const stats = timed ? this.ownerOf(group, m)?.native.stats() : undefined;
    return !stats?.some(({ table, rows }) => table === timed?.id && rows > 0);
  }

  /** Shards that the scheduler calls lost: "group/member". */
  private get calledLost(): Set<string> {
    const lost = this.control.scheduler?.status().unrecoverable ?? [];
    return new Set(lost.map(({ g, m }) => `${g}/${m}`));
  }

  private ownerOf(group: Group, m: number): Owner | undefined {
    const entry = group.data[m]!;
    const owner = this.cluster.processOf(entry.node, entry.inc)?.ownerAt(group.id, m);
    return owner?.gen === entry.gen ? owner : undefined;
  }

  /** True if shards are beyond repair, nothing can change that any more, and all others are complete. */
  private givenUp(): boolean {
    const { scheduler, unrecoverable } = this.control;
    if (!unrecoverable || !this.settled()) return false;
    if (scheduler?.status().redundancy !== 'lost') return false;
    // A node that does not have the newest map may not know a table yet.
    const { epoch } = scheduler.map;
    if (this.cluster.nodes.some(({ gone, node }) => !gone && node?.map.epoch !== epoch)) return false;
    const lost = this.calledLost;
    return scheduler.map.groups.every((group) => {
      const named = group.data.map((_, m) => lost.has(`${group.id}/${m}`));
      if (group.data.some((_, m) => !named[m] && !this.ownerOf(group, m)?.complete)) return false;
      return named.includes(true) || this.isRedundant(group);
    });
  }

  private isRedundant({ sinks }: Group): boolean {
    const complete = sinks.filter((s) => this.cluster.processOf(s.node, s.inc)?.sinkAt(s.sid)?.complete);
    return sinks.length === this.cluster.config.r && complete.length === sinks.length;
  }

  private check(): void {
    this.cluster.phase = 'checking';
    const { map } = this.control.scheduler!;
    const lost = this.calledLost;
    this.lost = lost;
    this.traffic.check(map, lost);
  }

  private stuck(): string {
    const { cluster, control, traffic } = this;
    const status = control.scheduler?.status();
    return [
      `phase ${cluster.phase}, faults left ${cluster.faultsLeft}`,
      ...traffic.describe(),
      ...cluster.replicas.describe(),
      `changes ${JSON.stringify(status?.scaling.changes.filter((change) => change.state === 'running'))}`,
      `redundancy ${status?.redundancy}: ${status?.reasons.join(', ')}`,
    ].join('; ');
  }
}

/** The phases of the job, and the cost of each. */
import type { NativeAddon } from '../../engine/native.js';
import type { TableSpec } from '../../protocol/map.js';
import type { MoveStatus } from '../../protocol/messages.js';
import type { ScaleConfig } from './config.js';
import type { RoleCount, RoleName, ScaleMeter } from './meter.js';
import type { SimNode } from './nodes.js';
import { ScaleWorld } from './world.js';

export interface ScalePhase {
  name: string;
  virtualMs: number;
  roles: Record<RoleName, RoleCount>;
  /** PS at the end. */
  ps: number;
  /** Workers at the end. */
  workers: number;
  /** Most bytes that one receiver got. */
  mostReceived: number;
  /** Numbers of this phase alone, by name. */
  figures: Record<string, number>;
}

const FORM_MS = 600_000;
const HEAL_MS = 120_000;
const NEWCOMERS = 8;

export class Phases {
  readonly all: ScalePhase[] = [];
  readonly world: ScaleWorld;

  constructor(
    private readonly config: ScaleConfig,
    private readonly meter: ScaleMeter,
    native: NativeAddon | undefined,
    private readonly told: (phase: ScalePhase) => void = () => {},
  ) {
    this.world = new ScaleWorld(config, meter, native);
  }

  run(): ScalePhase[] {
    this.start();
    this.steady();
    this.newcomer();
    this.loss('loss of one PS', 1);
    this.loss(`loss of a host of ${this.config.psPerHost} PS`, this.config.psPerHost);
    this.scaleOut();
    this.leases();
    this.world.close();
    return this.all;
  }

  private phase(name: string, body: () => Record<string, number>): void {
    const { world, meter } = this;
    meter.reset();
    const before = world.now;
    const figures = body();
    const phase: ScalePhase = {
      ...{ name, virtualMs: world.now - before, roles: meter.counts, figures },
      ps: world.nodes.all.filter(({ up }) => up).length,
      workers: world.workers.all.length,
      mostReceived: Math.max(0, ...meter.receivedBy.values()),
    };
    this.all.push(phase);
    this.told(phase);
  }

  private get cpuMs(): number {
    return this.meter.counts.scheduler.cpuMs;
  }

  private start(): void {
    const { world, config } = this;
    this.phase('start', () => {
      const joining = Array.from({ length: config.ps }, () => world.nodes.add());
      while (joining.length > 0) {
        for (const node of joining.splice(0, 10)) world.join(node);
        world.turn();
      }
      world.until(() => world.redundant, FORM_MS, 'the groups to form');
      const formed = this.cpuMs;
      world.attach(world.workers.add());
      world.until(() => world.workers.leases > 0, FORM_MS, 'the first worker');
      world.ask({ t: 'createTables', id: 1 << 20, specs: this.tables() });
      const waiting = Array.from({ length: config.workers - 1 }, () => world.workers.add());
      while (waiting.length > 0) {
        for (const worker of waiting.splice(0, 50)) world.attach(worker);
        world.turn();
      }
      world.until(() => world.control.scheduler.map.tables.length > 0, FORM_MS, 'tables');
      world.until(() => world.workers.leases >= config.workers, FORM_MS, 'every worker to have a range');
      return { formedMs: formed };
    });
    world.real?.write(world.control.scheduler.map.tables);
    world.run(2000);
  }

  private tables(): Omit<TableSpec, 'id'>[] {
    return Array.from({ length: this.config.tables }, (_, i) => ({
      ...{ name: `table-${i + 1}`, pool: 'embedding', dim: 16, seed: i },
      optimizer: { kind: 'sgd', lr: 0.1 },
      initializer: { kind: 'zeros' },
    }));
  }

  private steady(): void {
    const { world, config } = this;
    const name = config.steadyMs === 60_000 ? 'a steady minute' : `steady, ${config.steadyMs / 1000} s`;
    this.phase(name, () => {
      world.run(config.steadyMs, config.budgetMs);
      return { remembered: world.real?.remembered ?? 0 };
    });
  }

  /** Clients attach to the running job, one after the other. */
  private newcomer(): void {
    const { world, meter } = this;
    this.phase('newcomers', () => {
      world.quiet = true;
      const costs: number[] = [];
      for (let i = 0; i < NEWCOMERS; i++) costs.push(world.newcomer());
      world.quiet = false;
      const bytes = Math.max(0, ...meter.receivedBy.values());
      return { medianMs: costs.sort((a, b) => a - b)[costs.length >> 1]!, mapBytes: bytes };
    });
  }

  private loss(name: string, count: number): void {
    const { world } = this;
    const from = world.nodes.all.length - count;
    const lost = world.nodes.all.slice(from - (from % this.config.psPerHost)).slice(0, count);
    this.phase(name, () => {
      world.quiet = true;
      const [maps, receivedBefore] = [world.maps, new Map(this.meter.receivedBy)];
      for (const node of lost) world.kill(node);
      world.until(() => world.maps >= maps + 1 && !world.control.busy, HEAL_MS, 'the map after a loss');
      const decidedMs = this.cpuMs;
      let most = 0;
      for (const [peer, bytes] of this.meter.receivedBy)
        most = Math.max(most, bytes - (receivedBefore.get(peer) ?? 0));
      const decided = world.maps - maps;
      world.quiet = false;
      const begun = world.now;
      world.until(() => world.redundant && world.nodes.copying === 0, HEAL_MS, 'redundancy');
      return {
        decidedMs,
        mapBytes: most,
        maps: decided,
        recoveredMs: this.cpuMs,
        healedMs: world.now - begun,
      };
    });
    this.comeBack(lost);
  }

  /** Starts the processes again; this is not a phase. */
  private comeBack(lost: readonly SimNode[]): void {
    const { world } = this;
    for (const node of lost) world.join(node);
    world.run(1000);
  }

  private scaleOut(): void {
    const { world, config } = this;
    const more = Math.max(1, Math.round(config.ps / 10));
    this.phase(`scale-out by ${more} PS`, () => {
      const ps = config.ps + more;
      world.ask({ t: 'scale', id: 1 << 21, ps, timeoutMs: 0 });
      for (let i = 0; i < more; i++) world.join(world.nodes.add());
      world.turn();
      world.until(() => world.control.scheduler.map.nodes.length >= ps, HEAL_MS, 'the new PS to join');
      const joinedMs = this.cpuMs;
      const plan = this.planMoves();
      const [before, begun] = [this.cpuMs, world.moved];
      const from = world.now;
      world.run(config.movesMs, config.budgetMs + before);
      const moves = world.moved - begun;
      const seconds = (world.now - from) / 1000;
      return { joinedMs, ...plan, movesDone: moves, movesMs: this.cpuMs - before, movesS: seconds };
    });
  }

  /** Cost and size of a plan for the job as it is now, asked for as `rebalance --dry-run` does. */
  private planMoves(): Record<string, number> {
    const { world } = this;
    world.quiet = true;
    const before = this.meter.counts.scheduler.parts.core;
    const reply = world.rebalance();
    const planMs = this.meter.counts.scheduler.parts.core - before;
    world.quiet = false;
    return { planMs, planned: reply.length, leastMoves: this.leastMoves(), targets: targets(reply) };
  }

  /** Least number of moves after which the numbers of shards are even. */
  private leastMoves(): number {
    const { map } = this.world.control.scheduler;
    const held = new Map(map.nodes.map(({ id }) => [id, 0]));
    for (const group of map.groups)
      for (const { node } of [...group.data, ...group.sinks]) held.set(node, (held.get(node) ?? 0) + 1);
    const total = [...held.values()].reduce((sum, count) => sum + count, 0);
    const mean = total / held.size;
    let surplus = 0;
    let deficit = 0;
    for (const count of held.values()) {
      surplus += Math.max(0, count - Math.ceil(mean));
      deficit += Math.max(0, Math.floor(mean) - count);
    }
    return Math.max(surplus, deficit);
  }

  private leases(): void {
    const { world, config } = this;
    const { workers } = world;
    this.phase(`${config.leaseRate} leases a second`, () => {
      workers.rangeBatches = 2;
      workers.batchMs = Math.max(10, Math.floor((900 * config.workers) / config.leaseRate / 2));
      // Ranges that are long are finished first.
      for (const worker of workers.all) worker.nextAt = Math.min(worker.nextAt, world.now + workers.batchMs);
      const [leases, from] = [workers.leases, world.now];
      world.run(config.leasesMs, config.budgetMs);
      const granted = workers.leases - leases;
      const cpuS = this.cpuMs / 1000;
      return {
        granted,
        perSecond: (granted * 1000) / (world.now - from),
        remembered: world.real?.remembered ?? 0,
        perCpuSecond: cpuS > 0 ? granted / cpuS : 0,
      };
    });
  }
}

/** Number of nodes that moves lead to. */
function targets(moves: readonly MoveStatus[]): number {
  return new Set(moves.map(({ to }) => to)).size;
}

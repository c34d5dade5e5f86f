/**
 * Faults of a schedule: crashes, broken connections, partitions, slow links, planned moves in between, and
 * restarts.
 */
import type { Message } from '../protocol/messages.js';
import type { NodeActor } from './actors.js';
import type { SimulatedCluster } from './cluster.js';
import type { Profile } from './config.js';
import type { Control } from './control.js';
import { maxLacking, watchLoss } from './loss.js';
import { Random } from './random.js';

type FaultKind = 'crash' | 'absence' | 'break' | 'partition' | 'scheduler' | 'move' | 'lag' | 'client';

/** A list with each kind as often as it is to be drawn. */
const times = (counts: Record<FaultKind, number>): FaultKind[] =>
  Object.entries(counts).flatMap(([kind, count]) => Array<FaultKind>(count).fill(kind as FaultKind));

const MIXTURES: Record<Profile, FaultKind[]> = {
  mixed: times({ crash: 8, absence: 2, break: 3, partition: 5, scheduler: 1, move: 2, lag: 1, client: 2 }),
  absent: times({ crash: 4, absence: 8, break: 2, partition: 2, scheduler: 1, move: 2, lag: 4, client: 1 }),
  ghosts: times({ crash: 7, absence: 3, break: 6, partition: 2, scheduler: 1, move: 1, lag: 3, client: 3 }),
  moves: times({ crash: 8, absence: 2, break: 3, partition: 2, scheduler: 1, move: 3, lag: 3, client: 1 }),
  elastic: times({ crash: 8, absence: 2, break: 3, partition: 2, scheduler: 3, move: 1, lag: 3, client: 1 }),
  data: times({ crash: 5, absence: 1, break: 3, partition: 2, scheduler: 4, move: 1, lag: 2, client: 8 }),
  saves: times({ crash: 8, absence: 2, break: 3, partition: 3, scheduler: 4, move: 2, lag: 3, client: 4 }),
  losses: times({ crash: 14, absence: 2, break: 2, partition: 2, scheduler: 1, move: 0, lag: 0, client: 1 }),
};

/**
 * Kinds of partitions: a node is cut off from all (as a machine that vanishes), from some, or one way only.
 */
const PARTITIONS = ['all', 'all', 'all', 'two', 'scheduler', 'some', 'outward', 'inward'] as const;

/** Chance that a schedule has a node that never comes back. */
const GONE_RATE = 0.2;
/** Chance in such a schedule that a node which dies is that one. */
const GOES_RATE = 0.4;
const GONE_SEEDS = 0x601e;

/** Draws whether a node is gone for ever, from randomness of its own. */
export const goneOf = (seed: number): { gone: boolean } => ({
  gone: new Random(seed + GONE_SEEDS).chance(GONE_RATE),
});

export class Faults {
  /** End of the newest partition; 0: there is none. */
  private partitionUntil = 0;
  /** The faults are over, and everything was healed. */
  private healed = false;
  private readonly going: Random;

  constructor(
    private readonly cluster: SimulatedCluster,
    private readonly control: Control,
    seed: number,
  ) {
    this.going = new Random(seed + GONE_SEEDS + 1);
  }

  /** True if no fault is left and nobody is cut off. */
  get over(): boolean {
    return this.cluster.faultsLeft <= 0 && this.partitionUntil === 0;
  }

  /** Forgets partitions and broken connections, because every process is gone. */
  forget(): void {
    this.partitionUntil = 0;
    this.cluster.breaks.forget();
  }

  /** Called before each step: ends partitions whose time has come, and all of them after the last fault. */
  heal(): void {
    const { cluster } = this;
    const ended = this.partitionUntil > 0 && cluster.now > this.partitionUntil;
    if (!ended && (cluster.faultsLeft > 0 || this.healed)) return;
    this.healed = cluster.faultsLeft <= 0;
    this.partitionUntil = 0;
    cluster.network.heal(cluster.now);
    cluster.log(() => '** HEAL');
  }

  strike(): void {
    const { random, config } = this.cluster;
    if (!this.cluster.stormy) return;
    if (random.chance(config.faultRate)) this.fault();
    if (random.chance(config.moveRate)) this.move();
    if (random.chance(config.changeRate)) this.change();
  }

  private fault(): void {
    const { cluster } = this;
    const { random } = cluster;
    cluster.faultsLeft--;
    const { profile } = cluster.config;
    const kind = random.pick(MIXTURES[profile]);
    const victim = this.anyNode();
    switch (kind) {
      case 'crash':
        this.crash(victim);
        if (random.chance(profile === 'losses' ? 0.7 : 0.25)) this.crash(this.anyNode());
        return;
      case 'absence':
        return this.breakScheduler(victim);
      case 'break':
        return this.breakConnections();
      case 'partition':
        return this.partition(victim);
      case 'scheduler':
        return this.control.crash();
      case 'move':
        return this.move();
      case 'client':
        return cluster.replaceClient(
          1 + cluster.nodes.length + random.below(cluster.clients.length),
          random.chance(0.5),
        );
      case 'lag':
        if (cluster.config.lag) this.lagLinks(victim);
    }
  }

  private anyNode(): number {
    return 1 + this.cluster.random.below(this.cluster.nodes.length);
  }

  /** True if the schedule is guarded, and a group would lack more than r seats without this node. */
  private forbidden(index: number): boolean {
    const { config } = this.cluster;
    return config.guarded && maxLacking(this.cluster, index) > config.r;
  }

  /** May crash an endpoint right after a message was delivered. */
  afterDelivery(type: string, from: number, to: number): void {
    const { cluster } = this;
    const { hot, focus, bystander } = cluster.config;
    if (type !== focus || !cluster.stormy || !cluster.random.chance(hot)) return;
    const endpoint = cluster.random.chance(0.5) ? from : to;
    const victim = cluster.random.chance(bystander) ? this.anyNode() : endpoint;
    if (cluster.isNode(victim) && this.crash(victim)) cluster.faultsLeft--;
  }

  /** Kills a node's process. */
  private crash(index: number): boolean {
    const { cluster } = this;
    const actor = cluster.nodes[index - 1]!;
    if (!actor.up || this.forbidden(index)) return false;
    cluster.count('crash');
    cluster.log(() => `** CRASH n${index} ${JSON.stringify(actor.identity)}`);
    cluster.stop(index, actor);
    watchLoss(cluster);
    if (this.mayGo && this.going.chance(GOES_RATE)) {
      actor.gone = true;
      cluster.count('gone');
      cluster.log(() => `** GONE n${index}`);
    }
    return true;
  }

  /** True if a node may be gone for ever: enough others stay, and nobody asks for more. */
  private get mayGo(): boolean {
    const { config, nodes, overwhelmed } = this.cluster;
    if (!config.gone || overwhelmed || config.spares === 0 || config.changeRate > 0) return false;
    return !nodes.some(({ gone }) => gone);
  }

  private closeLink(actor: NodeActor): void {
    const { link } = actor;
    actor.link = 0;
    this.cluster.control.disconnected(link);
  }

  /** A node loses its connection to the scheduler; it may be suspected before it comes back. */
  private breakScheduler(index: number): void {
    const { cluster } = this;
    const actor = cluster.nodes[index - 1]!;
    if (!actor.up || this.forbidden(index)) return;
    cluster.count('schedulerLinkBreak');
    cluster.log(() => `** BREAK n${index}-scheduler`);
    cluster.network.cut(index, 0, true);
    cluster.network.cut(0, index, false);
    this.closeLink(actor);
    // Often this is long enough for the node to be given up while it still talks to all others.
    actor.awayUntil = cluster.now + cluster.random.below(cluster.retry * cluster.config.absence);
  }

  private breakConnections(): void {
    const { cluster } = this;
    const { random } = cluster;
    for (let i = 1 + random.below(3); i > 0; i--) {
      const a = 1 + random.below(cluster.actors - 1);
      const b = 1 + random.below(cluster.actors - 1);
      if (a === b) continue;
      cluster.count('break');
      cluster.log(() => `** BREAK ${a}-${b}`);
      cluster.breaks.cut(a, b);
    }
  }

  private partition(victim: number): void {
    const { cluster } = this;
    if (this.forbidden(victim)) return;
    const { network, random, now, config } = cluster;
    const way = random.pick(PARTITIONS);
    const another = way === 'two' && !config.guarded ? this.anyNode() : victim;
    cluster.count('partition');
    cluster.count(`partition.${way}`);
    cluster.log(() => `** PARTITION n${victim} ${way} n${another}`);
    const all = Array.from({ length: cluster.actors }, (_, i) => i);
    const others = all.filter((actor) => actor !== victim);
    const side = (test: (actor: number) => boolean): void => network.partition(all.map(test), now);
    if (way === 'scheduler') this.part(victim, [0]);
    else if (way === 'some') this.part(victim, [0, ...others.filter(() => random.chance(0.4))]);
    else if (way === 'outward') for (const other of others) network.block(victim, other, now);
    else if (way === 'inward') for (const other of others) network.block(other, victim, now);
    else side((actor) => actor === victim || actor === another);
    this.partitionUntil = now + 30 + random.below(400) + (random.chance(0.5) ? cluster.retry * 12 : 0);
  }

  private part(node: number, others: readonly number[]): void {
    const { network, now } = this.cluster;
    for (const other of others) {
      network.block(node, other, now);
      network.block(other, node, now);
    }
  }

  /** A planned move of a random shard to a random node; the scheduler refuses what does not fit. */
  private move(): void {
    const { control } = this;
    const { random, config, nodes } = this.cluster;
    const groups = control.scheduler?.map.groups ?? [];
    const identity = random.pick(nodes).identity;
    if (groups.length === 0 || !identity) return;
    const g = random.below(groups.length);
    const before = control.scheduler?.map.epoch;
    const node = identity.id;
    const members = groups[g]!.data.length;
    if (random.chance(0.7)) control.step({ kind: 'move', g, member: random.below(members), node });
    else control.step({ kind: 'move', g, index: random.below(config.r), node });
    if (control.scheduler?.map.epoch !== before) this.cluster.count('move');
  }

  /**
   * Asks for another number of nodes, for one to leave, or for balance. Some changes time out and are taken
   * back.
   */
  private change(): void {
    const { control } = this;
    const { random, config, nodes, clients, retry } = this.cluster;
    const from = clients[0]?.id;
    if (from === undefined || !control.scheduler || control.scheduler.map.groups.length === 0) return;
    const timeoutMs = random.chance(0.5) ? 0 : random.below(retry * 20);
    const least = config.k + config.r;
    const node = random.pick(nodes).identity;
    // A process that is asked to end asks to be drained itself.
    const restart = random.chance(0.5);
    const itself = node !== undefined && random.chance(0.5);
    const message: Message = random.pick<Message>([
      { t: 'scale', id: 0, ps: least - 1 + random.below(config.spares + 2), timeoutMs },
      { t: 'drain', id: 0, node: itself ? '' : `${node?.id ?? 0}`, timeoutMs, restart },
      { t: 'rebalance', id: 0, dryRun: random.chance(0.3), timeoutMs },
    ]);
    this.cluster.count(message.t);
    control.told(message.t === 'drain' && itself ? node.id : from, message);
    if (!random.chance(0.3)) return;
    const fields = { action: message.t, reason: 'the simulator wants it' };
    control.told(from, { t: 'tellEvent', id: random.below(1000), kind: 'autoscale.decided', fields });
  }

  /**
   * Slows messages to or from a node, or those between it and one other. When such a connection breaks, the
   * messages that are left in it come late.
   */
  private lagLinks(victim: number): void {
    const { cluster } = this;
    cluster.count('lag');
    cluster.log(() => `** LAG n${victim}`);
    const only = cluster.random.chance(0.4) ? this.anyNode() : undefined;
    const outward = cluster.random.chance(0.5);
    for (let other = 0; other <= cluster.nodes.length; other++) {
      if (only !== undefined && other !== only) continue;
      if (outward) cluster.network.lag(victim, other, 0.97);
      else cluster.network.lag(other, victim, 0.97);
    }
  }

  /** Starts one process again that is down. */
  restarts(): void {
    const { cluster } = this;
    const rate = cluster.faultsLeft <= 0 ? 0.2 : cluster.config.restartRate;
    if (!cluster.random.chance(rate)) return;
    if (!this.control.running) {
      cluster.count('schedulerRestart');
      this.control.start();
      return;
    }
    // A node that cannot be done without is waited for, and so it comes back.
    if (cluster.overwhelmed) for (const actor of cluster.nodes) actor.gone = false;
    const down = cluster.nodes.filter((actor) => !actor.up && !actor.gone);
    if (down.length === 0) return;
    const actor = cluster.random.pick(down);
    actor.up = true;
    cluster.count('restart');
    cluster.log(() => `** RESTART ${actor.name}`);
  }
}

/**
 * Faults at random times on random roles, chosen by a seed, within the promise: never more than r members of
 * a group lack a block at the same time. A fault that would exceed it now is replaced by one that costs no
 * data.
 */

import { seededRandom } from '../../src/fleet/local/kills.js';
import type { Client } from '../../src/library/client/client.js';
import { monotonicMs } from '../../src/net/log.js';
import type { PeerId } from '../../src/protocol/map.js';
import type { Machines } from '../common/machines.js';
import type { ChaosCluster, ChaosRole } from './cluster.js';
import { PushLedger } from './ledger.js';
import { LinkFaults } from './link-faults.js';
import { NetworkFaults, type Site } from './network-faults.js';
import { between, pause } from './pause.js';
import type { Faculty, ProcessFault, Struck, StruckKind, Weights } from './struck.js';

/**
 * Out of their sum. Those that may cost data are only possible now and then, so they are wished for more
 * often.
 */
const WEIGHTS: Weights<ProcessFault> = [
  ['killPs', 34],
  ['killTwoPs', 10],
  ['stopPs', 10],
  ['killScheduler', 6],
  ['killSchedulerAndPs', 5],
  ['stopScheduler', 3],
  ['killClient', 5],
];
/** After it could talk to the scheduler again a live node needs so long at most to be heard of. */
const NOTICE_MS = 1500;
const POLL_MS = 100;
/** One loss in so many may hit a node that holds nothing. */
const IDLE_EVERY = 10;

export interface FaultsOptions {
  cluster: ChaosCluster;
  client: Client;
  seed: number;
  /** Milliseconds between two faults: evenly distributed between these. */
  pauseMs: [least: number, most: number];
  /** Kills a client at work; its name, or undefined when there is none. */
  killClient(): string | undefined;
  /** Where roles run on machines of their own: these, and those of the clients. */
  network: { machines: Machines; clients: readonly Site[] } | undefined;
  onFault(kind: StruckKind, victims: string[], detail: string): void;
  onError(error: Error): void;
  tell(text: string): void;
}

interface Killed {
  name: string;
  inc: number;
}

export class ChaosFaults implements Struck {
  readonly counts: Partial<Record<StruckKind, number>> = {};
  private readonly random: () => number;
  private readonly ledger = new PushLedger();
  /** Killed processes of which the scheduler has not seen a newer incarnation. */
  private killed: Killed[] = [];
  /** Faults that are not over. */
  private readonly open = new Set<Promise<void>>();
  /** Number of open faults that may cost data. */
  private costly = 0;
  schedulerDown = false;
  /**
   * True: live nodes may have been given up for a silence that others caused, or have lost what they hold
   * because they are slow. No more losses until the job is whole.
   */
  private unsure = false;
  private stopped = false;
  private watching: Promise<void> = Promise.resolve();

  private readonly others: Faculty;

  constructor(private readonly options: FaultsOptions) {
    this.random = seededRandom(options.seed);
    const { network, cluster } = options;
    cluster.onTaken = () => this.doubt();
    this.others = network ? new NetworkFaults(this, network.machines, network.clients) : new LinkFaults(this);
  }

  get cluster(): ChaosCluster {
    return this.options.cluster;
  }

  get anyLacking(): boolean {
    return !this.ledger.empty;
  }

  tell(text: string): void {
    this.options.tell(text);
  }

  doubt(): void {
    this.unsure = true;
  }

  get total(): number {
    return Object.values(this.counts).reduce((sum, count) => sum + count, 0);
  }

  between(least: number, most: number): number {
    return between(this.random, least, most);
  }

  oneOf(below: number): number {
    return this.random() % below;
  }

  pick<T>(from: readonly T[]): T | undefined {
    return from[this.random() % Math.max(1, from.length)];
  }

  /** Faults until `until` (monotonic milliseconds) or an abort; then waits until every role is up again. */
  async run(until: number, signal: AbortSignal): Promise<void> {
    this.watching = this.watch();
    // `run` waits for the watch at its end, and throws its error there.
    this.watching.catch(() => {});
    while (monotonicMs() < until && !signal.aborted) {
      await pause(this.between(...this.options.pauseMs));
      if (!signal.aborted) this.strike();
    }
    while (this.open.size > 0) await Promise.all(this.open);
    this.stopped = true;
    await this.watching;
  }

  // ---- what may be done

  /** Clears the ledger whenever the job is whole and knows of everything that was done to it. */
  private async watch(): Promise<void> {
    while (!this.stopped) {
      await pause(POLL_MS);
      if ((this.ledger.empty && !this.unsure) || this.costly > 0) continue;
      const faults = this.total;
      const status = await this.options.client.status();
      this.killed = this.killed.filter(({ name, inc }) =>
        status.nodes.some((node) => node.name === name && node.inc <= inc),
      );
      const noticed = this.killed.length === 0 && this.total === faults && this.costly === 0;
      if (!noticed || status.redundancy !== 'full' || status.nodes.some((node) => !node.alive)) continue;
      this.ledger.clear();
      this.unsure = false;
    }
  }

  /** PS in random order; seldom one that holds nothing, whose loss proves little. */
  private candidates(): ChaosRole[] {
    const { cluster, client } = this.options;
    const holders = new Set(
      client.clusterMap.groups.flatMap(({ data, sinks }) => [...data, ...sinks].map((entry) => entry.node)),
    );
    const idle = this.random() % IDLE_EVERY === 0;
    // A PS that joined or left a moment ago may be missing in the map of this client.
    const known = new Set(client.clusterMap.nodes.map((node) => node.name));
    return cluster.running
      .filter(({ name }) => known.has(name))
      .filter((role) => idle || this.idsOf([role]).some((id) => holders.has(id)))
      .map((role) => ({ role, rank: this.random() }))
      .sort((one, other) => one.rank - other.rank)
      .map(({ role }) => role);
  }

  private idsOf(roles: readonly ChaosRole[]): PeerId[] {
    const { nodes } = this.options.client.clusterMap;
    return roles.map((role) => nodes.find((node) => node.name === role.name)!.id);
  }

  victims(count: number, mayBe: (role: ChaosRole) => boolean = () => true): ChaosRole[] | undefined {
    if (this.schedulerDown || this.unsure) return undefined;
    const map = this.options.client.clusterMap;
    const all = this.candidates().filter(mayBe);
    for (const first of all) {
      const others = count === 1 ? [[]] : all.filter((role) => role !== first).map((role) => [role]);
      for (const rest of others) {
        const roles = [first, ...rest];
        if (!this.ledger.allows(map, this.idsOf(roles))) continue;
        this.ledger.add(map, this.idsOf(roles));
        return roles;
      }
    }
    return undefined;
  }

  // ---- faults

  private strike(): void {
    const weights = [...WEIGHTS, ...this.others.weights];
    let at = this.random() % weights.reduce((sum, [, weight]) => sum + weight, 0);
    const [wished] = weights.find(([, weight]) => {
      at -= weight;
      return at < 0;
    })!;
    if (!this.cause(wished)) this.cause(this.pick(this.others.harmless)!);
  }

  count(kind: StruckKind, victims: readonly string[], detail = ''): true {
    this.counts[kind] = (this.counts[kind] ?? 0) + victims.length;
    this.options.onFault(kind, [...victims], detail);
    return true;
  }

  /** false: not possible now. */
  private cause(kind: StruckKind): boolean {
    switch (kind) {
      case 'killPs':
      case 'killPsDuringRecovery':
        return this.killPs(1);
      case 'killTwoPs':
        return this.killPs(2);
      case 'stopPs':
        return this.stopPs();
      case 'killScheduler':
        return this.killScheduler(false);
      case 'killSchedulerAndPs':
        return this.killScheduler(true);
      case 'stopScheduler':
        return this.stopScheduler();
      case 'killClient':
        return this.killClient();
      default:
        return this.others.cause(kind) ?? false;
    }
  }

  private killPs(count: number): boolean {
    const during = !this.ledger.empty;
    const victims = this.victims(count);
    if (!victims) return false;
    for (const role of victims) this.killRole(role);
    const kind = during ? 'killPsDuringRecovery' : count === 2 ? 'killTwoPs' : 'killPs';
    return this.count(
      kind,
      victims.map((role) => role.name),
    );
  }

  private killRole({ name }: ChaosRole): void {
    const { cluster, client } = this.options;
    const { inc } = client.clusterMap.nodes.find((node) => node.name === name)!;
    const { child } = cluster.role(name);
    this.killed.push({ name, inc });
    cluster.kill(name);
    this.during(async () => {
      await child.exited;
      await pause(this.between(100, 2000));
      await cluster.startPs(name);
    });
  }

  private stopPs(): boolean {
    const [role] = this.victims(1) ?? [];
    if (!role) return false;
    const forMs = this.between(500, 8000);
    const { cluster } = this.options;
    cluster.suspend(role.name);
    this.during(async () => {
      await pause(forMs);
      cluster.resume(role.name);
      await pause(NOTICE_MS);
    });
    return this.count('stopPs', [role.name], `for ${Math.round(forMs)} ms`);
  }

  private killScheduler(andPs: boolean): boolean {
    if (this.schedulerDown) return false;
    const victims = andPs ? this.victims(1) : [];
    if (!victims) return false;
    const { cluster } = this.options;
    const { name, child } = cluster.scheduler;
    const led = cluster.nextLeader();
    this.schedulerDown = true;
    this.unsure = true;
    cluster.kill(name);
    for (const role of victims) this.killRole(role);
    this.during(async () => {
      await child.exited;
      await pause(this.between(0, 1500));
      await cluster.startScheduler(name);
      await led;
      this.schedulerDown = false;
      await pause(NOTICE_MS);
    });
    const names = [name, ...victims.map((role) => role.name)];
    return this.count(andPs ? 'killSchedulerAndPs' : 'killScheduler', names);
  }

  private stopScheduler(): boolean {
    // A PS that dies together with one that is wrongly taken for silent would be one too many.
    if (this.schedulerDown || !this.ledger.empty) return false;
    const { cluster } = this.options;
    const forMs = this.between(500, 8000);
    this.schedulerDown = true;
    this.unsure = true;
    const { name } = cluster.scheduler;
    cluster.suspend(name);
    this.during(async () => {
      await pause(forMs);
      cluster.resume(name);
      this.schedulerDown = false;
      await pause(NOTICE_MS);
    });
    return this.count('stopScheduler', [name], `for ${Math.round(forMs)} ms`);
  }

  private killClient(): boolean {
    const name = this.options.killClient();
    return name !== undefined && this.count('killClient', [name]);
  }

  during(work: () => Promise<void>, costly = true): void {
    if (costly) this.costly++;
    const done: Promise<void> = work()
      .catch((error: Error) => this.options.onError(error))
      .finally(() => {
        this.open.delete(done);
        if (costly) this.costly--;
      });
    this.open.add(done);
  }
}

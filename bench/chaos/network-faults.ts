/**
 * Faults of machines and of the network between them: they vanish and return, are parted from each other,
 * hear nobody or are heard by nobody, and are slow. A machine has one such fault at a time. What may cost
 * data is in the ledger until the job has had the time to notice that it is over.
 */
import type { Machines } from '../common/machines.js';
import type { ChaosRole } from './cluster.js';
import { pause } from './pause.js';
import type { Faculty, NetworkFault, Struck, StruckKind, Weights } from './struck.js';

/** A machine, and what runs on it. */
export interface Site {
  name: string;
  machine: string;
}

/** How long a fault is there. Machines that vanish have been replaced after a second. */
const VANISHED_MS: FaultSpan = [500, 15_000];
const PARTED_MS: FaultSpan = [500, 8000];
const SLOW_MS: FaultSpan = [2000, 10_000];
const CLIENT_MS: FaultSpan = [500, 5000];
type FaultSpan = [least: number, most: number];
/**
 * Then all connections are there again, and a sink that was out of reach for too long has been replaced:
 * what is not acknowledged is abandoned after 2 s, dialing takes 2 s at most, and a sink has 3 s.
 */
const NOTICE_MS = 5000;

export class NetworkFaults implements Faculty {
  readonly weights: Weights<NetworkFault> = [
    ['vanishPs', 40],
    ['vanishTwoPs', 14],
    ['vanishScheduler', 24],
    ['vanishClient', 4],
    ['cutTwoPs', 12],
    ['cutPsFromAll', 8],
    ['cutPsFromScheduler', 12],
    ['cutClient', 4],
    ['onewayPs', 18],
    ['onewayClient', 3],
    ['slowPs', 12],
    ['slowScheduler', 8],
    ['slowClient', 3],
  ];
  readonly harmless: NetworkFault[] = ['vanishClient', 'cutClient', 'onewayClient', 'slowClient'];
  /** Machines with a fault. */
  private readonly hit = new Set<string>();

  constructor(
    private readonly struck: Struck,
    private readonly machines: Machines,
    private readonly clients: readonly Site[],
  ) {}

  cause(kind: StruckKind): boolean | undefined {
    const { machines } = this;
    const unplug: Begin = ({ machine }) => machines.unplug(machine);
    const unplugBoth: Begin = (one, other) => {
      machines.unplug(one.machine);
      machines.unplug(other.machine);
    };
    const slow: Begin = async ({ machine }) => {
      const why = await machines.slow(machine);
      if (why !== undefined) this.struck.tell(`slow machines are not late: ${why}`);
    };
    switch (kind) {
      case 'vanishPs':
        return this.onPs(kind, 1, VANISHED_MS, unplug);
      case 'vanishTwoPs':
        return this.onPs(kind, 2, VANISHED_MS, unplugBoth);
      case 'vanishScheduler':
        return this.onScheduler(kind, PARTED_MS, unplug);
      case 'vanishClient':
        return this.onClient(kind, unplug);
      case 'cutTwoPs':
        return this.onPs(kind, 2, PARTED_MS, (one, other) => machines.part(one.machine, other.machine));
      case 'cutPsFromAll':
        return this.onPs(kind, 1, PARTED_MS, ({ machine }) => {
          machines.block(machine, 'in');
          machines.block(machine, 'out');
        });
      case 'cutPsFromScheduler':
        return this.onPs(kind, 1, PARTED_MS, (site) => this.partFrom(site, this.struck.cluster.scheduler));
      case 'cutClient':
        return this.onClient(kind, (site) => {
          const { running, scheduler } = this.struck.cluster;
          this.partFrom(site, this.struck.pick([...running, scheduler])!);
        });
      case 'onewayPs':
        return this.onPs(kind, 1, PARTED_MS, (site) => this.oneway(site));
      case 'onewayClient':
        return this.onClient(kind, (site) => this.oneway(site));
      case 'slowPs':
        return this.onPs(kind, 1, SLOW_MS, slow);
      case 'slowScheduler':
        return this.onScheduler(kind, SLOW_MS, slow);
      case 'slowClient':
        return this.onClient(kind, slow);
      default:
        return undefined;
    }
  }

  private partFrom({ machine }: Site, { place }: ChaosRole): void {
    this.machines.part(machine, place.machine!);
  }

  private oneway({ machine }: Site): void {
    this.machines.block(machine, this.struck.oneOf(2) === 0 ? 'in' : 'out');
  }

  private onPs(kind: NetworkFault, count: number, span: FaultSpan, begin: Begin): boolean {
    const sites = this.struck
      .victims(count, ({ place }) => !this.hit.has(place.machine!))
      ?.map(({ name, place }) => ({ name, machine: place.machine! }));
    return sites !== undefined && this.strike(kind, sites, span, begin, true);
  }

  private onScheduler(kind: NetworkFault, span: FaultSpan, begin: Begin): boolean {
    const { struck } = this;
    const { name, place } = struck.cluster.scheduler;
    if (struck.schedulerDown || struck.anyLacking || this.hit.has(place.machine!)) return false;
    struck.schedulerDown = true;
    struck.doubt();
    const over = (): void => {
      struck.schedulerDown = false;
    };
    return this.strike(kind, [{ name, machine: place.machine! }], span, begin, true, over);
  }

  /** Strikes one client at a time, so that most of them go on pushing. */
  private onClient(kind: NetworkFault, begin: Begin): boolean {
    if (this.clients.some(({ machine }) => this.hit.has(machine))) return false;
    return this.strike(kind, [this.struck.pick(this.clients)!], CLIENT_MS, begin, false);
  }

  private strike(
    kind: NetworkFault,
    sites: readonly Site[],
    span: FaultSpan,
    begin: Begin,
    costly: boolean,
    over = (): void => {},
  ): true {
    const forMs = this.struck.between(...span);
    const begun = begin(...(sites as [Site, Site]));
    for (const { machine } of sites) this.hit.add(machine);
    this.struck.during(async () => {
      await begun;
      await pause(forMs);
      for (const { machine } of sites) {
        await this.machines.clear(machine);
        this.machines.plug(machine);
      }
      over();
      if (costly) await pause(NOTICE_MS);
      for (const { machine } of sites) this.hit.delete(machine);
    }, costly);
    const names = sites.map(({ name }) => name);
    return this.struck.count(kind, names, `for ${Math.round(forMs)} ms`);
  }
}

/** Strikes one machine or two. */
type Begin = (site: Site, other: Site) => void | Promise<void>;

/** Single connections that are cut or held by the proxy in front of a role, while both ends live. */
import type { ChaosRole } from './cluster.js';
import { pause } from './pause.js';
import type { Faculty, LinkFault, Struck, StruckKind, Weights } from './struck.js';

/** After it could talk to the scheduler again a live node needs so long at most to be heard of. */
const NOTICE_MS = 1500;

export class LinkFaults implements Faculty {
  readonly weights: Weights<LinkFault> = [
    ['cutPs', 10],
    ['holdPs', 6],
    ['cutScheduler', 5],
    ['holdScheduler', 3],
  ];
  readonly harmless: LinkFault[] = ['cutPs', 'cutPs', 'holdPs', 'cutScheduler', 'holdScheduler'];

  constructor(private readonly struck: Struck) {}

  cause(kind: StruckKind): boolean | undefined {
    const { cluster, schedulerDown } = this.struck;
    switch (kind) {
      case 'cutPs':
        return this.cutPs();
      case 'holdPs':
        return this.hold(kind, this.struck.pick(cluster.running));
      case 'cutScheduler':
        return this.cutScheduler();
      case 'holdScheduler':
        return !schedulerDown && this.hold(kind, cluster.scheduler);
      default:
        return undefined;
    }
  }

  private cutPs(): boolean {
    const role = this.struck.pick(this.struck.cluster.running);
    const count = role ? this.cut(role) : 0;
    if (!role || count === 0) return false;
    return this.struck.count('cutPs', [role.name], `${count} connections`);
  }

  /** All connections through a proxy or some, at least one if there is one. */
  private cut({ place: { proxy } }: ChaosRole): number {
    const each = Array.from({ length: proxy?.connections ?? 0 }, (_, rank) => rank);
    const all = this.struck.oneOf(3) === 0;
    const some = all ? [] : each.filter(() => this.struck.oneOf(3) === 0);
    const which = some.length > 0 ? some : each;
    proxy?.cut(which);
    return which.length;
  }

  private hold(kind: LinkFault, role: ChaosRole | undefined): boolean {
    const proxy = role?.place.proxy;
    if (!proxy) return false;
    const forMs = this.struck.between(50, 1500);
    proxy.hold();
    this.struck.during(async () => {
      await pause(forMs);
      proxy.release();
    }, false);
    return this.struck.count(kind, [role.name], `for ${Math.round(forMs)} ms`);
  }

  private cutScheduler(): boolean {
    const { scheduler } = this.struck.cluster;
    const count = this.cut(scheduler);
    if (count === 0) return false;
    this.struck.doubt();
    this.struck.during(() => pause(NOTICE_MS));
    return this.struck.count('cutScheduler', [scheduler.name], `${count} connections`);
  }
}

/**
 * The nearness of nodes to each other, by their host labels. A label may have two levels, as in `zone/node`:
 * all nodes that have the part before the slash in common fail together, too. Seats of a group are kept apart
 * by zones first, because a zone loses more of them at once, and by hosts within a zone.
 */

/** The host of a node and its zone: nodes that share one may fail together. */
export interface FailureDomain {
  readonly host: string;
  readonly zone: string;
}

/** Above the number of seats of any group: a seat in the same zone weighs more than all on the same host. */
const SAME_ZONE = 1 << 10;

/** The failure domain of a host label. A label without a slash is a zone of its own. */
export function domainOf(host: string): FailureDomain {
  const slash = host.indexOf('/');
  return { host, zone: slash < 0 ? host : host.slice(0, slash) };
}

/** 0 for nodes that share nothing. */
function nearness(one: FailureDomain, other: FailureDomain): number {
  if (one.zone !== other.zone) return 0;
  return one.host === other.host ? SAME_ZONE + 1 : SAME_ZONE;
}

/** Sum of the nearness to each of the others. */
export function totalNearness(domain: FailureDomain, others: Iterable<FailureDomain | undefined>): number {
  let near = 0;
  for (const other of others) if (other) near += nearness(domain, other);
  return near;
}

/** The hosts and zones of the nodes that may get seats. */
export class FailureDomains {
  /** Zone -> its hosts. No zone is empty. */
  private readonly hostsOf = new Map<string, Set<string>>();

  constructor(domains: Iterable<FailureDomain>) {
    for (const { host, zone } of domains)
      this.hostsOf.set(zone, (this.hostsOf.get(zone) ?? new Set()).add(host));
  }

  /** The least `totalNearness` of any of these domains to `others`. */
  leastNearness(others: Iterable<FailureDomain | undefined>): number {
    const zones = new Map<string, number>();
    const hosts = new Map<string, number>();
    for (const other of others) {
      if (!other || !this.hostsOf.has(other.zone)) continue;
      zones.set(other.zone, (zones.get(other.zone) ?? 0) + 1);
      hosts.set(other.host, (hosts.get(other.host) ?? 0) + 1);
    }
    // Some zone has no seat of the group, so the least is 0, and the zones need not be searched.
    if (zones.size < this.hostsOf.size) return 0;
    let least = Infinity;
    for (const [zone, count] of zones) {
      let together = Infinity;
      for (const host of this.hostsOf.get(zone)!) {
        together = Math.min(together, hosts.get(host) ?? 0);
        if (together === 0) break;
      }
      least = Math.min(least, SAME_ZONE * count + together);
    }
    return least;
  }
}

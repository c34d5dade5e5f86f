/**
 * How near nodes are to each other, by their host labels. A label may have two levels, as in `zone/node`: all
 * that have the part before the slash in common fail together, too. Members of a group are kept apart by
 * zones first, because a zone loses more of them at once, and by hosts within a zone.
 */

/** Where a node is. A label without a slash is a zone of its own. */
export interface Place {
  readonly host: string;
  readonly zone: string;
}

/** More than all members of a group that share a host: one in the same zone weighs more than these. */
const SAME_ZONE = 1 << 10;

export function placeOf(host: string): Place {
  const slash = host.indexOf('/');
  return { host, zone: slash < 0 ? host : host.slice(0, slash) };
}

/** 0 for nodes that share nothing. */
export function nearness(one: Place, other: Place): number {
  if (one.zone !== other.zone) return 0;
  return one.host === other.host ? SAME_ZONE + 1 : SAME_ZONE;
}

/** Sum over others. */
export function crowdAt(place: Place, others: Iterable<Place | undefined>): number {
  let crowd = 0;
  for (const other of others) if (other) crowd += nearness(place, other);
  return crowd;
}

/** Places that are there to be taken. */
export class Places {
  private readonly hostsOf = new Map<string, Set<string>>();

  constructor(places: Iterable<Place>) {
    for (const { host, zone } of places)
      this.hostsOf.set(zone, (this.hostsOf.get(zone) ?? new Set()).add(host));
  }

  /** The least that `crowdAt` says of one of them. */
  leastCrowd(others: Iterable<Place | undefined>): number {
    const zones = new Map<string, number>();
    const hosts = new Map<string, number>();
    for (const other of others) {
      if (!other || !this.hostsOf.has(other.zone)) continue;
      zones.set(other.zone, (zones.get(other.zone) ?? 0) + 1);
      hosts.set(other.host, (hosts.get(other.host) ?? 0) + 1);
    }
    // Some zone has no member, so the least is 0, and the zones need not be searched.
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

/**
 * The check of maps: a process whose map has an epoch has the scheduler's map of that epoch, whether it came
 * whole or as changes, and whatever was lost or came twice. A group's version stands for its content.
 */
import type { ClusterMap } from '../protocol/map.js';
import { Violation } from './violation.js';

export class Maps {
  /** The scheduler's map after the last step. */
  private newest: ClusterMap | undefined;
  /** Epoch -> summary of the map that the scheduler decided. */
  private readonly decided = new Map<number, string>();

  /** Notes the scheduler's map after a step. */
  decide(map: ClusterMap): void {
    if (map === this.newest) return;
    this.newest = map;
    this.decided.set(map.epoch, summary(map));
  }

  /** Forgets maps that are not on the disk of a crashed scheduler: nobody has them, and others may follow. */
  crashed(durable: number): void {
    this.newest = undefined;
    for (const epoch of this.decided.keys()) if (epoch > durable) this.decided.delete(epoch);
  }

  /** Checks a process's map. Maps between two of one step are not known here. */
  check(who: string, map: ClusterMap): void {
    const decided = this.decided.get(map.epoch);
    if (decided === undefined || decided === summary(map)) return;
    throw new Violation(`${who} has a map ${map.epoch} that is not the scheduler's: ${summary(map)}`);
  }
}

function summary({ groups, nodes, tables }: ClusterMap): string {
  const versions = groups.map(({ id, version }) => `${id}:${version}`);
  const processes = nodes.map(({ id, inc, address }) => `${id}/${inc}/${address}`).sort();
  return [versions, processes, tables.map(({ id }) => id)].join(' ');
}

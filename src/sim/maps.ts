/**
 * Whoever says that it has the map of an epoch has that map: whether it came whole or as changes, and
 * whatever was lost or came twice in between. Groups have a version each, which stands for their content.
 */
import type { ClusterMap } from '../protocol/map.js';
import { Violation } from './violation.js';

export class Maps {
  private newest: ClusterMap | undefined;
  /** Epoch -> what the scheduler decided. */
  private readonly decided = new Map<number, string>();

  /** The scheduler's map after a step. */
  decide(map: ClusterMap): void {
    if (map === this.newest) return;
    this.newest = map;
    this.decided.set(map.epoch, summary(map));
  }

  /** The scheduler is gone. What is not on its disk was told to nobody and may be decided otherwise. */
  crashed(durable: number): void {
    this.newest = undefined;
    for (const epoch of this.decided.keys()) if (epoch > durable) this.decided.delete(epoch);
  }

  /** Of several maps of one step, those between are not known here. */
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

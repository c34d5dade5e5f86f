/**
 * Sinks that their owners reported as stalled. Before the scheduler replaces one it must know that the other
 * members of the group lived after the report came: with them a sink that is only slow can restore the group.
 */

import type { SchedulerInput } from '../core/scheduler/ledger.js';
import type { ClusterMap, PeerId } from '../protocol/map.js';
import type { SimulatedCluster } from './cluster.js';

type IsOfProcess = (node: PeerId, inc: number) => boolean;

export class Stalls {
  /** Sid -> the processes of its group that were gone when the first report of it came, as "node/inc". */
  private readonly gone = new Map<number, ReadonlySet<string>>();

  /** The scheduler, which has this map, receives something. */
  look(input: SchedulerInput, map: ClusterMap, cluster: Pick<SimulatedCluster, 'processOf'>): void {
    if (input.kind !== 'message' || input.message.t !== 'stalled') return;
    const { g, sid } = input.message;
    const group = map.groups[g];
    if (!group || this.gone.has(sid)) return;
    const seats = [...group.data, ...group.sinks].filter(({ node, inc }) => !cluster.processOf(node, inc));
    this.gone.set(sid, new Set(seats.map(({ node, inc }) => `${node}/${inc}`)));
  }

  has(sid: number): boolean {
    return this.gone.has(sid);
  }

  /**
   * `is`, but not for processes that were gone when a sink was reported that this decision takes away from a
   * node that lives. Nobody is asked about the sinks of a node that is given up.
   */
  unlessAsked(
    before: ClusterMap,
    after: ClusterMap,
    g: number,
    is: IsOfProcess,
    lives: IsOfProcess,
  ): IsOfProcess {
    const stays = new Set(after.groups[g]!.sinks.map(({ sid }) => sid));
    const taken = before.groups[g]!.sinks.filter(({ sid, node, inc }) => !stays.has(sid) && lives(node, inc));
    const wasAsked: IsOfProcess = (node, inc) =>
      taken.some(({ sid }) => this.gone.get(sid)?.has(`${node}/${inc}`) === true);
    return (node, inc) => is(node, inc) && !wasAsked(node, inc);
  }

  clear(): void {
    this.gone.clear();
  }
}

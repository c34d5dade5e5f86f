/**
 * What each sink of a map says that it is for, compared with what its kind, its node and the order of sids
 * show: a parity protects, every sink acknowledges, and the younger of two parities, or a mirror whose shard
 * is still elsewhere, is the target of a move.
 */
import type { ClusterMap } from '../protocol/map.js';
import { Violation } from './violation.js';

export function checkCapabilities(map: ClusterMap): void {
  for (const { id, data, sinks } of map.groups) {
    for (const { sid, kind, index, node, protects, acknowledges, movesMember } of sinks) {
      const older = sinks.some((other) => other.kind === kind && other.index === index && other.sid < sid);
      const moves = kind === 'M' ? data[index]?.node !== node : older;
      const expected = moves ? (kind === 'M' ? index : data.length + index) : undefined;
      if (protects === (kind === 'P') && acknowledges && movesMember === expected) continue;
      const said = JSON.stringify({ kind, index, protects, acknowledges, movesMember });
      throw new Violation(`sink ${sid} of group ${id} is for something else than it says: ${said}`);
    }
  }
}

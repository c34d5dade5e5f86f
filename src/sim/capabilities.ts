/**
 * The capabilities of the sinks of a map, compared with those that follow from their kind, their node and the
 * order of sids: a parity protects, every sink acknowledges, and the younger of two parities, or a mirror
 * whose shard is still elsewhere, is the target of a move.
 */
import type { ClusterMap, Group, SinkEntry } from '../protocol/map.js';
import { Violation } from './violation.js';

/** The capabilities of each kind, a second time: a change of one of the two tables shows. */
const KINDS: Readonly<
  Record<SinkEntry['kind'], { follows: 'all' | 'one'; protects: boolean; acknowledges: boolean }>
> = {
  P: { follows: 'all', protects: true, acknowledges: true },
  M: { follows: 'one', protects: false, acknowledges: true },
};

/** The members whose streams a sink has to follow. */
export function membersOf({ kind, index }: SinkEntry, { data }: Group): number[] {
  return KINDS[kind].follows === 'one' ? [index] : [...data.keys()];
}

export function checkCapabilities(map: ClusterMap): void {
  for (const { id, data, sinks } of map.groups) {
    for (const { sid, kind, index, node, protects, acknowledges, movesMember } of sinks) {
      const older = sinks.some((other) => other.kind === kind && other.index === index && other.sid < sid);
      const moves = kind === 'M' ? data[index]?.node !== node : older;
      const seat = KINDS[kind].follows === 'one' ? index : data.length + index;
      const asKind = protects === KINDS[kind].protects && acknowledges === KINDS[kind].acknowledges;
      if (asKind && movesMember === (moves ? seat : undefined)) continue;
      const said = JSON.stringify({ kind, index, protects, acknowledges, movesMember });
      throw new Violation(`sink ${sid} of group ${id} is for something else than it says: ${said}`);
    }
  }
}

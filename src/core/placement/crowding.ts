/** A warning of too many data shards on a PS: a pure function of numbers. */
import type { NodeEntry, Pool } from '../../protocol/map.js';

/** More data shards than this on a PS are warned of. */
const MOST_DATA_SHARDS = 64;

/** The problem with the number of groups, for people. Shards are balanced, so the average says enough. */
export function crowdingProblem(pools: readonly Pool[], nodes: readonly NodeEntry[]): string | undefined {
  const holders = nodes.filter(({ standby }) => !standby).length;
  const shards = pools.reduce((sum, { k, groups }) => sum + k * groups, 0) / Math.max(1, holders);
  if (shards <= MOST_DATA_SHARDS) return undefined;
  return (
    `a PS holds ${Math.ceil(shards)} data shards, and more than ${MOST_DATA_SHARDS} cost more than they ` +
    'bring: each takes memory for every table and a part of every request. Start more PS; the number of ' +
    'groups is fixed for the job'
  );
}

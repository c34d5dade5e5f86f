/** A PS that has no time left while others have, and a shard that many requests are for. */
import { median } from '../../../common/statistics.js';
import { type FindingRule, percent, times } from './finding.js';

/** Processors that the one thread of a PS keeps busy, and those around it, for it to be hot. */
const BUSY = 0.85;
const HOTTER = 1.5;
/** Requests of a shard, as a part of those of all shards of its pool's size, and per second. */
const SHARD_HOTTER = 4;
const SHARD_LEAST = 100;

export const hotNode: FindingRule = ({ rates: { nodes } }) => {
  const typical = median(nodes.map(({ cpus }) => cpus));
  if (nodes.length < 2) return [];
  return nodes
    .filter(({ cpus }) => cpus >= BUSY && cpus >= HOTTER * typical)
    .map(({ name, cpus, pull, push }) => ({
      code: 'hot-ps',
      severity: 'warning' as const,
      subject: name,
      evidence:
        `${cpus.toFixed(2)} processors busy, the median of all PS is ${typical.toFixed(2)}; ` +
        `${Math.round(pull.requestsPerSecond + push.requestsPerSecond)} requests/s`,
      advice: 'kintsugi rebalance; if it stays hot, kintsugi scale --add 1',
    }));
};

export const hotShard: FindingRule = ({ rates: { shards, nodes } }) => {
  const all = shards.map(({ requestsPerSecond }) => requestsPerSecond);
  const typical = median(all);
  if (all.length < 4) return [];
  const names = new Map(nodes.map(({ id, name }) => [id, name]));
  const total = all.reduce((sum, each) => sum + each, 0);
  return shards
    .filter((shard) => shard.requestsPerSecond >= Math.max(SHARD_LEAST, SHARD_HOTTER * typical))
    .map(({ g, m, node, requestsPerSecond }) => ({
      code: 'hot-shard',
      severity: 'warning' as const,
      subject: `shard ${g}/${m} on ${names.get(node) ?? `node ${node}`}`,
      evidence:
        `${Math.round(requestsPerSecond)} requests/s, ${percent(requestsPerSecond / total)} of all, ` +
        (typical > 0 ? `${times(requestsPerSecond / typical)} the median shard` : 'and most have none'),
      advice:
        'few keys get most requests: have workers pull each key once per batch; a job with more groups ' +
        'spreads keys over more shards',
    }));
};

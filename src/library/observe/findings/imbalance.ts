/** PS that hold or serve much more than others. */
import { mean } from '../../../common/statistics.js';
import { type FindingRule, mib, times } from './finding.js';

const UNEVEN = 1.5;
/** Below this nobody minds. */
const LEAST_BYTES = 64 * 2 ** 20;
const LEAST_REQUESTS = 100;

interface NodeShare {
  name: string;
  value: number;
}

function worst(loads: readonly NodeShare[]): (NodeShare & { ratio: number }) | undefined {
  if (loads.length < 2) return undefined;
  const most = loads.reduce((a, b) => (b.value > a.value ? b : a));
  return { ...most, ratio: most.value / Math.max(1e-9, mean(loads.map(({ value }) => value))) };
}

export const imbalance: FindingRule = ({ newest, rates }) => {
  const { status, nodes } = newest;
  // Shards that are on their way make loads uneven for a while.
  if (status.scaling.changes.some(({ state }) => state === 'running')) return [];
  const serving = new Set(status.nodes.filter((node) => node.alive && !node.standby).map(({ id }) => id));
  const held = worst(
    nodes
      .filter(({ id }) => serving.has(id))
      .map(({ name, telemetry }) => ({ name, value: telemetry.memory.usedBytes })),
  );
  const served = worst(
    rates.nodes
      .filter(({ id }) => serving.has(id))
      .map(({ name, pull, push }) => ({ name, value: pull.requestsPerSecond + push.requestsPerSecond })),
  );
  const found = [];
  if (held && held.value >= LEAST_BYTES && held.ratio >= UNEVEN)
    found.push({
      subject: held.name,
      evidence: `it holds ${mib(held.value)}, ${times(held.ratio)} the mean`,
    });
  if (served && served.value >= LEAST_REQUESTS && served.ratio >= UNEVEN)
    found.push({
      subject: served.name,
      evidence: `it serves ${Math.round(served.value)} requests/s, ${times(served.ratio)} the mean`,
    });
  const advice = 'kintsugi rebalance --dry-run shows what would move; kintsugi rebalance does it';
  return found.map((each) => ({ code: 'imbalance', severity: 'warning' as const, ...each, advice }));
};

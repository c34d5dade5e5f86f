/** Pushes that wait long to be durable: a parity or a mirror does not keep up. */
import { type FindingRule, mib } from './finding.js';

/** How far the slowest sink is behind, at every look. */
const LAG_BYTES = 8 * 2 ** 20;
/** Time until a push is durable, against the time until it is applied. */
const SLOW_SECONDS = 0.25;
const SLOWER = 5;

export const slowSink: FindingRule = ({ history, rates, newest }) =>
  newest.nodes.flatMap(({ id, name }) => {
    const lags = history.map(
      (look) => look.nodes.find((node) => node.id === id)?.telemetry.sinkLagBytes ?? 0,
    );
    const own = rates.nodes.find((node) => node.id === id);
    const [commit, push] = [own?.commitP50Seconds ?? 0, own?.push.p50Seconds ?? 0];
    const lag = Math.min(...lags);
    const isSlow = commit >= SLOW_SECONDS && commit >= SLOWER * push;
    if (lag < LAG_BYTES && !isSlow) return [];
    const seen = [
      ...(lag >= LAG_BYTES ? [`at least ${mib(lag)} were not durable at every look`] : []),
      ...(isSlow ? [`half of the pushes take more than ${Math.round(commit * 1000)} ms to be durable`] : []),
    ];
    return [
      {
        code: 'slow-sink',
        severity: 'warning',
        subject: name,
        evidence: `${seen.join(', and ')}: a PS with parities of its shards does not keep up`,
        advice:
          'look for a PS whose processor, network or memory is exhausted (kintsugi top), and replace it: ' +
          'kintsugi drain NAME',
      },
    ];
  });

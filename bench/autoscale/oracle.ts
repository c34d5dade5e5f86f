/**
 * The reference of the benchmark: it knows the future, starts and moves everything at no cost and in no time,
 * and its nodes are never slow. It maximises samples^2 / cost: a percent of throughput is worth two of cost,
 * which is what "more stay when they bring at least half of their share" says.
 */
import type { AutoscalePolicy } from '../../src/fleet/autoscale/decide/policy.js';
import { PS_PRICE, throughputOf, WORKER_PRICE } from './job.js';
import type { Scenario } from './scenario.js';

const STEP = 300;
/** Rounds of the search for what a sample is worth. */
const ROUNDS = 5;

interface Day {
  samples: number;
  cost: number;
}

/** The best of each five minutes when a sample is worth `worth`. */
function day(scene: Scenario, policy: AutoscalePolicy, seconds: number, worth: number): Day {
  let samples = 0;
  let cost = 0;
  for (let at = 0; at < seconds; at += STEP) {
    const least = Math.max(policy.ps.least, Math.ceil((scene.bytesAfter(samples) * 1.05) / scene.limit));
    let best = { value: Number.NEGATIVE_INFINITY, samples: 0, cost: 0 };
    for (let ps = least; ps <= policy.ps.most; ps++) {
      const skew = 1 + (scene.skew(at, ps) - 1) * 0.5;
      const served = ps / skew / scene.psCost(at);
      let last = Number.NEGATIVE_INFINITY;
      for (let workers = policy.workers.least; workers <= policy.workers.most; workers++) {
        const rate = Math.min(throughputOf(workers * scene.workerRate, served), scene.arrivals(at));
        const price = ((ps * PS_PRICE + workers * WORKER_PRICE) * STEP) / 3600;
        const value = rate * STEP * worth - price;
        if (value > best.value) best = { value, samples: rate * STEP, cost: price };
        // Each worker more brings less than the one before.
        else if (value < last) break;
        last = value;
      }
    }
    samples += best.samples;
    cost += best.cost;
  }
  return { samples, cost };
}

export const score = ({ samples, cost }: Day): number => samples / Math.sqrt(cost);

/** Where the score is best a sample is worth twice what it costs, on average: found by going there. */
export function oracle(scene: Scenario, policy: AutoscalePolicy, seconds: number): Day {
  let best: Day | undefined;
  let worth = 1e-7;
  for (let round = 0; round < ROUNDS; round++) {
    const found = day(scene, policy, seconds, worth);
    if (best === undefined || score(found) > score(best)) best = found;
    worth = (2 * found.cost) / found.samples;
  }
  return best!;
}

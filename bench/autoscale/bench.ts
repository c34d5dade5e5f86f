/**
 * `kintsugi bench autoscale`: the autoscaler against the rules of others and against an oracle that knows the
 * future, on simulated days. Nothing is measured: the same seed gives the same numbers on any machine.
 */
import type { Observation, TakenTime } from '../../src/fleet/autoscale/decide/observation.js';
import { type AutoscalePolicy, policyWith } from '../../src/fleet/autoscale/decide/policy.js';
import { randomU32 } from '../common/random.js';
import { BenchReport } from '../common/report.js';
import { median } from '../common/statistics.js';
import { ScaledJob, type ScaledOutcome } from './job.js';
import type { AutoscaleBenchOptions } from './options.js';
import { oracle, score } from './oracle.js';
import { addReal } from './real.js';
import { des, dlrover, ours, type Rule } from './rules.js';
import { KINDS, type Scenario, scenario } from './scenario.js';

/** Seconds between two observations, as a rule sees them. */
const LOOK = 30;

export const POLICY: AutoscalePolicy = policyWith({
  ps: { least: 2, most: 64 },
  workers: { least: 1, most: 40 },
});

/** A day of a job under a rule. */
export function live(
  scene: Scenario,
  rule: Rule,
  seconds: number,
  seed: number,
  policy = POLICY,
): ScaledOutcome {
  const next = randomU32(seed);
  const job = new ScaledJob(scene, rule.first, () => next() / 2 ** 32);
  const seen: Observation[] = [];
  const taken: TakenTime[] = [];
  while (job.at < seconds) {
    if (job.at % LOOK === 0) {
      seen.push(job.observe());
      while (seen[0]!.at < job.at - policy.remember) seen.shift();
      for (const decision of rule.decide({ seen, taken })) {
        taken.push({ at: job.at, decision });
        job.apply(decision);
      }
    }
    job.step();
  }
  return job.outcome();
}

export async function run(options: AutoscaleBenchOptions): Promise<void> {
  const report = new BenchReport('autoscale', options);
  if (options.real) {
    report.parameters.rows = options.rows;
    await addReal(report, options.rows, options.smoke);
    report.finish();
    return;
  }
  const seconds = options.hours * 3600;
  Object.assign(report.parameters, { seed: options.seed, days: options.days, hours: options.hours });
  const rules = [ours(POLICY), des(POLICY), dlrover(POLICY)];
  const details: Record<string, unknown>[] = [];
  for (const kind of Object.keys(KINDS)) {
    const shares = new Map<
      string,
      { score: number[]; samples: number[]; cost: number[]; price: number[]; refused: number[] }
    >();
    for (let day = 0; day < options.days; day++) {
      const seed = options.seed + day;
      const scene = scenario(kind, seed);
      const reference = oracle(scene, POLICY, seconds);
      for (const rule of rules) {
        const outcome = live(scene, rule, seconds, seed);
        const list = shares.get(rule.name) ?? { score: [], samples: [], cost: [], price: [], refused: [] };
        shares.set(rule.name, list);
        list.score.push(score(outcome) / score(reference));
        list.samples.push(outcome.samples / reference.samples);
        list.cost.push(outcome.cost / reference.cost);
        list.price.push(outcome.cost / outcome.samples / (reference.cost / reference.samples));
        list.refused.push(outcome.outOfMemory / 60);
        details.push({ kind, seed, rule: rule.name, ...outcome, oracle: reference });
      }
    }
    const each = (of: 'score' | 'samples' | 'cost' | 'price'): Record<string, number> =>
      Object.fromEntries([...shares].map(([name, lists]) => [name, median(lists[of])]));
    report.add({ name: `${kind}: throughput`, unit: "of the oracle's", values: each('samples') });
    report.add({ name: `${kind}: cost`, unit: "of the oracle's", values: each('cost') });
    report.add({ name: `${kind}: cost of a sample`, unit: "of the oracle's", values: each('price') });
    report.add({ name: `${kind}: score`, unit: "of the oracle's", values: each('score') });
    report.add({
      name: `${kind}: out of memory`,
      unit: 'minutes, all days',
      values: Object.fromEntries(
        [...shares].map(([name, { refused }]) => [name, refused.reduce((sum, one) => sum + one, 0)]),
      ),
    });
    if (options.smoke) continue;
    const mine = shares.get('kintsugi')!;
    report.goal(`${kind}: score, of the oracle's`, median(mine.score), 0.9);
    report.exactly(
      `${kind}: minutes out of memory`,
      mine.refused.reduce((sum, one) => sum + one, 0),
      0,
    );
  }
  report.details = { days: details };
  report.finish();
}

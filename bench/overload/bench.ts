/**
 * `kintsugi bench overload`: attacks on jobs of real processes, one at a time and several at once. A PS must
 * keep to its memory, a well-behaved client must be answered, no living PS may be given up, and every
 * acknowledged push must be in the rows once.
 */
import { KintsugiError } from '../../src/common/errors.js';
import { boundOf } from '../common/attacks/bound.js';
import { BenchReport } from '../common/report.js';
import type { OverloadOptions } from './options.js';
import { judge, p99Ratio, peakOf, roundText } from './report.js';
import { OverloadRound, type RoundResult } from './round.js';
import { SlowStore } from './slow-store.js';

/** Bucket of the store that takes one byte a second. */
const BUCKET = 's3://overload';

/** @throws BAD_ARGUMENT, INTERNAL when a goal is missed */
export async function run(options: OverloadOptions): Promise<void> {
  const { seconds, seed, pairs, scale, memory, plans, tell } = options;
  const report = new BenchReport('overload', options);
  Object.assign(report.parameters, { seconds, seed, pairs, scale, memory, rounds: plans.length });
  const store = await SlowStore.open();
  // The PS inherit these.
  process.env.KINTSUGI_S3_ENDPOINT = store.endpoint;
  process.env.AWS_ACCESS_KEY_ID ??= 'overload';
  process.env.AWS_SECRET_ACCESS_KEY ??= 'overload';
  const results: RoundResult[] = [];
  try {
    for (const plan of plans) {
      const result = await new OverloadRound(plan, options, BUCKET, seconds / plans.length).run();
      tell(roundText(result));
      for (const error of result.errors) tell(`  ${error}`);
      judge(report, result, options);
      results.push(result);
    }
  } finally {
    store.close();
  }
  const bound = boundOf(options);
  report.details = {
    rounds: results.map((result) => ({
      ...result,
      peakBytes: peakOf(result, 'ps-'),
      boundBytes: bound,
      p99Ratio: p99Ratio(result),
    })),
  };
  report.finish();
  const missed = report.goals.filter((goal) => !goal.met).map((goal) => goal.name);
  if (missed.length > 0) throw new KintsugiError('INTERNAL', `missed: ${missed.join(', ')}`);
}

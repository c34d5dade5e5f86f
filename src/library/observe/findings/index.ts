/** Everything that is looked for in a job, by those who want to know what is wrong with it. */
import type { JobSnapshot } from '../../client/observe.js';
import { domains } from './domains.js';
import { failing } from './failing.js';
import { type Finding, type FindingRule, seenIn } from './finding.js';
import { hotNode, hotShard } from './hot.js';
import { imbalance } from './imbalance.js';
import { limits } from './limits.js';
import { memory } from './memory.js';
import { mismatch } from './mismatch.js';
import { redundancy } from './redundancy.js';
import { slowSink } from './sink.js';
import { silentWorker, straggler } from './straggler.js';

export type { Finding } from './finding.js';

const CHECKS: readonly FindingRule[] = [
  redundancy,
  failing,
  memory,
  limits,
  slowSink,
  hotNode,
  hotShard,
  imbalance,
  straggler,
  silentWorker,
  domains,
  mismatch,
];

/**
 * Problems of a job, errors first. Empty: none of the known problems.
 * @param history snapshots, oldest first, at least two; some checks need six that are 5 s apart
 */
export function findingsIn(history: readonly JobSnapshot[]): Finding[] {
  const seen = seenIn(history);
  if (!seen) return [];
  const found = CHECKS.flatMap((check) => check(seen));
  const rank = ({ severity }: Finding): number => (severity === 'error' ? 0 : 1);
  return found.sort((a, b) => rank(a) - rank(b));
}

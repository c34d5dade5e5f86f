/** A push brings more than keys and gradients: a learning rate, and counts and scores of the keys. */
import { KintsugiError } from '../../common/errors.js';
import type { SplitCall } from '../../engine/native.js';
import { pushRateProblem } from '../../engine/optimizers.js';
import type { TableSpec } from '../../protocol/map.js';
import type { PushRequest } from './options.js';

/** A count ends here. */
const MAX_COUNT = 0xffffffff;

/** The part of a call that keys and gradients do not have. */
type PushExtras = Pick<SplitCall, 'lr' | 'counts' | 'scores'>;

/** As the engine takes it. `whole`: rows are set. @throws BAD_ARGUMENT, LENGTH_MISMATCH */
export function pushExtras(request: PushRequest, spec: TableSpec, whole: boolean): PushExtras {
  const { lr, counts, scores } = request;
  if (lr === undefined && counts === undefined && scores === undefined) return {};
  for (const [name, given] of Object.entries({ lr, counts, scores })) {
    if (whole && given !== undefined)
      throw new KintsugiError('BAD_ARGUMENT', `assign: rows are set as they are, without ${name}`);
  }
  return { ...rateOf(request, spec), ...countsOf(request, spec), ...scoresOf(request, spec) };
}

function rateOf({ lr }: PushRequest, { name, optimizer }: TableSpec): PushExtras {
  if (lr === undefined) return {};
  const problem = pushRateProblem(optimizer, lr);
  if (problem) throw new KintsugiError('BAD_ARGUMENT', `table "${name}": ${problem}`);
  return { lr };
}

/** For a table that counts. */
function countsOf({ keys, counts }: PushRequest, { name, policy }: TableSpec): PushExtras {
  if (counts === undefined) return {};
  if (!(counts instanceof Uint32Array))
    throw new KintsugiError('BAD_ARGUMENT', 'counts must be a Uint32Array');
  checkLength(name, 'counts', keys, counts);
  const zero = counts.indexOf(0);
  if (zero >= 0) {
    const text = `counts[${zero}] is 0, but a key that is pushed was seen once or more`;
    throw new KintsugiError('BAD_ARGUMENT', `table "${name}": ${text}`);
  }
  return policy ? { counts } : {};
}

/** Scores are refused where they would say nothing: nobody should believe that rows go by them. */
function scoresOf({ keys, scores }: PushRequest, { name, policy }: TableSpec): PushExtras {
  if (scores === undefined) return {};
  if (!(scores instanceof Float32Array))
    throw new KintsugiError('BAD_ARGUMENT', 'scores must be a Float32Array');
  checkLength(name, 'scores', keys, scores);
  const wrong = scores.findIndex((score) => !Number.isFinite(score));
  if (wrong >= 0) {
    const text = `scores[${wrong}] is ${scores[wrong]}, but a score is a finite number`;
    throw new KintsugiError('BAD_ARGUMENT', `table "${name}": ${text}`);
  }
  if (!policy?.score) {
    const text = 'its rows have no scores: it takes them where it was created with a policy with score';
    throw new KintsugiError('BAD_ARGUMENT', `table "${name}": ${text}`);
  }
  return { scores };
}

function checkLength(table: string, what: string, keys: BigUint64Array, given: { length: number }): void {
  if (given.length === keys.length) return;
  const text = `${keys.length} keys need as many ${what}, not ${given.length}`;
  throw new KintsugiError('LENGTH_MISMATCH', `table "${table}": ${text}`);
}

/** The extras of so many distinct keys. `inverse`: for each key of the call its place among them. */
export function distinctExtras(
  { counts, scores }: PushExtras,
  { policy }: Pick<TableSpec, 'policy'>,
  distinct: number,
  inverse: Uint32Array,
): PushExtras {
  return {
    ...(policy && { counts: sumCounts(distinct, inverse, counts) }),
    ...(scores && { scores: highestScores(distinct, inverse, scores) }),
  };
}

/** How often each distinct key came. */
function sumCounts(distinct: number, inverse: Uint32Array, counts?: Uint32Array): Uint32Array {
  const sums = new Uint32Array(distinct);
  for (const [i, at] of inverse.entries())
    sums[at] = Math.min(MAX_COUNT, sums[at]! + (counts ? counts[i]! : 1));
  return sums;
}

function highestScores(distinct: number, inverse: Uint32Array, scores: Float32Array): Float32Array {
  const highest = new Float32Array(distinct).fill(Number.NEGATIVE_INFINITY);
  for (const [i, at] of inverse.entries()) if (scores[i]! > highest[at]!) highest[at] = scores[i]!;
  return highest;
}

/**
 * Rows of a table with a policy. When a row is gone depends on the pushes of all writers, whose order nobody
 * knows but the shard. So a row may have the last pushes of its writer, as many as give its sightings.
 */
import type { TablePolicy } from '../engine/policies.js';
import { type Learner, sightingsOf } from './learners.js';

/**
 * The fault of a row after these pushes of its writer, in a shard where one of the policies holds; undefined:
 * nothing.
 */
export function livingProblem(
  learner: Learner,
  policies: readonly TablePolicy[],
  dim: number,
  numbers: readonly number[],
  found: Float32Array,
): string | undefined {
  const lastOf = (count: number) => (count === 0 ? [] : numbers.slice(-count));
  const seenIn = (count: number) => sightingsOf(learner, lastOf(count));
  const isGiven = (count: number) => {
    const row = learner.row(dim, lastOf(count));
    return row.subarray(0, Math.min(row.length, found.length)).every((x, i) => Object.is(x, found[i]));
  };
  if (found.length === dim) {
    for (let count = 0; count <= numbers.length; count++) if (isGiven(count)) return undefined;
    return 'no last pushes of its writer give its values';
  }
  const { age, sightings } = lifeOf(found);
  const { bloom } = learner.policy!;
  let pushes = 0;
  while (pushes < numbers.length && seenIn(pushes) < sightings) pushes++;
  const all = seenIn(numbers.length);
  if (seenIn(pushes) !== sightings) return `${sightings} sightings, which no last ones of ${all} are`;
  // A restored filter has counted what the rows of its checkpoint show.
  if (bloom && sightings !== (all < bloom.sightings ? 0 : all))
    return `${sightings} sightings, and a filter has counted ${all}`;
  if (!isGiven(pushes)) return `the last ${pushes} pushes of its writer do not give it`;
  const most = Math.max(
    ...policies.map(({ ttl = Number.POSITIVE_INFINITY, minFrequency, l2Below }) =>
      Math.min(
        ttl,
        minFrequency && sightings < minFrequency.sightings ? minFrequency.ttl : Number.POSITIVE_INFINITY,
        l2Below && normOf(found.subarray(0, dim)) < l2Below.norm ? l2Below.ttl : Number.POSITIVE_INFINITY,
      ),
    ),
  );
  return age > most ? `it is ${age} steps old, and is gone after ${most}` : undefined;
}

/** The words of a whole row. */
export function lifeOf(row: Float32Array): { age: number; sightings: number } {
  const words = new Uint32Array(row.slice(-2).buffer);
  return { age: words[0]!, sightings: words[1]! };
}

function normOf(values: Float32Array): number {
  return Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
}

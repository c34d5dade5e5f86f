/**
 * Rows of a table with `maxRows`, at rest. The tables of a schedule are so small that a push looks at all of
 * their rows: so as many are left as there may be, with that of the newest push.
 */
import type { TablePolicy } from '../engine/policies.js';
import { lifeOf } from './living.js';

export class CrowdedRows {
  /** Rows that were ever pushed. */
  private ever = 0;
  private readonly ages: number[] = [];

  /** A whole row that was seen so many times since ever. */
  add(row: Float32Array, seen: number): void {
    if (seen === 0) return;
    this.ever++;
    const { age, sightings } = lifeOf(row);
    if (sightings === 0) return;
    this.ages.push(age);
  }

  get displaced(): number {
    return this.ever - this.ages.length;
  }

  /** The fault of these rows in a pool of so many shards; undefined: nothing. */
  problem({ maxRows = 0 }: TablePolicy, shards: number): string | undefined {
    const { ever, ages } = this;
    const expected = Math.min(ever, Math.ceil(maxRows / shards));
    if (ages.length !== expected) return `${ages.length} of ${ever} rows are there, not ${expected}`;
    if (ever === 0) return undefined;
    ages.sort((a, b) => a - b);
    if (ages[0] !== 0) return `the row of the newest push is gone: the youngest is ${ages[0]} steps old`;
    return new Set(ages).size < ages.length ? 'two rows were seen in one step' : undefined;
  }
}

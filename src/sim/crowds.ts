/**
 * Rows of a table with `maxRows`, at rest. The tables of a schedule are so small that a push looks at all of
 * their rows: so the rows that are left are exactly those that were seen last.
 */
import type { TablePolicy } from '../engine/policies.js';
import { lifeOf } from './living.js';

export class CrowdedRows {
  /** Rows that were ever pushed, and the pushes of those that are there. */
  private ever = 0;
  private readonly ages: number[] = [];
  private pushes = 0;

  /** A whole row that so many pushes have named. */
  add(row: Float32Array, pushes: number): void {
    if (pushes === 0) return;
    this.ever++;
    const { age, sightings } = lifeOf(row);
    if (sightings === 0) return;
    this.ages.push(age);
    this.pushes += pushes;
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
    // One push is one step of the table, and since the oldest row was seen all were of rows that are there.
    const oldest = ages.at(-1)!;
    if (oldest >= this.pushes) return `rows of ${this.pushes} pushes, the oldest ${oldest} steps old`;
    return new Set(ages).size < ages.length ? 'two rows were seen in one step' : undefined;
  }
}

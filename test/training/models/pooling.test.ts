/** Pooled embeddings and the gradients of their rows, against sums worked out value by value. */
import { expect, test } from 'vitest';
import { parseSchema } from '../../../src/data/parse-schema.js';
import { BagPooling } from '../../../src/training/models/pooling.js';
import type { Batch } from '../../../src/training/models/trainer.js';
import { numbers } from './rows.js';

const DIM = 3;
const schema = parseSchema(
  {
    label: 'y',
    sparse: [
      { column: 'one', table: 'shared' },
      { column: 'sum', table: 'shared', multi: true, pooling: 'sum' },
      { column: 'mean', multi: true },
      { column: 'weighted', table: 'shared', multi: true, weights: 'w' },
      { column: 'sequence', multi: true, pooling: 'none', limit: 3 },
    ],
  },
  's',
);

/** Three samples. The second has nothing in its lists; weights of the third are zero in sum. */
const COLUMNS: { keys: number[][]; weights?: number[][] }[] = [
  { keys: [[1], [2], [1]] },
  { keys: [[1, 2, 1], [], [5]] },
  { keys: [[7, 8], [], [9, 9, 9]] },
  { keys: [[1, 3], [], [2, 4]], weights: [[0.5, 1.5], [], [1, -1]] },
  { keys: [[4, 5], [], [6, 7, 8]] },
];

const batch: Batch = {
  size: 3,
  labels: new Float32Array(3),
  dense: new Float32Array(0),
  keys: new BigUint64Array(0),
  columns: COLUMNS.map(({ keys, weights }) => ({
    keys: BigUint64Array.from(keys.flat(), BigInt),
    offsets: Uint32Array.of(0, keys[0]!.length, keys[0]!.length + keys[1]!.length, keys.flat().length),
    ...(weights && { weights: Float32Array.from(weights.flat()) }),
  })),
};

/** Where the rows of a column are among those of its table. */
const ROWS = [
  [0, 0],
  [0, 3],
  [1, 0],
  [0, 7],
  [1, 5],
] as const;

/** Place and weight of value `index` of a sample: which embedding of the sample it counts in. */
function partOf(column: number, sample: number, index: number): [place: number, weight: number] {
  const { keys, weights } = COLUMNS[column]!;
  const own = weights?.[sample] ?? keys[sample]!.map(() => 1);
  const sum = own.reduce((total, each) => total + each, 0);
  if (column === 2 || column === 3) return [column, sum > 0 ? own[index]! / sum : 0];
  return [column === 4 ? 4 + index : column, 1];
}

function each(visit: (table: number, row: number, at: number, weight: number) => void): void {
  for (const [column, { keys }] of COLUMNS.entries()) {
    const [table, from] = ROWS[column]!;
    let next = from as number;
    for (const [sample, values] of keys.entries())
      for (const index of values.keys()) {
        const [place, weight] = partOf(column, sample, index);
        visit(table, next++, sample * 7 + place, weight);
      }
  }
}

const pooling = new BagPooling(schema, DIM);

test('a sample has an embedding for each column, and for each place of a sequence', () => {
  expect(pooling.embeddings).toBe(7);
});

test('keys of a table are those of its columns, in their order', () => {
  expect(pooling.keys(batch)).toEqual([
    BigUint64Array.from([1, 2, 1, 1, 2, 1, 5, 1, 3, 2, 4], BigInt),
    BigUint64Array.from([7, 8, 9, 9, 9, 4, 5, 6, 7, 8], BigInt),
  ]);
});

test('embeddings are weighted sums of rows; what is not there is zero', () => {
  const rows = [numbers(11 * DIM, 1), numbers(10 * DIM, 2)];
  const target = new Float32Array(3 * 7 * DIM).fill(5);
  pooling.forward(batch, rows, target);
  const expected = new Array(target.length).fill(0);
  each((table, row, at, weight) => {
    for (let i = 0; i < DIM; i++) expected[at * DIM + i] += weight * rows[table]![row * DIM + i]!;
  });
  for (const [index, value] of target.entries()) expect(value).toBeCloseTo(expected[index], 6);
  // The second sample has one value, in the first column.
  expect([...target.subarray(8 * DIM, 14 * DIM)].every((value) => value === 0)).toBe(true);
});

test('the gradient of a row is that of its embedding, by its weight', () => {
  const rows = [new Float32Array(11 * DIM), new Float32Array(10 * DIM)];
  const gradient = numbers(3 * 7 * DIM, 3);
  const found = pooling.backward(batch, gradient, rows);
  let visited = 0;
  each((table, row, at, weight) => {
    for (let i = 0; i < DIM; i++)
      expect(found[table]![row * DIM + i]).toBeCloseTo(weight * gradient[at * DIM + i]!, 6);
    visited += 1;
  });
  expect(visited).toBe(21);
});

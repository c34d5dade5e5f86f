/** Whole rows (values and optimizer state) of lists of keys, in batches of bounded size. */

import type { TableSpec } from '../../protocol/map.js';
import type { Client, RequestOptions } from '../client/client.js';
import { pipelined, ranges } from '../client/concurrent.js';
import { internalsOf } from '../client/connected.js';
import { batchRows, concatenate, pullRows as pull } from '../client/scan.js';

/** Batches under way while one is being handled. */
const DEPTH = 2;

export interface RowBatch {
  keys: BigUint64Array;
  /** keys.length x width: values, then optimizer state, no padding */
  rows: Float32Array;
}

/** Whole rows of `keys`, in their order. */
export function pullRows(
  client: Client,
  spec: TableSpec,
  keys: BigUint64Array,
  options: RequestOptions = {},
): AsyncGenerator<RowBatch> {
  const batches = ranges(keys.length, batchRows(client.rowWidth(spec)));
  return pipelined(DEPTH, batches, async ([start, end]) => {
    const part = keys.subarray(start, end);
    return { keys: part, rows: await pull(internalsOf(client), spec, part, 'rows', options) };
  });
}

/** Pages of keys as lists of `size` keys, the last one shorter, each ascending. */
export async function* sortedLists(
  pages: AsyncIterable<BigUint64Array>,
  size: number,
): AsyncGenerator<BigUint64Array> {
  let held: BigUint64Array[] = [];
  let count = 0;
  for await (const page of pages) {
    held.push(page);
    count += page.length;
    while (count >= size) {
      const all = concatenate(held);
      yield all.slice(0, size).sort();
      held = [all.slice(size)];
      count -= size;
    }
  }
  if (count > 0) yield concatenate(held).sort();
}

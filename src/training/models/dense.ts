/**
 * Dense tensors as tables of chunk rows. A tensor of n values is the table `dense/<name>` with keys 0, 1,
 * ..., each row holding the next `chunkDim` values; the last row is padded with values that nobody reads and
 * whose gradient is zero. A row with Adam's state (three floats per value) then stays below one 4 KiB block,
 * the unit of recovery, and a tensor spreads over all shards instead of sitting on one node. Its shards are
 * those of the embedding: what a push changes in both is one delta, and redundancy costs a tensor r/k of its
 * bytes.
 */
import { KintsugiError } from '../../common/errors.js';
import type { DenseTensor, ModelTable, PushUpdate, RowsToPull } from './trainer.js';

export const CHUNK_DIM = 256;

export interface DenseLayout {
  table: string;
  /** Values of the tensor */
  size: number;
  chunkDim: number;
  keys: BigUint64Array;
}

/** Where the values of a tensor are. A tensor smaller than a chunk is one row of its own width. */
export function denseLayout(tensor: Pick<DenseTensor, 'name' | 'shape'>): DenseLayout {
  let size = 1;
  for (const extent of tensor.shape) {
    if (!Number.isSafeInteger(extent) || extent < 1) {
      throw new KintsugiError(
        'BAD_ARGUMENT',
        `tensor "${tensor.name}": shape [${tensor.shape.join(', ')}] must be positive integers`,
      );
    }
    size *= extent;
  }
  const chunkDim = Math.min(CHUNK_DIM, size);
  const keys = BigUint64Array.from({ length: Math.ceil(size / chunkDim) }, (_, index) => BigInt(index));
  return { table: `dense/${tensor.name}`, size, chunkDim, keys };
}

/** Seeds are integers below this. */
const SEEDS = 2n ** 53n;
/** An odd number without a pattern, so that seeds of different draws of a job are far apart. */
const DRAW_STEP = 0x13c6ef372fe94dn;

/**
 * The table of a tensor. Its initial values are drawn by seed and key alone, so tensors that must not begin
 * alike have different seeds. @throws BAD_ARGUMENT for a `draw` that is no whole number from 0
 */
export function denseTableSpec(tensor: DenseTensor, layout: DenseLayout, seed: number): ModelTable {
  const { optimizer, initializer, draw = 0 } = tensor;
  if (!Number.isSafeInteger(draw) || draw < 0)
    throw new KintsugiError('BAD_ARGUMENT', `tensor "${tensor.name}": draw must be 0 or more, not ${draw}`);
  const own = Number((BigInt(seed) + BigInt(draw) * DRAW_STEP) % SEEDS);
  return { name: layout.table, dim: layout.chunkDim, optimizer, initializer, seed: own };
}

export function densePull(layout: DenseLayout): RowsToPull {
  return { table: layout.table, keys: layout.keys };
}

/** The tensor inside its pulled rows: a view, no copy. */
export function denseValues(layout: DenseLayout, rows: Float32Array): Float32Array {
  return rows.subarray(0, layout.size);
}

/** The update for a gradient. Always a copy: the model may reuse its array while the push is on its way. */
export function densePush(layout: DenseLayout, gradient: Float32Array): PushUpdate {
  const gradients = new Float32Array(layout.keys.length * layout.chunkDim);
  gradients.set(gradient);
  return { table: layout.table, keys: layout.keys, gradients };
}

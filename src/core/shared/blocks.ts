/** Lists of blocks: (column, index) pairs, as the engine takes and gives them. */
import type { BlockList } from '../../engine/native.js';

const BLOCK_NUMBER = 2 ** 32;

export const NO_BLOCKS: BlockList = new Uint32Array(0);

export function concat(a: BlockList, b: BlockList): BlockList {
  if (b.length === 0) return a;
  const both = new Uint32Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}

/** One number for a (column, index) pair. */
export function blockNumber(column: number, index: number): number {
  return column * BLOCK_NUMBER + index;
}

/** The blocks of `blocks` that are not in `others`, each once. */
export function without(blocks: BlockList, others: BlockList): BlockList {
  const skipped = new Set<number>();
  for (let i = 0; i < others.length; i += 2) skipped.add(blockNumber(others[i]!, others[i + 1]!));
  const rest: number[] = [];
  for (let i = 0; i < blocks.length; i += 2) {
    const number = blockNumber(blocks[i]!, blocks[i + 1]!);
    if (skipped.has(number)) continue;
    skipped.add(number);
    rest.push(blocks[i]!, blocks[i + 1]!);
  }
  return Uint32Array.from(rest);
}

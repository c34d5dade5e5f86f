/**
 * Blocks that an owner has asked for and not received yet: which ones, how many of each kind, and which are
 * overdue. A block is counted once, however often it is asked for. The cost of each call does not depend on
 * how many blocks are under way.
 */
import type { BlockList } from '../../engine/native.js';
import { blockNumber } from '../shared/blocks.js';

/** Blocks that were asked for together. */
interface RecoverQuestion {
  /** All blocks of the question, also those that have come. */
  blocks: BlockList;
  /** Number of its blocks that are under way; at 0 the question is removed. */
  left: number;
  /** Milliseconds. */
  sentAt: number;
}

export class BlocksUnderWay {
  /** Block number -> the question that it is under way for. A block is under way for one question at most. */
  private readonly byBlock = new Map<number, RecoverQuestion>();
  /** The questions with blocks under way, in the order in which they were sent. */
  private readonly requests = new Set<RecoverQuestion>();
  /** Blocks in `byBlock`, by kind. */
  private readonly counts: [keys: number, rows: number] = [0, 0];
  /** Blocks that all parities were asked for since the last `add` of the block (rule 22). */
  private readonly spread = new Set<number>();

  count(kind: 0 | 1): number {
    return this.counts[kind];
  }

  has(column: number, index: number): boolean {
    return this.byBlock.has(blockNumber(column, index));
  }

  /** The blocks of `blocks` that are not under way. */
  fresh(blocks: BlockList): BlockList {
    let known = 0;
    for (let i = 0; i < blocks.length; i += 2) if (this.has(blocks[i]!, blocks[i + 1]!)) known++;
    if (known === 0) return blocks;
    const rest = new Uint32Array(blocks.length - 2 * known);
    let at = 0;
    for (let i = 0; i < blocks.length; i += 2) {
      if (this.has(blocks[i]!, blocks[i + 1]!)) continue;
      rest[at++] = blocks[i]!;
      rest[at++] = blocks[i + 1]!;
    }
    return rest;
  }

  /** Notes a question for `blocks`, none of which is under way. */
  add(blocks: BlockList, now: number): void {
    const request = { blocks, left: blocks.length / 2, sentAt: now };
    this.requests.add(request);
    for (let i = 0; i < blocks.length; i += 2) {
      const number = blockNumber(blocks[i]!, blocks[i + 1]!);
      this.byBlock.set(number, request);
      this.spread.delete(number);
      this.counts[kindOf(blocks[i]!)]++;
    }
  }

  /** Notes that all parities are asked for `blocks`. Returns the blocks of which that is new since `add`. */
  spreads(blocks: BlockList): BlockList {
    const fresh: number[] = [];
    for (let i = 0; i < blocks.length; i += 2) {
      const number = blockNumber(blocks[i]!, blocks[i + 1]!);
      if (this.spread.has(number)) continue;
      this.spread.add(number);
      fresh.push(blocks[i]!, blocks[i + 1]!);
    }
    return fresh.length === blocks.length ? blocks : Uint32Array.from(fresh);
  }

  /** Notes that `blocks` are not under way any more: they have come, or are to be asked for again. */
  remove(blocks: BlockList): void {
    for (let i = 0; i < blocks.length; i += 2) {
      const number = blockNumber(blocks[i]!, blocks[i + 1]!);
      const request = this.byBlock.get(number);
      if (!request) continue;
      this.byBlock.delete(number);
      this.counts[kindOf(blocks[i]!)]--;
      if (--request.left === 0) this.requests.delete(request);
    }
  }

  /** Takes out the questions that were sent before `time`; returns the missing blocks of each. */
  takeOverdue(time: number): BlockList[] {
    const overdue: RecoverQuestion[] = [];
    for (const request of this.requests) {
      if (request.sentAt >= time) break;
      overdue.push(request);
    }
    return overdue.map((request) => {
      const left = request.blocks.length / 2 === request.left ? request.blocks : this.stillMissing(request);
      this.remove(left);
      this.requests.delete(request);
      return left;
    });
  }

  private stillMissing(request: RecoverQuestion): BlockList {
    const left: number[] = [];
    const { blocks } = request;
    for (let i = 0; i < blocks.length; i += 2) {
      if (this.byBlock.get(blockNumber(blocks[i]!, blocks[i + 1]!)) === request)
        left.push(blocks[i]!, blocks[i + 1]!);
    }
    return Uint32Array.from(left);
  }

  clear(): void {
    this.byBlock.clear();
    this.requests.clear();
    this.spread.clear();
    this.counts.fill(0);
  }
}

function kindOf(column: number): 0 | 1 {
  return (column & 1) as 0 | 1;
}

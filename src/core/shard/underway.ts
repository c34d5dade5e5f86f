/**
 * Blocks that an owner has asked for and not received yet: which ones, how many of each kind, and which are
 * overdue. A block is counted once, however often it is asked for. The cost of each call does not depend on
 * how many blocks are under way.
 */
import type { BlockList } from '../../native.js';
import { blockNumber } from '../shared/blocks.js';

interface Request {
  blocks: BlockList;
  /** Of `blocks`, those that still count for this request. */
  left: number;
  sentAt: number;
}

export class UnderWay {
  private readonly byBlock = new Map<number, Request>();
  /** In the order in which they were sent. */
  private readonly requests = new Set<Request>();
  private readonly counts: [keys: number, rows: number] = [0, 0];
  /** Blocks that all who may have them were asked for. */
  private readonly spread = new Set<number>();

  count(kind: 0 | 1): number {
    return this.counts[kind];
  }

  has(column: number, index: number): boolean {
    return this.byBlock.has(blockNumber(column, index));
  }

  /** Those of `blocks` that nobody was asked for. */
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

  /** `blocks` are asked for now; none of them is under way. */
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

  /** Everybody is asked for `blocks` now. Returns those that were not asked of everybody since `add`. */
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

  /** They have come, or are asked for again. */
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

  /** Takes out the requests that were sent before `time`; returns the missing blocks of each. */
  takeOverdue(time: number): BlockList[] {
    const overdue: Request[] = [];
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

  private stillMissing(request: Request): BlockList {
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

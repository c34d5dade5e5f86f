/**
 * The work of one turn of the event loop. Requests are served until a turn has had its share of rows and
 * bytes, and the rest waits for the next turn: sockets, timers and heartbeats are looked at in between. A
 * push that is larger than a turn has one for itself, and a larger answer is gathered in slices
 * (node/slices.ts).
 *
 * Rows and bytes are counted, and time is not: a count is the same on every machine, so tests can assert it.
 */
import { invariant } from '../../common/errors.js';
import { readSectionHeader } from '../../protocol/section-header.js';
import type { Policy } from './policy.js';

/** The cost of a request. */
export interface Work {
  /** Rows that are read or written. */
  readonly rows: number;
  /** Bytes of the sections of a push, or of the answer to a pull. */
  readonly bytes: number;
}

/** The part of a turn that a request without rows is: it takes time, too. */
const LEAST_SHARE = 1 / 1024;

export class Turn {
  private rows = 0;
  private bytes = 0;
  /** Requests that had rows or bytes in this turn. */
  private requests = 0;
  /** A request has begun that has had nothing yet. */
  private isNew = false;
  /** Number of this turn, from 0. */
  number = 0;

  constructor(private readonly policy: Pick<Policy, 'maxTurnRows' | 'maxTurnBytes'>) {}

  /** The event loop has come round. */
  begin(): void {
    this.rows = 0;
    this.bytes = 0;
    this.requests = 0;
    this.number++;
  }

  /** Something was done in this turn, so that it must end before there is room again. */
  get isUsed(): boolean {
    return this.rows > 0 || this.bytes > 0;
  }

  /** True: no more requests fit. */
  get isFull(): boolean {
    return this.rows >= this.policy.maxTurnRows || this.bytes >= this.policy.maxTurnBytes;
  }

  fits({ rows, bytes }: Work): boolean {
    if (!this.isUsed) return true;
    return !this.isBeyond(this.rows + rows, this.bytes + bytes);
  }

  /** The next request begins. */
  request(): void {
    this.isNew = true;
  }

  /** The request that began last is served, or a section of it. */
  spend({ rows, bytes }: Work): void {
    if (rows === 0 && bytes === 0) return;
    if (this.isNew) this.requests++;
    this.isNew = false;
    this.rows += rows;
    this.bytes += bytes;
    invariant(this.requests <= 1 || !this.isBeyond(this.rows, this.bytes), 'a turn is bounded', {
      rows: this.rows,
      bytes: this.bytes,
      requests: this.requests,
    });
  }

  /** Begins a request and serves it, if it fits. */
  takes(work: Work): boolean {
    if (!this.fits(work)) return false;
    this.request();
    this.spend(work);
    return true;
  }

  /** True: it is more than a turn has room for. */
  isLarge({ rows, bytes }: Work): boolean {
    return this.isBeyond(rows, bytes);
  }

  /** The part of a turn that a request is; more than 1: it has one for itself. No request is nothing. */
  shareOf({ rows, bytes }: Work): number {
    return Math.max(rows / this.policy.maxTurnRows, bytes / this.policy.maxTurnBytes, LEAST_SHARE);
  }

  private isBeyond(rows: number, bytes: number): boolean {
    return rows > this.policy.maxTurnRows || bytes > this.policy.maxTurnBytes;
  }
}

/** Rows that a section names. A malformed one has few, and the engine refuses it. */
export function rowsIn(sections: DataView, start: number, end: number): number {
  let rows = 0;
  readSectionHeader(sections, start, end, Number.POSITIVE_INFINITY, (_, count) => {
    rows += count;
  });
  return rows;
}

export function rowsOf({ buffer, byteOffset, byteLength }: Uint8Array): number {
  return rowsIn(new DataView(buffer, byteOffset, byteLength), 0, byteLength);
}

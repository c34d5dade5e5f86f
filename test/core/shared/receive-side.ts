/** A sender of frames for tests of the account of received frames, and accounts that are full. */
import { expect } from 'vitest';
import {
  PIECE_BYTES,
  type ReceivedBytes,
  type ReceiveLink,
} from '../../../src/core/shared/received-bytes.js';

export const MIB = 1 << 20;
export const LEAST = 2 * PIECE_BYTES;
export const LIMIT = 64 * MIB;

/** A sender that keeps to its credit, and its link. */
export class Side {
  credit: number;
  evicted: string[] = [];
  /** Bytes of the frame that are still to be sent. */
  left = 0;
  readonly link: ReceiveLink;

  constructor(account: ReceivedBytes, kind: 'large' | 'small' = 'small') {
    this.link = account.open(kind);
    this.credit = this.link.window;
    this.link.handlers = {
      onRoom: () => this.told(),
      onEvict: (reason) => {
        this.evicted.push(reason);
        this.link.close();
      },
    };
  }

  told(): void {
    this.credit += this.link.due();
  }

  begin(bytes: number): void {
    this.link.begin(bytes);
    this.left = bytes;
    this.told();
  }

  /** Sends a piece if there is credit. False: there is none. */
  send(most = this.link.pieceBytes): boolean {
    const bytes = Math.min(most, this.left);
    if (bytes > this.credit) return false;
    this.credit -= bytes;
    expect(this.link.takePiece(bytes)).toBe(true);
    this.left -= bytes;
    if (this.left === 0) this.link.end();
    this.told();
    return true;
  }

  /** Sends what there is credit for. True: the frame is complete. */
  sendAll(): boolean {
    while (this.left > 0 && this.send());
    return this.left === 0;
  }
}

/** Ticks until so much time has passed. */
export function pass(account: ReceivedBytes, ms: number): void {
  const from = account.now;
  for (let passed = 100; passed <= ms; passed += 100) account.tick(from + passed);
}

/** All windows that an account gives out; `large`: first those. */
export function windowsOf(account: ReceivedBytes, large = false): Side[] {
  const sides: Side[] = [];
  while (large && account.hasLarge()) sides.push(new Side(account, 'large'));
  while (!account.isFull()) sides.push(new Side(account));
  return sides;
}

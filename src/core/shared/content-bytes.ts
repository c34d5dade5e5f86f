/**
 * The account of block content between nodes. A node asks each other node for a share of `maxDeltaBytes` at a
 * time, over all of its sinks. A node gives nothing more to a node for which its link holds twice as much:
 * that node is slow, or has asked again for what is on its way, and it asks once more. The link of one slow
 * node holds up the content for that node alone.
 */
import { invariant } from '../../common/errors.js';
import type { PeerId } from '../../protocol/map.js';

/** Parts of `maxDeltaBytes`: content that one node is asked for, and what a link may hold when it gives. */
const ASKED = 1 / 8;
const GIVEN = 1 / 4;

export class ContentBytes {
  /** Bytes that sinks of this node want of a node and that have not come; all are above 0. */
  private readonly asked = new Map<PeerId, number>();
  /** Bytes that the link to a node held at the newest report, and content given to it since. */
  private readonly held = new Map<PeerId, number>();
  /** Content was given since the newest report. */
  private given = false;

  /** `limit`: in bytes, `Policy.maxDeltaBytes`. */
  constructor(private readonly limit: number) {}

  // ---- of the node that asks

  /** Blocks of so many bytes that may be wanted of `giver` beyond those that are: one, if there are none. */
  mayAsk(giver: PeerId, blockBytes: number): number {
    const asked = this.asked.get(giver) ?? 0;
    const blocks = Math.floor((this.limit * ASKED - asked) / blockBytes);
    return Math.max(blocks, asked === 0 ? 1 : 0);
  }

  /** Bytes are wanted of `giver`; negative: they came, or are given up. */
  addAsked(giver: PeerId, bytes: number): void {
    const asked = (this.asked.get(giver) ?? 0) + bytes;
    invariant(asked >= 0, 'no more bytes come than are wanted', { giver, bytes, asked });
    if (asked > 0) this.asked.set(giver, asked);
    else this.asked.delete(giver);
  }

  // ---- of the node that gives

  /** True: `taker` may get content. */
  mayGive(taker: PeerId): boolean {
    return (this.held.get(taker) ?? 0) < this.limit * GIVEN;
  }

  /** True: the runtime should report soon, because what was given may have been taken. */
  get needsReport(): boolean {
    return this.given;
  }

  give(taker: PeerId, bytes: number): void {
    this.given = true;
    this.held.set(taker, (this.held.get(taker) ?? 0) + bytes);
  }

  /** Takes over what all links to nodes hold now: content given before is in them, or has been taken. */
  report(links: ReadonlyMap<PeerId, number>): void {
    this.given = false;
    this.held.clear();
    for (const [node, bytes] of links) this.held.set(node, bytes);
  }
}

/**
 * The account of block content between nodes. A node asks each other node for a share of `maxDeltaBytes` at a
 * time, over all of its sinks. A node gives nothing more to a node that has not taken twice as much content:
 * that node is slow, or has asked again for what is on its way, and it asks once more. The link of one slow
 * node holds up the content for that node alone.
 *
 * Only content counts, wherever it stands in a link. Questions are repeated, so a slow link is never empty,
 * and some of them cannot be answered without the content.
 */
import { invariant } from '../../common/errors.js';
import type { PeerId } from '../../protocol/map.js';

/** Parts of `maxDeltaBytes`: content that one node is asked for, and what it may not have taken yet. */
const ASKED = 1 / 8;
const GIVEN = 1 / 4;

/** Bytes of the messages for one node, of all kinds, in order. */
export interface LinkBytes {
  /** Bytes that wait, posted or in a socket. */
  readonly held: number;
  /** Bytes that were taken, or were lost with a connection, since the process began. */
  readonly taken: number;
}

/** Content that is on its way to a node. */
interface GivenContent {
  bytes: number;
  /** Bytes that the link has taken when it has taken this content; Infinity: not in a report yet. */
  end: number;
}

export class ContentBytes {
  /** Bytes that sinks of this node want of a node and that have not come; all are above 0. */
  private readonly asked = new Map<PeerId, number>();
  /** Content that a node has not taken, in order. No list is empty. */
  private readonly given = new Map<PeerId, GivenContent[]>();
  /** True: the runtime should report soon, because what was given may have been taken. */
  needsReport = false;

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
    let bytes = 0;
    for (const given of this.given.get(taker) ?? []) bytes += given.bytes;
    return bytes < this.limit * GIVEN;
  }

  give(taker: PeerId, bytes: number): void {
    this.needsReport = true;
    const all = this.given.get(taker) ?? [];
    if (all.length === 0) this.given.set(taker, all);
    all.push({ bytes, end: Number.POSITIVE_INFINITY });
  }

  /** Takes over the bytes of the links to all nodes. Content given before is among them. */
  report(links: ReadonlyMap<PeerId, LinkBytes>): void {
    this.needsReport = false;
    for (const [node, all] of this.given) {
      const { held, taken } = links.get(node) ?? { held: 0, taken: 0 };
      // Also an end from before can lie too far: a new process of the node begins at 0.
      for (const given of all) given.end = Math.min(given.end, taken + held);
      const left = all.filter(({ end }) => end > taken);
      if (left.length > 0) this.given.set(node, left);
      else this.given.delete(node);
    }
  }
}

// The content of blocks that nodes ask each other for, and that links to nodes hold.
import { afterEach, describe, expect, it } from 'vitest';
import { ContentBytes } from '../../../src/core/shared/content-bytes.js';
import { Cluster, kind, type Packet } from '../harness.js';

const BLOCK_BYTES = 4096;
/** A node may ask each other one for two blocks at a time; a link holds at most four, and what comes then. */
const LIMIT = 16 * BLOCK_BYTES;
/** Rows of some blocks. */
const KEYS = Array.from({ length: 8 * 512 }, (_, i) => i + 1);

let cluster: Cluster;
afterEach(() => cluster.close());

/** A node that has the parity of group 0 is lost, so that another one asks for content. */
function loseParity(groups: number): void {
  cluster = new Cluster({ k: 2, r: 1, groups, spares: 1, policy: { maxDeltaBytes: LIMIT } });
  for (let g = 0; g < groups; g++)
    for (const m of [0, 1]) {
      cluster.client.push({ [m]: [{ keys: KEYS }] }, g);
      cluster.settle();
    }
  const lost = cluster.map.groups[0]!.sinks[0]!.node;
  cluster.crash(cluster.nodes.findIndex(({ id }) => id === lost));
}

/** The most bytes that one link holds. */
function fullestLink(packets: readonly Packet[]): number {
  const links = new Map<string, number>();
  for (const { from, to, parts } of packets) {
    const link = `${from} ${to}`;
    links.set(link, (links.get(link) ?? 0) + parts.reduce((sum, { byteLength }) => sum + byteLength, 0));
  }
  return Math.max(0, ...links.values());
}

describe('content between nodes', () => {
  it('is asked for in shares', () => {
    loseParity(1);
    const content = cluster.hold(kind('content'));
    cluster.advance(300);
    expect(content.packets.length).toBeGreaterThan(0);
    expect(fullestLink(content.packets)).toBeLessThan(3 * BLOCK_BYTES);
    content.release();
    cluster.advance(20_000);
    expect(cluster.map.groups[0]!.sinks.length).toBe(1);
    expect(cluster.checkParities()).toBeGreaterThan(16);
  });

  it('does not pile up for a node that takes nothing and asks again', () => {
    // Owners are lost, too. Their blocks are asked for in messages of eight blocks, outside of the shares.
    loseParity(3);
    const content = cluster.hold(kind('content'));
    cluster.advance(10_000);
    expect(cluster.sent('want').length).toBeGreaterThan(20);
    expect(fullestLink(content.packets)).toBeLessThan(LIMIT / 4 + 9 * BLOCK_BYTES);
    content.release();
    cluster.advance(20_000);
    expect(cluster.checkParities()).toBeGreaterThan(48);
  });
});

describe('the account of content', () => {
  it('lets all sinks of a node together ask another node for a share, and at least for one block', () => {
    const account = new ContentBytes(LIMIT);
    expect(account.mayAsk(1, BLOCK_BYTES)).toBe(2);
    account.addAsked(1, BLOCK_BYTES);
    expect([account.mayAsk(1, BLOCK_BYTES), account.mayAsk(2, BLOCK_BYTES)]).toEqual([1, 2]);
    // A row that is larger than a share.
    expect([account.mayAsk(1, LIMIT), account.mayAsk(2, LIMIT)]).toEqual([0, 1]);
    account.addAsked(1, -BLOCK_BYTES);
    expect(account.mayAsk(1, LIMIT)).toBe(1);
    expect(() => account.addAsked(1, -1)).toThrow('no more bytes come than are wanted');
  });

  it('holds back content for a node alone that has not taken what it got', () => {
    const account = new ContentBytes(LIMIT);
    account.give(1, LIMIT / 8);
    expect([account.mayGive(1), account.needsReport]).toEqual([true, true]);
    account.give(1, LIMIT / 8);
    expect([account.mayGive(1), account.mayGive(2)]).toEqual([false, true]);
    account.report(new Map([[1, { held: LIMIT / 4, taken: 7 }]]));
    expect([account.mayGive(1), account.needsReport]).toEqual([false, false]);
    account.report(new Map([[1, { held: 1, taken: LIMIT / 4 + 6 }]]));
    expect(account.mayGive(1)).toBe(false);
    account.report(new Map([[1, { held: 0, taken: LIMIT / 4 + 7 }]]));
    expect(account.mayGive(1)).toBe(true);
  });

  it('counts no other message, before or behind content', () => {
    const account = new ContentBytes(LIMIT);
    account.report(new Map([[1, { held: 10 * LIMIT, taken: 0 }]]));
    expect(account.mayGive(1)).toBe(true);
    account.give(1, LIMIT / 4);
    const end = 10 * LIMIT + LIMIT / 4;
    account.report(new Map([[1, { held: end, taken: 0 }]]));
    account.report(new Map([[1, { held: end, taken: end - 1 }]]));
    expect(account.mayGive(1)).toBe(false);
    account.report(new Map([[1, { held: end, taken: end }]]));
    expect(account.mayGive(1)).toBe(true);
  });

  it('ends with the link, and begins anew with another one', () => {
    const account = new ContentBytes(LIMIT);
    account.give(1, LIMIT / 4);
    account.report(new Map([[1, { held: LIMIT, taken: 100 * LIMIT }]]));
    // Another process of the node, for which something else waits.
    account.report(new Map([[1, { held: LIMIT, taken: 0 }]]));
    account.report(new Map([[1, { held: LIMIT, taken: LIMIT }]]));
    expect(account.mayGive(1)).toBe(true);
    account.give(1, LIMIT / 4);
    account.report(new Map());
    expect(account.mayGive(1)).toBe(true);
  });
});

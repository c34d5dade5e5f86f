/**
 * Acknowledgements of pushes to several shards of a node leave together, and one by one after a failure.
 */
import { afterEach, describe, expect, it } from 'vitest';
import { OwedAcks } from '../../../src/core/node/owed-acks.js';
import { packItems } from '../../../src/protocol/items.js';
import type { PeerId } from '../../../src/protocol/map.js';
import { Cluster, kind, section } from '../harness.js';
import { acksIn } from '../packed.js';

const CLIENT: PeerId = 7;
const WAIT_MS = 100;

let cluster: Cluster | undefined;
afterEach(() => {
  cluster?.close();
  cluster = undefined;
});

class Owing {
  sent: (number | string | undefined)[][] = [];
  readonly owed = new OwedAcks(WAIT_MS, (client, g, m, cseq, refused) => {
    this.sent.push([client, g, m, cseq, ...(refused === undefined ? [] : [refused])]);
  });

  push(sections: [g: number, m: number, cseq: number][], now = 0, client = CLIENT): void {
    const push = this.owed.begin(client, now);
    for (const section of sections) this.owed.add(push, ...section);
  }

  settle(g: number, m: number, cseq: number, client = CLIENT): void {
    this.owed.settle(client, g, m, cseq);
  }

  take(): (number | string | undefined)[][] {
    const { sent } = this;
    this.sent = [];
    return sent;
  }
}

describe('acknowledgements of one push', () => {
  it('leave when the last of its shards has it', () => {
    const owing = new Owing();
    owing.push([
      [0, 1, 5],
      [1, 0, 3],
    ]);
    owing.settle(1, 0, 3);
    expect(owing.take()).toEqual([]);
    owing.owed.settle(CLIENT, 0, 1, 5, 'BAD_ARGUMENT');
    expect(owing.take()).toEqual([
      [CLIENT, 1, 0, 3],
      [CLIENT, 0, 1, 5, 'BAD_ARGUMENT'],
    ]);
    owing.owed.tick(10 * WAIT_MS);
    expect(owing.take()).toEqual([]);
  });

  it('of several pushes do not wait for each other', () => {
    const owing = new Owing();
    for (const cseq of [1, 2])
      owing.push([
        [0, 0, cseq],
        [1, 1, cseq],
      ]);
    owing.push([[0, 0, 1]], 0, 8);
    owing.settle(0, 0, 1);
    owing.settle(0, 0, 2);
    expect(owing.take()).toEqual([]);
    owing.settle(0, 0, 1, 8);
    expect(owing.take()).toEqual([[8, 0, 0, 1]]);
    owing.settle(1, 1, 2);
    expect(owing.take()).toEqual([
      [CLIENT, 0, 0, 2],
      [CLIENT, 1, 1, 2],
    ]);
    owing.settle(1, 1, 1);
    expect(owing.take()).toHaveLength(2);
  });

  it('that nobody waits for any more leave at once', () => {
    const owing = new Owing();
    owing.settle(0, 0, 4);
    expect(owing.take()).toEqual([[CLIENT, 0, 0, 4]]);
  });

  it('leave one by one when a shard keeps the others waiting', () => {
    const owing = new Owing();
    owing.push([
      [0, 0, 1],
      [1, 1, 1],
      [2, 2, 1],
    ]);
    owing.push([[0, 0, 2]], 1);
    owing.settle(0, 0, 1);
    owing.owed.tick(WAIT_MS - 1);
    expect(owing.take()).toEqual([]);
    owing.owed.tick(WAIT_MS);
    expect(owing.take()).toEqual([[CLIENT, 0, 0, 1]]);
    owing.settle(2, 2, 1);
    expect(owing.take()).toEqual([[CLIENT, 2, 2, 1]]);
    owing.settle(0, 0, 2);
    expect(owing.take()).toEqual([[CLIENT, 0, 0, 2]]);
  });

  it('leave one by one when the client repeats a section', () => {
    const owing = new Owing();
    owing.push([
      [0, 0, 1],
      [1, 1, 1],
      [2, 2, 1],
    ]);
    owing.settle(0, 0, 1);
    owing.push([
      [1, 1, 1],
      [2, 2, 1],
    ]);
    expect(owing.take()).toEqual([[CLIENT, 0, 0, 1]]);
    owing.settle(1, 1, 1);
    expect(owing.take()).toEqual([[CLIENT, 1, 1, 1]]);
  });

  it('leave when a push has the same section twice', () => {
    const owing = new Owing();
    owing.push([
      [0, 0, 1],
      [0, 0, 1],
    ]);
    owing.settle(0, 0, 1);
    expect(owing.take()).toEqual([[CLIENT, 0, 0, 1]]);
    expect(owing.owed.size).toBe(0);
  });
});

describe('a push to several shards of a node', () => {
  it('is acknowledged in one message when all sinks of each have it', () => {
    cluster = new Cluster({ k: 1, r: 1, groups: 4, spares: 1 });
    const [node] = cluster.nodes;
    const mine = cluster.map.groups.filter(({ data }) => data[0]!.node === node!.id).map(({ id }) => id);
    expect(mine.length).toBeGreaterThan(1);
    const slow = cluster.hold(kind('applied'));
    const bytes = section([{ keys: [1] }], true);
    const items = packItems(
      'push',
      mine.map((g) => [g, 0, 1, bytes.byteLength]),
    );
    const message = { t: 'push' as const, epoch: cluster.map.epoch, items };
    cluster.send(cluster.client.id, node!.id, message, [Buffer.concat(mine.map(() => bytes))]);
    cluster.settle();
    expect(slow.packets).toHaveLength(mine.length);
    for (const packet of slow.packets) {
      expect(cluster.sent('pushAck')).toEqual([]);
      cluster.deliver(packet);
    }
    const acks = cluster.sent('pushAck').map((sent) => acksIn(sent.message));
    expect(acks).toEqual([mine.map((g) => expect.arrayContaining([g, 0, 1]))]);
  });
});

// The limit for the memory of deltas on a node: uncommitted batches of owners, logs of sinks, and bytes that
// connections have to send.
import { afterEach, describe, expect, it } from 'vitest';
import type { Policy } from '../../../src/core/shared/policy.js';
import { Cluster, kind } from '../harness.js';

let cluster: Cluster;
afterEach(() => cluster.close());

const GROUPS = 6;
const KEYS = Array.from({ length: 64 }, (_, i) => i + 1);
/** Makes some deltas of these keys. */
const LIMIT = 1 << 20;
const ROUNDS = 40;

function start(policy: Partial<Policy> = {}): Cluster {
  cluster = new Cluster({
    ...{ k: 2, r: 1, groups: GROUPS, spares: 1 },
    policy: { maxDeltaBytes: LIMIT, sinkStallMs: 600_000, ...policy },
  });
  return cluster;
}

/** Sends the same push to every shard. */
function pushEverywhere(): void {
  for (let g = 0; g < GROUPS; g++)
    for (let m = 0; m < 2; m++) cluster.client.push({ [m]: [{ keys: KEYS }] }, g);
  cluster.settle();
}

const accounts = () => cluster.nodes.map(({ node }) => node!.deltaBytes);

/** The largest delta that was sent. */
const largestDelta = (): number =>
  Math.max(...cluster.sent('delta').map(({ parts }) => parts[0]!.byteLength));

/** Checks that no node holds more than the limit and one batch for each shard and log on it. */
function expectWithinLimit(): void {
  const slack = GROUPS * 3 * largestDelta();
  for (const account of accounts()) expect(account.used).toBeLessThan(LIMIT + slack);
}

/** Pushes to all shards while some messages do not arrive. */
function pushFor(rounds: number): void {
  for (let i = 0; i < rounds; i++) {
    pushEverywhere();
    cluster.advance(20);
  }
}

/** Lets all pushes arrive, and checks that every account is empty. */
function expectAllDone(rounds: number): void {
  cluster.advance(60_000);
  expect(cluster.client.core.unacknowledged).toBe(0);
  for (let g = 0; g < GROUPS; g++) expect(cluster.map.groups[g]!.sinks.length).toBe(1);
  expect(cluster.read(0, 1)).toBe(rounds);
  expect(cluster.checkParities()).toBeGreaterThan(0);
  expect(accounts().map(({ used }) => used)).toEqual(accounts().map(() => 0));
}

describe('memory of deltas on a node', () => {
  it('stays within its limit however many shards wait for sinks, and all goes on when these answer', () => {
    start();
    const stalled = cluster.hold(kind('delta'));
    pushFor(ROUNDS);
    expectWithinLimit();
    for (const account of accounts())
      expect(account.uncommitted).toBeLessThan(LIMIT + GROUPS * largestDelta());
    expect(cluster.client.core.unacknowledged).toBeGreaterThan(0);
    stalled.release();
    cluster.settle();
    expectAllDone(ROUNDS);
  });

  it('all goes on when a sink that stalled is replaced', () => {
    start({ sinkStallMs: 3000 });
    const silent = cluster.nodes[2]!.id;
    const found = cluster.lose(kind('delta', { to: silent }));
    pushFor(ROUNDS);
    cluster.advance(10_000);
    expect(cluster.eventsNamed('sink.stalled').length).toBeGreaterThan(0);
    expectWithinLimit();
    found();
    expectAllDone(ROUNDS);
  });

  it('counts the logs of sinks: owners elsewhere hear that a node is full, and go on batch by batch', () => {
    start();
    // Owners hear of every delta but the first, so nothing is committed, and sinks keep their logs.
    const lost = cluster.lose(kind('applied', {}));
    pushFor(ROUNDS);
    expectWithinLimit();
    expect(Math.max(...accounts().map(({ logged }) => logged))).toBeGreaterThan(0);
    lost();
    expectAllDone(ROUNDS);
  });

  it('goes on batch by batch when connections fill the account for ever', () => {
    start();
    for (const account of accounts()) account.setOutgoing(LIMIT);
    pushFor(3);
    cluster.advance(5000);
    expect([cluster.client.core.unacknowledged, cluster.read(0, 1)]).toEqual([0, 3]);
    for (const account of accounts()) account.setOutgoing(0);
    expectAllDone(3);
  });

  it('applies one batch at a time at the limit, also when a batch is full before its turn ends', () => {
    start({ maxOpenBytes: 1 });
    for (const account of accounts()) account.setOutgoing(LIMIT);
    const stalled = cluster.hold(kind('delta'));
    cluster.autoFlush = false;
    for (let i = 0; i < 3; i++) cluster.client.push({ 0: [{ keys: KEYS }] });
    cluster.settle();
    cluster.flush(0);
    expect(cluster.owner(0).stream.seq).toBe(1);
    cluster.autoFlush = true;
    stalled.release();
    cluster.settle();
    expect([cluster.client.core.unacknowledged, cluster.read(0, 1)]).toEqual([0, 3]);
  });

  it('waits for a sink whose node is full, and asks no clock when it has room again', () => {
    cluster = new Cluster({ k: 1, r: 2, policy: { sinkStallMs: 600_000 } });
    const [owner, crowded, silent] = cluster.nodes.map((actor) => actor);
    crowded!.node!.deltaBytes.setOutgoing(cluster.policy.maxDeltaBytes);
    const stalled = cluster.hold(kind('delta', { to: silent!.id }));
    for (let i = 0; i < 10; i++) {
      cluster.client.push({ 0: [{ keys: KEYS }] });
      cluster.settle();
    }
    expect(owner!.node!.deltaBytes.uncommitted).toBe(largestDelta());
    crowded!.node!.deltaBytes.setOutgoing(0);
    stalled.release();
    cluster.settle();
    expect(cluster.client.core.unacknowledged).toBe(0);
    expect(cluster.read(0, 1)).toBe(10);
  });

  it('a shard that goes elsewhere takes its share along', () => {
    start();
    cluster.hold(kind('delta'));
    pushFor(3);
    const before = accounts().map(({ uncommitted }) => uncommitted);
    expect(Math.max(...before)).toBeGreaterThan(0);
    for (const { node } of cluster.nodes) {
      const { epoch, groups } = cluster.map;
      const nobody = { node: 0, inc: 0, init: false };
      const moved = groups.map((group) => {
        const data = group.data.map((entry) => ({ ...entry, ...nobody }));
        return { ...group, version: epoch + 1, data, sinks: [] };
      });
      const map = { ...cluster.map, epoch: epoch + 1, groups: moved };
      node!.step({ kind: 'message', from: 0, role: 'scheduler', message: { t: 'map', map }, parts: [] });
    }
    expect(accounts().map(({ used }) => used)).toEqual(before.map(() => 0));
  });
});

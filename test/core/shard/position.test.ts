// Rule 23: an owner's claim to lack blocks holds at the position of the stream that it names. Since then the
// owner has got the blocks back, and changed them.
import { afterEach, expect, it } from 'vitest';
import { Cluster } from '../harness.js';

let cluster: Cluster;
afterEach(() => cluster.close());

it('a claim from an older position begins no recovery', () => {
  cluster = new Cluster({ k: 2, r: 1, spares: 1 });
  cluster.client.push({ 0: [{ keys: [1], value: 3 }], 1: [{ keys: [1], value: 4 }] });
  cluster.settle();
  cluster.crash(0);
  cluster.settle();
  const claims = cluster.sent('recover');
  expect(claims.length).toBeGreaterThan(0);
  cluster.client.push({ 0: [{ keys: [1], value: 5 }] });
  cluster.settle();
  expect(cluster.read(0, 1)).toBe(8);
  const mark = cluster.history.length;
  // The network doubles messages, and delays the copies.
  for (const claim of claims) cluster.deliver(claim);
  cluster.settle();
  expect(cluster.sent('want', mark)).toEqual([]);
  expect(cluster.sent('equation', mark)).toEqual([]);
});

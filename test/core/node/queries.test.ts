// Questions of tools to owners.
import { expect, it } from 'vitest';
import type { NodeHost } from '../../../src/core/node/host.js';
import type { Owners } from '../../../src/core/node/owners.js';
import { Queries } from '../../../src/core/node/queries.js';
import type { Sinks } from '../../../src/core/node/sinks.js';
import { Outbox } from '../../../src/core/shared/outbox.js';

it('keys of a table with a policy are not listed while rows are lost, which say who is gone', () => {
  const out = new Outbox();
  let isReady = false;
  const native = {
    keysReady: true,
    tableReady: () => isReady,
    keys: () => ({ keys: BigUint64Array.of(7n), next: -1 }),
  };
  const owners = { at: () => ({ phase: 'ACTIVE', native }) } as unknown as Owners;
  const host = { out, gone: { has: () => false } } as unknown as NodeHost;
  const queries = new Queries(host, owners, {} as Sinks);
  const ask = () => {
    queries.onKeys(9, { t: 'keys', id: 1, epoch: 1, g: 0, m: 0, table: 3, order: 'slot', from: 0, max: 10 });
    return out.take().map((effect) => effect.kind === 'send' && effect.message);
  };
  expect(ask()).toEqual([{ t: 'reject', id: 1, items: [[0, 'WRONG_OWNER']] }]);
  isReady = true;
  expect(ask()).toEqual([{ t: 'keysPage', id: 1, next: -1 }]);
});

it('an owner that lacks keys of a shard lists none of it and counts nothing', () => {
  const out = new Outbox();
  const native = {
    keysReady: false,
    tableReady: () => true,
    keys: () => ({ keys: BigUint64Array.of(7n), next: -1 }),
    extents: () => [],
    stats: () => [],
  };
  const owners = { at: () => ({ phase: 'ACTIVE', native }) } as unknown as Owners;
  const queries = new Queries(
    { out, gone: { has: () => false } } as unknown as NodeHost,
    owners,
    {} as Sinks,
  );
  const shard = { epoch: 1, g: 0, m: 0 };
  queries.onKeys(9, { t: 'keys', id: 1, ...shard, table: 3, order: 'slot', from: 0, max: 10 });
  queries.onShardStats(9, { t: 'shardStats', id: 2, ...shard });
  expect(out.take().map((effect) => effect.kind === 'send' && effect.message)).toEqual([
    { t: 'reject', id: 1, items: [[0, 'WRONG_OWNER']] },
    { t: 'reject', id: 2, items: [[0, 'WRONG_OWNER']] },
  ]);
});

import { expect, test } from 'vitest';
import { connect } from '../../../src/library/client/client.js';
import { blocksOf, checkParity } from '../../../src/library/tools/parity.js';
import { fill, keysOf, redundancy, startJob } from './support.js';

test('blocks of a column', () => {
  expect([0, 1, 512, 513].map((extent) => blocksOf(8, extent))).toEqual([0, 1, 1, 2]);
  expect(blocksOf(48, 85)).toBe(1);
  expect(blocksOf(48, 86)).toBe(2);
  expect(blocksOf(4096, 3)).toBe(3);
  expect(blocksOf(100_000, 3)).toBe(3);
});

test.each(['2+1', '1+2', '1+1'])('a quiet job of code %s is wholly protected', async (code) => {
  const { client } = await startJob({ ps: 3, code }, { audit: true });
  await fill(client, 3000);
  const check = await checkParity(client);
  expect(check.blocksExpected).toBeGreaterThan(0);
  expect(check).toEqual({
    blocksExpected: check.blocksExpected,
    blocksChecked: check.blocksExpected,
    blocksUnprotected: 0,
    mismatched: 0,
  });
});

test('the number of blocks follows from rows, code and shards', async () => {
  const { client } = await startJob({ ps: 3, code: '1+2', groups: 1 });
  // 1,000 rows of 48 bytes: 2 blocks of keys, 12 of rows, twice.
  await client.createTable({ name: 'a', dim: 6 });
  await client.push([{ table: 'a', keys: keysOf(1000), gradients: new Float32Array(6000).fill(1) }]);
  expect(await checkParity(client)).toEqual({
    blocksExpected: 28,
    blocksChecked: 28,
    blocksUnprotected: 0,
    mismatched: 0,
  });
});

test('nothing is expected of a job without parity', async () => {
  const { client } = await startJob({ ps: 1, code: 'none' });
  await fill(client);
  expect(await checkParity(client)).toEqual({
    blocksExpected: 0,
    blocksChecked: 0,
    blocksUnprotected: 0,
    mismatched: 0,
  });
});

test('a lost parity leaves blocks unprotected until it is rebuilt', async () => {
  const { cluster, client } = await startJob({ ps: 3, code: '2+1' });
  await fill(client, 600);
  const before = await checkParity(client);
  await cluster.kill(1);
  await redundancy(client, 'degraded');
  const degraded = await checkParity(client);
  expect(degraded.blocksExpected).toBe(before.blocksExpected);
  expect(degraded.blocksUnprotected).toBeGreaterThan(0);
  expect(degraded.blocksChecked + degraded.blocksUnprotected).toBe(degraded.blocksExpected);
  expect(degraded.mismatched).toBe(0);
  await cluster.restart(1);
  await redundancy(client, 'full');
  expect(await checkParity(client)).toEqual(before);
});

test('a check that starts before the loss is noticed ends with the newer map', async () => {
  const { cluster, client } = await startJob({ ps: 3, code: '2+1' });
  await fill(client, 600);
  await cluster.kill(2);
  const check = await checkParity(client);
  expect(check.blocksChecked + check.blocksUnprotected).toBe(check.blocksExpected);
  expect(check.mismatched).toBe(0);
});

test('checks of one sink do not disturb each other', async () => {
  // About 1,300 blocks in one sink, several windows of a check; no repetition that would rescue a stuck one.
  const quiet = { policy: { retryMs: 60_000 } };
  const { cluster, client } = await startJob({ ps: 3, code: '2+1', groups: 1 }, quiet);
  await client.createTable({ name: 'a', dim: 512, optimizer: { kind: 'sgd', lr: 1 } });
  await client.push([{ table: 'a', keys: keysOf(5000), gradients: new Float32Array(5000 * 512).fill(1) }]);
  const other = await connect(cluster.address, quiet);
  const checks = await Promise.all([checkParity(client), checkParity(client), checkParity(other)]);
  await other.close();
  expect(checks[0]).toMatchObject({ blocksUnprotected: 0, mismatched: 0 });
  expect(checks[0]!.blocksChecked).toBeGreaterThan(1250);
  for (const check of checks) expect(check).toEqual(checks[0]);
});

test('runs against live traffic', async () => {
  const { client } = await startJob({ ps: 3, code: '2+1' });
  await fill(client, 600);
  let checking = true;
  let pushes = 0;
  const traffic = (async () => {
    while (checking) {
      const keys = BigUint64Array.from({ length: 600 }, (_, i) => BigInt(i * 3 + (pushes % 3)));
      await client.push([{ table: 't/adam', keys, gradients: new Float32Array(600 * 7).fill(1) }]);
      pushes++;
    }
  })();
  const check = await checkParity(client);
  checking = false;
  await traffic;
  expect(pushes).toBeGreaterThan(0);
  expect(check).toMatchObject({ mismatched: 0, blocksUnprotected: 0 });
});

test('a shard beyond repair is an error, not a wait for ever', async () => {
  const { cluster, client } = await startJob({ ps: 3, code: '2+1' });
  await fill(client);
  await Promise.all([cluster.kill(0), cluster.kill(1)]);
  await expect(checkParity(client)).rejects.toMatchObject({ code: 'UNRECOVERABLE' });
});

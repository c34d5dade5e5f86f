import { expect, test } from 'vitest';
import { connect } from '../../../src/library/client/client.js';
import { checkPushes } from '../../../src/library/tools/audit.js';
import { keysOf, startJob } from './support.js';

async function pushed() {
  const { cluster, client } = await startJob({ ps: 3, code: '2+1' }, { audit: true });
  await client.createTable({ name: 'a', dim: 2 });
  for (let i = 0; i < 5; i++) {
    await client.push([{ table: 'a', keys: keysOf(50), gradients: new Float32Array(100).fill(1) }]);
  }
  return { cluster, client, mine: { client: client.id, counts: client.pushCounts() } };
}

test('every acknowledged push is in the audit rows, once', async () => {
  const { cluster, client, mine } = await pushed();
  const second = await connect(cluster.address, { audit: true });
  await second.push([{ table: 'a', keys: keysOf(3), gradients: new Float32Array(6) }]);
  const theirs = { client: second.id, counts: second.pushCounts() };
  await second.close();
  const acked = [...mine.counts, ...theirs.counts].reduce((sum, count) => sum + count.acknowledged, 0);
  expect(acked).toBeGreaterThan(5);
  expect(await checkPushes(client, [mine, theirs])).toEqual({ acked, lost: 0, duplicated: 0 });
});

test('a push that is acknowledged and not there is lost', async () => {
  const { client, mine } = await pushed();
  mine.counts[0]!.acknowledged++;
  mine.counts[0]!.sent++;
  expect(await checkPushes(client, [mine])).toMatchObject({ lost: 1, duplicated: 0 });
});

test('a row that counts more than was sent is a duplicate', async () => {
  const { client, mine } = await pushed();
  mine.counts[1]!.sent--;
  mine.counts[1]!.acknowledged--;
  expect(await checkPushes(client, [mine])).toMatchObject({ lost: 0, duplicated: 1 });
});

test('a push to a shard that the client does not list is a duplicate', async () => {
  const { client, mine } = await pushed();
  const [gone] = mine.counts.splice(0, 1);
  expect(await checkPushes(client, [mine])).toMatchObject({ lost: 0, duplicated: gone!.sent });
});

test('a refused push is neither lost nor a duplicate', async () => {
  const { client } = await pushed();
  const keys = BigUint64Array.of(2n ** 64n - 1n);
  await expect(client.push([{ table: 'a', keys, gradients: new Float32Array(2) }])).rejects.toMatchObject({
    code: 'KEY_RESERVED',
  });
  const mine = { client: client.id, counts: client.pushCounts() };
  expect(await checkPushes(client, [mine])).toMatchObject({ lost: 0, duplicated: 0 });
});

test('counts that no client has are refused', async () => {
  const { client, mine } = await pushed();
  const [first, ...others] = mine.counts;
  const wrong: [client: object, word: string][] = [
    [{ shard: 999 }, 'shard'],
    [{ shard: 0.5 }, 'shard'],
    [{ shard: -1 }, 'shard'],
    [{ pool: 'none' }, 'pool'],
    [{ sent: '5' }, 'sent'],
    [{ acknowledged: undefined }, 'acknowledged'],
    [{ acknowledged: Number.NaN }, 'acknowledged'],
    [{ refused: 0.5 }, 'refused'],
  ];
  const refused = (word: string) => ({ code: 'BAD_ARGUMENT', message: expect.stringContaining(word) });
  for (const [change, word] of wrong) {
    const counts = [{ ...first!, ...change }, ...others];
    await expect(checkPushes(client, [{ ...mine, counts }])).rejects.toMatchObject(refused(word));
  }
  for (const counts of [[null], ['x'], [first!, ...mine.counts]])
    await expect(checkPushes(client, [{ ...mine, counts: counts as never }])).rejects.toMatchObject(
      refused('client'),
    );
  await expect(checkPushes(client, [mine, { ...mine }])).rejects.toMatchObject(refused('twice'));
});

test('counts without audit rows are an error, no counts are not', async () => {
  const { client } = await startJob({ ps: 2, code: '1+1' });
  await client.createTable({ name: 'a', dim: 2 });
  await client.push([{ table: 'a', keys: keysOf(3), gradients: new Float32Array(6) }]);
  const mine = { client: client.id, counts: client.pushCounts() };
  await expect(checkPushes(client, [mine])).rejects.toMatchObject({ code: 'UNKNOWN_TABLE' });
  expect(await checkPushes(client, [])).toEqual({ acked: 0, lost: 0, duplicated: 0 });
});

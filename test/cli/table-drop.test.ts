/** `kintsugi table drop` with programs: a PS is killed between the drop and another table of the name. */
import { expect, test } from 'vitest';
import type { Table } from '../../src/index.js';
import { rejection } from '../roles/support.js';
import { startSmallJob } from './small-job.js';
import { kintsugi } from './support.js';

const KEYS = BigUint64Array.from({ length: 2000 }, (_, i) => BigInt(i * 13));

test('the rows are gone, the name is free, and a killed PS brings nothing back', async () => {
  const { client, nodes, to } = await startSmallJob(4);
  const create = (name: string) =>
    client.createTable({ name, dim: 8, optimizer: { kind: 'sgd', lr: -1 }, initializer: { kind: 'zeros' } });
  const fill = (table: Table, value: number) =>
    table.push(KEYS, new Float32Array(KEYS.length * 8).fill(value));
  const is = async (table: Table, value: number) => (await table.pull(KEYS)).every((each) => each === value);
  const [stays, goes] = [await create('stays'), await create('goes')];
  await Promise.all([fill(stays, 1), fill(goes, 2)]);

  const dropped = await kintsugi(['table', 'drop', 'goes', ...to]);
  expect([dropped.code, dropped.stdout, dropped.stderr]).toEqual([0, 'table goes is dropped\n', '']);
  nodes[0]!.process.kill('SIGKILL');
  const again = await create('goes');
  expect(await is(again, 0)).toBe(true);
  await fill(again, 5);
  await expect.poll(async () => (await client.status()).redundancy, { timeout: 30_000 }).toBe('full');
  nodes[1]!.process.kill('SIGKILL');
  expect([await is(again, 5), await is(stays, 1)]).toEqual([true, true]);
  expect((await rejection(goes.pull(KEYS))).code).toBe('UNKNOWN_TABLE');

  const json = await kintsugi(['table', 'drop', 'goes', '--json', ...to]);
  expect([json.code, JSON.parse(json.stdout)]).toEqual([0, { dropped: 'goes' }]);
  const twice = await kintsugi(['table', 'drop', 'goes', ...to]);
  expect([twice.code === 0, twice.stderr]).toEqual([false, expect.stringContaining('UNKNOWN_TABLE')]);
}, 120_000);

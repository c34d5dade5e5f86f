/** `kintsugi table delete` with programs. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { startSmallJob } from './small-job.js';
import { kintsugi } from './support.js';

const ROWS = 100_000;

test('rows of the keys in a file are deleted, and of a file with a line that is no key none is', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-keys-'));
  const { client, to } = await startSmallJob();
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const initializer = { kind: 'zeros' } as const;
  const table = await client.createTable({
    name: 't',
    dim: 2,
    optimizer: { kind: 'sgd', lr: -1 },
    initializer,
  });
  const keys = BigUint64Array.from({ length: ROWS }, (_, i) => 2n ** 64n - 2n - BigInt(i));
  await table.push(keys, new Float32Array(ROWS * 2).fill(1));
  const sum = async () => (await table.pull(keys)).reduce((all, one) => all + one, 0);

  const file = (name: string, text: string): string => {
    writeFileSync(join(directory, name), text);
    return join(directory, name);
  };
  const most = [...keys.subarray(1)];
  const bad = file('bad', `${most.slice(0, 70_000).join('\n')}\n18446744073709551615\n`);
  const refused = await kintsugi(['table', 'delete', 't', '--keys', bad, ...to]);
  expect([refused.code === 0, refused.stderr]).toEqual([
    false,
    expect.stringContaining('bad:70001: "18446744073709551615" is no key: 0 to 2^64-2, one in a line'),
  ]);
  const missing = await kintsugi(['table', 'delete', 't', '--keys', join(directory, 'none'), ...to]);
  expect([missing.code === 0, missing.stderr]).toEqual([false, expect.stringContaining('cannot be read')]);
  const long = file('long', '1'.repeat(200_000));
  const endless = await kintsugi(['table', 'delete', 't', '--keys', long, ...to]);
  expect([endless.code === 0, endless.stderr.length < 1000, endless.stderr]).toEqual([
    false,
    true,
    expect.stringContaining('long:1: '),
  ]);
  expect(await sum()).toBe(ROWS * 2);

  const good = file('good', `${most.join(' \r\n')}\n\n 7`);
  const deleted = await kintsugi(['table', 'delete', 't', '--keys', good, '--json', ...to]);
  expect([deleted.code, JSON.parse(deleted.stdout)]).toEqual([0, { table: 't', keys: ROWS }]);
  expect(await sum()).toBe(2);
  const unknown = await kintsugi(['table', 'delete', 'other', '--keys', good, ...to]);
  expect([unknown.code === 0, unknown.stderr]).toEqual([false, expect.stringContaining('UNKNOWN_TABLE')]);
}, 120_000);

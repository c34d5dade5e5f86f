/** The benchmark of transports at the size of a smoke. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { TRANSPORTS_OPTIONS } from '../../bench/transports/options.js';
import { loadUws } from '../../src/net/transport/uws-server.js';
import { kintsugi } from '../cli/support.js';

const uws = await loadUws().catch(() => undefined);
if (!uws) console.error('LEFT OUT: bench transports needs a Node that has uWebSockets.js');

it.skipIf(!uws)('a smoke measures both sides and their goals', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-transports-test-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const json = join(directory, 'transports.json');
  const output = await kintsugi(['bench', 'transports', '--smoke', '--quiet', '--json', json]);
  expect([output.code, output.stderr]).toEqual([0, '']);
  const { goals, results } = JSON.parse(readFileSync(json, 'utf8')) as {
    goals: { name: string; value: number }[];
    results: { name: string; values: Record<string, number> }[];
  };
  const both = [`uWebSockets.js on Node ${process.version}`, `ws on Node ${process.version}`];
  expect(goals.map(({ name }) => name)).toEqual(
    ['pull', 'push'].map((kind) => `${kind}: ${both[1]} / ${both[0]}`),
  );
  expect(results).toHaveLength(12);
  for (const { values } of results) expect(Object.keys(values)).toEqual(both);
});

it('ends with a word when a side does not start', async () => {
  const output = await kintsugi(['bench', 'transports', '--smoke', '--quiet', '--node', '/nowhere/node']);
  expect(output.code).not.toBe(0);
  expect(output.stderr).toMatch(/^kintsugi: UNREACHABLE: one side of the comparison ended: /);
});

it('says what is wrong with its flags', () => {
  expect(TRANSPORTS_OPTIONS.parse({ smoke: true })).toMatchObject({ rows: 8192, rounds: 1, turnMs: 20 });
  expect(() => TRANSPORTS_OPTIONS.parse({ rows: '5' })).toThrow(/--rows/);
});

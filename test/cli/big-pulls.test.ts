/**
 * Large pulls of many clients at once keep the event loops of all PS busy, and nobody is lost. The short form
 * runs by default; KINTSUGI_TEST_PULLS=ROUNDS has so many rounds of 64 MiB for each of 30 clients.
 */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { poolsFor } from '../../src/core/placement/job.js';
import { client, scheduler } from '../roles/support.js';
import { record, start } from './support.js';

const PULLS = fileURLToPath(new URL('../fixtures/pulls.mjs', import.meta.url));
const long = Number(process.env.KINTSUGI_TEST_PULLS ?? 0);
const ROUNDS = long || 1;
const ROWS = long > 0 ? 65_536 : 8192;
const CLIENTS = 30;
const DIM = 256;
const PS = 3;
/** Rows of a push. */
const CHUNK = 4096;

test('30 clients pull large answers at once, and no PS is lost', async () => {
  const { address } = await scheduler({ nodes: PS, pools: poolsFor({ k: 2, r: 1 }, PS) });
  await Promise.all(
    Array.from({ length: PS }, async (_, i) => {
      const where = ['--scheduler', address, '--name', `ps-${i}`, '--host-label', `host-${i}`];
      const running = start(['ps', ...where, '--log-format', 'json']);
      onTestFinished(() => void running.process.kill('SIGKILL'));
      await record(running, 'ps.ready');
    }),
  );
  const trainer = await client(address);
  const table = await trainer.createTable({ name: 'wide', dim: DIM });
  for (let from = 0; from < ROWS; from += CHUNK) {
    const keys = BigUint64Array.from({ length: CHUNK }, (_, i) => BigInt(from + i));
    await table.push(keys, new Float32Array(CHUNK * DIM).fill(1));
  }
  const pulls = spawn(process.execPath, [PULLS, address, 'wide', `${ROWS}`, `${CLIENTS}`, `${ROUNDS}`], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  onTestFinished(() => void pulls.kill('SIGKILL'));
  let rounds = 0;
  for await (const line of createInterface({ input: pulls.stdout })) {
    if (long > 0) process.stderr.write(`${line} ms\n`);
    rounds++;
  }
  expect(rounds).toBe(ROUNDS);
  const seen: string[] = [];
  for await (const { kind, subject } of trainer.events()) seen.push(`${kind} ${subject}`);
  expect(seen.filter((event) => /node\.(lost|suspected)/.test(event))).toEqual([]);
  const { nodes } = await trainer.status();
  expect(nodes.map(({ alive, life }) => [alive, life])).toEqual(Array(PS).fill([true, 'turning']));
}, 1_200_000);

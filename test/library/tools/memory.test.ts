/**
 * The memory of clients that read whole tables does not grow with the tables: peaks of processes that do one
 * thing each, with a small heap. With a list of all keys the digest here took 222 MiB.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import type { Task, TaskResult } from '../../../bench/scan/client.js';
import { startJob, temporaryDirectory } from './support.js';

const CLIENT = fileURLToPath(new URL('../../../dist/bench/scan/client.js', import.meta.url));
const ROWS = 6_000_000;
const PEAK_MIB = 190;

test.skipIf(!existsSync('/proc/self/status'))(
  '6 million rows in a single shard',
  async () => {
    const { cluster } = await startJob({ ps: 1, code: 'none', groups: 1 });
    const directory = join(temporaryDirectory(), 'save');
    const run = async (task: Task) => {
      const argument = { task, scheduler: cluster.address, rows: ROWS, dim: 1, directory };
      const flags = ['--max-old-space-size=64', CLIENT, JSON.stringify(argument)];
      const { stdout } = await promisify(execFile)(process.execPath, flags);
      return JSON.parse(stdout) as TaskResult;
    };
    await run('fill');
    const peaks: [Task, number][] = [];
    for (const task of ['keys', 'scan', 'digest', 'save'] as const) {
      const { rows, peakBytes } = await run(task);
      expect([task, rows]).toEqual([task, ROWS]);
      peaks.push([task, peakBytes / 2 ** 20]);
    }
    expect(peaks.filter(([, peak]) => peak > PEAK_MIB)).toEqual([]);
  },
  240_000,
);

/** How the processes of a local job end. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { LocalOptions } from '../../src/local/options.js';
import { Processes } from '../../src/local/processes.js';
import { CLI } from '../cli/support.js';

const PS = 4;

let directory = '';
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-processes-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

it('the scheduler ends before the PS, so that it takes none of them for lost', async () => {
  const options: LocalOptions = {
    ...{ ps: PS, workers: 0, code: '2+1', groups: 4, standby: 0, data: [], test: [], epochs: 1 },
    ...{ workerArgs: [], seed: 1, deterministic: false, audit: false, kills: [], scales: [] },
    ...{ respawnMs: undefined, memory: undefined, recoveryRate: undefined, moveRate: undefined },
    ...{ resume: undefined, save: undefined, log: undefined, cliPath: CLI },
  };
  const events: string[] = [];
  const processes = new Processes({
    options,
    directory,
    onEvent: ({ event }) => events.push(event),
    onBack: () => {},
  });
  try {
    await processes.startScheduler();
    await Promise.all(Array.from({ length: PS }, (_, index) => processes.startPs(index)));
    await processes.stop();
  } finally {
    await processes.abandon();
  }
  const ends = events.filter((event) => /\.(stopped|lost)$/.test(event));
  expect(ends).toEqual(['scheduler.stopped', ...Array(PS).fill('ps.stopped')]);
});

/** The end of the processes of a local job. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { bareJob } from '../../../src/fleet/local/measure.js';
import { Processes } from '../../../src/fleet/local/processes.js';
import { CLI } from '../../cli/support.js';

const PS = 4;

let directory = '';
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-processes-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

it('the scheduler ends before the PS, so that it takes none of them for lost', async () => {
  const options = { ...bareJob(PS, '2+1', 4), cliPath: CLI };
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

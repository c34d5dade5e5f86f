/**
 * `kintsugi bench autoscale --real`: a job of real processes that begins with one worker, which waits most of
 * the time (common/waiting-model.ts), as it stays and with the autoscaler.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createDisplay } from '../../src/fleet/local/display.js';
import { runLocal } from '../../src/fleet/local/launcher.js';
import { bareJob } from '../../src/fleet/local/measure.js';
import type { LocalOptions } from '../../src/fleet/local/options.js';
import { writeDemoData } from '../../src/training/loop/demo-data.js';
import type { BenchReport } from '../common/report.js';

const MODEL = fileURLToPath(new URL('../common/waiting-model.js', import.meta.url));
const PS = 3;
const BATCH = 64;
const WAIT_MS = 100;
const MOST_WORKERS = 4;

/** Runs a job of `rows` samples with and without the autoscaler. @throws what `runLocal` throws */
export async function addReal(report: BenchReport, rows: number, smoke: boolean): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-autoscale-'));
  try {
    const train = join(directory, 'train.tsv');
    await writeDemoData({ train, rows, keys: 5000, seed: 1 });
    const workerArgs = ['--model', MODEL, '--model-option', `waitMs=${WAIT_MS}`];
    workerArgs.push('--dim', '8', '--batch', `${BATCH}`);
    const job = { ...bareJob(PS, '2+1'), workers: 1, data: [train], epochs: 1, audit: true, workerArgs };
    const bounds = { ps: { least: PS, most: PS }, workers: { least: 1, most: MOST_WORKERS } };
    const run = async (options: LocalOptions) => (await runLocal(options, createDisplay(true))).report;
    const fixed = await run(job);
    const scaled = await run({ ...job, autoscale: bounds });
    const values = { fixed: fixed.seconds, autoscaled: scaled.seconds };
    report.add({ name: 'real: one worker that waits', unit: 's', values });
    const faster = fixed.seconds / scaled.seconds;
    report.add({ name: 'real: faster', unit: 'times', values: { autoscaled: faster } });
    report.exactly('real: runs that trained each sample exactly once', exact([fixed, scaled]), 2);
    if (!smoke) report.goal('real: faster than fixed', faster, 1.2);
    report.details = { ...report.details, real: { fixed, scaled } };
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

const exact = (reports: readonly { samples: { exactlyOnce: boolean | null } }[]): number =>
  reports.filter(({ samples }) => samples.exactlyOnce).length;

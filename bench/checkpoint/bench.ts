/**
 * `kintsugi bench checkpoint`: what checkpoints cost training, how large and how fast they are, how soon a
 * restored job serves, and other ways to make them, on one time axis.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { countText } from '../../src/fleet/local/text.js';
import { BenchReport } from '../common/report.js';
import { CheckpointJob } from './job.js';
import type { CheckpointBenchOptions } from './options.js';
import { type Bench, beside, compare, full, restore } from './parts.js';
import { checkpointSvg } from './picture.js';
import { type Watched, Ways } from './ways.js';

/** @throws BAD_ARGUMENT, NOT_ENOUGH_NODES, and what ends a process that should run */
export async function run(options: CheckpointBenchOptions): Promise<void> {
  const { rows, ps, mode, dim, batch, compute, parts, intervalMs, rounds, watchMs } = options;
  const report = new BenchReport('checkpoint', options);
  const shape = { rows, ps, code: mode.code, dim, optimizer: 'adagrad', batch, compute };
  const times = { intervalSeconds: intervalMs / 1000, rounds, watchSeconds: watchMs / 1000 };
  Object.assign(report.parameters, { parts: parts.join(','), ...shape, ...times });
  const directory = mkdtempSync(join(options.directory ?? tmpdir(), 'kintsugi-checkpoints-'));
  const job = new CheckpointJob(options);
  const bench: Bench = { options, report, job, directory, ways: new Ways(job, options, directory) };
  try {
    await job.start();
    options.tell(`${countText(rows)} rows of dim ${dim}`);
    await job.fill();
    report.details = await measure(bench);
  } finally {
    await job.abandon();
    rmSync(directory, { recursive: true, force: true });
  }
  report.finish();
}

/** Runs the parts; returns single turns, for the JSON. */
async function measure(bench: Bench): Promise<Record<string, Watched[]>> {
  const { options, job } = bench;
  const has = (part: (typeof options.parts)[number]) => options.parts.includes(part);
  const details: Record<string, Watched[]> = {};
  if (has('beside') || has('compare')) {
    await job.train();
    // Code is compiled in the first seconds, which would be those of the turn that all others are held to.
    await job.sleep(options.watchMs / 2);
    if (has('beside')) details.beside = await beside(bench);
    if (has('compare')) details.compare = await compare(bench);
    await job.stopTraining();
  }
  if (details.compare && options.svg !== undefined)
    writeFileSync(options.svg, checkpointSvg(details.compare));
  if (has('full') || has('restore')) {
    const place = await full(bench);
    if (has('restore')) await restore(bench, place);
  }
  return details;
}

/**
 * `kintsugi bench scan`: scan, digest, save, load, audit and scrub of a large table, each by a client process
 * of its own, and how much memory that process needed at most.
 */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { countText } from '../../src/fleet/local/text.js';
import { withJob } from '../common/job.js';
import { BenchReport } from '../common/report.js';
import type { Task, TaskResult } from './client.js';
import type { ScanBenchOptions } from './options.js';

const CLIENT = fileURLToPath(new URL('./client.js', import.meta.url));
const MEBIBYTE = 2 ** 20;
/** Goal for the memory of a client, Node itself included. */
const PEAK_MIB = 256;
const PS = 3;
const CODE = { name: '2+1', code: '2+1', k: 2 };

class Tasks {
  constructor(
    private readonly options: ScanBenchOptions,
    private readonly directory: string,
    private readonly report: BenchReport,
  ) {}

  async run(scheduler: string, task: Task, name: string = task): Promise<TaskResult> {
    const { rows, dim, tell } = this.options;
    const argument = JSON.stringify({ task, scheduler, rows, dim, directory: this.directory });
    const { stdout } = await promisify(execFile)(process.execPath, [CLIENT, argument]);
    const result = JSON.parse(stdout) as TaskResult;
    const peak = result.peakBytes / MEBIBYTE;
    tell(`${name}: ${result.seconds.toFixed(1)} s, at most ${peak.toFixed(0)} MiB`);
    this.report.add({ name, unit: '(s; MiB)', values: { took: result.seconds, peak } });
    if (!this.options.smoke && task !== 'fill') this.report.atMost(`${name}: peak (MiB)`, peak, PEAK_MIB);
    return result;
  }
}

/** @throws BAD_ARGUMENT, and what a task throws */
export async function run(options: ScanBenchOptions): Promise<void> {
  const { rows, dim, groups } = options;
  const report = new BenchReport('scan', options);
  Object.assign(report.parameters, { rows, dim, groups, ps: PS, code: CODE.code });
  const parent = mkdtempSync(join(options.directory ?? tmpdir(), 'kintsugi-scan-save-'));
  const tasks = new Tasks(options, join(parent, 'save'), report);
  options.tell(`${countText(rows)} rows of dim ${dim}`);
  try {
    const job = { ps: PS, mode: CODE };
    const digested = await withJob({ ...job, groups }, async ({ address }) => {
      await tasks.run(address, 'fill');
      await tasks.run(address, 'connect');
      const seen = [await tasks.run(address, 'keys'), await tasks.run(address, 'scan')];
      // Keys are 0, 1, 2, ...; the sum of them is exact below 2^53.
      const right = seen.every((each) => each.rows === rows && each.proof === `${(rows * (rows - 1)) / 2}`);
      report.exactly('rows given once by each scan', right ? rows : 0, rows);
      const digest = await tasks.run(address, 'digest');
      const saved = await tasks.run(address, 'save');
      report.exactly('rows saved', saved.rows, rows);
      await tasks.run(address, 'audit');
      report.exactly('wrong parity blocks', Number((await tasks.run(address, 'scrub')).proof), 0);
      return digest;
    });
    const again = await withJob({ ...job, groups: groups + 1 }, async ({ address }) => {
      await tasks.run(address, 'load');
      return tasks.run(address, 'digest', 'digest of what was loaded');
    });
    report.exactly('digests that differ', again.proof === digested.proof ? 0 : 1, 0);
  } finally {
    rmSync(parent, { recursive: true, force: true });
  }
  report.finish();
}

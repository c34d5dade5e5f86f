/**
 * `kintsugi bench recovery`: the same table, training and SIGKILL of one PS for each mode (erasure coding,
 * replication, checkpoints), at growing sizes, on one time axis. Modes take turns within a size, so that they
 * see the same machine, and figures are medians of the rounds.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { countText, table } from '../../src/fleet/local/text.js';
import { BenchReport } from '../common/report.js';
import type { RecoveryOptions } from './options.js';
import { COLUMNS, recoveryHtml, recoverySvg } from './picture.js';
import { ofRounds, type RoundsResult } from './rounds.js';
import { RecoveryRun, type RunResult } from './run.js';

/** The code that the goals are stated for. */
const CODE = '4+1';
/** Lost rows up to which keys must be ready in time. */
const GOAL_LOST_ROWS = 5e6;

function show(runs: readonly RunResult[]): string {
  const heads = COLUMNS.map(([head]) => head);
  const rows = runs.map((run) => COLUMNS.map(([, cell]) => cell(run)));
  return table(heads, rows, 1).join('\n');
}

function judge(report: BenchReport, runs: readonly RoundsResult[], ps: number): void {
  for (const run of runs) {
    const where = `${countText(run.rows)} rows`;
    report.add({
      name: `${run.mode}, ${where}`,
      unit: '(ms since SIGKILL; samples/s; GB/s)',
      values: {
        steady: run.steadySamplesPerSecond,
        detected: run.detectedMs ?? Number.NaN,
        back: run.backMs ?? Number.NaN,
        redundant: run.redundantMs ?? Number.NaN,
        'bytes per row': run.bytesPerRow,
        'PS CPU s': run.psCpuSeconds ?? Number.NaN,
      },
    });
    const { pushes, mismatchedBlocks } = run;
    const intact = pushes.lost + pushes.duplicated + run.rowsLost + (mismatchedBlocks ?? 0);
    report.exactly(`${run.mode}, ${where}: lost or wrong rows, pushes and parity blocks`, intact, 0);
    if (run.mode === `${CODE}/idle`)
      report.goal(`${where}: rebuild GB/s`, run.rebuildGBPerSecond ?? undefined, 0.5);
    if (run.mode.startsWith(`${CODE}/`) && run.p99OfCalm !== null) {
      const seconds = [run.firstTwoSeconds, run.otherSeconds].filter((each) => each !== null);
      const slowest = seconds.length > 0 ? Math.min(...seconds) : undefined;
      report.goal(`${run.mode}, ${where}: slowest second, of what was due`, slowest, 0.99);
      report.atMost(`${run.mode}, ${where}: p99 of calm p99`, run.p99OfCalm, 3);
    }
    if (run.mode !== CODE) continue;
    if (run.rows / ps <= GOAL_LOST_ROWS) {
      const ready = run.keysReadyAfterDetectionMs ?? undefined;
      report.atMost(`${where}: keys ready (ms after detection)`, ready, 100);
    }
    const calm = 'of the worst calm second';
    report.goal(`${where}: first two seconds ${calm}`, run.firstTwoSeconds ?? undefined, 0.75);
    report.goal(`${where}: all others ${calm}`, run.otherSeconds ?? undefined, 0.9);
    report.goal(`${where}: mean until rows are there`, run.meanUntilDecoded ?? undefined, 0.9);
    report.goal(`${where}: mean until redundant`, run.mean ?? undefined, 0.93);
    for (const other of runs) {
      if (other.rows !== run.rows || !other.mode.startsWith('checkpoint')) continue;
      const times = [other.backAfterDetectionMs, run.backAfterDetectionMs];
      const ratio = times[0] && times[1] ? times[0] / times[1] : undefined;
      report.goal(`${where}: faster than ${other.mode}`, ratio, 20);
    }
  }
}

/** The windows of every run beside the report's medians: what the picture was drawn from. */
function addRuns(file: string, runs: readonly RunResult[]): void {
  const report = JSON.parse(readFileSync(file, 'utf8')) as object;
  writeFileSync(file, `${JSON.stringify({ ...report, runs }, null, 2)}\n`);
}

/** @throws BAD_ARGUMENT, NOT_ENOUGH_NODES, TIMEOUT when something hangs */
export async function run(options: RecoveryOptions): Promise<void> {
  const report = new BenchReport('recovery', options);
  const { ps, dim, batch, compute, recoveryRate, backgroundShare = 'default' } = options;
  const rate = recoveryRate ?? 'default';
  Object.assign(report.parameters, { ps, dim, batch, compute, optimizer: 'adagrad', recoveryRate: rate });
  Object.assign(report.parameters, { backgroundShare });
  const all: RunResult[] = [];
  for (const rows of options.sizes) {
    for (let round = 0; round < options.rounds; round++) {
      for (const mode of options.modes) {
        options.tell(`${countText(rows)} rows, ${mode.name}`);
        const result = await new RecoveryRun(options, mode, rows).run();
        all.push(result);
        options.tell(show([result]));
      }
    }
  }
  const runs = options.sizes.flatMap((rows) =>
    options.modes.map(({ name }) => ofRounds(all.filter((run) => run.rows === rows && run.mode === name))),
  );
  judge(report, runs, ps);
  process.stdout.write(`${show(runs)}\n`);
  if (options.html !== undefined) {
    const step = `${batch} keys and ${compute} units of computation a step`;
    const subtitle = `${ps} PS, dim ${dim}, Adagrad, ${step}, recovery rate ${rate}`;
    writeFileSync(options.html, recoveryHtml(runs, subtitle));
  }
  if (options.svg !== undefined) writeFileSync(options.svg, recoverySvg(runs));
  report.finish();
  if (options.json !== undefined) addRuns(options.json, all);
}

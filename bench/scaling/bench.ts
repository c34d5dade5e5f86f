/**
 * `kintsugi bench scaling`: training goes on while a job grows and shrinks; throughput and the slowest
 * request meanwhile.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { bytesText, countText, table } from '../../src/fleet/local/text.js';
import { BenchReport } from '../common/report.js';
import type { ScalingOptions } from './options.js';
import { COLUMNS, scalingHtml } from './picture.js';
import { type ScalingResult, ScalingRun } from './run.js';

const WORST_SECOND = 0.9;
const LONGEST_STALL_MS = 250;

function judge(report: BenchReport, result: ScalingResult): void {
  for (const scaling of result.scalings) {
    const where = `${scaling.from} to ${scaling.to} PS`;
    report.add({
      name: where,
      unit: '(s; samples/s; ms)',
      values: {
        took: scaling.seconds,
        steady: scaling.steadySamplesPerSecond,
        'steady after': scaling.steadyAfterSamplesPerSecond,
        'slowest request before': scaling.slowestBeforeMs,
        'slowest request': scaling.slowestMs,
      },
    });
    report.goal(`${where}: worst second of steady`, scaling.worstSecond, WORST_SECOND);
    report.atMost(`${where}: slowest request (ms)`, scaling.slowestMs, LONGEST_STALL_MS);
  }
  const { pushes, mismatchedBlocks } = result;
  const wrong = pushes.lost + pushes.duplicated + mismatchedBlocks;
  report.exactly('lost or repeated pushes, wrong parity blocks', wrong, 0);
}

/** @throws BAD_ARGUMENT, TIMEOUT when something hangs */
export async function run(options: ScalingOptions): Promise<void> {
  const report = new BenchReport('scaling', options);
  const { ps, to, rows, dim, batch, compute } = options;
  const moveRate = options.moveRate ?? 'default';
  Object.assign(report.parameters, { ps, to, rows, dim, batch, compute, optimizer: 'adagrad', moveRate });
  options.tell(`${countText(rows)} rows, ${ps} to ${to} to ${ps} PS`);
  const result = await new ScalingRun(options).run();
  report.parameters.bytes = result.bytes;
  judge(report, result);
  const cells = result.scalings.map((scaling) => COLUMNS.map(([, cell]) => cell(scaling)));
  const heads = COLUMNS.map(([head]) => head);
  process.stdout.write(`${table(heads, cells, 1).join('\n')}\n`);
  if (options.html !== undefined) {
    const size = `${countText(rows)} rows of dim ${dim} with Adagrad, ${bytesText(result.bytes)} with parity`;
    const step = `${batch} keys and ${compute} units of computation a step`;
    const subtitle = `${ps} to ${to} to ${ps} PS, code 4+1, ${size}, ${step}, move rate ${moveRate}`;
    writeFileSync(options.html, scalingHtml(result, subtitle));
  }
  report.finish();
  if (options.json === undefined) return;
  const written = JSON.parse(readFileSync(options.json, 'utf8')) as object;
  writeFileSync(options.json, `${JSON.stringify({ ...written, result }, null, 2)}\n`);
}

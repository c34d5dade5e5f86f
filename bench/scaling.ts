/**
 * `kintsugi bench scaling`: training goes on while a job grows and shrinks; throughput and the slowest
 * request meanwhile.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { checkWritable } from '../src/local/options.js';
import { bytesText, countText, table } from '../src/local/text.js';
import { BenchReport } from './report.js';
import { parseScalingOptions } from './scaling/options.js';
import { COLUMNS, scalingHtml } from './scaling/picture.js';
import { type ScalingResult, ScalingRun } from './scaling/run.js';

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
    const { slowestMs } = scaling;
    const met = slowestMs <= LONGEST_STALL_MS;
    report.goals.push({
      name: `${where}: slowest request (ms)`,
      value: slowestMs,
      goal: LONGEST_STALL_MS,
      met,
    });
  }
  const { pushes, mismatchedBlocks } = result;
  const wrong = pushes.lost + pushes.duplicated + mismatchedBlocks;
  const name = 'lost or repeated pushes, wrong parity blocks';
  report.goals.push({ name, value: wrong, goal: 0, met: wrong === 0 });
}

/** @throws BAD_ARGUMENT, TIMEOUT when something hangs */
export async function run(flags: object): Promise<void> {
  const options = parseScalingOptions(flags as Record<string, unknown>);
  if (options.html !== undefined) checkWritable('--html', options.html);
  const report = new BenchReport('scaling', {
    smoke: options.smoke,
    ...(options.json === undefined ? {} : { json: options.json }),
  });
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
    const subtitle = `${ps} to ${to} to ${ps} PS, code 4+1, ${countText(rows)} rows of dim ${dim} with Adagrad (${bytesText(result.bytes)} with parity), ${batch} keys and ${compute} units of computation a step, move rate ${moveRate}`;
    writeFileSync(options.html, scalingHtml(result, subtitle));
  }
  report.finish();
  if (options.json === undefined) return;
  const written = JSON.parse(readFileSync(options.json, 'utf8')) as object;
  writeFileSync(options.json, `${JSON.stringify({ ...written, result }, null, 2)}\n`);
}

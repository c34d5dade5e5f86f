/**
 * `kintsugi bench plan`: what `kintsugi plan --measure --processors N` says of three jobs, against these jobs
 * on this machine.
 */
import { cpus } from 'node:os';
import { MINUTE, measureRates } from '../../src/local/measure.js';
import { plan } from '../../src/planner/plan.js';
import type { Question } from '../../src/planner/question.js';
import { ratesWith } from '../../src/planner/rates.js';
import { parseCode } from '../../src/runtime/job.js';
import type { Given } from '../common/flags.js';
import { BenchReport } from '../common/report.js';
import { median } from '../common/statistics.js';
import { type Real, runShape } from './job.js';
import { type PLAN_FLAGS, parsePlanOptions, type Shape } from './options.js';

/** A step that computes nothing takes what its requests take. */
const LEAST_STEP = 1e-6;
const SMOKE = { rows: 20_000, rounds: 1, loadMs: 60, beginMs: 20, idleMs: 200 };
const DAY = 86_400;

export function questionOf(shape: Shape, rates: object, processors: number): Question {
  return {
    ...{ rows: shape.rows, dim: shape.dim, optimizer: shape.optimizer, code: parseCode(shape.code) },
    ...{ workers: shape.workers, batch: shape.batch, step: Math.max(LEAST_STEP, shape.computeMs / 1000) },
    ...{ ps: shape.ps, memory: 2 ** 34, network: 1.25e9, mtbf: 30 * DAY, durability: 1, checkpoints: false },
    ...{ price: { core: 0.03, gib: 0.004 }, processors, rates: ratesWith(rates) },
  };
}

const nameOf = ({ ps, code, dim, optimizer, workers }: Shape): string =>
  `${ps} PS, ${code}, ${optimizer} of ${dim}, ${workers} workers`;

export async function run(given: Given<typeof PLAN_FLAGS>): Promise<void> {
  const options = parsePlanOptions(given);
  const report = new BenchReport('plan', options);
  Object.assign(report.parameters, { rounds: options.rounds, seconds: options.seconds });
  const rates = await measureRates(options.tell, options.smoke ? SMOKE : MINUTE);
  const runs: { shape: Shape; planned: Real & { limit: string }; real: Real[] }[] = [];
  for (const shape of options.shapes) {
    const { memory, throughput } = plan(questionOf(shape, rates, cpus().length)).chosen;
    const real: Real[] = [];
    for (let round = 0; round < options.rounds; round++) {
      options.tell(`${nameOf(shape)}, run ${round + 1}`);
      real.push(await runShape(shape, options.seconds));
    }
    const idle = shape.ps * ratesWith(rates).idle;
    const planned = {
      ...{ bytes: memory.engine, allBytes: memory.engine * shape.ps },
      ...{ keysPerSecond: throughput.keys, limit: throughput.limit },
      keysPerProcessorSecond: throughput.keys / (throughput.steps * throughput.stepSeconds + idle),
    };
    runs.push({ shape, planned, real });
    const name = nameOf(shape);
    const of = (what: keyof Real): number => median(real.map((one) => one[what]));
    const add = (what: keyof Real, title: string, unit: string, least: number) => {
      const ratio = planned[what] / of(what);
      const values = { planned: planned[what], measured: of(what), ratio };
      report.add({ name: `${name}: ${title}`, unit, values });
      if (!options.smoke) report.atMost(`${name}: ${title}, off by`, Math.abs(ratio - 1), least);
    };
    add('bytes', 'memory of a PS', 'bytes', 0.05);
    add('keysPerProcessorSecond', 'work', 'keys/s of a processor', 0.25);
    add('keysPerSecond', `throughput (${planned.limit})`, 'keys/s', 0.25);
  }
  report.details = { rates, runs };
  report.finish();
}

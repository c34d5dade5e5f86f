/**
 * `kintsugi bench plan`: what `kintsugi plan --measure --processors N` says of three jobs, against these jobs
 * on this machine.
 */
import { cpus } from 'node:os';
import { parseCode } from '../../src/core/placement/job.js';
import { type MeasureSize, MINUTE, measureRates } from '../../src/fleet/local/measure.js';
import { clientStep } from '../../src/fleet/planner/load.js';
import { planJob } from '../../src/fleet/planner/plan.js';
import type { PlanQuestion } from '../../src/fleet/planner/question.js';
import { type PlannerRates, ratesWith } from '../../src/fleet/planner/rates.js';
import { BenchReport } from '../common/report.js';
import { median } from '../common/statistics.js';
import { type RealJob, runShape } from './job.js';
import type { PlanOptions, PlanShape } from './options.js';

/** A step that computes nothing takes what its requests take. */
const LEAST_STEP = 1e-6;
/** Rates are measured in each round: another program that comes or goes is to meet both sides. */
const RATES: MeasureSize = { ...MINUTE, rounds: 2 };
const SMOKE: MeasureSize = { rows: 20_000, rounds: 1, loadMs: 60, beginMs: 20, idleMs: 200 };
const DAY = 86_400;

export function questionOf(shape: PlanShape, rates: object, processors: number): PlanQuestion {
  return {
    ...{ rows: shape.rows, dim: shape.dim, optimizer: shape.optimizer, code: parseCode(shape.code) },
    ...{ workers: shape.workers, batch: shape.batch, step: Math.max(LEAST_STEP, shape.computeMs / 1000) },
    ...{ ps: shape.ps, memory: 2 ** 34, network: 1.25e9, mtbf: 30 * DAY, durability: 1, checkpoints: false },
    ...{ price: { core: 0.03, gib: 0.004 }, processors, rates: ratesWith(rates) },
  };
}

const nameOf = ({ ps, code, dim, optimizer, workers }: PlanShape): string =>
  `${ps} PS, ${code}, ${optimizer} of ${dim}, ${workers} workers`;

/** Plan of a job of this shape, as figures of a job. */
function planned(shape: PlanShape, given: Partial<PlannerRates>): RealJob & { limit: string } {
  const question = questionOf(shape, given, cpus().length);
  const { memory, throughput } = planJob(question).chosen;
  const idle = (shape.ps * question.rates.idle) / throughput.steps;
  const workerStep = clientStep(question, shape.ps);
  return {
    ...{ bytes: memory.engine, allBytes: memory.engine * shape.ps },
    ...{ keysPerSecond: throughput.keys, limit: throughput.limit },
    keysPerProcessorSecond: shape.batch / (throughput.stepSeconds + idle),
    psStepMs: (throughput.stepSeconds - workerStep + idle) * 1000,
    workerStepMs: workerStep * 1000,
  };
}

/** One round: the rates, and each job as planned with them and as it was. */
interface PlanTurn {
  rates: Partial<PlannerRates>;
  jobs: { planned: RealJob & { limit: string }; real: RealJob }[];
}

export async function run(options: PlanOptions): Promise<void> {
  const { rounds, seconds, shapes, smoke, tell } = options;
  const report = new BenchReport('plan', options);
  Object.assign(report.parameters, { rounds, seconds });
  const turns: PlanTurn[] = [];
  for (let round = 1; round <= rounds; round++) {
    const rates = await measureRates(tell, smoke ? SMOKE : RATES);
    const jobs: PlanTurn['jobs'] = [];
    for (const shape of shapes) {
      tell(`${nameOf(shape)}, round ${round}`);
      jobs.push({ planned: planned(shape, rates), real: await runShape(shape, seconds) });
    }
    turns.push({ rates, jobs });
  }
  for (const [i, shape] of shapes.entries()) {
    const same = turns.map(({ jobs }) => jobs[i]!);
    const add = (what: keyof RealJob, title: string, unit: string, most?: number) => {
      const ratios = same.map((job) => job.planned[what] / job.real[what]).sort((a, b) => a - b);
      const ratio = median(ratios);
      const values = {
        planned: median(same.map((job) => job.planned[what])),
        measured: median(same.map((job) => job.real[what])),
        ...{ ratio, least: ratios[0]!, most: ratios.at(-1)! },
      };
      const name = `${nameOf(shape)}: ${title}`;
      report.add({ name, unit, values });
      if (!smoke && most !== undefined) report.atMost(`${name}, off by`, Math.abs(ratio - 1), most);
    };
    add('bytes', 'memory of a PS', 'bytes', 0.05);
    add('psStepMs', 'processor time of PS for a step', 'ms');
    add('workerStepMs', 'processor time of its worker', 'ms');
    add('keysPerProcessorSecond', 'work', 'keys/s of a processor', 0.25);
    add('keysPerSecond', `throughput (${same[0]!.planned.limit})`, 'keys/s', 0.25);
  }
  report.details = { turns };
  report.finish();
}

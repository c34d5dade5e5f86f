/**
 * `kintsugi bench overhead`: what redundancy costs while nothing fails. The same job in every mode, in rounds
 * that take turns, so that whatever else the machine does meets all of them; a ratio is the median over
 * rounds of a mode against `none` in the same round.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { writeDemoData } from '../../src/training/loop/demo-data.js';
import { BenchReport } from '../common/report.js';
import { median } from '../common/statistics.js';
import { MeasuredCandidate, type MeasuredRound } from './candidate.js';
import { isWatched, looksWhole, type OverheadJob, type OverheadOptions, unwatched } from './options.js';

/** Throughput of 4+1 against `none`. */
const GOALS: Record<string, number> = { 'ecrec-sgd': 0.95, 'ecrec-adagrad': 0.95, light: 0.85, pushes: 0.5 };
const MEMORY_GOAL = 1.27;
/** Goals of a job at which everything looks, against the same job that nobody looks at. */
const WATCHED_GOAL = 0.98;
const WATCHED_TIME_GOAL = 1.02;
const CODE = '4+1';
const KEYS = 200_000;

/** Median over rounds of a field against the same field of the base in the same round. */
export function pairedRatio(
  rounds: readonly MeasuredRound[],
  base: readonly MeasuredRound[],
  field: keyof MeasuredRound,
): number {
  return median(rounds.map((round, index) => round[field] / base[index]![field]));
}

/** Processor time of all processes of the job. */
const timeOf = ({ psCpu, workerCpu, schedulerCpu }: MeasuredRound): number =>
  psCpu + workerCpu + schedulerCpu;

/** Ratios of a mode to its base: the median over rounds, and the bounds of the middle half. */
function spread(
  rounds: readonly MeasuredRound[],
  base: readonly MeasuredRound[],
  of: (round: MeasuredRound) => number,
) {
  const ratios = rounds.map((round, index) => of(round) / of(base[index]!)).sort((a, b) => a - b);
  const at = (part: number) => ratios[Math.round(part * (ratios.length - 1))]!;
  return { median: median(ratios), from: at(0.25), to: at(0.75) };
}

async function measureJob(options: OverheadOptions, job: OverheadJob, data: string, report: BenchReport) {
  if (job.worker) await writeDemoData({ train: data, rows: job.samples / job.epochs, keys: KEYS, seed: 1 });
  const asksSent = !isWatched(options.modes);
  const candidates = options.modes.map(
    (mode) => new MeasuredCandidate(mode, options.ps, job, data, asksSent),
  );
  try {
    for (const candidate of candidates) await candidate.start();
    const rounds = candidates.map((): MeasuredRound[] => []);
    // The first one fills the tables, and is left out.
    for (let round = 0; round <= options.rounds; round++) {
      // Whatever comes first would meet another machine than what comes second.
      const turns = [...candidates.entries()];
      for (const [index, candidate] of round % 2 === 0 ? turns : turns.reverse()) {
        const result = await candidate.round();
        if (round > 0) rounds[index]!.push(result);
        const rate = `${Math.round(result.samplesPerSecond)} samples/s`;
        options.tell(`${job.name}, round ${round}, ${candidate.mode.name}: ${rate}`);
      }
    }
    const memory = await Promise.all(candidates.map((candidate) => candidate.bytesPerRow()));
    judge(report, job, candidates, rounds, memory);
  } finally {
    for (const candidate of candidates) await candidate.stop();
  }
}

function judge(
  report: BenchReport,
  job: OverheadJob,
  candidates: readonly MeasuredCandidate[],
  rounds: readonly MeasuredRound[][],
  memory: readonly number[],
): void {
  const names = candidates.map(({ mode }) => mode.name);
  const values = (value: (index: number) => number) =>
    Object.fromEntries(names.map((name, index) => [name, value(index)]));
  const medians = (field: keyof MeasuredRound) =>
    values((i) => median(rounds[i]!.map((round) => round[field])));
  const name = (what: string) => `${job.name}: ${what}`;
  report.add({ name: name('throughput'), unit: 'samples/s', values: medians('samplesPerSecond') });
  report.add({ name: name('CPU of PS'), unit: 's per M samples', values: medians('psCpu') });
  report.add({ name: name('CPU of worker'), unit: 's per M samples', values: medians('workerCpu') });
  report.add({
    name: name('CPU of scheduler'),
    unit: 's per M samples',
    values: medians('schedulerCpu'),
  });
  const watched = isWatched(candidates.map(({ mode }) => mode));
  if (watched)
    report.add({ name: name('CPU of who looks'), unit: 's per M samples', values: medians('ownCpu') });
  else {
    const values = scaled(medians('bytesPerStep'), 1e-3);
    report.add({ name: name('sent by PS'), unit: 'KB per step', values });
    report.add({ name: name('messages of PS'), unit: 'per step', values: medians('messagesPerStep') });
    report.add({ name: name('frames of PS'), unit: 'per step', values: medians('framesPerStep') });
  }
  report.add({ name: name('memory'), unit: 'bytes per row', values: values((i) => memory[i]!) });
  for (const [i, { mode }] of candidates.entries()) {
    const base = rounds[names.indexOf(unwatched(mode))];
    if (!mode.watched || !base) continue;
    const title = name(`${mode.name}, of unwatched`);
    const throughput = spread(rounds[i]!, base, ({ samplesPerSecond }) => samplesPerSecond);
    const time = spread(rounds[i]!, base, timeOf);
    const looking = ({ ownCpu }: MeasuredRound, index: number) =>
      (ownCpu - base[index]!.ownCpu) / timeOf(base[index]!);
    report.add({ name: `${title}: throughput`, unit: '', values: throughput });
    report.add({ name: `${title}: processor time of the job`, unit: '', values: time });
    const values = { 'who looks': median(rounds[i]!.map(looking)) };
    report.add({ name: `${title}: processor time beside it`, unit: '', values });
    if (!looksWhole(mode)) continue;
    report.goal(`${title}: throughput`, throughput.median, WATCHED_GOAL);
    report.atMost(`${title}: processor time of the job`, time.median, WATCHED_TIME_GOAL);
  }
  const none = names.indexOf('none');
  const coded = names.indexOf(CODE);
  if (none < 0) return;
  const ratios = values((i) => pairedRatio(rounds[i]!, rounds[none]!, 'samplesPerSecond'));
  report.add({ name: name('throughput, of none'), unit: '', values: ratios });
  const cpu = values((i) => pairedRatio(rounds[i]!, rounds[none]!, 'psCpu'));
  report.add({ name: name('CPU of PS, of none'), unit: '', values: cpu });
  report.goal(name(`${CODE} of none`), ratios[CODE], GOALS[job.name] ?? 0);
  if (coded < 0) return;
  const ratio = memory[coded]! / memory[none]!;
  report.atMost(name(`memory of ${CODE}, of none`), ratio, MEMORY_GOAL);
}

function scaled(values: Record<string, number>, factor: number): Record<string, number> {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value * factor]));
}

/** @throws BAD_ARGUMENT, NOT_ENOUGH_NODES */
export async function run(options: OverheadOptions): Promise<void> {
  const { ps, rounds } = options;
  const report = new BenchReport('overhead', options);
  Object.assign(report.parameters, { ps, rounds });
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-overhead-data-'));
  try {
    for (const job of options.jobs) {
      const { samples, batch, dim } = job;
      report.parameters[job.name] = `${samples} samples a round, batch ${batch}, dim ${dim}`;
      await measureJob(options, job, join(directory, 'train.tsv'), report);
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
  report.finish();
}

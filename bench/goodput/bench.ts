/**
 * `kintsugi bench goodput`: seconds of compute in batches that counted once, as a part of the seconds that
 * workers were allocated, while processes fail. Simulated hours at many rates, and minutes of real processes
 * at one, with the same failures for every way to keep what the job has learned.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { mean } from '../../src/common/statistics.js';
import { writeDemoData } from '../../src/training/loop/demo-data.js';
import { BenchReport } from '../common/report.js';
import { failuresOf } from './failures.js';
import { bestInterval, type Played, play } from './model.js';
import type { GoodputOptions, GoodputWay } from './options.js';
import { type Curve, goodputSvg } from './picture.js';
import { type RealGoodput, runReal } from './real.js';

const HOUR = 3600;
const ROWS = 20_000;

/** All hours of a rate. */
function hoursOf(options: GoodputOptions, way: GoodputWay, perHour: number): Played[] {
  const { ps, workers, seed, hours, assumptions } = options;
  const between = (HOUR / perHour) * ((ps + workers) / ps);
  const interval = way.checkpoints ? bestInterval(assumptions, between) : undefined;
  const shape = { ps, workers, parities: way.code.r, interval };
  return Array.from({ length: hours }, (_, i) =>
    play(shape, failuresOf(options, perHour, HOUR, seed + i), HOUR, assumptions),
  );
}

function simulate(options: GoodputOptions, report: BenchReport): Map<string, Curve['points']> {
  const curves = new Map<string, Curve['points']>(options.ways.map(({ name }) => [name, []]));
  for (const perHour of options.rates) {
    const values: Record<string, number> = {};
    for (const way of options.ways) {
      const goodput = mean(hoursOf(options, way, perHour).map((hour) => hour.goodput));
      curves.get(way.name)!.push({ perHour, goodput });
      values[way.name] = goodput;
    }
    report.add({ name: `an hour, ${perHour} failures`, unit: 'goodput', values });
  }
  return curves;
}

async function real(options: GoodputOptions, report: BenchReport): Promise<Map<string, RealGoodput>> {
  if (options.real.length === 0) return new Map();
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-goodput-data-'));
  const found = new Map<string, RealGoodput>();
  try {
    const data = join(directory, 'train.tsv');
    await writeDemoData({ train: data, rows: ROWS, keys: 5000, seed: 1 });
    const failures = failuresOf(options, options.perHour, options.seconds, options.seed);
    for (const way of options.real) {
      const run = await runReal(options, way, data, failures);
      found.set(way.name, run);
      const { goodput, killed, restarts, outages, told } = run;
      const values = { goodput, 'PS killed': killed.ps, 'workers killed': killed.workers, restarts };
      const more = {
        ...(outages.length > 0 && { 'mean outage, s': mean(outages) }),
        ...(told !== undefined && { "the workers' own": told }),
      };
      report.add({ name: `real, ${way.name}`, unit: '', values: { ...values, ...more } });
    }
    return found;
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

export async function run(options: GoodputOptions): Promise<void> {
  const report = new BenchReport('goodput', options);
  const { ps, workers, seed, hours, seconds, perHour, interval, assumptions } = options;
  Object.assign(report.parameters, { ps, workers, seed, hours, seconds, perHour, interval });
  const curves = simulate(options, report);
  const runs = await real(options, report);
  report.details = { assumptions, simulated: Object.fromEntries(curves), real: Object.fromEntries(runs) };
  if (options.svg !== undefined) {
    const all = [...curves].map(([name, points]): Curve => {
      const found = runs.get(name);
      return { name, points, real: found && { perHour, goodput: found.goodput } };
    });
    writeFileSync(options.svg, goodputSvg(all));
  }
  report.finish();
}

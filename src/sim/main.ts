/**
 * `npm run sim -- --seed 1 --seconds 60` runs schedules; `--seed S --trace` replays one as a transcript; `--mutants` plants
 * bugs one at a time and must catch each.
 */
import { parseArgs } from 'node:util';
import { loadNative } from '../native.js';
import type { SimConfig } from './config.js';
import { huntMutants } from './mutants.js';
import { type Outcome, World } from './world.js';

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: '1' },
    seconds: { type: 'string', default: '60' },
    schedules: { type: 'string' },
    trace: { type: 'boolean', default: false },
    'max-violations': { type: 'string', default: '5' },
    pin: { type: 'string', multiple: true, default: [] },
    mutants: { type: 'boolean', default: false },
    only: { type: 'string' },
  },
});

function pinned(): Partial<SimConfig> {
  const config: Record<string, unknown> = {};
  for (const entry of values.pin) {
    const [name, value] = entry.split('=');
    if (name && value !== undefined)
      config[name] = value === 'true' ? true : value === 'false' ? false : Number(value);
  }
  return config;
}

const native = loadNative();
const first = Number(values.seed);

function trace(): number {
  const world = new World(first, pinned(), native, true);
  const outcome = world.run();
  console.log(world.transcript?.join('\n'));
  console.log(JSON.stringify(outcome));
  return outcome.result === 'violation' ? 1 : 0;
}

function many(): number {
  const started = process.hrtime.bigint();
  const elapsed = () => Number(process.hrtime.bigint() - started) / 1e9;
  const limit = values.schedules ? Number(values.schedules) : Number.POSITIVE_INFINITY;
  const seconds = Number(values.seconds);
  const totals = {
    schedules: 0,
    complete: 0,
    unrecoverable: 0,
    violation: 0,
    withinR: 0,
    withinRComplete: 0,
    steps: 0,
  };
  const stats: Record<string, number> = {};
  const violations: Outcome[] = [];
  for (let seed = first; totals.schedules < limit; seed++) {
    const outcome = new World(seed, pinned(), native).run();
    totals.schedules++;
    totals[outcome.result]++;
    totals.steps += outcome.steps;
    if (!outcome.overwhelmed) {
      totals.withinR++;
      if (outcome.result === 'complete') totals.withinRComplete++;
    }
    for (const [name, count] of Object.entries(outcome.stats)) stats[name] = (stats[name] ?? 0) + count;
    if (outcome.result === 'violation') {
      violations.push(outcome);
      console.error(`seed ${seed} (step ${outcome.steps}): ${outcome.message}`);
      if (violations.length >= Number(values['max-violations'])) break;
    }
    if (elapsed() > seconds) break;
  }
  const perThousand = Object.fromEntries(
    Object.entries(stats).map(([name, count]) => [
      name,
      Math.round((count * 10_000) / totals.schedules) / 10,
    ]),
  );
  const rate = Math.round((totals.schedules / elapsed()) * 60);
  console.log(
    JSON.stringify({
      ...totals,
      stepsPerSchedule: Math.round(totals.steps / totals.schedules),
      perCoreMinute: rate,
      perThousand,
    }),
  );
  return violations.length > 0 ? 1 : 0;
}

if (values.mutants)
  process.exitCode = (await huntMutants(Number(values.seconds), first, values.only)) > 0 ? 1 : 0;
else process.exitCode = values.trace ? trace() : many();

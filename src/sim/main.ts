/**
 * `npm run sim -- --seed 1 --seconds 60` runs schedules; `--seed S --trace` replays one as a transcript;
 * `--mutants` plants bugs and must catch each; `--merge a.json b.json` adds up the reports of several runs.
 * The report goes to stdout as JSON, a readable summary and violations to stderr.
 */
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { describe, KintsugiError } from '../common/errors.js';
import { loadNative } from '../engine/native.js';
import { drawConfig, type SimConfig } from './config.js';
import { Coverage, readable, type SimReport } from './coverage.js';
import { type HuntPart, huntMutants } from './mutants/hunt.js';
import { Random } from './random.js';
import { runScale } from './scale/run.js';
import { World } from './world.js';

const USAGE = `npm run sim -- [--seed S] [--seconds N | --cpu-seconds N | --schedules N] [--pin name=value]
               [--max-violations N] [--json]
npm run sim -- --seed S --trace [--pin name=value]   one schedule as a transcript
npm run sim -- --mutants [--seconds N] [--only TEXT] [--part 1/3]  planted bugs, each of which must be caught
npm run sim -- --merge a.json b.json                  adds up reports of runs with different seeds
npm run sim -- --scale [--ps N] [--workers N] [--groups N] [--json]  what a large job costs each role`;

function parse() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        seed: { type: 'string', default: '1' },
        seconds: { type: 'string', default: '60' },
        /** Processor time after which the run ends, however busy the machine is. */
        'cpu-seconds': { type: 'string' },
        schedules: { type: 'string' },
        trace: { type: 'boolean', default: false },
        'max-violations': { type: 'string', default: '5' },
        /** `--pin k=2`: a parameter that is not drawn. */
        pin: { type: 'string', multiple: true, default: [] },
        mutants: { type: 'boolean', default: false },
        only: { type: 'string' },
        /** `2/3`: only the second third of the mutants. */
        part: { type: 'string', default: '1/1' },
        /** The reports of runs with different seeds, as one. */
        merge: { type: 'boolean', default: false },
        /** Measures the cost of a job of this size for each role. */
        scale: { type: 'boolean', default: false },
        ps: { type: 'string', default: '1000' },
        workers: { type: 'string', default: '5000' },
        groups: { type: 'string', default: '4096' },
        help: { type: 'boolean', default: false },
        /** Leaves out the summary for people. */
        json: { type: 'boolean', default: false },
      },
    });
  } catch (error) {
    console.error(`${describe(error)}\n\n${USAGE}`);
    process.exit(2);
  }
}

const { values, positionals } = parse();
if (values.help) {
  console.log(USAGE);
  process.exit(0);
}

function pinnedValue(text: string): string | number | boolean {
  if (text === 'true' || text === 'false') return text === 'true';
  return text === '' || Number.isNaN(Number(text)) ? text : Number(text);
}

function pinned(): Partial<SimConfig> {
  const config: Record<string, unknown> = {};
  const known = drawConfig(new Random(1), new Random(1), {});
  for (const entry of values.pin) {
    const [name, value] = entry.split('=');
    if (name === undefined || value === undefined || !Object.hasOwn(known, name)) {
      console.error(`--pin ${entry}: write name=value with a name of ${Object.keys(known).join(', ')}`);
      process.exit(2);
    }
    config[name] = pinnedValue(value);
  }
  return config;
}

const first = Number(values.seed);

function trace(): number {
  const world = new World(first, pinned(), loadNative(), true);
  const outcome = world.run();
  console.log(world.transcript?.join('\n'));
  console.log(JSON.stringify(outcome));
  return outcome.result === 'violation' ? 1 : 0;
}

function cpuSeconds(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

function many(): number {
  const started = process.hrtime.bigint();
  const elapsed = () => Number(process.hrtime.bigint() - started) / 1e9;
  const limit = values.schedules ? Number(values.schedules) : Number.POSITIVE_INFINITY;
  const cpuLimit = values['cpu-seconds'] ? Number(values['cpu-seconds']) : undefined;
  const over = () => (cpuLimit === undefined ? elapsed() > Number(values.seconds) : cpuSeconds() > cpuLimit);
  const native = loadNative();
  const coverage = new Coverage();
  let violations = 0;
  for (let seed = first; coverage.schedules < limit; seed++) {
    const outcome = new World(seed, pinned(), native).run();
    coverage.add(outcome);
    if (outcome.result === 'violation') {
      console.error(`seed ${seed} (step ${outcome.steps}): ${outcome.message}`);
      if (++violations >= Number(values['max-violations'])) break;
    }
    if (over()) break;
  }
  tell(coverage.report(elapsed(), cpuSeconds()));
  return violations > 0 ? 1 : 0;
}

function tell(report: SimReport): void {
  if (!values.json) console.error(readable(report));
  console.log(JSON.stringify(report));
}

function merge(files: readonly string[]): number {
  const coverage = new Coverage();
  for (const file of files) coverage.merge(JSON.parse(readFileSync(file, 'utf8')) as SimReport);
  const report = coverage.report(0, 0);
  tell(report);
  return report.violations > 0 ? 1 : 0;
}

/** `2/3`: the second of three. */
function partOf(text: string): HuntPart {
  const [part, parts] = text.split('/').map(Number);
  if (!Number.isInteger(part) || !Number.isInteger(parts) || part! < 1 || part! > parts!) {
    console.error(`--part ${text}: write n/m with 1 <= n <= m\n\n${USAGE}`);
    process.exit(2);
  }
  return { part: part!, parts: parts! };
}

/** Runs the scale simulation, which needs the PS of two groups at least. */
function scale(): number {
  const [ps, workers, groups] = [Number(values.ps), Number(values.workers), Number(values.groups)];
  if (![ps, workers, groups].every((n) => Number.isInteger(n) && n >= 1) || ps < 10) {
    console.error(`--scale: at least 10 PS, 1 worker and 1 group\n\n${USAGE}`);
    return 2;
  }
  return runScale({ ps, workers, groups }, values.json);
}

/** Hunts the mutants. Exit code 1: one survived. */
async function mutants(): Promise<number> {
  try {
    const part = partOf(values.part);
    return (await huntMutants(Number(values.seconds), first, values.only, part)) > 0 ? 1 : 0;
  } catch (error) {
    if (!(error instanceof KintsugiError)) throw error;
    console.error(`kintsugi: ${error.code}: ${describe(error)}`);
    return 2;
  }
}

if (values.scale) process.exitCode = scale();
else if (values.mutants) process.exitCode = await mutants();
else if (values.merge) process.exitCode = merge(positionals);
else process.exitCode = values.trace ? trace() : many();

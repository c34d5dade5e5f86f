/** `kintsugi plan`: says what a job would need, before there is one. */
import { readFileSync } from 'node:fs';
import { type Command, Option } from 'commander';
import { causedBy, KintsugiError } from '../common/errors.js';
import { MAX_GROUPS, parseCode } from '../core/placement/job.js';
import { OPTIMIZER_KINDS } from '../engine/optimizers.js';
import type { TablePolicy } from '../engine/policies.js';
import { measureRates } from '../fleet/local/measure.js';
import { bytesText, countText, table } from '../fleet/local/text.js';
import { type CandidateSize, type JobPlan, planJob, yearsText } from '../fleet/planner/plan.js';
import { MOST_PS } from '../fleet/planner/question.js';
import { DEFAULT_RATES, type PlannerRates, ratesWith } from '../fleet/planner/rates.js';
import { DEFAULT_CODE, embeddingOptimizer, policyOf, withSchedule } from './flags.js';
import { duration, integer, positive, size } from './values.js';

interface PlanFlags {
  rows: number;
  dim: number;
  optimizer: string;
  lrSchedule?: string;
  tablePolicy?: TablePolicy;
  code: string;
  workers: number;
  batch: number;
  step: number;
  ps?: number;
  groups?: number;
  memory: number;
  network: number;
  mtbf: number;
  durability: number;
  checkpoints: boolean;
  priceCore: number;
  priceGib: number;
  rates?: PlannerRates;
  processors?: number;
  measure: boolean;
  json: boolean;
}

const HOUR = 3600;
const DAY = 24 * HOUR;

/** A whole number: 1e9 and 250000000 are, 1,000 is not. */
function rowsOf(text: string): number {
  const rows = positive('--rows')(text);
  if (Number.isSafeInteger(rows)) return rows;
  throw new KintsugiError('BAD_ARGUMENT', `--rows must be a whole number like 1e9, not "${text}"`);
}

function ratesOf(file: string): PlannerRates {
  let given: unknown;
  try {
    given = JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    throw causedBy(error, 'BAD_ARGUMENT', `--rates ${file} is not a JSON file`);
  }
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    throw new KintsugiError('BAD_ARGUMENT', `--rates ${file} must hold a JSON object`);
  return ratesWith(given);
}

const rate = (bytes: number): string => `${bytesText(bytes)}/s`;
const share = (value: number): string => `${(value * 100).toFixed(value < 0.1 ? 2 : 0)} %`;
const seconds = (value: number): string =>
  value < 120 ? `${value.toFixed(1)} s` : `${(value / 60).toFixed(1)} min`;

function alternativeRow(one: CandidateSize, { chosen, cheapest }: JobPlan): string[] {
  const marks = [...(one === cheapest ? ['cheapest'] : []), ...(one === chosen ? ['asked'] : [])];
  return [
    one.code,
    `${one.ps}`,
    bytesText(one.machineBytes),
    share(one.load.busy),
    rate(Math.max(one.load.sent, one.load.received)),
    one.recovery.redundant === 0 ? '-' : seconds(one.recovery.redundant),
    yearsText(one.meanTimeToLoss),
    one.cost.toFixed(2),
    one.problems[0]?.split(':')[0] ?? 'holds',
    marks.join(', '),
  ];
}

/** Text for people; programs use --json. */
export function planText(made: JobPlan): string {
  const { question, chosen, alternatives, protections, checkpoints } = made;
  const { memory, load, throughput: reached, recovery, groups } = chosen;
  const { index, parity, stamps } = memory;
  const lines = [
    `${chosen.code} on ${chosen.ps} PS with ${groups} groups, for ${countText(question.rows)} rows of ` +
      `${made.bytesPerRow} bytes with their keys`,
    '',
    `memory      ${bytesText(memory.engine)} a PS (rows ${bytesText(memory.rows)}, index ` +
      `${bytesText(index)}, parity ${bytesText(parity)}, stamps ${bytesText(stamps)}), ` +
      `${bytesText(chosen.afterLoss.engine)} after a loss`,
    `            a machine of ${bytesText(chosen.machineBytes)}, and kintsugi ps --memory ` +
      `${Math.ceil(chosen.limitBytes / 2 ** 20)}MiB`,
    `load        ${countText(load.keys)} keys/s a PS, ${share(load.busy)} of a processor`,
    `throughput  ${countText(reached.keys)} keys/s in ${reached.steps.toFixed(1)} steps/s of all workers, ` +
      `held back by ${reached.limit}`,
    `network     ${rate(load.sent)} sent and ${rate(load.received)} received by a PS`,
    recovery.redundant === 0
      ? 'a lost PS   takes its rows along: there is no parity'
      : `a lost PS   serves again after ${seconds(recovery.serving)}, redundant after ` +
        `${seconds(recovery.redundant)}; meanwhile ${share(recovery.busy)} of a processor and ` +
        `${rate(recovery.network)} of every other PS`,
    `durability  ${yearsText(chosen.meanTimeToLoss)} until data is lost, when a machine fails every ` +
      `${yearsText(question.mtbf)}`,
    `checkpoints every ${seconds(checkpoints.interval)} lose the least without parity`,
    '',
    ...table(
      ['against loss', 'memory', '', 'processors', 'network', 'lost a failure', 'lost share', 'until loss'],
      protections.map((each) => [
        each.how,
        bytesText(each.bytes),
        `${each.memoryShare.toFixed(2)}x`,
        each.processors.toFixed(2),
        rate(each.network),
        seconds(each.lostPerFailure),
        share(each.lostShare),
        yearsText(each.meanTimeToLoss),
      ]),
      1,
    ),
    '',
    ...table(
      ['code', 'PS', 'machine', 'busy', 'network', 'redundant', 'until loss', 'an hour', 'holds', ''],
      alternatives.map((one) => alternativeRow(one, made)),
      1,
    ),
  ];
  if (chosen.problems.length > 0)
    lines.push(
      '',
      `${chosen.code} on ${chosen.ps} PS does not hold:`,
      ...chosen.problems.map((p) => `  ${p}`),
    );
  return `${lines.join('\n')}\n`;
}

/** Text for people, with the JSON that a file for --rates holds. */
function ratesText(rates: PlannerRates): string {
  return `measured on this machine, the rest as usual; for --rates:\n${JSON.stringify(rates)}\n\n`;
}

async function runPlan(flags: PlanFlags): Promise<void> {
  const {
    optimizer,
    lrSchedule,
    tablePolicy,
    priceCore,
    priceGib,
    json,
    ps,
    groups,
    processors,
    measure,
    rates,
    ...given
  } = flags;
  const { kind, schedule } = embeddingOptimizer({ optimizer, lr: 1, ...(lrSchedule && { lrSchedule }) });
  const question = {
    ...given,
    optimizer: kind,
    schedule,
    policy: tablePolicy,
    rows: Math.min(flags.rows, tablePolicy?.maxRows ?? flags.rows),
    code: parseCode(flags.code),
    step: flags.step / 1000,
    mtbf: flags.mtbf * DAY,
    durability: flags.durability * 365.25 * DAY,
    price: { core: priceCore, gib: priceGib },
    rates: rates ?? { ...DEFAULT_RATES },
    ...(ps !== undefined && { ps }),
    ...(groups !== undefined && { groups }),
    ...(processors !== undefined && { processors }),
  };
  let made = planJob(question);
  if (measure) {
    const tell = (text: string) => void process.stderr.write(`${text}\n`);
    const measured = { ...question.rates, ...(await measureRates(tell)) };
    made = planJob({ ...question, rates: measured });
    if (!json) process.stdout.write(ratesText(measured));
  }
  process.stdout.write(json ? `${JSON.stringify(made)}\n` : planText(made));
}

export function registerPlan(program: Command): void {
  const command = program
    .command('plan')
    .description('Say what a job would need: PS, memory, network, recovery, durability and what it costs.');
  withSchedule(command)
    .requiredOption('--rows <n>', 'rows of the table, for example 1e9', rowsOf)
    .option('--dim <n>', 'width of an embedding row', integer('--dim', 1, 65_536), 16)
    .option('--optimizer <name>', `of the embedding: ${OPTIMIZER_KINDS.join(', ')}`, 'adagrad')
    .option(
      '--table-policy <policy>',
      'of the table: "admit=counter(2),evict=ttl(2000)"; --rows are those that it keeps, maxRows at most',
      policyOf,
    )
    .option('--code <k+r>', 'data and parity shards of a group, or "none"', DEFAULT_CODE)
    .option('--workers <n>', 'workers', integer('--workers', 1, 1_000_000), 1)
    .option('--batch <n>', 'distinct keys of a step', integer('--batch', 1, 100_000_000), 2048)
    .addOption(
      new Option('--step <time>', 'time of a step when a worker waits for nothing')
        .argParser(duration('--step'))
        .default(100, '100ms'),
    )
    .option('--ps <n>', 'PS (default: the fewest that hold)', integer('--ps', 1, MOST_PS))
    .option(
      '--groups <n>',
      'groups of the job (default: as "kintsugi scheduler")',
      integer('--groups', 1, MAX_GROUPS),
    )
    .addOption(
      new Option('--memory <size>', 'memory of a machine')
        .argParser(size('--memory'))
        .default(2 ** 34, '16GiB'),
    )
    .addOption(
      new Option('--network <size>', 'bytes per second of a machine, each way')
        .argParser(size('--network'))
        .default(1.25e9, '1192MiB'),
    )
    .option('--mtbf <days>', 'days between failures of one machine', positive('--mtbf'), 30)
    .option('--durability <years>', 'years until data may be lost', positive('--durability'), 10)
    .option('--no-checkpoints', 'the job makes no checkpoints')
    .option('--price-core <n>', 'price of a processor per hour', positive('--price-core'), 0.03)
    .option('--price-gib <n>', 'price of a GiB of memory per hour', positive('--price-gib'), 0.004)
    .option('--rates <file.json>', 'measured rates (default: those of docs/planning.md)', ratesOf)
    .option(
      '--processors <n>',
      'processors that all processes share (default: a machine for each)',
      positive('--processors'),
    )
    .option('--measure', 'measure the rates on this machine first, for a minute', false)
    .option('--json', 'print the plan as JSON', false)
    .action(runPlan);
}

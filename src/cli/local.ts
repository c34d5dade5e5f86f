/** `kintsugi local`: a whole job on this machine as real processes. */
import { writeFileSync } from 'node:fs';
import { type Command, Option } from 'commander';
import { KintsugiError } from '../common/errors.js';
import { PACKED_ENDINGS } from '../data/packing.js';
import { policyText } from '../engine/policies.js';
import { type Bounds, parseBounds } from '../fleet/autoscale/bounds.js';
import { startDashboard } from '../fleet/dashboard/server.js';
import { createDisplay, type Display } from '../fleet/local/display.js';
import { JobKilled, type KilledReport, renderKilled } from '../fleet/local/killed.js';
import { type Kill, parseKill } from '../fleet/local/kills.js';
import { runLocal } from '../fleet/local/launcher.js';
import { checkWritable, type LocalOptions } from '../fleet/local/options.js';
import { problemOf, type RunReport } from '../fleet/local/report.js';
import { parseScale, type ScaleStep } from '../fleet/local/scaling.js';
import { renderSummary } from '../fleet/local/summary.js';
import { UNBOUNDED } from '../library/client/dataset.js';
import {
  type CheckpointFlags,
  checkPlaceOfJob,
  placeAndNumber,
  planOf,
  withCheckpoint,
  withRestore,
} from './checkpoint-flags.js';
import { RunFailure } from './failure.js';
import {
  checkEpochs,
  DEFAULT_CODE,
  denseOptimizerOf,
  embeddingOptimizer,
  nodeTokenOf,
  type SharedFlags,
  stalenessOf,
  type TrainingFlags,
  tokenOf,
  withNodeToken,
  withToken,
  withTraining,
} from './flags.js';
import { repeatable } from './given-once.js';
import { stopSignal } from './lifetime.js';
import { duration, integer, part, size } from './values.js';

interface LocalFlags extends SharedFlags, TrainingFlags, CheckpointFlags {
  data: string[];
  ps?: number;
  workers: number;
  code: string;
  groups?: number;
  standby: number;
  kill: Kill[];
  scale: ScaleStep[];
  autoscale?: Bounds;
  respawn: number | 'never';
  audit: boolean;
  memory?: string;
  recoveryRate?: string;
  moveRate?: string;
  backgroundShare?: number;
  resume?: string;
  save?: string;
  json?: string;
  log?: string;
  dashboard: boolean;
  metricsPerShard: boolean;
  quiet: boolean;
}

/** The exit code that a shell gives for a process that SIGKILL ended. */
const KILLED_EXIT = 137;
/** Time in which the page must find the scheduler. */
const CONNECT_MS = 60_000;

function respawn(text: string): number | 'never' {
  return text === 'never' ? 'never' : duration('--respawn')(text);
}

/** Checks a size, so that a bad one is refused here, and hands its text on to the roles. */
function sizeText(flag: string) {
  return (text: string): string => {
    size(flag)(text);
    return text;
  };
}

/** The training flags as arguments of a worker. */
export function workerArgs(flags: TrainingFlags): string[] {
  embeddingOptimizer(flags);
  denseOptimizerOf(flags);
  const args = ['--batch', flags.batch, '--dim', flags.dim, '--optimizer', flags.optimizer];
  args.push(
    '--dense-optimizer',
    flags.denseOptimizer,
    '--seed',
    flags.seed,
    '--in-flight',
    flags.inFlight,
    '--threads',
    flags.threads,
  );
  if (flags.lr !== undefined) args.push('--lr', flags.lr);
  if (flags.denseLr !== undefined) args.push('--dense-lr', flags.denseLr);
  if (flags.clipNorm !== undefined) args.push('--clip-norm', flags.clipNorm);
  if (flags.tablePolicy !== undefined) args.push('--table-policy', policyText(flags.tablePolicy));
  if (flags.countDuplicates) args.push('--count-duplicates');
  if (flags.lrSchedule !== undefined) args.push('--lr-schedule', flags.lrSchedule);
  if (flags.rangeBatches !== undefined) args.push('--range-batches', flags.rangeBatches);
  const staleness = stalenessOf(flags);
  if (staleness !== UNBOUNDED) args.push('--staleness', staleness);
  if (flags.bottom !== undefined) args.push('--bottom', flags.bottom);
  if (flags.top !== undefined) args.push('--top', flags.top);
  if (flags.schema !== undefined) args.push('--schema', flags.schema);
  if (flags.source !== undefined) args.push('--source', flags.source);
  if (flags.model !== undefined) args.push('--model', flags.model);
  if (flags.modelName !== undefined) args.push('--model-name', flags.modelName);
  for (const [name, value] of Object.entries(flags.modelOption ?? {}))
    args.push('--model-option', `${name}=${value}`);
  if (flags.deterministic) args.push('--deterministic');
  return args.map(String);
}

export function localOptions(flags: LocalFlags): LocalOptions {
  return {
    ps: flags.ps ?? 5,
    workers: flags.workers,
    code: flags.code,
    groups: flags.groups,
    standby: flags.standby,
    data: flags.data,
    test: flags.test ?? [],
    schema: flags.schema,
    source: flags.source,
    model: flags.model,
    epochs: flags.epochs,
    workerArgs: workerArgs(flags),
    seed: flags.seed,
    deterministic: flags.deterministic,
    audit: flags.audit,
    kills: flags.kill,
    scales: flags.scale,
    autoscale: flags.autoscale,
    respawnMs: flags.respawn === 'never' ? undefined : flags.respawn,
    memory: flags.memory,
    recoveryRate: flags.recoveryRate,
    moveRate: flags.moveRate,
    backgroundShare: flags.backgroundShare,
    metricsPerShard: flags.metricsPerShard,
    checkpoint: planOf(flags),
    restore: flags.restore === undefined ? undefined : placeAndNumber(flags.restore),
    resume: flags.resume === undefined ? undefined : placeAndNumber(flags.resume),
    save: flags.save,
    log: flags.log,
    tensorboard: flags.tensorboard,
    token: tokenOf(flags),
    nodeToken: nodeTokenOf(flags),
  };
}

/** A job with --autoscale and without --ps or --workers begins with the least number of its bounds. */
function withLeast(flags: LocalFlags, command: Command): LocalFlags {
  const given = { ...flags };
  for (const name of ['ps', 'workers'] as const)
    if (command.getOptionValueSource(name) === 'default')
      Object.assign(given, flags.autoscale?.[name] && { [name]: flags.autoscale[name].least });
  return given;
}

async function run(given: LocalFlags, command: Command): Promise<void> {
  const flags = withLeast(given, command);
  checkEpochs(flags);
  if (flags.json !== undefined) checkWritable('--json', flags.json);
  const abort = new AbortController();
  void stopSignal().then(() => abort.abort());
  const options = localOptions(flags);
  options.placeTried = await checkPlaceOfJob(options.checkpoint?.url);
  const write = (report: RunReport | KilledReport) => {
    if (flags.json !== undefined) writeFileSync(flags.json, `${JSON.stringify(report, null, 2)}\n`);
  };
  const display = createDisplay(flags.quiet);
  if (flags.dashboard) options.show = (scheduler) => showPage(scheduler, options.token, display);
  const run = await runLocal(options, display, abort.signal).catch((error: unknown) => {
    if (error instanceof JobKilled) return error;
    throw asRunFailure(error);
  });
  write(run.report);
  if (run instanceof JobKilled) {
    process.stdout.write(renderKilled(run.report));
    process.exitCode = KILLED_EXIT;
    return;
  }
  const { report } = run;
  process.stdout.write(renderSummary(report));
  const problem = problemOf(report);
  if (problem) throw new RunFailure(problem.code, `the run is not clean: ${problem.text}`);
}

/** Serves the page of the job; the result ends that. */
async function showPage(scheduler: string, token: string | undefined, display: Display) {
  const dashboard = await startDashboard({ scheduler, port: 0, token, connectTimeoutMs: CONNECT_MS });
  display.line(`dashboard: ${dashboard.url}`);
  return () => dashboard.close();
}

/** Bad input has exit 2, as everywhere. A run that was begun and failed has exit 1. */
function asRunFailure(error: unknown): unknown {
  const codes = new Set([
    'UNRECOVERABLE',
    'TIMEOUT',
    'ABORTED',
    'MEMORY_LIMIT',
    'LIMIT',
    'UNREACHABLE',
    'CLOSED',
    'SYSTEM_LIMIT',
  ]);
  return error instanceof KintsugiError && codes.has(error.code) ? RunFailure.of(error) : error;
}

export function registerLocal(program: Command): void {
  const command = program
    .command('local')
    .description(
      'Run a whole job on this machine as real processes; kill some on purpose; check that nothing was lost.',
    )
    .requiredOption(
      '--data <file...>',
      `files to train on, also compressed (${PACKED_ENDINGS}), directories and patterns; repeatable`,
    )
    .option('--ps <n>', 'PS nodes', integer('--ps', 1, 256), 5)
    .option('--workers <n>', 'workers', integer('--workers', 1, 256), 2)
    .option('--code <k+r>', 'data and parity shards of a group, or "none"', DEFAULT_CODE)
    .option(
      '--groups <n>',
      'groups of the job (default: so that a PS has 4 to 16 data shards)',
      integer('--groups', 1),
    )
    .option('--standby <n>', 'empty PS beyond --ps', integer('--standby', 0, 256), 0)
    .addOption(
      repeatable(
        new Option(
          '--kill <role[:index]@p%>',
          'SIGKILL a ps, worker, scheduler or all (which ends the run) at P % of the samples',
        ),
      )
        .argParser((text: string, before: Kill[] = []) => [...before, parseKill(text)])
        .default([], 'none'),
    )
    .addOption(
      repeatable(new Option('--scale <ps=n@p%>', 'N PS serve from P % of the samples on'))
        .argParser((text: string, before: ScaleStep[] = []) => [...before, parseScale(text)])
        .default([], 'none'),
    )
    .addOption(
      new Option(
        '--autoscale <bounds>',
        'add and remove PS and workers as needed, for example ps=4..8,workers=1..4',
      ).argParser((text: string) => parseBounds('--autoscale', text)),
    )
    .addOption(
      new Option(
        '--respawn <time|never>',
        'start a process that --kill has ended again after this time, empty',
      )
        .argParser(respawn)
        .default(1000, '1s'),
    );
  withRestore(withCheckpoint(withTraining(command)))
    .option('--no-audit', 'do not count pushes (see --audit of a worker)')
    .option('--memory <size>', 'limit of each PS (default: none)', sizeText('--memory'))
    .option('--recovery-rate <size>', 'as of "kintsugi ps"', sizeText('--recovery-rate'))
    .option('--move-rate <size>', 'as of "kintsugi ps"', sizeText('--move-rate'))
    .option('--background-share <part>', 'as of "kintsugi ps"', part('--background-share'))
    .option('--resume <place>', 'load the tables of a save or a checkpoint before training')
    .option('--save <place>', 'save all tables at the end, as "kintsugi save"')
    .option('--json <file>', 'write the report here')
    .option('--log <file>', 'append the log records of all roles here')
    .option('--dashboard', 'serve a page of the job and print its link', false)
    .option('--metrics-per-shard', '/metrics tells of each data shard, too', false)
    .option('--quiet', 'print the summary only', false);
  withNodeToken(withToken(command)).action(run);
}

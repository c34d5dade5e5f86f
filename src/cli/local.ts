/** `kintsugi local`: a whole job on this machine as real processes. */
import { writeFileSync } from 'node:fs';
import { type Command, Option } from 'commander';
import { type Bounds, parseBounds } from '../autoscale/bounds.js';
import { UNBOUNDED } from '../client/dataset.js';
import { startDashboard } from '../dashboard/server.js';
import { KintsugiError } from '../errors.js';
import { createDisplay, type Display } from '../local/display.js';
import { JobKilled, type KilledReport, renderKilled } from '../local/killed.js';
import { type Kill, parseKill } from '../local/kills.js';
import { runLocal } from '../local/launcher.js';
import { checkWritable, type LocalOptions } from '../local/options.js';
import { problemOf, type Report } from '../local/report.js';
import { parseScale, type ScaleStep } from '../local/scaling.js';
import { renderSummary } from '../local/summary.js';
import {
  type CheckpointFlags,
  checkPlace,
  placeAndNumber,
  planOf,
  withCheckpoint,
  withRestore,
} from './checkpoint-flags.js';
import { RunFailure } from './failure.js';
import {
  checkEpochs,
  DEFAULT_CODE,
  duration,
  embeddingOptimizer,
  integer,
  nodeTokenOf,
  optimizerSpec,
  type SharedFlags,
  size,
  stalenessOf,
  type TrainingFlags,
  tokenOf,
  withNodeToken,
  withToken,
  withTraining,
} from './flags.js';
import { stopSignal } from './lifetime.js';

interface Flags extends SharedFlags, TrainingFlags, CheckpointFlags {
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
  resume?: string;
  save?: string;
  json?: string;
  log?: string;
  dashboard: boolean;
  metricsPerShard: boolean;
  quiet: boolean;
}

/** As a shell says it of a process that was killed by SIGKILL. */
const KILLED_EXIT = 137;
/** For the page to find the scheduler. */
const CONNECT_MS = 60_000;

function respawn(text: string): number | 'never' {
  return text === 'never' ? 'never' : duration('--respawn')(text);
}

/** Checked here for its message, handed on as it is. */
function sizeText(flag: string) {
  return (text: string): string => {
    size(flag)(text);
    return text;
  };
}

/** The training flags as arguments of a worker. */
export function workerArgs(flags: TrainingFlags): string[] {
  embeddingOptimizer(flags);
  optimizerSpec(flags.denseOptimizer, flags.denseLr, '--dense-optimizer');
  const args = ['--batch', flags.batch, '--dim', flags.dim, '--optimizer', flags.optimizer, '--lr', flags.lr];
  args.push(
    '--dense-optimizer',
    flags.denseOptimizer,
    '--dense-lr',
    flags.denseLr,
    '--seed',
    flags.seed,
    '--in-flight',
    flags.inFlight,
    '--threads',
    flags.threads,
  );
  if (flags.clipNorm !== undefined) args.push('--clip-norm', flags.clipNorm);
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

export function localOptions(flags: Flags): LocalOptions {
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

/** Who gives bounds and no number begins with the least. */
function withLeast(flags: Flags, command: Command): Flags {
  const given = { ...flags };
  for (const name of ['ps', 'workers'] as const)
    if (command.getOptionValueSource(name) === 'default')
      Object.assign(given, flags.autoscale?.[name] && { [name]: flags.autoscale[name].least });
  return given;
}

async function run(given: Flags, command: Command): Promise<void> {
  const flags = withLeast(given, command);
  checkEpochs(flags);
  if (flags.json !== undefined) checkWritable('--json', flags.json);
  const abort = new AbortController();
  void stopSignal().then(() => abort.abort());
  const options = localOptions(flags);
  await checkPlace(options.checkpoint?.url);
  const write = (report: Report | KilledReport) => {
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

/** A page of the job, for as long as it runs. */
async function showPage(scheduler: string, token: string | undefined, display: Display) {
  const dashboard = await startDashboard({ scheduler, port: 0, token, connectTimeoutMs: CONNECT_MS });
  display.line(`dashboard: ${dashboard.url}`);
  return () => dashboard.close();
}

/** What is wrong with the input has exit 2 here as everywhere; a run that was begun and failed has exit 1. */
function asRunFailure(error: unknown): unknown {
  const codes = new Set([
    'UNRECOVERABLE',
    'TIMEOUT',
    'ABORTED',
    'MEMORY_LIMIT',
    'LIMIT',
    'UNREACHABLE',
    'CLOSED',
  ]);
  return error instanceof KintsugiError && codes.has(error.code)
    ? new RunFailure(error.code, error.message)
    : error;
}

export function registerLocal(program: Command): void {
  const command = program
    .command('local')
    .description(
      'Run a whole job on this machine as real processes; kill some on purpose; check that nothing was lost.',
    )
    .requiredOption(
      '--data <file...>',
      'files to train on, also compressed (.gz, .zst), directories and patterns; repeatable',
    )
    .option('--ps <n>', 'PS nodes', integer('--ps', 1, 256), 5)
    .option('--workers <n>', 'workers', integer('--workers', 1, 256), 2)
    .option('--code <k+r>', 'data and parity shards of a group; "none" for no redundancy', DEFAULT_CODE)
    .option(
      '--groups <n>',
      'groups of the embedding pool (default: as many as give a PS 4 to 16 data shards)',
      integer('--groups', 1),
    )
    .option('--standby <n>', 'empty PS beyond --ps', integer('--standby', 0, 256), 0)
    .addOption(
      new Option(
        '--kill <role[:index]@p%>',
        'SIGKILL at P % of all samples; repeatable; roles: ps, worker, scheduler, all (which ends the run)',
      )
        .argParser((text: string, before: Kill[] = []) => [...before, parseKill(text)])
        .default([], 'none'),
    )
    .addOption(
      new Option('--scale <ps=n@p%>', 'from P % of all samples on, N PS serve; repeatable')
        .argParser((text: string, before: ScaleStep[] = []) => [...before, parseScale(text)])
        .default([], 'none'),
    )
    .addOption(
      new Option(
        '--autoscale <bounds>',
        'PS and workers come and go as the job needs them, for example ps=4..8,workers=1..4',
      ).argParser((text: string) => parseBounds('--autoscale', text)),
    )
    .addOption(
      new Option('--respawn <time|never>', 'start a killed process again, empty, after this time')
        .argParser(respawn)
        .default(1000, '1s'),
    );
  withRestore(withCheckpoint(withTraining(command)))
    .option('--no-audit', 'do not count every push in a row of its own')
    .option('--memory <size>', 'limit of each PS (default: 0, no limit)', sizeText('--memory'))
    .option(
      '--recovery-rate <size>',
      'bytes per second that a shard recovers at (default: no limit)',
      sizeText('--recovery-rate'),
    )
    .option(
      '--move-rate <size>',
      'bytes per second that planned moves bring to each PS (default: no limit)',
      sizeText('--move-rate'),
    )
    .option(
      '--resume <place>',
      'load the tables of a save or a checkpoint before training (default: start afresh)',
    )
    .option('--save <place>', 'save all tables at the end, as "kintsugi save" (default: do not)')
    .option('--json <file>', 'write the report here (default: do not)')
    .option('--log <file>', 'append the log records of all roles here (default: do not)')
    .option('--dashboard', 'serve a page of the job on loopback; its link is printed', false)
    .option('--metrics-per-shard', '/metrics of a PS tells of each data shard, too', false)
    .option('--quiet', 'nothing but the summary', false);
  withNodeToken(withToken(command)).action(run);
}

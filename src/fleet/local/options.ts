/** Options of `kintsugi local`, and the checks that need no process to be started. */
import { accessSync, constants, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { causedBy, KintsugiError } from '../../common/errors.js';
import { demandOptional } from '../../common/optional.js';
import { parseCode, poolsFor } from '../../core/placement/job.js';
import type { SavePlan } from '../../protocol/saving.js';
import type { Bounds } from '../autoscale/bounds.js';
import { checkKills, type Kill } from './kills.js';
import { checkScales, type ScaleStep } from './scaling.js';

export interface LocalOptions {
  ps: number;
  workers: number;
  code: string;
  groups: number | undefined;
  standby: number;
  data: string[];
  test: string[];
  /** Files that say what the columns of the data are: a schema, or a model that may export one. */
  schema?: string | undefined;
  /** A file that makes a source of `data`. */
  source?: string | undefined;
  model?: string | undefined;
  epochs: number;
  /** Flags for workers, as they are: model, optimizer, batch, ... */
  workerArgs: string[];
  seed: number;
  deterministic: boolean;
  audit: boolean;
  kills: Kill[];
  scales: ScaleStep[];
  /** Bounds between which PS and workers are added and removed; absent: they stay. */
  autoscale?: Bounds | undefined;
  /** Milliseconds after which a killed process is started again; undefined = never. */
  respawnMs: number | undefined;
  memory: string | undefined;
  recoveryRate: string | undefined;
  moveRate: string | undefined;
  backgroundShare?: number | undefined;
  /** Metrics of a PS have each data shard, too. */
  metricsPerShard?: boolean | undefined;
  /** false: a PS that joins the running job gets nothing until it is asked for. */
  balanceJoining?: boolean;
  /** Place, pace and number of checkpoints; undefined: none are made. */
  checkpoint?: SavePlan | undefined;
  /** The caller has written to that place a moment ago, so the scheduler need not try it. */
  placeTried?: boolean | undefined;
  /** The checkpoint that the job begins with. */
  restore?: { url: string; number?: number | undefined } | undefined;
  resume: { url: string; number: number | undefined } | undefined;
  save: string | undefined;
  /** File to which every record of every role is appended. */
  log: string | undefined;
  /** Directory for TensorBoard: a run for each process, and one for the job. */
  tensorboard?: string | undefined;
  token?: string | undefined;
  /** Token of the scheduler and the PS; workers do not get it. */
  nodeToken?: string | undefined;
  /** Called when the scheduler listens: shows the job, and resolves with the function that ends that. */
  show?: ((scheduler: string) => Promise<() => Promise<void>>) | undefined;
  /** The command line to start roles with; default: the one beside this code. */
  cliPath?: string | undefined;
}

/**
 * Checks that the directory of `file` is there, or an hour of training ends without its report.
 * @throws BAD_ARGUMENT
 */
export function checkWritable(flag: string, file: string): void {
  const directory = dirname(resolve(file));
  try {
    accessSync(directory, constants.W_OK);
    if (statSync(file, { throwIfNoEntry: false })?.isDirectory()) throw new Error('it is a directory');
  } catch (error) {
    throw causedBy(error, 'BAD_ARGUMENT', `${flag} ${file} cannot be written`);
  }
}

function checkAutoscale(options: LocalOptions, bounds: Bounds, needed: number): void {
  const bad = (message: string) => new KintsugiError('BAD_ARGUMENT', message);
  if (bounds.ps.least < needed)
    throw new KintsugiError(
      'NOT_ENOUGH_NODES',
      `--autoscale from ${bounds.ps.least} PS on: code ${options.code} needs ${needed}`,
    );
  for (const name of ['ps', 'workers'] as const) {
    const { least, most } = bounds[name] ?? { least: 0, most: Number.POSITIVE_INFINITY };
    if (options[name] < least || options[name] > most)
      throw bad(`--${name} ${options[name]} is outside of --autoscale ${name}=${least}..${most}`);
  }
  if (options.scales.length > 0) throw bad('--autoscale and --scale exclude each other');
  if (options.deterministic && (bounds.workers?.most ?? 1) > 1)
    throw bad('--deterministic needs --autoscale with workers=1');
}

/** @throws BAD_ARGUMENT, NOT_ENOUGH_NODES, DEPENDENCY_MISSING */
export function checkLocalOptions(options: LocalOptions): void {
  const { ps, workers, standby, kills, deterministic } = options;
  const code = parseCode(options.code);
  poolsFor(code, ps, options.groups);
  checkScales(options.scales, code.k + code.r);
  if (options.autoscale) checkAutoscale(options, options.autoscale, code.k + code.r);
  checkKills(kills, ps + standby, workers);
  if (deterministic && workers !== 1) {
    throw new KintsugiError(
      'BAD_ARGUMENT',
      `--deterministic needs --workers 1, not ${workers}: pushes of two workers have no fixed order`,
    );
  }
  if (options.log !== undefined) checkWritable('--log', options.log);
  if (!options.workerArgs.includes('--model')) demandOptional('onnxruntime-node');
}

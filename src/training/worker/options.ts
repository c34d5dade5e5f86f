/** Options of `kintsugi worker`, and the checks that need no job. */

import { KintsugiError } from '../../common/errors.js';
import { isPacked } from '../../data/packing.js';
import type { TablePolicy } from '../../engine/policies.js';
import type { Logger } from '../../net/log.js';
import type { ClientTls, ServerTls } from '../../net/transport/index.js';
import { MAX_SPOOL_LEAD } from '../loop/spool.js';
import type { ModelOptions } from '../models/trainer.js';

export interface WorkerOptions {
  scheduler: string;
  /** Where /healthz, /readyz and /metrics answer. */
  listen: string;
  token: string | undefined;
  metricsToken: string | undefined;
  tls: ClientTls | undefined;
  /** TLS of its endpoints. */
  certificate: ServerTls | undefined;
  connectTimeoutMs: number;
  log: Logger;
  /** Show a progress bar on standard error. */
  bar: boolean;
  /**
   * Stops the worker. While it connects, connecting ends; while it trains, the batch is finished and the rest
   * of its range handed back.
   */
  signal: AbortSignal;
  name: string;
  data: string[];
  test: string[];
  /** A file of JSON that says what the columns of the data are; default: the Criteo layout. */
  schema: string | undefined;
  /** A file whose default export makes the source of the data; default: `data` and `test` are files. */
  source: string | undefined;
  epochs: number;
  /** The files grow: train the lines that are there, and then new ones, until `signal`. */
  follow: boolean;
  /** Standard input is appended to this file, which is all of `data`. */
  spool?: { file: string; maxLead: number } | undefined;
  /** Name of the data set: workers that give the same share the samples. */
  run: string;
  /** Batches of a range of samples; undefined: by the size of the data. */
  rangeBatches: number | undefined;
  /** Batches that a worker may be ahead of the slowest. */
  staleness: number;
  audit: boolean;
  /** Directory for TensorBoard; each worker writes into one of its name. */
  tensorboard?: string | undefined;
  /** A file that gets the results at the end. */
  results?: string | undefined;
  inFlight: number;
  deterministic: boolean;
  batch: number;
  /** A model file; default DLRM. */
  model: string | undefined;
  modelOptions: ModelOptions;
  /** The policy of tables of embeddings, where a model says nothing else. */
  tablePolicy?: TablePolicy | undefined;
  /** A key is seen as often as a batch names it; default: once in each batch. */
  countDuplicates: boolean;
  /**
   * Which learning rates of `modelOptions` the user has asked for. A table of the job that has another one
   * keeps it where nobody has asked. Clipping and schedules are asked for where they are given.
   */
  askedRates: { embedding: boolean; dense: boolean };
}

const refuse = (text: string) => new KintsugiError('BAD_ARGUMENT', text);

/** The work of a worker, as its flags say it. */
export interface WorkerWork {
  data: readonly string[];
  test: readonly string[];
  epochs: number;
  evaluate: boolean;
  follow: boolean;
}

/** @throws BAD_ARGUMENT for flags that contradict each other */
export function checkWork({ data, test, epochs, evaluate, follow }: WorkerWork): void {
  if (evaluate && test.length === 0) throw refuse('--evaluate needs --test');
  if (!evaluate && data.length === 0) throw refuse('--data is needed: the files to train on');
  if (follow && (evaluate || test.length > 0 || epochs !== 1)) {
    throw refuse('--follow goes on until it is stopped: it takes no --epochs, --test and --evaluate');
  }
}

/** Flags about the file that keeps standard input. */
export interface SpoolFlags {
  data: readonly string[];
  follow: boolean;
  /** Path of the file that keeps standard input. */
  spool: string | undefined;
  /** Bytes that the file may be ahead of the workers. */
  spoolLead: number | undefined;
}

/**
 * The file that keeps standard input, if that is the data to train.
 * @param inputTaken standard input ties this worker to its launcher
 * @throws BAD_ARGUMENT
 */
export function spoolOf(flags: SpoolFlags, inputTaken: boolean): WorkerOptions['spool'] {
  const { data, follow, spool: file, spoolLead } = flags;
  if (!data.includes('-')) {
    if (file !== undefined)
      throw refuse('--spool needs --data - --follow: it keeps what standard input brings');
    if (spoolLead !== undefined) throw refuse('--spool-lead needs --spool');
    return undefined;
  }
  if (!follow || file === undefined) {
    const text = 'standard input can be read only once, and what a worker dies with would be lost';
    throw refuse(`--data -: ${text}: add --follow --spool FILE, and its lines are kept there`);
  }
  if (data.length > 1) throw refuse('--data - takes no further files: standard input ends, they do not');
  if (isPacked(file)) throw refuse(`--spool ${file}: lines are kept as they are, not compressed`);
  if (inputTaken) throw refuse('--data -: standard input is what ties this worker to its launcher');
  return { file, maxLead: spoolLead ?? MAX_SPOOL_LEAD };
}

/** `kintsugi worker`: trains a model on data files against a running job. */
import type { Command } from 'commander';
import { KintsugiError } from '../errors.js';
import {
  certificateOf,
  clientTlsOf,
  integer,
  loggerOf,
  optimizerSpec,
  type SharedFlags,
  type TrainingFlags,
  tokenOf,
  withCertificate,
  withLogFormat,
  withScheduler,
  withTraining,
} from './flags.js';
import { followLauncher, stopSignal } from './lifetime.js';
import { runWorker } from './worker-role.js';

interface Flags extends SharedFlags, TrainingFlags {
  scheduler: string;
  listen: string;
  connectTimeout: number;
  data?: string[];
  workerIndex: number;
  workerCount: number;
  audit: boolean;
  evaluate: boolean;
}

async function run(flags: Flags): Promise<void> {
  followLauncher();
  const { workerIndex: index, workerCount: count, evaluate } = flags;
  if (index >= count)
    throw new KintsugiError(
      'BAD_ARGUMENT',
      `--worker-index ${index} needs a --worker-count above it, not ${count}`,
    );
  if (evaluate && !flags.test) throw new KintsugiError('BAD_ARGUMENT', '--evaluate needs --test');
  if (!evaluate && !flags.data)
    throw new KintsugiError('BAD_ARGUMENT', '--data is needed: the files to train on');
  if (flags.deterministic && count > 1) {
    throw new KintsugiError(
      'BAD_ARGUMENT',
      '--deterministic needs --worker-count 1: pushes of two workers have no fixed order',
    );
  }
  const abort = new AbortController();
  void stopSignal().then(() => abort.abort(new Error('stopped by a signal')));
  await runWorker({
    scheduler: flags.scheduler,
    listen: flags.listen,
    token: tokenOf(flags),
    tls: clientTlsOf(flags),
    certificate: certificateOf(flags),
    connectTimeoutMs: flags.connectTimeout,
    log: loggerOf(flags, { role: 'worker', name: `worker-${index}` }),
    bar: process.stderr.isTTY && flags.logFormat !== 'json',
    signal: abort.signal,
    data: evaluate ? [] : (flags.data ?? []),
    test: flags.test ?? [],
    epochs: evaluate ? 0 : flags.epochs,
    index,
    count,
    audit: flags.audit,
    inFlight: flags.inFlight,
    deterministic: flags.deterministic,
    batch: flags.batch,
    model: flags.model,
    modelOptions: {
      ...flags.modelOption,
      ...(flags.bottom === undefined ? {} : { bottom: flags.bottom }),
      ...(flags.top === undefined ? {} : { top: flags.top }),
      dim: flags.dim,
      batch: flags.batch,
      seed: flags.seed,
      threads: flags.deterministic ? 1 : flags.threads,
      optimizer: optimizerSpec(flags.optimizer, flags.lr),
      denseOptimizer: { kind: 'adam', lr: flags.denseLr, beta1: 0.9, beta2: 0.999, eps: 1e-8 },
    },
  });
}

export function registerWorker(program: Command): void {
  const command = withScheduler(
    program.command('worker').description('Train a model on data in the Criteo layout.'),
  ).option('--data <file...>', 'files to train on, plain or .gz; repeatable');
  withTraining(command)
    .option('--listen <host:port>', 'address where /healthz and /metrics answer', '127.0.0.1:0')
    .option('--evaluate', 'do not train: only evaluate on --test', false)
    .option(
      '--worker-index <i>',
      'this worker takes every n-th batch, starting with the i-th',
      integer('--worker-index', 0),
      0,
    )
    .option('--worker-count <n>', 'number of workers that share the data', integer('--worker-count', 1), 1)
    .option(
      '--audit',
      'count every push in a row of its own, to prove afterwards that none was lost or repeated',
      false,
    );
  withLogFormat(withCertificate(command)).action(run);
}

/** `kintsugi worker`: trains a model on data files against a running job. */
import type { Command } from 'commander';
import { KintsugiError } from '../errors.js';
import { RANGE_BATCHES } from '../train/files.js';
import {
  certificateOf,
  clientTlsOf,
  loggerOf,
  optimizerSpec,
  type SharedFlags,
  stalenessOf,
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
  follow: boolean;
  name: string;
  run: string;
  audit: boolean;
  evaluate: boolean;
}

async function run(flags: Flags): Promise<void> {
  followLauncher();
  const { name, evaluate } = flags;
  if (evaluate && !flags.test) throw new KintsugiError('BAD_ARGUMENT', '--evaluate needs --test');
  if (!evaluate && !flags.data)
    throw new KintsugiError('BAD_ARGUMENT', '--data is needed: the files to train on');
  if (flags.data?.includes('-')) {
    const text =
      'standard input can be read only once, and what a worker dies with would be lost: append it to a file and give that with --follow';
    throw new KintsugiError('BAD_ARGUMENT', `--data -: ${text}`);
  }
  if (flags.follow && (evaluate || flags.test || flags.epochs !== 1)) {
    const text = 'goes on until it is stopped: it takes no --epochs, --test and --evaluate';
    throw new KintsugiError('BAD_ARGUMENT', `--follow ${text}`);
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
    log: loggerOf(flags, { role: 'worker', name }),
    bar: process.stderr.isTTY && flags.logFormat !== 'json',
    signal: abort.signal,
    data: evaluate ? [] : (flags.data ?? []),
    test: flags.test ?? [],
    epochs: evaluate ? 0 : flags.epochs,
    follow: flags.follow,
    name,
    run: flags.run,
    // One worker that takes them in order needs no more of them.
    rangeBatches: flags.rangeBatches ?? (flags.deterministic ? RANGE_BATCHES : undefined),
    staleness: stalenessOf(flags),
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
    .option(
      '--follow',
      'the files grow: train what is there and then every line that is appended, until SIGTERM',
      false,
    )
    .option('--listen <host:port>', 'address where /healthz and /metrics answer', '127.0.0.1:0')
    .option('--evaluate', 'do not train: only evaluate on --test', false)
    .option('--name <name>', 'its name in log records and metrics', 'worker')
    .option(
      '--run <name>',
      'workers of one run share the samples: each is trained once, whoever comes and goes; to train again take another name',
      'train',
    )
    .option(
      '--audit',
      'count every push in a row of its own, to prove afterwards that none was lost or repeated',
      false,
    );
  withLogFormat(withCertificate(command)).action(run);
}

/** `kintsugi worker`: trains a model on data files against a running job. */
import { type Command, Option } from 'commander';
import { KintsugiError } from '../common/errors.js';
import { PACKED_ENDINGS } from '../data/packing.js';
import { tuneV8 } from '../roles/v8.js';
import { checkWork, spoolOf } from '../training/worker/options.js';
import { runWorker } from '../training/worker/role.js';
import {
  certificateOf,
  checkEpochs,
  clientTlsOf,
  denseOptimizerOf,
  embeddingOptimizer,
  loggerOf,
  metricsTokenOf,
  type SharedFlags,
  stalenessOf,
  type TrainingFlags,
  tokenOf,
  withCertificate,
  withLogFormat,
  withMetricsToken,
  withScheduler,
  withTraining,
} from './flags.js';
import { endBy, followLauncher, LIFELINE_ENV, stopSignal } from './lifetime.js';
import { size } from './values.js';

interface WorkerFlags extends SharedFlags, TrainingFlags {
  scheduler: string;
  listen: string;
  connectTimeout: number;
  data?: string[];
  follow: boolean;
  spool?: string;
  spoolLead?: number;
  name: string;
  run: string;
  audit: boolean;
  evaluate: boolean;
}

/** A lead of 0 bytes would let nothing in. */
function leadOf(text: string): number {
  const bytes = size('--spool-lead')(text);
  if (bytes > 0) return bytes;
  throw new KintsugiError('BAD_ARGUMENT', `--spool-lead must be at least 1 byte, not "${text}"`);
}

/** @throws BAD_ARGUMENT where a model file is given, too */
function modelNameOf({ model, modelName }: WorkerFlags): string | undefined {
  if (model === undefined) return modelName;
  throw new KintsugiError('BAD_ARGUMENT', '--model-name is for the built-in models: leave --model out');
}

async function run(flags: WorkerFlags): Promise<void> {
  followLauncher();
  tuneV8();
  const { name, evaluate, follow, epochs, data = [], test = [] } = flags;
  checkWork({ data, test, epochs, evaluate, follow });
  checkEpochs(flags);
  const inputTaken = process.env[LIFELINE_ENV] === 'stdin';
  const spool = spoolOf({ data, follow, spool: flags.spool, spoolLead: flags.spoolLead }, inputTaken);
  const abort = new AbortController();
  let stopped: NodeJS.Signals | undefined;
  void stopSignal().then((signal) => {
    stopped = signal;
    abort.abort(new Error('stopped by a signal'));
  });
  await runWorker({
    scheduler: flags.scheduler,
    listen: flags.listen,
    token: tokenOf(flags),
    metricsToken: metricsTokenOf(flags),
    tls: clientTlsOf(flags),
    certificate: certificateOf(flags),
    connectTimeoutMs: flags.connectTimeout,
    log: loggerOf(flags, { role: 'worker', name }),
    bar: process.stderr.isTTY && flags.logFormat !== 'json',
    signal: abort.signal,
    data: evaluate ? [] : spool ? [spool.file] : data,
    test,
    schema: flags.schema,
    source: flags.source,
    epochs: evaluate ? 0 : epochs,
    follow,
    spool,
    name,
    run: flags.run,
    rangeBatches: flags.rangeBatches,
    staleness: stalenessOf(flags),
    audit: flags.audit,
    tensorboard: flags.tensorboard,
    results: process.env.KINTSUGI_RESULTS || undefined,
    inFlight: flags.inFlight,
    deterministic: flags.deterministic,
    batch: flags.batch,
    model: flags.model,
    modelOptions: {
      ...flags.modelOption,
      ...(flags.modelName === undefined ? {} : { modelName: modelNameOf(flags) }),
      ...(flags.bottom === undefined ? {} : { bottom: flags.bottom }),
      ...(flags.top === undefined ? {} : { top: flags.top }),
      dim: flags.dim,
      batch: flags.batch,
      seed: flags.seed,
      threads: flags.deterministic ? 1 : flags.threads,
      optimizer: embeddingOptimizer(flags),
      denseOptimizer: denseOptimizerOf(flags),
    },
    tablePolicy: flags.tablePolicy,
    countDuplicates: flags.countDuplicates,
    askedRates: { embedding: flags.lr !== undefined, dense: flags.denseLr !== undefined },
  });
  if (stopped) await endBy(stopped);
}

export function registerWorker(program: Command): void {
  const command = withScheduler(
    program
      .command('worker')
      .description('Train a model on data in the Criteo layout, or as a schema describes them.'),
  ).option(
    '--data <file...>',
    `files to train on, also compressed (${PACKED_ENDINGS}), directories and patterns; repeatable; "-" is ` +
      'standard input, see --spool',
  );
  withTraining(command)
    .option('--follow', 'the files grow: train every line that is appended, until SIGTERM', false)
    .option(
      '--spool <file>',
      'with --data - --follow: keep standard input in this file and train it from there; restarted on the ' +
        'file, the worker goes on; it ends when the input has ended and all is trained',
    )
    .addOption(
      new Option(
        '--spool-lead <size>',
        'standard input waits while no worker has taken so much of the spool (default: 64MiB)',
      ).argParser(leadOf),
    )
    .option('--listen <host:port>', 'address of /healthz, /readyz and /metrics', '127.0.0.1:0')
    .option('--evaluate', 'only evaluate on --test', false)
    .option('--name <name>', 'name in logs and metrics', 'worker')
    .option(
      '--run <name>',
      'workers of one run share its samples, each of which is trained once; take another name to train again',
      'train',
    )
    .option(
      '--audit',
      'count every push in a row of its own, to prove that none was lost or repeated',
      false,
    );
  withLogFormat(withMetricsToken(withCertificate(command))).action(run);
}

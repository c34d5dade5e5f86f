/**
 * The worker role: a model, a client and the training loop, wired together. It tells what it does in log
 * events that a launcher reads: `worker.training` (it starts), `worker.progress` (its samples so far),
 * `worker.range` (a range of samples that it is done with, for the audit), `worker.done` and `worker.test`.
 * Of standard input, `worker.spool` says where it is kept, and `worker.input` that no more of it is read.
 */
import { type Client, connect } from '../client/client.js';
import type { DatasetSpec } from '../client/dataset.js';
import { loadNative } from '../native.js';
import { formatAddress, parseAddress } from '../runtime/address.js';
import { type EndpointOptions, serveEndpoints } from '../runtime/endpoints.js';
import { countRows, readBatches } from '../train/criteo.js';
import { createDlrm } from '../train/dlrm.js';
import { cutFiles, cutGrowingFiles } from '../train/files.js';
import { createTables, evaluate } from '../train/loop.js';
import { loadModel } from '../train/plugin.js';
import { Spool } from '../train/spool.js';
import type { Model, ParameterStore } from '../train/trainer.js';
import type { WorkerOptions } from './options.js';
import { Progress } from './progress.js';
import { startReporting } from './reporting.js';
import { TensorBoard } from './tensorboard.js';
import { checkTrained, trainRanges } from './training.js';
import { Watched } from './watched.js';

/** The client as the store of the training loop. */
function storeOf(client: Client): ParameterStore {
  return {
    createTables: async (specs) => {
      await client.createTables(specs);
    },
    pull: (requests) => client.pull(requests),
    push: (updates) => client.push(updates),
  };
}

async function trainAll(
  options: WorkerOptions,
  files: DatasetSpec['files'],
  model: Model,
  store: ParameterStore,
  client: Client,
  spool: Spool | undefined,
  watched: Watched,
) {
  const { log, data, batch, epochs, follow, staleness, deterministic, run, inFlight, signal } = options;
  const { seed } = options.modelOptions;
  const bar = options.bar && !follow;
  const progress = new Progress(log, watched.clock, bar ? (await countRows(data)) * epochs : undefined);
  watched.progress = progress;
  log.info('worker.training', { client: client.id });
  const reporting = startReporting(client, () => watched.report());
  const end = await trainRanges({
    ...{ client, model, store, log, files: data, run, inFlight, deterministic, stop: signal, spool },
    spec: { files, batch, epochs, seed, shuffle: !deterministic, staleness, follow },
    onProgress: (samples, loss) => progress.update(samples, loss),
    clock: watched.clock,
    watch: (feed) => {
      watched.feed = feed;
    },
  }).finally(() => reporting.end());
  progress.end();
  const { productiveSeconds } = watched.clock;
  log.info('worker.done', { ...end, productiveSeconds, client: client.id });
}

/**
 * Trains, then evaluates if there is test data. @throws BAD_DATA, MODEL, UNRECOVERABLE, ABORTED and what
 * `connect` throws
 */
export async function runWorker(options: WorkerOptions): Promise<void> {
  const { spool } = options;
  if (!spool) return runWith(options, undefined);
  const opened = await Spool.open(spool.file, spool.maxLead, process.stdin.fd);
  const { file, size, cut } = opened;
  if (cut > 0) options.log.warn('worker.spool', { file, bytes: size, cut });
  else options.log.info('worker.spool', { file, bytes: size });
  try {
    await runWith(options, opened);
  } finally {
    await opened.close();
  }
}

async function runWith(options: WorkerOptions, spool: Spool | undefined): Promise<void> {
  const { log, test, signal } = options;
  const helpers = loadNative();
  // Read the files first: one that cannot be read is an error before the job is changed.
  const { epochs, batch } = options;
  const cut = options.follow ? cutGrowingFiles : cutFiles;
  const files = epochs > 0 ? await cut(options.data, batch, options.rangeBatches) : [];
  if (test.length > 0) await countRows(test);
  const model =
    options.model === undefined
      ? await createDlrm(options.modelOptions)
      : await loadModel(options.model, options.modelOptions);
  const { name } = options;
  const watched = new Watched(name, options.run, spool);
  let client: Client | undefined;
  const endpointOptions = {
    role: 'worker' as const,
    name,
    notReady: () => (client ? undefined : 'this worker is not connected to the job'),
    metrics: () => watched.metrics(),
  } satisfies EndpointOptions<'worker'>;
  const { listen, token, metricsToken, certificate: tls } = options;
  const endpoints = await serveEndpoints(listen, endpointOptions, { token, metricsToken, tls });
  log.info('worker.ready', {
    address: formatAddress({ host: parseAddress(options.listen).host, port: endpoints.port }),
  });
  const { tensorboard } = options;
  const board =
    tensorboard === undefined ? undefined : new TensorBoard(tensorboard, name, () => watched.report());
  try {
    client = await connect(options.scheduler, {
      token: options.token,
      tls: options.tls,
      connectTimeoutMs: options.connectTimeoutMs,
      audit: options.audit,
      signal,
      log,
    });
    watched.client = client;
    const store = storeOf(client);
    await createTables(model, store, options.modelOptions.seed, helpers);
    if (epochs > 0) {
      await trainAll(options, files, model, store, client, spool, watched);
    }
    if (test.length > 0 && !(epochs > 0 && signal.aborted)) {
      const batches = readBatches({ files: test, batch });
      const evaluation = await evaluate({ model, store, helpers, signal, batches });
      log.info('worker.test', { ...evaluation });
      board?.tested(evaluation);
    }
    if (epochs > 0) await checkTrained(client, options.run, options.follow);
  } finally {
    board?.end();
    await endpoints.close();
    await client?.close();
    await model.close?.();
  }
}

/**
 * The worker role: a model, a client and the training loop, wired together. It tells what it does in log
 * events that a launcher reads: `worker.training` (it starts), `worker.progress` (its samples so far),
 * `worker.range` (a range of samples that it is done with, for the audit), `worker.done` and `worker.test`.
 * `worker.empty` is a warning of files without samples. Of standard input, `worker.spool` says where it is
 * kept, and `worker.input` that no more of it is read.
 */

import { KintsugiError } from '../../common/errors.js';
import { CRITEO_MEANING, meaningOf } from '../../data/meaning.js';
import { countSamples, readAll, type Source } from '../../data/source.js';
import { loadNative } from '../../engine/native.js';
import { type Client, connect } from '../../library/client/client.js';
import { Dataset, type DatasetSpec } from '../../library/client/dataset.js';
import { formatAddress, parseAddress } from '../../net/address.js';
import { datasetProblem } from '../../protocol/dataset-rules.js';
import { type EndpointOptions, serveEndpoints } from '../../roles/endpoints.js';
import { cutGrowingParts, cutParts, RANGE_BATCHES } from '../loop/files.js';
import { createTables, evaluate } from '../loop/loop.js';
import { openSource } from '../loop/source.js';
import { Spool } from '../loop/spool.js';
import { createDlrm } from '../models/dlrm.js';
import { loadModel, loadSchema } from '../models/plugin.js';
import type { Model } from '../models/trainer.js';
import { warnOfEmpty } from './empty.js';
import type { WorkerOptions } from './options.js';
import { WorkerProgress } from './progress.js';
import { startReporting } from './reporting.js';
import { type WorkerResults, writeResults } from './results.js';
import { WorkerStore } from './store.js';
import { TensorBoard } from './tensorboard.js';
import { asLastWords, checkTrained, type TrainingEnd, trainRanges } from './training.js';
import { WatchedWorker } from './watched.js';

/**
 * Creates the tables and joins the run. A worker that is refused changes nothing, so whatever can be refused
 * comes before what changes others: a run that is there before tables that are not, tables before a run that
 * is not, and settings of tables last.
 */
async function begin(
  options: WorkerOptions,
  files: DatasetSpec['files'],
  store: WorkerStore,
  create: () => Promise<void>,
  client: Client,
  spool: Spool | undefined,
): Promise<Dataset> {
  const { batch, epochs, follow, staleness, deterministic, run, modelOptions, source } = options;
  const { seed, schema } = modelOptions;
  // The samples of another source mean what only it knows.
  const ofFiles = source === undefined ? CRITEO_MEANING : undefined;
  const meaning = schema ? meaningOf(schema) : ofFiles;
  const spec = {
    ...{ files, batch, epochs, seed, shuffle: !deterministic, staleness, follow },
    ...(meaning && { schema: meaning }),
  };
  const problem = datasetProblem(spec);
  if (problem) throw new KintsugiError('BAD_ARGUMENT', problem);
  const open = async () => {
    const dataset = await Dataset.open(client, run, spec);
    if (dataset.spec.schema && !meaning)
      throw new KintsugiError(
        'BAD_ARGUMENT',
        `run "${run}" has a schema: give its --schema, or another --run`,
      );
    if (spool) spool.resume((await dataset.extend([0]))[0] ?? 0);
    return dataset;
  };
  const before = await Dataset.status(client, run);
  const joined = before && (await open());
  await create();
  const dataset = joined ?? (await open());
  await store.set(before?.complete !== true);
  return dataset;
}

async function trainAll(
  options: WorkerOptions,
  source: Source,
  model: Model,
  store: WorkerStore,
  client: Client,
  spool: Spool | undefined,
  watched: WatchedWorker,
  dataset: Dataset,
  total: number | undefined,
): Promise<TrainingEnd> {
  const { log, deterministic, inFlight, signal, countDuplicates } = options;
  const progress = new WorkerProgress(log, watched.clock, total);
  watched.progress = progress;
  log.info('worker.training', { client: client.id });
  const reporting = startReporting(client, () => watched.report());
  const end = await trainRanges({
    ...{ client, model, store, log, source, dataset, inFlight, deterministic, countDuplicates },
    ...{ stop: signal, spool },
    onProgress: (samples, loss) => progress.update(samples, loss),
    clock: watched.clock,
    watch: (feed) => {
      watched.feed = feed;
    },
  }).finally(() => reporting.end());
  progress.end();
  const { productiveSeconds } = watched.clock;
  log.info('worker.done', { ...end, productiveSeconds, client: client.id });
  return end;
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

/**
 * Batches of a range. One worker that takes ranges in order needs no more of them. With a schema each file is
 * one for it, so that batches do not depend on the format.
 */
function rangeBatchesOf({ rangeBatches, deterministic, follow, modelOptions }: WorkerOptions) {
  const inOrder = modelOptions.schema && !follow ? Number.POSITIVE_INFINITY : RANGE_BATCHES;
  return rangeBatches ?? (deterministic ? inOrder : undefined);
}

/** The ranges of the data. A file that cannot be read is an error before the job is changed. */
async function cutSource(source: Source, options: WorkerOptions): Promise<DatasetSpec['files']> {
  const { batch, follow } = options;
  if (!follow) {
    const parts = await source.list();
    warnOfEmpty(options.log, '--data', parts);
    return cutParts(parts, batch, rangeBatchesOf(options));
  }
  await source.sizes!();
  return cutGrowingParts(await source.list(), batch, rangeBatchesOf(options));
}

async function runWith(given: WorkerOptions, spool: Spool | undefined): Promise<void> {
  const schema = await loadSchema(given.schema, given.model);
  const options = { ...given, modelOptions: { ...given.modelOptions, schema } };
  const { source: file, data, test, epochs, follow } = options;
  const opened: Source[] = [];
  const open = async (paths: string[], follow?: boolean) => {
    const source = await openSource({ file, paths, schema, follow });
    opened.push(source);
    return source;
  };
  try {
    const source = epochs > 0 ? await open(data, follow) : undefined;
    const tests = test.length > 0 ? await open(test) : undefined;
    await runOver(options, source, tests, spool);
  } finally {
    for (const source of opened) await source.close?.();
  }
}

async function runOver(
  options: WorkerOptions,
  source: Source | undefined,
  tests: Source | undefined,
  spool: Spool | undefined,
): Promise<void> {
  const { log, signal, epochs, batch } = options;
  const helpers = loadNative();
  const files = source ? await cutSource(source, options) : [];
  if (tests) warnOfEmpty(log, '--test', await tests.list());
  const model =
    options.model === undefined
      ? await createDlrm(options.modelOptions)
      : await loadModel(options.model, options.modelOptions);
  const { name } = options;
  const watched = new WatchedWorker(name, options.run, spool);
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
    tensorboard === undefined ? undefined : new TensorBoard(tensorboard, name, () => watched.report(), log);
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
    const store = new WorkerStore(client, model, options);
    const create = () => createTables(model, store, options.modelOptions.seed, helpers);
    let results: WorkerResults = {};
    if (source) {
      const total = options.bar && !options.follow ? (await countSamples(source)) * epochs : undefined;
      const begun = begin(options, files, store, create, client, spool);
      const dataset = await asLastWords(begun, signal);
      results = await trainAll(options, source, model, store, client, spool, watched, dataset, total);
    } else await asLastWords(create(), signal);
    if (tests && !(epochs > 0 && signal.aborted)) {
      const batches = readAll(tests, batch);
      const evaluation = await evaluate({ model, store, helpers, signal, batches });
      log.info('worker.test', { ...evaluation });
      board?.tested(evaluation);
      results = { ...results, auc: evaluation.auc, logloss: evaluation.logloss };
    }
    if (epochs > 0) await asLastWords(checkTrained(client, options.run, options.follow), signal);
    writeResults(options.results, results, log);
  } finally {
    board?.end();
    await endpoints.close();
    await client?.close();
    await model.close?.();
  }
}

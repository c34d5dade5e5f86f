/**
 * The worker role: a model, a client and the training loop, wired together. It tells what it does in log
 * events that a launcher reads: `worker.training` (it starts), `worker.progress` (its samples so far),
 * `worker.range` (a range of samples that it is done with, for the audit), `worker.done` and `worker.test`.
 * `worker.empty` is a warning of files without samples. Of standard input, `worker.spool` says where it is
 * kept, and `worker.input` that no more of it is read.
 */

import { countSamples, readAll, type Source } from '../../data/source.js';
import { loadNative } from '../../engine/native.js';
import {
  type OptimizerSpec,
  onlyKnownOptimizer,
  SETTING_FLAGS,
  type Setting,
  settingText,
} from '../../engine/optimizers.js';
import { isSamePolicy, policyText } from '../../engine/policies.js';
import { type Client, connect } from '../../library/client/client.js';
import { resumeTables } from '../../library/client/connected.js';
import type { DatasetSpec } from '../../library/client/dataset.js';
import { formatAddress, parseAddress } from '../../net/address.js';
import { saidWhile } from '../../net/repeats.js';
import type { TableSpec } from '../../protocol/map.js';
import { differingSettings, oldSettingText } from '../../protocol/settings.js';
import { type EndpointOptions, serveEndpoints } from '../../roles/endpoints.js';
import { cutGrowingParts, cutParts, RANGE_BATCHES } from '../loop/files.js';
import { createTables, evaluate } from '../loop/loop.js';
import { openSource } from '../loop/source.js';
import { Spool } from '../loop/spool.js';
import { createDlrm } from '../models/dlrm.js';
import { loadModel, loadSchema } from '../models/plugin.js';
import type { Model, ModelTable, ParameterStore } from '../models/trainer.js';
import { warnOfEmpty } from './empty.js';
import type { WorkerOptions } from './options.js';
import { WorkerProgress } from './progress.js';
import { startReporting } from './reporting.js';
import { type WorkerResults, writeResults } from './results.js';
import { TensorBoard } from './tensorboard.js';
import { asLastWords, checkTrained, type TrainingEnd, trainRanges } from './training.js';
import { WatchedWorker } from './watched.js';

/**
 * The client as the store of the training loop. A job that is resumed may have tables with other settings
 * than this worker: rule 46 says which of the two holds.
 */
function storeOf(
  client: Client,
  model: Model,
  { log, epochs, askedRates, modelOptions, tablePolicy }: WorkerOptions,
): ParameterStore {
  const { optimizer, denseOptimizer } = modelOptions;
  const isEmbedding = ({ name }: ModelTable) => model.tables.some((table) => table.name === name);
  /** A worker cannot ask for no clipping and no schedule: where it names none, the table keeps its own. */
  const askedOf = (spec: ModelTable): Setting[] => {
    if (epochs === 0) return [];
    const { lr } = spec.optimizer;
    const [usual, isFlag] = isEmbedding(spec)
      ? [optimizer.lr, askedRates.embedding]
      : [denseOptimizer.lr, askedRates.dense];
    const extras = (['clipNorm', 'schedule'] as const).filter((name) => spec.optimizer[name] !== undefined);
    return isFlag || lr !== usual ? ['lr', ...extras] : extras;
  };
  return {
    createTables: async (given) => {
      const specs = given.map((spec) => ({
        ...(tablePolicy && isEmbedding(spec) && { policy: tablePolicy }),
        ...spec,
      }));
      const asked = specs.map((spec) => ({ ...spec, set: askedOf(spec) }));
      const tables = await saidWhile(resumeTables(client, asked), (repeated) =>
        log.warn('worker.waits', { message: WAITS, repeated }),
      );
      for (const [i, { name, spec }] of tables.entries()) {
        const wanted = onlyKnownOptimizer(asked[i]!.optimizer);
        for (const setting of epochs > 0 ? differingSettings(wanted, spec.optimizer) : []) {
          const [now, given] = [spec.optimizer, wanted].map((each) => settingText(each[setting]));
          const fields = { table: name, [setting]: now, asked: given };
          if (!asked[i]!.set.includes(setting)) log.info('worker.setting', fields);
          else log.warn('worker.setting', { ...fields, message: keptText(spec, setting, wanted) });
        }
        // The table had it before: any other is refused.
        const { policy } = asked[i]!;
        if (epochs > 0 && policy && spec.policy && !isSamePolicy(policy, spec.policy))
          log.info('worker.setting', {
            ...{ table: name, policy: policyText(spec.policy), asked: policyText(policy) },
          });
      }
    },
    pull: (requests) => client.pull(requests),
    push: (updates) => client.push(updates),
  };
}

/** The scheduler answers at once where no setting is asked for. */
const WAITS =
  'every owner of a shard must have the settings of the tables before training begins, and some ' +
  'do not answer: "kintsugi doctor" says which PS are missing';

function keptText(table: TableSpec, setting: Setting, asked: OptimizerSpec): string {
  const why = oldSettingText(table, setting, asked[setting]) ?? `got another ${setting} meanwhile`;
  const given = `${SETTING_FLAGS[setting]}=${settingText(asked[setting])}`;
  return `the table ${why}: "kintsugi table set ${table.name} ${given}" sets it all the same`;
}

async function trainAll(
  options: WorkerOptions,
  source: Source,
  files: DatasetSpec['files'],
  model: Model,
  store: ParameterStore,
  client: Client,
  spool: Spool | undefined,
  watched: WatchedWorker,
): Promise<TrainingEnd> {
  const { log, batch, epochs, follow, staleness, deterministic, run, inFlight, signal } = options;
  const { countDuplicates, modelOptions } = options;
  const { seed } = modelOptions;
  const bar = options.bar && !follow;
  const progress = new WorkerProgress(
    log,
    watched.clock,
    bar ? (await countSamples(source)) * epochs : undefined,
  );
  watched.progress = progress;
  log.info('worker.training', { client: client.id });
  const reporting = startReporting(client, () => watched.report());
  const end = await trainRanges({
    ...{ client, model, store, log, source, run, inFlight, deterministic, countDuplicates },
    ...{ stop: signal, spool },
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
    const store = storeOf(client, model, options);
    await asLastWords(createTables(model, store, options.modelOptions.seed, helpers), signal);
    let results: WorkerResults = {};
    if (source) results = await trainAll(options, source, files, model, store, client, spool, watched);
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

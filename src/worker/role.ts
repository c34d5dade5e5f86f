/**
 * The worker role: a model, a client and the training loop, wired together. It tells what it does in log
 * events that a launcher reads: `worker.training` (it starts), `worker.progress` (its samples so far),
 * `worker.range` (a range of samples that it is done with, for the audit), `worker.done` and `worker.test`.
 * Of standard input, `worker.spool` says where it is kept, and `worker.input` that no more of it is read.
 */
import cliProgress from 'cli-progress';
import { type Client, connect } from '../client/client.js';
import type { DatasetSpec } from '../client/dataset.js';
import { loadNative } from '../native.js';
import { formatAddress, parseAddress } from '../runtime/address.js';
import { type EndpointOptions, serveEndpoints } from '../runtime/endpoints.js';
import { type Logger, monotonicMs } from '../runtime/log.js';
import { countRows, readBatches } from '../train/criteo.js';
import { createDlrm } from '../train/dlrm.js';
import { cutFiles, cutGrowingFiles } from '../train/files.js';
import { createTables, evaluate } from '../train/loop.js';
import { loadModel } from '../train/plugin.js';
import { Spool } from '../train/spool.js';
import type { Model, ModelOptions, ParameterStore } from '../train/trainer.js';
import type { ClientTls, ServerTls } from '../transport/index.js';
import { checkTrained, trainRanges } from './training.js';

/**
 * Progress events are at least so far apart: often enough to place a failure on the time axis, too few to
 * matter.
 */
const PROGRESS_MS = 50;

export interface WorkerOptions {
  scheduler: string;
  /** Where /healthz, /readyz and /metrics answer. */
  listen: string;
  token: string | undefined;
  metricsToken: string | undefined;
  tls: ClientTls | undefined;
  /** For its endpoints. */
  certificate: ServerTls | undefined;
  connectTimeoutMs: number;
  log: Logger;
  /** Show a progress bar on standard error. */
  bar: boolean;
  /**
   * Before training it ends the connecting; then the batch is finished and the rest of its range handed back.
   */
  signal: AbortSignal;
  name: string;
  data: string[];
  test: string[];
  epochs: number;
  /** The files grow: train what is there, and then what comes, until `signal`. */
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
  inFlight: number;
  deterministic: boolean;
  batch: number;
  /** A model file; default DLRM. */
  model: string | undefined;
  modelOptions: ModelOptions;
}

/** The client as the loop sees it. */
function storeOf(client: Client): ParameterStore {
  return {
    createTables: async (specs) => {
      await client.createTables(specs);
    },
    pull: (requests) => client.pull(requests),
    push: (updates) => client.push(updates),
  };
}

/** Throttled progress: events for a launcher and, on a terminal, a bar. */
class Progress {
  private readonly bar: cliProgress.SingleBar | undefined;
  private told = Number.NEGATIVE_INFINITY;
  private samples = 0;
  private loss = 0;

  constructor(
    private readonly log: Logger,
    rows: number | undefined,
  ) {
    if (rows === undefined) return;
    this.bar = new cliProgress.SingleBar({
      format: '[{bar}] {percentage} % | {value}/{total} samples | loss {loss} | {eta_formatted} left',
      hideCursor: true,
    });
    this.bar.start(rows, 0, { loss: '-' });
  }

  get state(): { samples: number; loss: number } {
    return { samples: this.samples, loss: this.loss };
  }

  update(samples: number, loss: number): void {
    this.samples = samples;
    this.loss = loss;
    if (monotonicMs() - this.told >= PROGRESS_MS) this.tell();
  }

  private tell(): void {
    this.told = monotonicMs();
    if (this.bar) this.bar.update(this.samples, { loss: this.loss.toFixed(4) });
    else this.log.info('worker.progress', { samples: this.samples, loss: this.loss });
  }

  end(): void {
    this.tell();
    this.bar?.stop();
  }
}

async function trainAll(
  options: WorkerOptions,
  files: DatasetSpec['files'],
  model: Model,
  store: ParameterStore,
  client: Client,
  spool: Spool | undefined,
  watch: (progress: Progress) => void,
) {
  const { log, data, batch, epochs, follow, staleness, deterministic, run, inFlight, signal } = options;
  const { seed } = options.modelOptions;
  const bar = options.bar && !follow;
  const progress = new Progress(log, bar ? (await countRows(data)) * epochs : undefined);
  watch(progress);
  log.info('worker.training', { client: client.id });
  const end = await trainRanges({
    ...{ client, model, store, log, files: data, run, inFlight, deterministic, stop: signal, spool },
    spec: { files, batch, epochs, seed, shuffle: !deterministic, staleness, follow },
    onProgress: (samples, loss) => progress.update(samples, loss),
  });
  progress.end();
  log.info('worker.done', { ...end, client: client.id });
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
  // A file that cannot be read shows before the job is touched.
  const { epochs, batch } = options;
  const cut = options.follow ? cutGrowingFiles : cutFiles;
  const files = epochs > 0 ? await cut(options.data, batch, options.rangeBatches) : [];
  if (test.length > 0) await countRows(test);
  const model =
    options.model === undefined
      ? await createDlrm(options.modelOptions)
      : await loadModel(options.model, options.modelOptions);
  let client: Client | undefined;
  let progress: Progress | undefined;
  const { name } = options;
  const now = () => progress?.state ?? { samples: 0, loss: 0 };
  const endpointOptions = {
    role: 'worker',
    name,
    notReady: () => (client ? undefined : 'this worker is not connected to the job'),
    gauges: {
      samples: ['Samples trained since the start.', () => now().samples],
      loss: ['Loss over the newest batches.', () => now().loss],
      pushes_in_flight: ['Pushes that are not durable yet.', () => client?.unacknowledged ?? 0],
      ...(spool && { spool_lead_bytes: ['Bytes in the spool that no worker has taken.', () => spool.lead] }),
    },
  } satisfies EndpointOptions;
  const { listen, token, metricsToken, certificate: tls } = options;
  const endpoints = await serveEndpoints(listen, endpointOptions, { token, metricsToken, tls });
  log.info('worker.ready', {
    address: formatAddress({ host: parseAddress(options.listen).host, port: endpoints.port }),
  });
  try {
    client = await connect(options.scheduler, {
      token: options.token,
      tls: options.tls,
      connectTimeoutMs: options.connectTimeoutMs,
      audit: options.audit,
      signal,
      log,
    });
    const store = storeOf(client);
    await createTables(model, store, options.modelOptions.seed, helpers);
    if (epochs > 0) {
      await trainAll(options, files, model, store, client, spool, (watched) => {
        progress = watched;
      });
    }
    if (test.length > 0 && !(epochs > 0 && signal.aborted)) {
      const batches = readBatches({ files: test, batch });
      log.info('worker.test', { ...(await evaluate({ model, store, helpers, signal, batches })) });
    }
    if (epochs > 0) await checkTrained(client, options.run, options.follow);
  } finally {
    await endpoints.close();
    await client?.close();
    await model.close?.();
  }
}

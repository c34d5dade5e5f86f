/**
 * The worker role: a model, a client and the training loop, wired together. It tells what it does in log events that a
 * launcher reads: `worker.training` (it starts), `worker.progress` (cumulative samples), `worker.done` (with what it saw
 * acknowledged, for the audit) and `worker.test`.
 */
import cliProgress from 'cli-progress';
import { type Client, connect } from '../client.js';
import { loadNative } from '../native.js';
import { formatAddress, parseAddress } from '../runtime/address.js';
import { type EndpointOptions, serveEndpoints } from '../runtime/endpoints.js';
import { type Logger, monotonicMs } from '../runtime/log.js';
import { countRows, readBatches } from '../train/criteo.js';
import { createDlrm } from '../train/dlrm.js';
import { createTables, evaluate, train } from '../train/loop.js';
import { loadModel } from '../train/plugin.js';
import type { Model, ModelOptions, ParameterStore } from '../train/trainer.js';
import type { ClientTls, ServerTls } from '../transport/index.js';

/** Progress events are at least so far apart: often enough to place a failure on the time axis, too few to matter. */
const PROGRESS_MS = 50;

export interface WorkerOptions {
  scheduler: string;
  /** Where /healthz and /metrics answer. */
  listen: string;
  token: string | undefined;
  tls: ClientTls | undefined;
  /** For its endpoints. */
  certificate: ServerTls | undefined;
  connectTimeoutMs: number;
  log: Logger;
  /** Show a progress bar on standard error. */
  bar: boolean;
  signal: AbortSignal;
  data: string[];
  test: string[];
  epochs: number;
  index: number;
  count: number;
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
  model: Model,
  store: ParameterStore,
  clientId: number,
  counts: () => unknown,
  watch: (progress: Progress) => void,
) {
  const { log, data, batch, index, count, signal, inFlight, deterministic } = options;
  const helpers = loadNative();
  const share = options.bar ? Math.ceil(((await countRows(data)) * options.epochs) / count) : undefined;
  const progress = new Progress(log, share);
  watch(progress);
  let [samples, seconds, lossSum] = [0, 0, 0];
  log.info('worker.training', { client: clientId });
  for (let epoch = 0; epoch < options.epochs; epoch++) {
    const before = samples;
    const result = await train({
      model,
      store,
      helpers,
      signal,
      inFlight,
      deterministic,
      batches: readBatches({ files: data, batch, shard: { index, count } }),
      onProgress: (now) => progress.update(before + now.samples, now.recentLoss),
    });
    samples += result.samples;
    seconds += result.seconds;
    if (result.samples > 0) lossSum += result.loss * result.samples;
  }
  progress.end();
  const trainLoss = samples > 0 ? lossSum / samples : null;
  log.info('worker.done', { samples, seconds, trainLoss, client: clientId, pushCounts: counts() });
}

/** Trains, then evaluates if there is test data. @throws BAD_DATA, MODEL, UNRECOVERABLE, ABORTED and what `connect` throws */
export async function runWorker(options: WorkerOptions): Promise<void> {
  const { log, test, signal } = options;
  const helpers = loadNative();
  // Everything that can be wrong with the files shows before the job is touched.
  await Promise.all(
    [...(options.epochs > 0 ? [options.data] : []), ...(test.length > 0 ? [test] : [])].map(countRows),
  );
  const model =
    options.model === undefined
      ? await createDlrm(options.modelOptions)
      : await loadModel(options.model, options.modelOptions);
  let client: Client | undefined;
  let progress: Progress | undefined;
  const name = `worker-${options.index}`;
  const now = () => progress?.state ?? { samples: 0, loss: 0 };
  const endpointOptions = {
    role: 'worker',
    name,
    health: () => ({ ok: client !== undefined, ...now() }),
    gauges: {
      samples: ['Samples trained since the start.', () => now().samples],
      loss: ['Loss over the newest batches.', () => now().loss],
      pushes_in_flight: ['Pushes that are not durable yet.', () => client?.unacknowledged ?? 0],
    },
  } satisfies EndpointOptions;
  const { listen, token, certificate } = options;
  const endpoints = await serveEndpoints(listen, token, endpointOptions, certificate);
  log.info('worker.ready', {
    address: formatAddress({ host: parseAddress(options.listen).host, port: endpoints.port }),
  });
  try {
    client = await connect(options.scheduler, {
      token: options.token,
      tls: options.tls,
      timeoutMs: options.connectTimeoutMs,
      audit: options.audit,
      signal,
      log,
    });
    const store = storeOf(client);
    await createTables(model, store, options.modelOptions.seed, helpers);
    const counts = () => client?.pushCounts();
    if (options.epochs > 0) {
      await trainAll(options, model, store, client.id, counts, (watched) => {
        progress = watched;
      });
    }
    if (test.length > 0) {
      const batches = readBatches({ files: test, batch: options.batch });
      log.info('worker.test', { ...(await evaluate({ model, store, helpers, signal, batches })) });
    }
  } finally {
    await endpoints.close();
    await client?.close();
    await model.close?.();
  }
}

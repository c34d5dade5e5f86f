/**
 * The worker loop: read, pull, compute, push. Two things overlap: the next batch's pull travels during this
 * batch's compute, and a bounded number of pushes may be on their way to durability. So a worker trains on
 * rows that miss its own last batch, pushes that the store has not applied yet, and batches that other
 * workers have not pushed yet. Late gradients make the first steps overshoot: a run of 350 batches recovers
 * from that, in one of 80 it costs AUC. `deterministic` gives the overlap up: one thing after the other, so
 * that a single worker computes the same bits every time.
 */
import { describe, KintsugiError } from '../../common/errors.js';
import { unlessAborted } from '../../common/waiting.js';
import type { WorkerPhase } from '../../protocol/telemetry.js';
import type { Batch, Model, ParameterStore } from '../models/trainer.js';
import { Exchanger, type Pulled, type RowHelpers } from './exchange.js';
import { auc, logLoss } from './metrics.js';
import { StepClock } from './step-clock.js';

const DEFAULT_IN_FLIGHT = 4;

export interface LoopOptions {
  model: Model;
  store: ParameterStore;
  /** For example `readBatches(...)`. Closed at the end, whatever the end is. */
  batches: AsyncIterable<Batch>;
  helpers: RowHelpers;
  /** Stops with ABORTED, without waiting for what is on its way. */
  signal?: AbortSignal;
}

export interface TrainOptions extends LoopOptions {
  /** Pushes that may be unacknowledged before the loop waits; default 4 */
  inFlight?: number;
  /** Strictly one after the other: pull, step, push until durable, next */
  deterministic?: boolean;
  /** Pull the next batch's rows before this batch is pushed; default true unless deterministic */
  overlap?: boolean;
  /** Takes the time of each part of the loop */
  clock?: StepClock;
  /** Whether a worker had begun this batch before; default: none had */
  begunBefore?: (batch: Batch) => boolean;
  /** A key counts as seen as often as a batch names it; default: once in each batch */
  countDuplicates?: boolean;
  /** After every batch; throttling is the caller's */
  onProgress?: (progress: LoopProgress) => void;
}

export interface LoopProgress {
  /** Rows and batches of this call so far, pushed but perhaps not yet durable */
  samples: number;
  batches: number;
  /** Mean loss of the last batch */
  loss: number;
  /** Mean loss of about the last 100 batches, and of all */
  recentLoss: number;
  meanLoss: number;
  /** Seconds since the start of the call */
  seconds: number;
}

export interface TrainResult {
  samples: number;
  batches: number;
  /** Mean over all samples, each before it was trained on; NaN without samples */
  loss: number;
  seconds: number;
}

export interface Evaluation {
  auc: number;
  logloss: number;
  samples: number;
}

/**
 * Creates the model's tables; does nothing for those that are there. Run once before `train` or `evaluate`.
 */
export async function createTables(model: Model, store: ParameterStore, seed: number, helpers: RowHelpers) {
  await store.createTables(new Exchanger(model, store, helpers).tableSpecs(seed));
}

function aborted(signal: AbortSignal): KintsugiError {
  return new KintsugiError('ABORTED', `training was aborted: ${describe(signal.reason)}`);
}

/** The promise, or ABORTED as soon as the signal says so. */
const orAborted = <T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> =>
  unlessAborted(promise, signal, () => aborted(signal!));

/** Started early and awaited later: its failure does not count as unhandled in between. */
class Early<T> {
  /** The result is there. Time that the process spends until the loop goes on is then no waiting for it. */
  given = false;

  constructor(readonly promise: Promise<T>) {
    const give = () => {
      this.given = true;
    };
    promise.then(give, () => {});
  }
}

/** Whether `one` settles while `other` has nothing to give, now or for ever. */
function isFirst(one: Promise<unknown>, other: Promise<unknown>): Promise<boolean> {
  const never = new Promise<boolean>(() => {});
  // Wait for one turn of the event loop: a reader that has a batch gives it by then, and its pull goes out
  // first.
  const turn = () => new Promise<boolean>((resolve) => setImmediate(resolve, true));
  const ended = one.then(turn, turn);
  const given = other.then(
    () => false,
    () => never,
  );
  return Promise.race([given, ended]);
}

/**
 * Batches with their rows. With `overlap`, the pull of the next batch is sent before a batch is handed out;
 * reading is one more ahead, so that this pull does not wait for the disk.
 */
async function* pulledBatches(
  exchanger: Exchanger,
  { batches, signal }: LoopOptions,
  overlap: boolean,
  clock = new StepClock(),
): AsyncGenerator<Pulled> {
  const iterator = batches[Symbol.asyncIterator]();
  const waiting = <T>(phase: WorkerPhase, { promise, given }: Early<T>): Promise<T> => {
    const waited = orAborted(promise, signal);
    return given ? waited : clock.during(phase, waited);
  };
  try {
    let reading = new Early(iterator.next());
    let ahead: Early<Pulled> | undefined;
    for (;;) {
      // A source that waits for more data, or fails, must not delay the batch that is here already.
      if (ahead && !reading.given) {
        const first = isFirst(ahead.promise, reading.promise);
        if (await clock.during('read', orAborted(first, signal))) {
          const ready = ahead;
          ahead = undefined;
          yield await waiting('pull', ready);
          continue;
        }
      }
      const item = await waiting('read', reading);
      const pulling = item.done ? undefined : new Early(exchanger.pull(item.value));
      if (!item.done) reading = new Early(iterator.next());
      const ready = overlap ? ahead : pulling;
      if (ready) yield await waiting('pull', ready);
      if (!pulling) return;
      if (overlap) ahead = pulling;
    }
  } finally {
    // Not awaited: after an abort the pending read may never end.
    iterator.return?.().catch(() => {});
  }
}

/** Pushes on their way. The first failure is kept and thrown by the next call. */
class PushWindow {
  private readonly pending = new Set<Promise<void>>();
  private failure: { error: unknown } | undefined;

  constructor(private readonly signal: AbortSignal | undefined) {}

  add(push: Promise<void>): void {
    const settled: Promise<void> = push
      .catch((error: unknown) => {
        this.failure ??= { error };
      })
      .then(() => {
        this.pending.delete(settled);
      });
    this.pending.add(settled);
  }

  /** Waits until at most `count` pushes are not durable yet. */
  async waitFor(count: number): Promise<void> {
    while (this.pending.size > count && !this.failure) {
      await orAborted(Promise.race(this.pending), this.signal);
    }
    if (this.failure) throw this.failure.error;
  }
}

/** Running means of the loss. */
class LossMeter {
  private sum = 0;
  private samples = 0;
  private recent = 0;
  private weight = 0;

  add(loss: number, size: number): void {
    this.sum += loss * size;
    this.samples += size;
    this.recent = 0.99 * this.recent + 0.01 * loss;
    this.weight = 0.99 * this.weight + 0.01;
  }

  get mean(): number {
    return this.sum / this.samples;
  }

  /** Divided by the total weight, or the first values would pull it to zero. */
  get recentMean(): number {
    return this.recent / this.weight;
  }
}

/**
 * Trains on all batches once; resolves when every push is durable. Throws what the reader, the model or the
 * store throw, MODEL for results that do not fit, ABORTED after the signal. The tables must be there
 * (`createTables`).
 */
export async function train(options: TrainOptions): Promise<TrainResult> {
  const { model, store, helpers, signal, onProgress, deterministic = false } = options;
  const inFlight = deterministic ? 0 : (options.inFlight ?? DEFAULT_IN_FLIGHT);
  if (!deterministic && (!Number.isSafeInteger(inFlight) || inFlight < 1)) {
    throw new KintsugiError('BAD_ARGUMENT', `inFlight must be a positive integer, not ${inFlight}`);
  }
  const { clock = new StepClock(), begunBefore } = options;
  const exchanger = new Exchanger(model, store, helpers, options.countDuplicates);
  const window = new PushWindow(signal);
  const meter = new LossMeter();
  const start = performance.now();
  const seconds = () => (performance.now() - start) / 1000;
  let samples = 0;
  let batches = 0;
  const overlap = !deterministic && (options.overlap ?? true);
  for await (const pulled of pulledBatches(exchanger, options, overlap, clock)) {
    const begun = clock.time;
    const { rows, dense } = exchanger.values(pulled);
    const result = await model.step(pulled.batch, rows, dense);
    const updates = exchanger.updates(pulled, result);
    clock.computed(begun, begunBefore?.(pulled.batch) ?? false);
    // Wait for room first: at most `inFlight` pushes are unacknowledged.
    if (!deterministic) await clock.during('push', window.waitFor(inFlight - 1));
    if (signal?.aborted) throw aborted(signal);
    window.add(store.push(updates, pulled.batch));
    if (deterministic) await clock.during('push', window.waitFor(0));
    samples += pulled.batch.size;
    batches += 1;
    meter.add(result.loss, pulled.batch.size);
    const means = { loss: result.loss, recentLoss: meter.recentMean, meanLoss: meter.mean };
    onProgress?.({ samples, batches, ...means, seconds: seconds() });
  }
  await window.waitFor(0);
  return { samples, batches, loss: meter.mean, seconds: seconds() };
}

/** Predicts all batches with the values that the store has now. `auc` is NaN when only one class occurs. */
export async function evaluate(options: LoopOptions): Promise<Evaluation> {
  const { model, store, helpers } = options;
  const exchanger = new Exchanger(model, store, helpers);
  const labels: Float32Array[] = [];
  const predictions: Float32Array[] = [];
  let samples = 0;
  for await (const pulled of pulledBatches(exchanger, options, true)) {
    const { rows, dense } = exchanger.values(pulled);
    const { batch } = pulled;
    const values: unknown = await model.predict(batch, rows, dense);
    if (!(values instanceof Float32Array) || values.length !== batch.size) {
      throw new KintsugiError(
        'MODEL',
        `the model must predict a Float32Array of ${batch.size} probabilities`,
      );
    }
    labels.push(batch.labels);
    predictions.push(values.slice());
    samples += batch.size;
  }
  const allLabels = concat(labels, samples);
  const allPredictions = concat(predictions, samples);
  return {
    auc: auc(allLabels, allPredictions),
    logloss: logLoss(allLabels, allPredictions),
    samples,
  };
}

function concat(parts: readonly Float32Array[], length: number): Float32Array {
  const all = new Float32Array(length);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

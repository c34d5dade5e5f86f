/**
 * The training of one worker: it takes ranges of a data set until none is left. It logs
 * `worker.range`, with the pushes per shard, before the scheduler knows that the range is finished. So an
 * audit finds every finished range, also when this process is killed right after.
 */

import { KintsugiError } from '../../common/errors.js';
import type { Source } from '../../data/source.js';
import { loadNative } from '../../engine/native.js';
import type { Client } from '../../library/client/client.js';
import { Dataset, UNBOUNDED } from '../../library/client/dataset.js';
import { PushSequence } from '../../library/client/sequence.js';
import type { Logger } from '../../net/log.js';
import { Exchanger } from '../loop/exchange.js';
import { type RangeEnd, RangeFeed } from '../loop/feed.js';
import { FileFollower, FileLength } from '../loop/follow.js';
import { train } from '../loop/loop.js';
import type { Spool } from '../loop/spool.js';
import type { StepClock } from '../loop/step-clock.js';
import type { Model, ParameterStore } from '../models/trainer.js';

/** Limit of handing ranges back after a failure or a stop. Without it their leases end, later. */
const HAND_BACK_MS = 2000;

/**
 * The last questions to the scheduler. A scheduler that is away may stay away, so a worker that is stopped
 * waits for its answers for a limited time only. @throws UNREACHABLE
 */
export async function asLastWords<T>(work: Promise<T>, stop: AbortSignal): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  let begin = () => {};
  const late = new Promise<never>((_, reject) => {
    const text = `stopped, and no scheduler has answered: what was not done is free when its leases end`;
    begin = () => {
      timer = setTimeout(() => reject(new KintsugiError('UNREACHABLE', text)), HAND_BACK_MS);
    };
  });
  if (stop.aborted) begin();
  else stop.addEventListener('abort', begin, { once: true });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
    stop.removeEventListener('abort', begin);
  }
}

export interface TrainingOptions {
  client: Client;
  model: Model;
  store: ParameterStore;
  log: Logger;
  /** The source whose parts are the files of the data set, in the same order. */
  source: Source;
  /** Workers that have opened it by the same name share it. */
  dataset: Dataset;
  /** The one file of the data, if standard input is appended to it. It ends when the input has ended. */
  spool?: Spool | undefined;
  inFlight: number;
  deterministic: boolean;
  countDuplicates: boolean;
  /** Ends the training after the batch, and hands back the rest of the range. */
  stop: AbortSignal;
  clock: StepClock;
  /** Called with the feed, which counts the batches that are not durable. */
  watch(feed: { readonly unsettled: number }): void;
  /** Samples trained by this worker so far, and its loss. */
  onProgress(samples: number, loss: number): void;
}

export interface TrainingEnd {
  samples: number;
  seconds: number;
  /** Mean over the samples that this worker trained; null without any. */
  trainLoss: number | null;
}

/**
 * Trains until every range is finished or set aside (of files that grow: never, of a spool: after the end of
 * its input), or `stop`. @throws what the model, the reader, the job or standard input throw
 */
export async function trainRanges(options: TrainingOptions): Promise<TrainingEnd> {
  const { client, model, log, stop, spool, dataset } = options;
  const helpers = loadNative();
  const { batch, staleness, files, follow } = dataset.spec;
  const sequences = new Map<number, PushSequence>();
  const exchanger = new Exchanger(model, options.store, helpers);
  const { source } = options;
  const names = files.map(({ name }) => name);
  const growth = follow ? new FileLength(source, names) : undefined;
  await growth?.resume(await dataset.extend(names.map(() => 0)));
  const status = () => Dataset.status(client, dataset.name);
  const feeding = spool && { inlet: spool, status, onEnd: () => feed.stop() };
  const follower = growth && new FileFollower(dataset, growth, names.length, feeding);
  const feed = new RangeFeed({
    ranges: {
      acquire: (clock) => options.clock.starving((follower ?? dataset).acquire(clock)),
      report: (...progress) => dataset.report(...progress),
      release: async (...outcome) => {
        await dataset.release(...outcome);
        // The range may have been the last one, and then a file that grows has to be looked at.
        growth?.notify();
      },
      advance: (clock) => dataset.advance(clock),
    },
    bounded: staleness !== UNBOUNDED,
    open: (session) => {
      const sequence = new PushSequence(client, session);
      sequences.set(session, sequence);
      return sequence;
    },
    read: async function* ({ range: { file, begin, end } }, onRead) {
      await growth?.reached(file, end);
      yield* source.read({ part: file, begin, end, batch, onRead });
    },
    touched: (each) => exchanger.touched(each),
    onRange: (end) => {
      log.info('worker.range', fieldsOf(end, sequences.get(end.lease.session)));
      sequences.delete(end.lease.session);
    },
  });
  options.watch(feed);
  dataset.onLost((range, lease) => feed.lost(range, lease));
  dataset.onHold(() => feed.progress);
  if (stop.aborted) feed.stop();
  stop.addEventListener('abort', () => feed.stop(), { once: true });
  if (spool && growth) {
    void spool.fill(process.stdin, () => growth.notify()).then(() => tellInput(log, spool));
  }
  const store: ParameterStore = {
    createTables: (specs) => options.store.createTables(specs),
    pull: (requests) => feed.exchange(options.store.pull(requests)),
    push: (updates, of) => feed.push(updates, of),
  };
  let [samples, seconds, lossSum] = [0, 0, 0];
  const { inFlight, deterministic, countDuplicates } = options;
  for (;;) {
    const before = samples;
    let latest = { samples: 0, loss: 0, seconds: 0 };
    try {
      const result = await train({
        ...{ model, store, helpers, inFlight, deterministic, countDuplicates, batches: feed },
        // With bounded staleness the worker waits between batches, so pulling ahead would only fetch older
        // rows.
        overlap: staleness === UNBOUNDED,
        clock: options.clock,
        begunBefore: (of) => feed.begunBefore(of),
        onProgress: ({ samples: now, meanLoss, recentLoss, seconds: spent }) => {
          latest = { samples: now, loss: meanLoss, seconds: spent };
          options.onProgress(before + now, recentLoss);
        },
      });
      seconds += result.seconds;
      break;
    } catch (error) {
      seconds += latest.seconds;
      const goesOn = await feed.failed(error);
      const { code, message } =
        error instanceof KintsugiError ? error : { code: 'MODEL', message: String(error) };
      log.error('worker.failure', { code, message, goesOn });
      if (goesOn) continue;
      const late = new Promise<void>((resolve) => setTimeout(resolve, HAND_BACK_MS).unref());
      await Promise.race([feed.close().catch(() => {}), late]);
      growth?.close();
      throw error;
    } finally {
      samples += latest.samples;
      lossSum += latest.loss * latest.samples;
    }
  }
  await asLastWords(feed.close(), stop).finally(() => growth?.close());
  if (spool?.failure) throw spool.failure;
  return { samples, seconds, trainLoss: samples > 0 ? lossSum / samples : null };
}

/** Standard input is not read any more. */
function tellInput(log: Logger, { lines, size, dropped, failure }: Spool): void {
  const fields = { lines, bytes: size, dropped };
  if (failure) log.error('worker.input', { ...fields, code: failure.code, message: failure.message });
  else log.info('worker.input', fields);
}

function fieldsOf({ lease, ...end }: RangeEnd, sequence: PushSequence | undefined) {
  const { outcome, done, samples, redone } = end;
  const { number, epoch, file, begin } = lease.range;
  const where = { range: number, epoch, file, begin, session: lease.session };
  return { ...where, outcome, done, samples, redone, counts: sequence?.counts() ?? [] };
}

/** Throws for a range that was set aside and for files that changed meanwhile: such a run is not complete. */
export async function checkTrained(client: Client, run: string, follow: boolean): Promise<void> {
  const status = await Dataset.status(client, run);
  if (!status || !(status.complete || follow)) return;
  const first = status.setAside[0];
  if (!first) {
    if (new Set(status.samples).size <= 1) return;
    const text =
      `the files had ${status.samples.join(', ')} samples from epoch to epoch: they changed ` +
      `while they were trained`;
    throw new KintsugiError('BAD_DATA', text);
  }
  const { fileName, begin, end, batch, attempts, code, message } = first;
  const rest = status.setAside.length > 1 ? ` (and ${status.setAside.length - 1} further ranges)` : '';
  throw new KintsugiError(
    code,
    `samples in bytes ${begin} to ${end} of ${fileName}${rest} were not all trained: batch ${batch} ` +
      `failed ${attempts} times: ${message}`,
  );
}

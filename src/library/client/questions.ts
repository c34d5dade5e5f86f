/**
 * Questions about shards, for scans and tools. A question to an owner waits while its shard is being
 * recovered. An owner of a shard that is beyond repair would never answer, so the scheduler is asked
 * regularly whether it is.
 */
import { onAbort } from '../../common/aborts.js';
import { KintsugiError } from '../../common/errors.js';
import type { JobStatus, MessageOf } from '../../protocol/messages.js';
import type { RequestOptions } from './options.js';
import type { Session } from './session.js';

const STATUS_MS = 1000;

type AskedQuestion = MessageOf<'keys'> | MessageOf<'evictions'> | MessageOf<'shardStats'>;
type AnswerTo = {
  keys: MessageOf<'keysPage'>;
  evictions: MessageOf<'evicted'>;
  shardStats: MessageOf<'shardStatsReply'>;
};
/** A question without the fields that the client fills in. */
type ClientQuestion<M> = M extends AskedQuestion ? Omit<M, 'id' | 'epoch'> : never;

const OVER = 'over';

/** The status that is on its way, for each session: a scheduler that is away is not asked again and again. */
const coming = new WeakMap<Session, Promise<JobStatus>>();

function statusOf(session: Session): Promise<JobStatus> {
  let status = coming.get(session);
  if (!status) {
    status = session.status().finally(() => coming.delete(session));
    coming.set(session, status);
  }
  return status;
}

/**
 * Settles as `work` does; throws UNRECOVERABLE when the scheduler knows that this group, or its shard m,
 * cannot answer any more. The signal of the work is aborted at the end, so that nobody goes on asking.
 */
export function unlessLost<T>(
  session: Session,
  g: number,
  work: (signal: AbortSignal) => Promise<T>,
  { m, signal }: { m?: number } & RequestOptions = {},
): Promise<T> {
  const stop = new AbortController();
  // With a reason of its own an abort makes no error, which would cost more than the question.
  const abort = () => stop.abort(OVER);
  if (signal?.aborted) abort();
  const forget = onAbort(signal, abort);
  return new Promise<T>((resolve, reject) => {
    const look = async () => {
      const { unrecoverable } = await statusOf(session);
      const lost = unrecoverable.find((entry) => entry.g === g && (m === undefined || entry.m === m));
      if (!lost) return;
      const text = `shard ${lost.g}/${lost.m} lost more than its code can restore`;
      reject(new KintsugiError('UNRECOVERABLE', text));
    };
    const timer = setInterval(() => void look().catch(reject), STATUS_MS);
    stop.signal.addEventListener('abort', () => clearInterval(timer));
    work(stop.signal).then(resolve, reject);
  }).finally(() => {
    forget();
    abort();
  });
}

/**
 * Asks the owner of a shard; `read` runs while the payload views are valid.
 * @throws UNRECOVERABLE, ABORTED, CLOSED
 */
export function askOwner<Q extends ClientQuestion<AskedQuestion>, T>(
  session: Session,
  question: Q,
  read: (answer: AnswerTo[Q['t']], parts: readonly Uint8Array[]) => T,
  options: RequestOptions = {},
): Promise<T> {
  const { g, m } = question;
  const query = { to: { g, m }, message: { ...question, id: 0, epoch: 0 } as unknown as AskedQuestion };
  const ask = (signal: AbortSignal) =>
    session.query(query, (reply, parts) => read(reply as AnswerTo[Q['t']], parts), { signal });
  return unlessLost(session, g, ask, { m, signal: options.signal });
}

/** Shards that a running job has lost, loaded from a checkpoint. */
import { setTimeout as sleep } from 'node:timers/promises';
import { KintsugiError } from '../../common/errors.js';
import { checkInteger, checkOptions, checkSignal, checkText, type OptionKeys } from '../../common/options.js';
import type { Message } from '../../protocol/messages.js';
import type { JobStatus } from '../../protocol/status.js';

/** Which shards of a running job are restored, and from which checkpoint. */
export interface RestoreLostOptions {
  /** The others go on as they are. The whole of a job is restored where it begins: `--restore`. */
  onlyLost: true;
  /** Number of the checkpoint. Default: the newest one of the place. */
  number?: number | undefined;
  /** Ends the waiting; what is being loaded is loaded all the same. */
  signal?: AbortSignal | undefined;
}

const RESTORE_OPTIONS = {
  onlyLost: true,
  number: true,
  signal: checkSignal,
} satisfies OptionKeys<RestoreLostOptions>;

/** The result of {@link Client.restore}. */
export interface RestoredLost {
  /** Number of the checkpoint. */
  number: number;
  /** Age of the checkpoint in milliseconds: so far back in time the shards are. */
  agoMs: number;
  /**
   * The shards that were lost, by pool and number; none: nothing is lost. `rows`: in the files of each; a row
   * that several of them have counts several times.
   */
  shards: { pool: string; shard: number; rows: number }[];
}

/** The parts of a session that a restore uses. */
interface RestoreSession {
  ask(build: (id: number) => Message): Promise<Message>;
  status(): Promise<JobStatus>;
}

/** How often it is looked whether everything is loaded. */
const LOOK_MS = 200;

export async function restoreLost(
  session: RestoreSession,
  url: string,
  options: RestoreLostOptions,
): Promise<RestoredLost> {
  checkText('restore: place', url);
  checkOptions('restore', options, RESTORE_OPTIONS);
  const { onlyLost, number, signal }: Partial<RestoreLostOptions> = options ?? {};
  if (onlyLost !== true)
    throw new KintsugiError(
      'BAD_ARGUMENT',
      'restore needs { onlyLost: true }: a whole job begins with --restore',
    );
  if (number !== undefined) checkInteger('restore: number', number, 0);
  const wanted = number !== undefined && { number };
  const reply = await session.ask((id) => ({ t: 'restoreLost', id, url, ...wanted }));
  if (reply.t !== 'restoreReply') throw new KintsugiError('INTERNAL', `unexpected answer "${reply.t}"`);
  if (reply.code) throw new KintsugiError(reply.code, reply.message ?? reply.code);
  if (reply.shards.length > 0) await loaded(session, signal);
  const shards = reply.shards.map(([pool, shard, rows]) => ({ pool, shard, rows }));
  return { number: reply.number, agoMs: reply.agoMs, shards };
}

/** @throws why a shard is not loaded, unless its place may only be away for a while; ABORTED */
async function loaded(session: RestoreSession, signal: AbortSignal | undefined): Promise<void> {
  for (;;) {
    const { restoring } = await session.status();
    if (!restoring?.onlyLost) return;
    const { failure } = restoring;
    if (failure && failure.code !== 'PLACE_FAILED') throw new KintsugiError(failure.code, failure.message);
    await sleep(LOOK_MS, undefined, { signal }).catch(() => {
      throw new KintsugiError('ABORTED', 'waiting for the restore was aborted; the restore goes on');
    });
  }
}

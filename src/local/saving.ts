/**
 * The tables of a run, saved at its end. What can be known of their place is known at the start; and what
 * fails at the end all the same is a part of the report, because the run itself went well and is over.
 */
import { withPlace } from '../checkpoint/open.js';
import type { Client } from '../client/client.js';
import { describe, type ErrorCode, KintsugiError } from '../errors.js';
import { demandFree, save } from '../tools/save.js';
import type { LocalOptions } from './options.js';

/** Where the tables of a run are; both null: they are there. */
export interface SavedReport {
  place: string;
  code: ErrorCode | null;
  message: string | null;
}

/**
 * Nothing is trained that cannot be saved as far as that can be known. @throws BAD_ARGUMENT (the place is or
 * will be in use), PLACE_FAILED, DEPENDENCY_MISSING
 */
export async function checkSave({ save: url, checkpoint }: LocalOptions): Promise<void> {
  if (url === undefined) return;
  try {
    const taken = checkpoint && (await withPlace(checkpoint.url, async (place) => place.url));
    await withPlace(url, async (place) => {
      // A save is checkpoint 1 of a place of its own.
      if (taken !== undefined && `${taken}/`.startsWith(`${place.url}/`))
        throw new KintsugiError('BAD_ARGUMENT', 'checkpoints go there (--checkpoint); save to another place');
      await demandFree(place);
    });
  } catch (error) {
    if (!(error instanceof KintsugiError)) throw error;
    throw new KintsugiError(error.code, `--save ${url}: ${error.message}`, { cause: error });
  }
}

/** Null: it was not asked for. What is wrong with the job itself, the checks that come next throw. */
export async function saveRun(client: Client, { save: url }: LocalOptions): Promise<SavedReport | null> {
  if (url === undefined) return null;
  return save(client, url).then(
    () => ({ place: url, code: null, message: null }),
    (error: unknown) => ({
      place: url,
      code: error instanceof KintsugiError ? error.code : 'INTERNAL',
      message: describe(error),
    }),
  );
}

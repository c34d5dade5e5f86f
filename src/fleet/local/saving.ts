/**
 * Saves the tables of a run at its end. Their place is checked at the start, as far as it can be. A failure
 * at the end is a part of the report, because the run itself went well and is over.
 */

import { codeOf, describe, type ErrorCode, KintsugiError } from '../../common/errors.js';
import type { Client } from '../../library/client/client.js';
import { demandFree, save } from '../../library/tools/save.js';
import { withPlace } from '../../stores/checkpoint/open.js';
import type { LocalOptions } from './options.js';

/** Place of the saved tables of a run. `code` and `message` are null when they are there. */
export interface SavedReport {
  place: string;
  code: ErrorCode | null;
  message: string | null;
}

/**
 * Refuses a run whose tables cannot be saved, as far as that can be known.
 * @throws BAD_ARGUMENT (the place is or will be in use), PLACE_FAILED, DEPENDENCY_MISSING
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

/**
 * Saves the tables; null: they were not to be saved. A failure is a part of the result. The checks that
 * follow throw what is wrong with the job itself.
 */
export async function saveRun(client: Client, { save: url }: LocalOptions): Promise<SavedReport | null> {
  if (url === undefined) return null;
  return save(client, url).then(
    () => ({ place: url, code: null, message: null }),
    (error: unknown) => ({
      place: url,
      code: codeOf(error, 'INTERNAL'),
      message: describe(error),
    }),
  );
}

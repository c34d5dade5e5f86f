/** Reasons for the loss of a run, as far as its job can still tell them. */

import { KintsugiError } from '../../common/errors.js';
import type { Client } from '../../library/client/client.js';

/** How long a failed run may still ask the scheduler what is lost. */
const REASONS_MS = 2000;

/** The error; of a loss beyond repair, with the shards and rows that it concerns. */
export async function withReasons(error: unknown, client: Client | undefined): Promise<unknown> {
  if (!(error instanceof KintsugiError) || error.code !== 'UNRECOVERABLE' || !client) return error;
  const reasons = client
    .status()
    .then((status) => status.reasons.filter((reason) => reason.includes('beyond repair')));
  const late = new Promise<string[]>((resolve) => setTimeout(resolve, REASONS_MS, []).unref());
  const named = await Promise.race([reasons.catch(() => []), late]);
  return named.length > 0 ? new KintsugiError('UNRECOVERABLE', named.join('; '), { cause: error }) : error;
}

/** Why a run was lost, as far as its job can still say. */
import type { Client } from '../client/client.js';
import { KintsugiError } from '../errors.js';

/** How long a failed run may still ask the scheduler what is lost. */
const REASONS_MS = 2000;

/** A loss beyond repair, with the shards and rows that it concerns; every other error as it is. */
export async function withReasons(error: unknown, client: Client | undefined): Promise<unknown> {
  if (!(error instanceof KintsugiError) || error.code !== 'UNRECOVERABLE' || !client) return error;
  const reasons = client
    .status()
    .then((status) => status.reasons.filter((reason) => reason.includes('beyond repair')));
  const late = new Promise<string[]>((resolve) => setTimeout(resolve, REASONS_MS, []).unref());
  const named = await Promise.race([reasons.catch(() => []), late]);
  return named.length > 0 ? new KintsugiError('UNRECOVERABLE', named.join('; '), { cause: error }) : error;
}

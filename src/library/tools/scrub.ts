/**
 * Scrubbing: checks every parity of a running job, and can have wrong ones built anew. A wrong parity
 * protects nothing, so it is dropped at once. The new one is built from the owners' contents, which are what
 * clients see.
 */

import { KintsugiError } from '../../common/errors.js';
import { checkOptions, checkSwitch, type OptionKeys } from '../../common/options.js';
import type { Client } from '../client/client.js';
import { internalsOf } from '../client/connected.js';
import { checkParity, type ParityCheck, type SinkCheck } from './parity.js';

/** The result of a scrub; after a repair the counts are those of a second check. */
export interface ScrubReport extends ParityCheck {
  /** Parities with blocks that do not fit the equation. */
  wrong: SinkCheck[];
  /** Wrong parities that were replaced and are complete again. */
  repaired: number;
}

const POLL_MS = 50;
/** Limit of the wait for redundancy after a repair; then TIMEOUT. */
const REPAIR_LIMIT_MS = 600_000;

/** Options of {@link scrub}. */
export interface ScrubOptions {
  /** Have wrong parities built anew. Default: false. */
  repair?: boolean | undefined;
}

const SCRUB_OPTIONS = { repair: checkSwitch } satisfies OptionKeys<ScrubOptions>;

/**
 * Checks the parity equation on every block of a running job, without stopping it. The counts are exact when
 * nobody pushes. Resolves, after a repair, when the job is redundant again.
 * @throws UNRECOVERABLE, TIMEOUT (a repair does not finish), BAD_ARGUMENT, CLOSED
 */
export async function scrub(client: Client, options: ScrubOptions = {}): Promise<ScrubReport> {
  checkOptions('scrub', options, SCRUB_OPTIONS);
  internalsOf(client);
  const wrong: SinkCheck[] = [];
  const found = await checkParity(client, (sink) => {
    if (sink.mismatched > 0) wrong.push(sink);
  });
  if (!options.repair || wrong.length === 0) return { ...found, wrong, repaired: 0 };
  let repaired = 0;
  for (const { g, sid } of wrong) if (await replaceSink(client, g, sid)) repaired++;
  await untilRedundant(client);
  return { ...(await checkParity(client)), wrong, repaired };
}

/** Has a parity dropped and built anew. False when the map does not list it (any more). */
async function replaceSink(client: Client, g: number, sid: number): Promise<boolean> {
  const reply = await internalsOf(client).session.ask((id) => ({ t: 'replaceSink', id, g, sid }));
  return reply.t === 'sinkReplaced' && reply.done;
}

async function untilRedundant(client: Client): Promise<void> {
  const started = process.hrtime.bigint();
  for (;;) {
    const { redundancy, reasons } = await client.status();
    if (redundancy === 'full' || redundancy === 'degraded') return;
    if (Number(process.hrtime.bigint() - started) / 1e6 > REPAIR_LIMIT_MS) {
      throw new KintsugiError('TIMEOUT', `the repair does not finish: ${reasons.join('; ')}`);
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

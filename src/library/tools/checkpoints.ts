/** Save plans of a running job, and checkpoints at once. */

import { KintsugiError } from '../../common/errors.js';
import type { MessageOf } from '../../protocol/messages.js';
import { type SavePlan, servedProblem } from '../../protocol/saving.js';
import type { Client } from '../client/client.js';
import { internalsOf } from '../client/connected.js';

/**
 * Makes or changes the save plan of this name; without `plan` it is dropped. `next`: number of its next
 * checkpoint, where the place has some already.
 * @throws BAD_ARGUMENT also for an export whose `served` has an age that none of its tables counts, or is for
 * tables without a policy; LIMIT, CLOSED
 */
export async function setSavePlan(
  client: Client,
  name: string,
  plan?: SavePlan,
  next?: number,
): Promise<void> {
  const problem = plan?.served && servedProblem(plan.served, client.clusterMap.tables, plan.tables);
  if (problem) throw new KintsugiError('BAD_ARGUMENT', problem);
  const fields = { ...(plan && { plan }), ...(next !== undefined && { next }) };
  const reply = await internalsOf(client).session.ask((id) => ({ t: 'setPlan', id, name, ...fields }));
  if (reply.t !== 'planSet') throw new KintsugiError('INTERNAL', `unexpected answer "${reply.t}"`);
  if (reply.code) throw new KintsugiError(reply.code, reply.message ?? reply.code);
}

/**
 * Has a checkpoint made by the plan of this name, and waits for it.
 * @throws the code of a failure: PLACE_FAILED, LIMIT, TIMEOUT, UNRECOVERABLE, CHECKPOINT_TAKEN, BAD_ARGUMENT
 */
export async function saveNow(client: Client, name: string): Promise<MessageOf<'saveDone'>> {
  const reply = await internalsOf(client).session.ask((id) => ({ t: 'saveNow', id, name }));
  if (reply.t !== 'saveDone') throw new KintsugiError('INTERNAL', `unexpected answer "${reply.t}"`);
  if (reply.code) throw new KintsugiError(reply.code, reply.message ?? reply.code);
  return reply;
}

/** Removes the state of a job that is over. */
import { OWNER_KEY } from '../../core/scheduler/scheduler.js';
import type { Logger } from '../../net/log.js';
import type { StateStore } from '../../stores/decisions/index.js';
import { withoutAll } from './owner.js';

/** A scheduler that stands by sees this as the address of the leader, for a moment. */
const ADDRESS = 'removal';

/**
 * Removes what the store has of the job with this uid, once no scheduler leads there. State of another job,
 * and state that names none, stays. Closes the store. @throws BAD_ARGUMENT, STORE_FAILED, DEPOSED
 */
export async function removeState(store: StateStore, uid: string, log: Logger): Promise<void> {
  const { election } = store;
  try {
    await election?.lead(ADDRESS, {
      onLeader: (address) => log.info('scheduler.follows', { address: address ?? '' }),
      onReach: (problem) => problem !== undefined && log.warn('store.unreachable', { message: problem }),
      onDoubt: () => {},
      onDeposed: () => {},
    });
    const entries = await store.load();
    const before = entries.get(OWNER_KEY);
    if (entries.size > 0 && before !== uid)
      return log.warn('state.kept', { owner: uid, before: before ?? '' });
    if (election) await election.clear();
    else await store.write(withoutAll(entries));
    log.info('state.removed', { owner: uid });
  } finally {
    await store.close();
  }
}

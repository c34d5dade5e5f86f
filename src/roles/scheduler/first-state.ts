/** The state that a scheduler begins with: that of its store, that of a checkpoint, or that of a new job. */
import { type DurableState, newJob, stateOf } from '../../core/scheduler/scheduler.js';
import { checkJob, duringTerm, type Tenure } from './candidate.js';
import { checkPlan } from './checkpoints.js';
import { checkResumed, discardLater, type FirstState, ownState } from './owner.js';
import { restoredState } from './restored.js';
import type { SchedulerOptions } from './scheduler-options.js';

/**
 * `tenure`: where several use the store. @throws STORE_FAILED when the store has lost the job; FOREIGN_STATE;
 * STATE_LOST; and what `restoredState` and `checkPlan` throw
 */
export async function firstState(options: SchedulerOptions, tenure?: Tenure): Promise<FirstState> {
  const { job, nodes, pools, restore, owner, store, checkpoint, mustResume, log } = options;
  const entries = await store.load();
  const stored = stateOf(entries);
  checkJob(stored?.state.map.job, tenure?.job, store.election);
  if (mustResume) checkResumed(stored?.state, owner);
  const begin = async (): Promise<DurableState> => {
    if (checkpoint && !options.placeTried) await checkPlan(checkpoint, log);
    const state = restore ? await restoredState(job, nodes, pools, restore) : newJob(job, nodes, pools);
    return owner ? { ...state, owner: owner.uid } : state;
  };
  const during = <T>(work: Promise<T>): Promise<T> => duringTerm(work, tenure?.over);
  if (!stored) {
    const state = await during(begin());
    await during(discardLater(store, owner));
    return { state, resumed: false, unwritten: true };
  }
  return during(ownState({ store, entries, log }, stored, owner, begin));
}

/**
 * Whose job the state in a store is. A place may have the state of a job that is over: a job was deleted and
 * made again under its name, or a volume was used again. A scheduler does not go on with that unless it is
 * told to.
 */
import { KintsugiError } from '../../common/errors.js';
import {
  type DurableState,
  entriesOf,
  OWNER_KEY,
  type StateEntries,
  type StoredEntries,
} from '../../core/scheduler/scheduler.js';
import type { Logger } from '../../net/log.js';
import type { StateStore } from '../../stores/decisions/index.js';

export const FOREIGN_CHOICES = ['refuse', 'adopt', 'discard'] as const;
/** `adopt`: the state of another job is gone on with. `discard`: it is deleted, and the job begins anew. */
export type ForeignChoice = (typeof FOREIGN_CHOICES)[number];

export const isForeignChoice = (text: string): text is ForeignChoice =>
  (FOREIGN_CHOICES as readonly string[]).includes(text);

/** The job that a scheduler is for. */
export interface JobOwner {
  /** An id that no other job has, ever. */
  uid: string;
  /** The choice about the state of another job. */
  foreign: ForeignChoice;
}

/** Places of later lives of a job begin so, inside the place of the first one. */
const LATER_LIVES = 'life-';

/** Removes what later lives of another job have left. Before anything is written: then it is done again. */
export const discardLater = async (
  store: Pick<StateStore, 'clearInside'>,
  owner: JobOwner | undefined,
): Promise<void> => {
  if (owner?.foreign === 'discard') await store.clearInside?.(LATER_LIVES);
};

const foreignState = (what: string, advice: string): KintsugiError =>
  new KintsugiError('FOREIGN_STATE', `${what}. What to do: ${advice}`);

/** @throws FOREIGN_STATE */
function refuse(job: string, before: string, uid: string): never {
  const what = `the state there is that of job ${before} (${job}), and this scheduler is for job ${uid}`;
  const advice =
    'give this job another place, or have it go on with that state (--foreign-state adopt), or have that ' +
    'state deleted and begin anew (--foreign-state discard)';
  throw foreignState(what, advice);
}

/**
 * Refuses to adopt the first life of a job that had later ones: what the job did last is not in it.
 * @throws FOREIGN_STATE
 */
async function refuseOld(store: LoadedStore['store'], job: string, before: string): Promise<void> {
  if (!(await store.hasInside?.(LATER_LIVES))) return;
  const what = `the state there is that of the first life of job ${before} (${job}), which had later ones`;
  const advice =
    'begin at another place with the newest checkpoint of that job (--restore), or have the state of all ' +
    'its lives deleted and begin anew (--foreign-state discard)';
  throw foreignState(what, advice);
}

/**
 * Makes sure that the state of a job that has begun is there. Without it a scheduler would train from the
 * beginning, and its checkpoints would take the place of those that there are. @throws STATE_LOST
 */
export function checkResumed(found: DurableState | undefined, owner: JobOwner | undefined): void {
  const before = found?.owner;
  const isForeign = owner !== undefined && before !== undefined && before !== owner.uid;
  if (found && !isForeign) return;
  const what = isForeign
    ? `the state there is that of job ${before} (${found!.map.job}), and job ${owner.uid} has begun`
    : 'there is no state at this place, and the job has begun';
  const advice =
    'bring the state of the job back (its directory, or its keys in etcd) and start the scheduler again; ' +
    'without it, end the PS, too, and begin the job anew with "kintsugi scheduler --restore PLACE"';
  throw new KintsugiError('STATE_LOST', `${what}: nothing is begun anew. What to do: ${advice}`);
}

/** State that a scheduler begins with. */
export interface FirstState {
  state: DurableState;
  /** A scheduler has decided something in it. */
  resumed: boolean;
  /** The store has nothing of it, or an older layout. */
  unwritten: boolean;
}

/** A store with the entries that were read from it. */
interface LoadedStore {
  store: Pick<StateStore, 'write' | 'clearInside' | 'hasInside'>;
  entries: StateEntries;
  log: Logger;
}

/** Changes of a transaction that leave nothing of `entries`. */
export const withoutAll = (entries: StateEntries): Map<string, unknown> =>
  new Map([...entries.keys()].map((key) => [key, undefined]));

/**
 * The state that a scheduler goes on with, where its store has one. `begin` makes the state of a new job,
 * which replaces a discarded one in one transaction. State without an owner, as earlier versions wrote it,
 * becomes that of this job. @throws FOREIGN_STATE, and what the store and `begin` throw
 */
export async function ownState(
  { store, entries, log }: LoadedStore,
  { state, outdated }: StoredEntries,
  owner: JobOwner | undefined,
  begin: () => Promise<DurableState>,
): Promise<FirstState> {
  const { owner: before, map } = state;
  if (!owner || before === owner.uid) return { state, resumed: true, unwritten: outdated };
  const { uid, foreign } = owner;
  const told = { job: map.job, owner: uid, before: before ?? '' };
  if (before !== undefined && foreign === 'refuse') refuse(map.job, before, uid);
  if (before !== undefined && foreign === 'adopt') await refuseOld(store, map.job, before);
  if (before !== undefined && foreign === 'discard') {
    const fresh = await begin();
    await discardLater(store, owner);
    const changes = withoutAll(entries);
    for (const [key, value] of entriesOf(fresh)) changes.set(key, value);
    await store.write(changes);
    log.warn('state.discarded', told);
    return { state: fresh, resumed: false, unwritten: false };
  }
  // The first write of an outdated layout has all entries.
  if (!outdated) await store.write(new Map([[OWNER_KEY, uid]]));
  log.info('state.adopted', told);
  return { state: { ...state, owner: uid }, resumed: true, unwritten: outdated };
}

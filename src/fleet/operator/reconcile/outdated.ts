/**
 * Schedulers of an older template make way, one after the other. Their StatefulSet does not see to that: it
 * replaces the next Pod when the one before is ready. A scheduler that stands by never is, and one that
 * cannot begin neither.
 */
import type { KubeObject } from '../objects.js';
import { type Census, containerIn, inState, type Member } from './census.js';
import { deletion } from './deletion.js';
import { schedulersOf } from './names.js';
import type { Action, ObservedJob } from './observed.js';

const REVISION_LABEL = 'controller-revision-hash';
/** A scheduler that has run so long has read its state, and stands by or leads. */
export const STEADY_MS = 5000;

/** Revision of the template that new Pods get. Undefined: the controller has not seen the template yet. */
function revisionOf(owned: readonly KubeObject[]): string | undefined {
  const set = owned.find(({ kind }) => kind === 'StatefulSet');
  const { status } = (set ?? {}) as { status?: { updateRevision?: string; observedGeneration?: number } };
  return status?.observedGeneration === set?.metadata.generation ? status?.updateRevision : undefined;
}

/** When a scheduler that never ended has run for a while. Undefined: it does not run, or has ended before. */
function steadyAt({ pod, exit }: Member): number | undefined {
  const at = Date.parse(containerIn(pod)?.state?.running?.startedAt ?? '');
  return exit === undefined && !Number.isNaN(at) ? at + STEADY_MS : undefined;
}

/** Deletes the next scheduler that has an older template: one that leads is the last. */
export function outdated({ job, owned, now }: ObservedJob, census: Census): Action[] {
  const revision = revisionOf(owned);
  const isOld = ({ pod }: Member): boolean => pod.metadata.labels?.[REVISION_LABEL] !== revision;
  const old = inState(census.scheduler, 'active', 'failed').filter(isOld);
  const isMoving = census.scheduler.some(({ state }) => state === 'ending');
  if (revision === undefined || isMoving) return [];
  const next = old.find(({ ready }) => !ready) ?? old[0];
  if (next === undefined) return [];
  if (next.ready && schedulersOf(job) > 1) {
    const times = inState(census.scheduler, 'active')
      .filter((one) => !isOld(one))
      .map(steadyAt);
    const at = Math.min(...times.filter((one) => one !== undefined));
    if (at > now) return Number.isFinite(at) ? [{ kind: 'wake', at }] : [];
  }
  return [{ ...deletion(next), asObserved: true }];
}

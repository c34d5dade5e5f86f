/** Words of machines about Pods that they cannot start: these are in events only, and in no status. */
import type { Api } from './api/api.js';
import type { KubeObject, Pod } from './objects.js';
import { overdueAt } from './reconcile/stuck.js';

/** Pods of a job that are asked about in a pass: mostly all wait for the same. */
const MOST_PODS = 3;
/** Older events tell of what is over: a machine repeats them every two minutes or so. */
const STALE_MS = 5 * 60_000;

type PodEvent = KubeObject & { message?: string; lastTimestamp?: string | null; eventTime?: string | null };

const timeOfEvent = ({ lastTimestamp, eventTime, metadata }: PodEvent): number =>
  Date.parse(lastTimestamp ?? eventTime ?? metadata.creationTimestamp ?? '') || 0;

/**
 * The newest warning about each Pod that has a machine and has waited long for its containers, by name of the
 * Pod. Nothing is asked while there is no such Pod.
 */
export async function troublesOf(
  api: Api,
  pods: readonly Pod[],
  now: number,
): Promise<ReadonlyMap<string, string>> {
  const troubles = new Map<string, string>();
  const waiting = pods.filter((pod) => (overdueAt(pod) ?? Number.POSITIVE_INFINITY) <= now);
  for (const { metadata } of waiting.slice(0, MOST_PODS)) {
    const fields = `involvedObject.uid=${metadata.uid ?? ''},type=Warning`;
    // A pass goes on without what is only told to the user.
    const listed = await api
      .list<PodEvent>('Event', { namespace: metadata.namespace, fields })
      .catch(() => ({ items: [] as PodEvent[] }));
    const fresh = listed.items.filter((one) => now - timeOfEvent(one) <= STALE_MS);
    const newest = fresh.sort((a, b) => timeOfEvent(a) - timeOfEvent(b)).at(-1);
    if (newest?.message) troubles.set(metadata.name, newest.message);
  }
  return troubles;
}

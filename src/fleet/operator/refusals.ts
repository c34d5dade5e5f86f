/**
 * Objects of each job that the API server did not take when it was last asked. A new operator knows none, and
 * asks before it makes any (creations.ts).
 */
import type { KubeObject } from './objects.js';
import { ROLE_LABEL } from './reconcile/names.js';
import type { RefusedObject } from './reconcile/observed.js';
import type { TrainingJob } from './types.js';

interface KeptRefusals {
  uid: string | undefined;
  byObject: Map<string, RefusedObject>;
  /** Roles of which a Pod was asked for. */
  roles: Set<string>;
  /** Names of Pods that were asked for, while the status says that any are being made. */
  pods: Set<string>;
}

/**
 * Most reports that are kept, of about 1 MiB each at most. What is left of an older one is in the status of
 * its job.
 */
export const MOST_REPORTS = 16;

const keyOf = ({ namespace, name }: KubeObject['metadata']): string => `${namespace ?? ''}/${name}`;
const objectOf = ({ kind, metadata }: Pick<KubeObject, 'kind' | 'metadata'>): string =>
  `${kind}/${metadata.name}`;

export class RefusedObjects {
  private readonly jobs = new Map<string, KeptRefusals>();
  /** Jobs whose report is kept, the oldest first. */
  private readonly reports = new Set<KeptRefusals>();

  of({ metadata }: TrainingJob): RefusedObject[] {
    const kept = this.jobs.get(keyOf(metadata));
    return kept && kept.uid === metadata.uid ? [...kept.byObject.values()] : [];
  }

  /** Roles of which a Pod was asked for since this operator began. */
  attempted({ metadata }: TrainingJob): ReadonlySet<string> {
    const kept = this.jobs.get(keyOf(metadata));
    return kept && kept.uid === metadata.uid ? kept.roles : new Set();
  }

  /** Names of Pods that this operator has asked for, whatever came of it. */
  podsOf(job: TrainingJob): ReadonlySet<string> {
    const kept = this.jobs.get(keyOf(job.metadata));
    if (!kept || kept.uid !== job.metadata.uid) return new Set();
    if (job.status?.making === undefined) kept.pods.clear();
    return kept.pods;
  }

  /** A Pod is asked for. */
  asks(job: TrainingJob, pod: Pick<KubeObject, 'kind' | 'metadata'>): void {
    this.keptOf(job, pod).pods.add(pod.metadata.name);
  }

  note(job: TrainingJob, refusal: RefusedObject): void {
    const kept = this.keptOf(job, refusal.object);
    kept.byObject.set(objectOf(refusal.object), refusal);
    if (refusal.object.kind !== 'ConfigMap') return;
    this.reports.delete(kept);
    this.reports.add(kept);
    if (this.reports.size <= MOST_REPORTS) return;
    const [oldest] = this.reports;
    this.dropReport(oldest!);
  }

  private dropReport(kept: KeptRefusals): void {
    this.reports.delete(kept);
    for (const [key, { object }] of kept.byObject) if (object.kind === 'ConfigMap') kept.byObject.delete(key);
  }

  /** The object is there, or would be taken: somebody has made it, or the server was only asked. */
  taken(job: TrainingJob, object: Pick<KubeObject, 'kind' | 'metadata'>): void {
    const kept = this.keptOf(job, object);
    kept.byObject.delete(objectOf(object));
    if (object.kind === 'ConfigMap') this.reports.delete(kept);
  }

  private keptOf({ metadata }: TrainingJob, object: Pick<KubeObject, 'kind' | 'metadata'>): KeptRefusals {
    const key = keyOf(metadata);
    const before = this.jobs.get(key);
    const sets = { roles: new Set<string>(), pods: new Set<string>() };
    const fresh = { uid: metadata.uid, byObject: new Map(), ...sets };
    const kept = before && before.uid === metadata.uid ? before : fresh;
    const role = object.metadata.labels?.[ROLE_LABEL];
    if (object.kind === 'Pod' && role !== undefined) kept.roles.add(role);
    this.jobs.set(key, kept);
    return kept;
  }

  /** The job is gone. */
  forget(namespace: string, name: string): void {
    const kept = this.jobs.get(keyOf({ namespace, name }));
    if (kept) this.reports.delete(kept);
    this.jobs.delete(keyOf({ namespace, name }));
  }
}

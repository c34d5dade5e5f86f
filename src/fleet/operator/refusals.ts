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
}

const keyOf = ({ namespace, name }: KubeObject['metadata']): string => `${namespace ?? ''}/${name}`;
const objectOf = ({ kind, metadata }: Pick<KubeObject, 'kind' | 'metadata'>): string =>
  `${kind}/${metadata.name}`;

export class RefusedObjects {
  private readonly jobs = new Map<string, KeptRefusals>();

  of({ metadata }: TrainingJob): RefusedObject[] {
    const kept = this.jobs.get(keyOf(metadata));
    return kept && kept.uid === metadata.uid ? [...kept.byObject.values()] : [];
  }

  /** Roles of which a Pod was asked for since this operator began. */
  attempted({ metadata }: TrainingJob): ReadonlySet<string> {
    const kept = this.jobs.get(keyOf(metadata));
    return kept && kept.uid === metadata.uid ? kept.roles : new Set();
  }

  note(job: TrainingJob, refusal: RefusedObject): void {
    this.keptOf(job, refusal.object).byObject.set(objectOf(refusal.object), refusal);
  }

  /** The object is there, or would be taken: somebody has made it, or the server was only asked. */
  taken(job: TrainingJob, object: Pick<KubeObject, 'kind' | 'metadata'>): void {
    this.keptOf(job, object).byObject.delete(objectOf(object));
  }

  private keptOf({ metadata }: TrainingJob, object: Pick<KubeObject, 'kind' | 'metadata'>): KeptRefusals {
    const key = keyOf(metadata);
    const before = this.jobs.get(key);
    const fresh = { uid: metadata.uid, byObject: new Map(), roles: new Set<string>() };
    const kept = before && before.uid === metadata.uid ? before : fresh;
    const role = object.metadata.labels?.[ROLE_LABEL];
    if (object.kind === 'Pod' && role !== undefined) kept.roles.add(role);
    this.jobs.set(key, kept);
    return kept;
  }

  /** The job is gone. */
  forget(namespace: string, name: string): void {
    this.jobs.delete(keyOf({ namespace, name }));
  }
}

/**
 * Objects of each job that the API server did not take when it was last asked. A new operator knows none.
 */
import type { KubeObject } from './objects.js';
import type { RefusedObject } from './reconcile/observed.js';
import type { TrainingJob } from './types.js';

interface KeptRefusals {
  uid: string | undefined;
  byObject: Map<string, RefusedObject>;
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

  note({ metadata }: TrainingJob, refusal: RefusedObject): void {
    const key = keyOf(metadata);
    const before = this.jobs.get(key);
    const kept = before && before.uid === metadata.uid ? before : { uid: metadata.uid, byObject: new Map() };
    kept.byObject.set(objectOf(refusal.object), refusal);
    this.jobs.set(key, kept);
  }

  /** The object is there: it was taken, or somebody else has made it. */
  taken({ metadata }: TrainingJob, object: Pick<KubeObject, 'kind' | 'metadata'>): void {
    this.jobs.get(keyOf(metadata))?.byObject.delete(objectOf(object));
  }

  /** The job is gone. */
  forget(namespace: string, name: string): void {
    this.jobs.delete(keyOf({ namespace, name }));
  }
}

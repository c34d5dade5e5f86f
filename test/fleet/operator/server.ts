/**
 * An API server in memory, with what kubelets and controllers would do. Its watches are late, break off and
 * forget; writes meet conflicts and errors, and answers of writes that were done get lost. All by a seed. The
 * operator may do there what its role allows.
 */

import type { Selection } from '../../../src/fleet/operator/api/api.js';
import {
  type Api,
  ApiError,
  type CreateOptions,
  type DeleteOptions,
  type Listed,
  type WatchEvent,
} from '../../../src/fleet/operator/api/api.js';
import type { ResourceKind } from '../../../src/fleet/operator/api/resources.js';
import type { KubeObject, ObjectCondition, ObjectManifest } from '../../../src/fleet/operator/objects.js';
import { may } from './rights.js';

type Any = KubeObject & Record<string, unknown>;
interface Change {
  kind: ResourceKind;
  version: number;
  type: 'ADDED' | 'MODIFIED' | 'DELETED';
  object: Any;
}

/** Numbers from 0 to 1, the same ones for the same seed. */
export function randomOf(seed: number): () => number {
  let state = seed * 2654435761 + 1;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

export interface Faults {
  /** Share of all requests that fail. */
  errors?: number;
  /** Share of all events at which the watch breaks off. */
  breaks?: number;
  /** Share of all watches whose version is forgotten. */
  forgets?: number;
  /** Turns of the event loop that an event is late. */
  late?: number;
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const keyOf = (kind: ResourceKind, namespace: string | undefined, name: string) =>
  `${kind}/${namespace ?? ''}/${name}`;

export class MemoryServer implements Api {
  readonly requests = new Map<string, number>();
  readonly objects = new Map<string, Any>();
  faults: Faults = {};
  /** Kinds that nobody has defined. */
  readonly undefinedKinds = new Set<ResourceKind>();
  /** Says why an object is not taken. */
  refuses: (kind: ResourceKind, object: ObjectManifest) => ApiError | undefined = () => undefined;
  /** Called with every change, at once. */
  onChange: (kind: ResourceKind, object: KubeObject, gone: boolean) => void = () => {};
  private version = 0;
  private readonly log: Change[] = [];
  private readonly waiting = new Set<() => void>();
  private readonly asking = new Set<() => void>();

  constructor(private readonly random: () => number) {}

  of<T extends KubeObject>(kind: ResourceKind): T[] {
    return [...this.objects]
      .filter(([key]) => key.startsWith(`${kind}/`))
      .map(([, object]) => object as unknown as T);
  }

  /** Writes as somebody else does, without faults. */
  put(kind: ResourceKind, object: KubeObject): void {
    const key = keyOf(kind, object.metadata.namespace, object.metadata.name);
    const there = this.objects.get(key);
    const metadata = {
      uid: `u${this.version + 1}`,
      ...object.metadata,
      resourceVersion: String(++this.version),
    };
    const stored = structuredClone({ ...object, metadata }) as Any;
    this.objects.set(key, stored);
    this.changed(kind, there ? 'MODIFIED' : 'ADDED', stored);
  }

  drop(kind: ResourceKind, { namespace, name }: KubeObject['metadata']): void {
    const key = keyOf(kind, namespace, name);
    const there = this.objects.get(key);
    if (!there) return;
    this.objects.delete(key);
    const metadata = { ...there.metadata, resourceVersion: String(++this.version) };
    this.changed(kind, 'DELETED', { ...there, metadata });
  }

  async list<T extends KubeObject>(kind: ResourceKind, { namespace, labels }: Selection): Promise<Listed<T>> {
    await this.request('list', kind);
    if (this.undefinedKinds.has(kind)) throw new ApiError(404, 'NotFound', 'the server has no such resource');
    const items = this.of<T>(kind).filter((one) => fits(one, namespace, labels));
    return { items: structuredClone(items), resourceVersion: String(this.version) };
  }

  async *watch<T extends KubeObject>(
    kind: ResourceKind,
    { namespace, labels }: Selection,
    resourceVersion: string,
    signal: AbortSignal,
  ): AsyncGenerator<WatchEvent<T>> {
    await this.request('watch', kind);
    if (this.random() < (this.faults.forgets ?? 0)) throw new ApiError(410, 'Expired', 'too old');
    let seen = this.log.findIndex(({ version }) => version > Number(resourceVersion));
    if (seen < 0) seen = this.log.length;
    while (!signal.aborted) {
      for (; seen < this.log.length; seen++) {
        const { type, object, kind: of } = this.log[seen]!;
        if (of !== kind || !fits(object, namespace, labels)) continue;
        for (let late = this.random() * (this.faults.late ?? 0); late > 1; late--) await turn();
        if (this.random() < (this.faults.breaks ?? 0)) return;
        yield { type, object: structuredClone(object) as unknown as WatchEvent<T>['object'] };
      }
      await new Promise<void>((resolve) => {
        const done = (): void => {
          this.waiting.delete(done);
          signal.removeEventListener('abort', done);
          resolve();
        };
        this.waiting.add(done);
        signal.addEventListener('abort', done);
        if (signal.aborted) done();
      });
    }
  }

  async get<T extends KubeObject>(
    kind: ResourceKind,
    namespace: string | undefined,
    name: string,
  ): Promise<T> {
    await this.request('get', kind);
    return structuredClone(this.need(kind, namespace, name)) as unknown as T;
  }

  async create<T extends KubeObject>(
    kind: ResourceKind,
    object: ObjectManifest,
    { dryRun }: CreateOptions = {},
  ): Promise<T> {
    await this.request('create', kind);
    this.admit(kind, object);
    const { namespace, name } = object.metadata;
    if (this.objects.has(keyOf(kind, namespace, name))) throw new ApiError(409, 'AlreadyExists', name);
    if (dryRun) return structuredClone(object) as unknown as T;
    this.put(kind, object);
    return this.told(kind, namespace, name);
  }

  async replace<T extends KubeObject>(
    kind: ResourceKind,
    object: KubeObject,
    subresource?: 'status',
  ): Promise<T> {
    await this.request('update', kind, subresource);
    const { namespace, name, resourceVersion } = object.metadata;
    const there = this.need(kind, namespace, name);
    if (there.metadata.resourceVersion !== resourceVersion) throw new ApiError(409, 'Conflict', name);
    const status = (object as Any).status;
    const stored = subresource ? { ...there, status } : { ...(object as Any), status: there.status };
    const freed = stored.metadata.deletionTimestamp !== undefined && !stored.metadata.finalizers?.length;
    this.put(kind, stored as Any);
    if (!freed || kind === 'Pod') return this.told(kind, namespace, name);
    this.drop(kind, stored.metadata);
    return structuredClone(stored) as unknown as T;
  }

  async patchStatus<T extends KubeObject>(
    kind: ResourceKind,
    object: KubeObject,
    status: object,
  ): Promise<T> {
    await this.request('patch', kind, 'status');
    const { namespace, name, uid } = object.metadata;
    const there = this.need(kind, namespace, name);
    if (there.metadata.uid !== uid) throw new ApiError(409, 'Conflict', name);
    const before = (there.status ?? {}) as { conditions?: ObjectCondition[] };
    const { conditions = [] } = status as { conditions?: ObjectCondition[] };
    const others =
      before.conditions?.filter((one) => !conditions.some(({ type }) => type === one.type)) ?? [];
    this.put(kind, { ...there, status: { ...before, conditions: [...others, ...conditions] } } as Any);
    return this.told(kind, namespace, name);
  }

  async apply<T extends KubeObject>(kind: ResourceKind, object: ObjectManifest): Promise<T> {
    await this.request('apply', kind);
    this.admit(kind, object);
    const { namespace, name } = object.metadata;
    const there = this.objects.get(keyOf(kind, namespace, name));
    const { resourceVersion } = object.metadata;
    if (resourceVersion !== undefined && there?.metadata.resourceVersion !== resourceVersion)
      throw new ApiError(409, 'Conflict', name);
    const metadata = { ...(there?.metadata ?? {}), ...object.metadata };
    // The count of a role is all that is applied of a job.
    const spec = kind === 'TrainingJob' ? merged(there?.spec, object.spec) : object.spec;
    this.put(kind, { ...there, ...object, ...(spec === undefined ? {} : { spec }), metadata } as Any);
    return this.told(kind, namespace, name);
  }

  async delete(
    kind: ResourceKind,
    namespace: string,
    name: string,
    options: DeleteOptions = {},
  ): Promise<void> {
    await this.request('delete', kind);
    const { uid, resourceVersion } = options;
    const there = this.need(kind, namespace, name);
    if (uid !== undefined && there.metadata.uid !== uid) throw new ApiError(409, 'Conflict', name);
    if (resourceVersion !== undefined && there.metadata.resourceVersion !== resourceVersion)
      throw new ApiError(409, 'Conflict', name);
    // Nobody waits for the kubelet of a Pod that is deleted by force.
    const atOnce = kind !== 'Pod' || options.graceSeconds === 0;
    if (atOnce && !there.metadata.finalizers?.length) return this.drop(kind, there.metadata);
    // The kubelet of the Pod ends it.
    const deletionTimestamp = new Date().toISOString();
    if (there.metadata.deletionTimestamp === undefined)
      this.put(kind, { ...there, metadata: { ...there.metadata, deletionTimestamp } });
  }

  /** The answer of a write that was done may get lost. */
  private async told<T>(kind: ResourceKind, namespace: string | undefined, name: string): Promise<T> {
    const answer = structuredClone(this.need(kind, namespace, name)) as unknown as T;
    await turn();
    if (this.random() < (this.faults.errors ?? 0))
      throw new ApiError(0, 'Disconnected', 'the answer is lost');
    return answer;
  }

  private admit(kind: ResourceKind, object: ObjectManifest): void {
    const refusal = this.refuses(kind, object);
    if (refusal) throw refusal;
  }

  /** Resolves when `so` is true, which is looked at with each request. */
  until(so: () => boolean): Promise<void> {
    return new Promise((resolve) => {
      const check = (): void => {
        if (!so()) return;
        this.asking.delete(check);
        resolve();
      };
      this.asking.add(check);
      check();
    });
  }

  /** `part`: a part of the object that has a path of its own. */
  private async request(verb: string, kind: ResourceKind, part?: string): Promise<void> {
    this.requests.set(verb, (this.requests.get(verb) ?? 0) + 1);
    for (const check of [...this.asking]) check();
    await turn();
    if (!may(verb === 'apply' ? 'patch' : verb, kind, part))
      throw new ApiError(403, 'Forbidden', `the operator has no right to ${verb} ${part ?? ''} of ${kind}`);
    if (this.random() < (this.faults.errors ?? 0)) throw new ApiError(500, 'InternalError', 'no');
  }

  private need(kind: ResourceKind, namespace: string | undefined, name: string): Any {
    const there = this.objects.get(keyOf(kind, namespace, name));
    if (!there) throw new ApiError(404, 'NotFound', `${kind} ${name}`);
    return there;
  }

  private changed(kind: ResourceKind, type: Change['type'], object: Any): void {
    this.log.push({ kind, version: this.version, type, object: structuredClone(object) });
    for (const done of this.waiting) done();
    this.onChange(kind, object, type === 'DELETED');
  }
}

function merged(base: unknown, given: unknown): unknown {
  if (typeof base !== 'object' || typeof given !== 'object' || !base || !given) return given;
  const fields = Object.entries(given).map(([name, value]) => [
    name,
    merged((base as Record<string, unknown>)[name], value),
  ]);
  return { ...base, ...Object.fromEntries(fields) };
}

function fits({ metadata }: KubeObject, namespace: string | undefined, labels: string | undefined): boolean {
  if (namespace !== undefined && metadata.namespace !== namespace) return false;
  return labels === undefined || metadata.labels?.[labels] !== undefined;
}

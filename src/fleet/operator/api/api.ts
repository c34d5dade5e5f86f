/** The API server, as the operator uses it. Tests have one in memory. */
import type { KubeObject, ObjectManifest } from '../objects.js';
import type { ResourceKind } from './resources.js';

/** The API server refused a request. `status` 0: it was not reached. */
export class ApiError extends Error {
  /** True: an earlier attempt had no answer, and may have been carried out. */
  doubtful = false;

  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
  ) {
    super(message);
  }
}

export const hasStatus = (error: unknown, status: number): boolean =>
  error instanceof ApiError && error.status === status;

export interface Listed<T extends KubeObject> {
  items: T[];
  resourceVersion: string;
}

export interface WatchEvent<T extends KubeObject> {
  type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR';
  /** The object; of ERROR a Status that says what went wrong, with a `code`. */
  object: T & { code?: number; message?: string; reason?: string };
}

/** Selects objects. Without a namespace: those of all namespaces. */
export interface Selection {
  namespace?: string | undefined;
  labels?: string | undefined;
  /** Selector of fields. */
  fields?: string | undefined;
}

export interface CreateOptions {
  dryRun?: boolean;
}

export interface DeleteOptions {
  /** Only an object with this uid is deleted, and another one of its name is left alone. */
  uid?: string | undefined;
  /** Only this version is deleted: an object that has changed since is left alone. */
  resourceVersion?: string | undefined;
  graceSeconds?: number | undefined;
}

/** Every method rejects with an {@link ApiError}. */
export interface Api {
  list<T extends KubeObject>(kind: ResourceKind, selection: Selection): Promise<Listed<T>>;
  /** Events after a version, until the server ends the watch or the signal aborts. */
  watch<T extends KubeObject>(
    kind: ResourceKind,
    selection: Selection,
    resourceVersion: string,
    signal: AbortSignal,
  ): AsyncIterable<WatchEvent<T>>;
  get<T extends KubeObject>(kind: ResourceKind, namespace: string | undefined, name: string): Promise<T>;
  /** Refuses fields that the server does not know. `dryRun`: only says whether the object would be taken. */
  create<T extends KubeObject>(
    kind: ResourceKind,
    object: ObjectManifest,
    options?: CreateOptions,
  ): Promise<T>;
  /** Replaces an object, if the server still has the version that `object` names. */
  replace<T extends KubeObject>(kind: ResourceKind, object: KubeObject, subresource?: 'status'): Promise<T>;
  /** Sets the named fields of the status, and leaves the others. */
  patchStatus<T extends KubeObject>(kind: ResourceKind, object: KubeObject, status: object): Promise<T>;
  /**
   * Server-side apply: sets the named fields, and leaves the others to their owners. Where `object` names a
   * version, only on that one. `manager`: who owns these fields, instead of the operator as such.
   */
  apply<T extends KubeObject>(kind: ResourceKind, object: ObjectManifest, manager?: string): Promise<T>;
  delete(kind: ResourceKind, namespace: string, name: string, options?: DeleteOptions): Promise<void>;
}

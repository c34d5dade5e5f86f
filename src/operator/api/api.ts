/** The API server, as the operator uses it. Tests have one in memory. */
import type { KubeObject, Manifest } from '../objects.js';
import type { Kind } from './resources.js';

/** The API server refused a request. `status` 0: it was not reached. */
export class ApiError extends Error {
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
  /** Of ERROR: what went wrong, with a `code`. */
  object: T & { code?: number; message?: string; reason?: string };
}

/** Which objects. Without a namespace: those of all. */
export interface Selection {
  namespace?: string | undefined;
  labels?: string | undefined;
}

export interface DeleteOptions {
  /** Another object of this name is left alone. */
  uid?: string | undefined;
  /** One that has changed since is left alone. */
  resourceVersion?: string | undefined;
  graceSeconds?: number | undefined;
}

/** All of them reject with an {@link ApiError}. */
export interface Api {
  list<T extends KubeObject>(kind: Kind, selection: Selection): Promise<Listed<T>>;
  /** Ends when the server ends it, or when the signal aborts. */
  watch<T extends KubeObject>(
    kind: Kind,
    selection: Selection,
    resourceVersion: string,
    signal: AbortSignal,
  ): AsyncIterable<WatchEvent<T>>;
  get<T extends KubeObject>(kind: Kind, namespace: string | undefined, name: string): Promise<T>;
  create<T extends KubeObject>(kind: Kind, object: Manifest): Promise<T>;
  /** Replaces it, if it is still of the version that `object` names. */
  replace<T extends KubeObject>(kind: Kind, object: KubeObject, subresource?: 'status'): Promise<T>;
  /** What is named of its status becomes so. */
  patchStatus<T extends KubeObject>(kind: Kind, object: KubeObject, status: object): Promise<T>;
  /** Server-side apply: what is named becomes so, what is not named is left to others. */
  apply<T extends KubeObject>(kind: Kind, object: Manifest): Promise<T>;
  delete(kind: Kind, namespace: string, name: string, options?: DeleteOptions): Promise<void>;
}

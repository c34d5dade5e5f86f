/**
 * A copy of all objects of one kind, kept up to date by list and watch. After an error, and when the server
 * has forgotten the version (410), it lists again. It may be behind the server at any time.
 * Why not client-node (1.4.0, 2.0.1): its informer ends at an error, and lets old events replace new objects.
 */
import { describe } from '../../../common/errors.js';
import type { KubeObject } from '../objects.js';
import { JOB_LABEL } from '../reconcile/names.js';
import { type Api, hasStatus, type Selection } from './api.js';
import { pause } from './pause.js';
import { isOptional, type ResourceKind } from './resources.js';

const FIRST_PAUSE_MS = 200;
const MAX_PAUSE_MS = 5_000;
/** Milliseconds until a kind that was not there is looked for again. */
const LOOK_AGAIN_MS = 60_000;
/** Most uids of objects that have gone. An answer is late by seconds at most. */
const MOST_GONE = 4096;

export interface MirrorOptions<T> {
  api: Api;
  kind: ResourceKind;
  selection: Selection;
  /** Called when an object came, changed or went. */
  onChange(object: T): void;
  onError(message: string): void;
}

const keyOf = ({ metadata }: KubeObject): string => `${metadata.namespace ?? ''}/${metadata.name}`;

const jobKeyOf = ({ metadata }: KubeObject): string =>
  `${metadata.namespace ?? ''}/${metadata.labels?.[JOB_LABEL] ?? ''}`;

export class Mirror<T extends KubeObject> {
  private readonly objects = new Map<string, T>();
  /** The same objects, by namespace and job. */
  private readonly byJob = new Map<string, Map<string, T>>();
  /** Uids of objects that have gone, the oldest first: the answer to a write may come after the end. */
  private readonly gone = new Set<string>();
  private readonly stopping = new AbortController();
  private running: Promise<void> | undefined;
  private listed = false;
  private there = true;
  private tellListed: () => void = () => {};
  /** Resolves when the kind was listed once. */
  readonly ready = new Promise<void>((resolve) => {
    this.tellListed = resolve;
  });

  constructor(private readonly options: MirrorOptions<T>) {}

  get kind(): ResourceKind {
    return this.options.kind;
  }

  get isReady(): boolean {
    return this.listed;
  }

  /** False while the server does not have the kind. */
  get exists(): boolean {
    return this.there;
  }

  get(namespace: string | undefined, name: string): T | undefined {
    return this.objects.get(`${namespace ?? ''}/${name}`);
  }

  /** Objects whose label names the job. */
  ofJob(namespace: string | undefined, job: string): T[] {
    return [...(this.byJob.get(`${namespace ?? ''}/${job}`)?.values() ?? [])];
  }

  all(): T[] {
    return [...this.objects.values()];
  }

  start(): void {
    this.running ??= this.run();
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    await this.running;
  }

  private async run(): Promise<void> {
    const { signal } = this.stopping;
    let pauseMs = FIRST_PAUSE_MS;
    let version: string | undefined;
    while (!signal.aborted) {
      try {
        version ??= await this.list();
        for await (const { type, object } of this.options.api.watch<T>(
          ...([this.options.kind, this.options.selection, version, signal] as const),
        )) {
          if (type === 'ERROR') {
            version = undefined;
            if (object.code !== 410) throw new Error(object.message ?? 'the watch failed');
            break;
          }
          version = object.metadata.resourceVersion ?? version;
          if (type !== 'BOOKMARK') this.take(object, type === 'DELETED');
          pauseMs = FIRST_PAUSE_MS;
        }
        // The server ends a watch now and then, and in trouble at once: hence the pause.
        await pause(FIRST_PAUSE_MS, signal);
      } catch (error) {
        if (signal.aborted) return;
        // After any error a new list tells the truth.
        version = undefined;
        if (isOptional(this.options.kind) && (hasStatus(error, 404) || hasStatus(error, 403))) {
          this.missing();
          await pause(LOOK_AGAIN_MS, signal);
          continue;
        }
        if (!hasStatus(error, 410)) this.options.onError(`${this.options.kind}: ${describe(error)}`);
        await pause(pauseMs, signal);
        pauseMs = Math.min(MAX_PAUSE_MS, 2 * pauseMs);
      }
    }
  }

  private async list(): Promise<string> {
    const { api, kind, selection } = this.options;
    const { items, resourceVersion } = await api.list<T>(kind, selection);
    const seen = new Set(items.map(keyOf));
    // An object that is not in the list has gone, unless this program has written it since.
    for (const [key, object] of this.objects)
      if (!seen.has(key) && !newer(object.metadata.resourceVersion, resourceVersion)) this.take(object, true);
    for (const item of items) this.take(item, false);
    this.there = true;
    this.listed = true;
    this.tellListed();
    return resourceVersion;
  }

  /** Nobody has defined the kind, or this program may not see it: that is as if there were none. */
  private missing(): void {
    this.there = false;
    for (const object of this.all()) this.take(object, true);
    this.listed = true;
    this.tellListed();
  }

  /** Takes an object from the answer to a write: its writer sees it before the watch has it. */
  note(object: T): void {
    this.take(object, false);
  }

  /** Ignores an object that is not newer than ours. */
  private take(object: T, gone: boolean): void {
    const key = keyOf(object);
    const before = this.objects.get(key)?.metadata;
    const { uid, resourceVersion } = object.metadata;
    if (gone ? before === undefined : before?.resourceVersion === resourceVersion) return;
    if (!gone && before?.uid === uid && newer(before?.resourceVersion, resourceVersion)) return;
    if (gone && before?.uid !== uid) return;
    if (gone) this.bury(uid);
    else if (uid !== undefined && this.gone.has(uid)) return;
    this.forget(key);
    if (!gone) this.keep(key, object);
    this.options.onChange(object);
  }

  private bury(uid: string | undefined): void {
    if (uid === undefined) return;
    this.gone.add(uid);
    const [oldest] = this.gone;
    if (this.gone.size > MOST_GONE) this.gone.delete(oldest!);
  }

  private keep(key: string, object: T): void {
    this.objects.set(key, object);
    const job = jobKeyOf(object);
    const known = this.byJob.get(job);
    if (known) known.set(key, object);
    else this.byJob.set(job, new Map([[key, object]]));
  }

  private forget(key: string): void {
    const before = this.objects.get(key);
    if (!before) return;
    this.objects.delete(key);
    const job = jobKeyOf(before);
    const known = this.byJob.get(job);
    known?.delete(key);
    if (known?.size === 0) this.byJob.delete(job);
  }
}

/** Compares two versions of one kind, which are numbers that grow. */
function newer(version: string | undefined, than: string | undefined): boolean {
  if (!version || !than || !/^\d+$/.test(version) || !/^\d+$/.test(than)) return false;
  return BigInt(version) > BigInt(than);
}

/**
 * The API server over HTTPS, by a few requests on connections that are kept.
 * Why not client-node: it takes 70 MiB when it is loaded (1.4.0), and 100 idle jobs may take 50 MB.
 */
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { createInterface } from 'node:readline';
import { describe } from '../../../common/errors.js';
import type { KubeObject, ObjectManifest } from '../objects.js';
import {
  type Api,
  ApiError,
  type CreateOptions,
  type DeleteOptions,
  type Listed,
  type Selection,
  type WatchEvent,
} from './api.js';
import type { ApiConfig } from './config.js';
import { pathOf, RESOURCES, type ResourceKind } from './resources.js';

/** Field manager: the owner of the fields that are applied. */
const FIELD_MANAGER = 'kintsugi-operator';
const REQUEST_MS = 30_000;
/** Seconds after which the server ends a watch. */
const WATCH_SECONDS = 290;
/** A watch that is silent for longer is dead: a bookmark comes every minute or so. */
const WATCH_SILENT_MS = 150_000;
const PAGE = 500;

interface ApiCall {
  method: string;
  path: string;
  body?: unknown;
  type?: string;
  silentMs: number;
  signal?: AbortSignal;
}

export interface HttpApiOptions {
  /** Called for each request that was answered. */
  onAnswer?: (verb: string, status: number) => void;
}

export class HttpApi implements Api {
  constructor(
    private readonly config: ApiConfig,
    private readonly options: HttpApiOptions = {},
  ) {}

  async list<T extends KubeObject>(kind: ResourceKind, selection: Selection): Promise<Listed<T>> {
    const items: T[] = [];
    let next: string | undefined;
    for (;;) {
      const query = new URLSearchParams({ limit: String(PAGE) });
      if (selection.labels !== undefined) query.set('labelSelector', selection.labels);
      if (selection.fields !== undefined) query.set('fieldSelector', selection.fields);
      if (next) query.set('continue', next);
      const path = `${pathOf(kind, selection.namespace)}?${query}`;
      const page = await this.json<{ items: T[]; metadata: { resourceVersion: string; continue?: string } }>(
        { method: 'GET', path, silentMs: REQUEST_MS },
        'list',
      );
      // Objects of a list do not say what they are.
      const { apiVersion } = RESOURCES[kind];
      items.push(...page.items.map((item) => ({ ...item, apiVersion, kind: RESOURCES[kind].kind })));
      next = page.metadata.continue;
      if (!next) return { items, resourceVersion: page.metadata.resourceVersion };
    }
  }

  async *watch<T extends KubeObject>(
    kind: ResourceKind,
    selection: Selection,
    resourceVersion: string,
    signal: AbortSignal,
  ): AsyncGenerator<WatchEvent<T>> {
    const query = new URLSearchParams({
      ...{ watch: 'true', allowWatchBookmarks: 'true', resourceVersion },
      timeoutSeconds: String(WATCH_SECONDS),
    });
    if (selection.labels !== undefined) query.set('labelSelector', selection.labels);
    const path = `${pathOf(kind, selection.namespace)}?${query}`;
    const answer = await this.answered({ method: 'GET', path, silentMs: WATCH_SILENT_MS, signal }, 'watch');
    try {
      for await (const line of createInterface({ input: answer, crlfDelay: Number.POSITIVE_INFINITY }))
        if (line !== '') yield JSON.parse(line) as WatchEvent<T>;
    } catch (error) {
      if (!signal.aborted) throw new ApiError(0, 'Disconnected', describe(error));
    } finally {
      answer.destroy();
    }
  }

  get<T extends KubeObject>(kind: ResourceKind, namespace: string | undefined, name: string): Promise<T> {
    return this.json({ method: 'GET', path: pathOf(kind, namespace, name), silentMs: REQUEST_MS }, 'get');
  }

  create<T extends KubeObject>(
    kind: ResourceKind,
    object: ObjectManifest,
    { dryRun = false }: CreateOptions = {},
  ): Promise<T> {
    // A field that is not known is mostly one that is misspelt, and would be dropped silently.
    const query = new URLSearchParams({
      ...{ fieldManager: FIELD_MANAGER, fieldValidation: 'Strict' },
      ...(dryRun ? { dryRun: 'All' } : {}),
    });
    const path = `${pathOf(kind, object.metadata.namespace)}?${query}`;
    return this.json({ method: 'POST', path, body: object, silentMs: REQUEST_MS }, 'create');
  }

  replace<T extends KubeObject>(kind: ResourceKind, object: KubeObject, subresource?: 'status'): Promise<T> {
    const { namespace, name } = object.metadata;
    const query = new URLSearchParams({ fieldManager: FIELD_MANAGER });
    const path = `${pathOf(kind, namespace, name)}${subresource ? `/${subresource}` : ''}?${query}`;
    return this.json({ method: 'PUT', path, body: object, silentMs: REQUEST_MS }, 'update');
  }

  patchStatus<T extends KubeObject>(kind: ResourceKind, object: KubeObject, status: object): Promise<T> {
    const { namespace, name, uid } = object.metadata;
    const path = `${pathOf(kind, namespace, name)}/status?fieldManager=${FIELD_MANAGER}`;
    // The server refuses a uid that is not that of the object with this name.
    const body = { metadata: { uid }, status };
    const type = 'application/strategic-merge-patch+json';
    return this.json({ method: 'PATCH', path, body, type, silentMs: REQUEST_MS }, 'patch');
  }

  apply<T extends KubeObject>(
    kind: ResourceKind,
    object: ObjectManifest,
    fieldManager = FIELD_MANAGER,
  ): Promise<T> {
    const { namespace, name } = object.metadata;
    const query = new URLSearchParams({
      ...{ fieldManager, force: 'true', fieldValidation: 'Strict' },
    });
    const path = `${pathOf(kind, namespace, name)}?${query}`;
    const type = 'application/apply-patch+yaml';
    return this.json({ method: 'PATCH', path, body: object, type, silentMs: REQUEST_MS }, 'apply');
  }

  async delete(
    kind: ResourceKind,
    namespace: string,
    name: string,
    options: DeleteOptions = {},
  ): Promise<void> {
    const { uid, resourceVersion, graceSeconds } = options;
    const preconditions = {
      ...(uid === undefined ? {} : { uid }),
      ...(resourceVersion === undefined ? {} : { resourceVersion }),
    };
    const body = {
      ...{ apiVersion: 'v1', kind: 'DeleteOptions', propagationPolicy: 'Background' },
      preconditions,
      ...(graceSeconds === undefined ? {} : { gracePeriodSeconds: graceSeconds }),
    };
    const path = pathOf(kind, namespace, name);
    await this.json({ method: 'DELETE', path, body, silentMs: REQUEST_MS }, 'delete');
  }

  private async json<T>(call: ApiCall, verb: string): Promise<T> {
    const text = await textOf(await this.answered(call, verb));
    try {
      return JSON.parse(text) as T;
    } catch (error) {
      // The answer is cut off, or from a proxy in between: whether the request was carried out is not known.
      throw new ApiError(0, 'Disconnected', `the answer is no JSON: ${describe(error)}`);
    }
  }

  /** Resolves when the head of an answer is here. */
  private async answered(call: ApiCall, verb: string): Promise<IncomingMessage> {
    const answer = await this.send(call);
    const status = answer.statusCode ?? 0;
    this.options.onAnswer?.(verb, status);
    if (status < 300) return answer;
    const text = await textOf(answer);
    let said: { reason?: string; message?: string } = {};
    try {
      said = JSON.parse(text) as typeof said;
    } catch {
      // The answer of a proxy in between need not be JSON.
    }
    throw new ApiError(status, said.reason ?? '', said.message ?? text.slice(0, 200));
  }

  private async send(call: ApiCall): Promise<IncomingMessage> {
    const { host, port, base, options } = await this.config.reach();
    const { method, path, body, type = 'application/json', silentMs, signal } = call;
    const text = body === undefined ? undefined : JSON.stringify(body);
    return new Promise((resolve, reject) => {
      const failed = (error: Error) => reject(new ApiError(0, 'Unreachable', describe(error)));
      const sent = request(
        {
          ...{ ...options, host, port, method, path: `${base}${path}` },
          headers: {
            ...options.headers,
            accept: 'application/json',
            ...(text === undefined
              ? {}
              : { 'content-type': type, 'content-length': Buffer.byteLength(text) }),
          },
          ...(signal ? { signal } : {}),
        },
        resolve,
      );
      sent.on('error', failed);
      sent.setTimeout(silentMs, () => sent.destroy(new Error(`silent for ${silentMs} ms`)));
      sent.end(text);
    });
  }
}

async function textOf(answer: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  try {
    for await (const part of answer) parts.push(part as Buffer);
  } catch (error) {
    throw new ApiError(0, 'Disconnected', describe(error));
  }
  return Buffer.concat(parts).toString('utf8');
}

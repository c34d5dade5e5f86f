/** The API server in memory, over HTTPS. */
import { readFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { ApiError } from '../../../src/fleet/operator/api/api.js';
import { RESOURCES, type ResourceKind } from '../../../src/fleet/operator/api/resources.js';
import type { KubeObject, ObjectManifest } from '../../../src/fleet/operator/objects.js';
import type { Certificates } from '../../net/transport/certificates.js';
import type { MemoryServer } from './server.js';

type Status = { status: object };
const TOKEN = 'secret-of-the-test';

/** The objects that a path names. */
function targetOf(path: string) {
  const form =
    /^\/(?:api|apis\/[^/]+)\/[^/]+(?:\/namespaces\/([^/]+))?\/([a-z]+)(?:\/([^/]+))?(?:\/(status))?$/;
  const [, namespace, plural, name, subresource] = form.exec(path) ?? [];
  const kind = (Object.keys(RESOURCES) as ResourceKind[]).find((one) => RESOURCES[one].plural === plural);
  if (!kind) throw new ApiError(404, 'NotFound', path);
  return { kind, namespace, name, subresource: subresource as 'status' | undefined };
}

async function bodyOf(request: IncomingMessage): Promise<ObjectManifest> {
  let text = '';
  for await (const part of request) text += part;
  return JSON.parse(text) as ObjectManifest;
}

async function watch(server: MemoryServer, url: URL, response: ServerResponse): Promise<void> {
  const { kind, namespace } = targetOf(url.pathname);
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  response.writeHead(200, { 'content-type': 'application/json' }).flushHeaders();
  const labels = url.searchParams.get('labelSelector') ?? undefined;
  const from = url.searchParams.get('resourceVersion') ?? '';
  for await (const event of server.watch(kind, { namespace, labels }, from, gone.signal))
    response.write(`${JSON.stringify(event)}\n`);
  response.end();
}

async function answer(server: MemoryServer, request: IncomingMessage, url: URL): Promise<unknown> {
  if (request.headers.authorization !== `Bearer ${TOKEN}`) throw new ApiError(401, 'Unauthorized', 'who?');
  const { kind, namespace, name, subresource } = targetOf(url.pathname);
  const labels = url.searchParams.get('labelSelector') ?? undefined;
  switch (request.method) {
    case 'GET': {
      if (name !== undefined) return server.get(kind, namespace, name);
      const { items, resourceVersion } = await server.list(kind, { namespace, labels });
      return { items, metadata: { resourceVersion } };
    }
    case 'POST':
      return server.create(kind, await bodyOf(request));
    case 'PUT':
      return server.replace(kind, await bodyOf(request), subresource);
    case 'PATCH': {
      const body = await bodyOf(request);
      if (!subresource) return server.apply(kind, body);
      const metadata = { ...body.metadata, namespace, name: name ?? '' };
      return server.patchStatus(
        kind,
        { ...body, metadata } as KubeObject,
        (body as unknown as Status).status,
      );
    }
    default: {
      const { preconditions } = (await bodyOf(request)) as unknown as { preconditions?: { uid: string } };
      await server.delete(kind, namespace ?? '', name ?? '', { uid: preconditions?.uid });
      return { kind: 'Status', status: 'Success' };
    }
  }
}

/** Serves it; resolves with a kubeconfig. */
export async function serve(server: MemoryServer, { tls }: Certificates) {
  const https = createServer(
    { key: readFileSync(tls.keyFile), cert: readFileSync(tls.certFile) },
    (request, response) => {
      const url = new URL(request.url ?? '/', 'https://server');
      if (url.searchParams.has('watch')) return void watch(server, url, response);
      answer(server, request, url).then(
        (value) => response.end(JSON.stringify(value)),
        (error: unknown) => {
          const { status, reason, message } =
            error instanceof ApiError ? error : new ApiError(500, '', String(error));
          response.writeHead(status).end(JSON.stringify({ kind: 'Status', reason, message }));
        },
      );
    },
  );
  await new Promise<void>((resolve) => https.listen(0, '127.0.0.1', resolve));
  const { port } = https.address() as AddressInfo;
  const cluster = { server: `https://127.0.0.1:${port}`, 'certificate-authority': tls.caFile };
  return {
    config: {
      ...{ apiVersion: 'v1', kind: 'Config', 'current-context': 'test' },
      clusters: [{ name: 'test', cluster }],
      users: [{ name: 'test', user: { token: TOKEN } }],
      contexts: [{ name: 'test', context: { cluster: 'test', user: 'test', namespace: 'ml' } }],
    },
    close: () => {
      https.close();
      https.closeAllConnections();
    },
  };
}

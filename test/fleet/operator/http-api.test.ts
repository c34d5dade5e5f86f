/** Answers of an API server, or of a proxy in front of it, that are not what was asked for. */
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { ApiError } from '../../../src/fleet/operator/api/api.js';
import { HttpApi } from '../../../src/fleet/operator/api/http-api.js';
import { hasOpenssl, makeCertificates } from '../../net/transport/certificates.js';

/** A client of a server that answers every request with this. */
async function answered(body: string): Promise<HttpApi> {
  const certificates = makeCertificates();
  onTestFinished(() => certificates.remove());
  const [cert, key, ca] = (['certFile', 'keyFile', 'caFile'] as const).map((name) =>
    readFileSync(certificates.tls[name]),
  );
  const server = createServer({ cert: cert!, key: key! }, (_, response) => {
    response.writeHead(200).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const options = { ca: ca!, agent: false as const };
  return new HttpApi({
    namespace: 'ml',
    reach: async () => ({ host: '127.0.0.1', port, base: '', options }),
  });
}

const OBJECT = JSON.stringify({ kind: 'Pod', metadata: { name: 'a' } });

it.skipIf(!hasOpenssl).each([
  ['a page', '<html>signed out</html>'],
  ['half an object', OBJECT.slice(0, -3)],
  ['nothing', ''],
])('%s in place of an object is a connection that broke off', async (_, body) => {
  const api = await answered(body);
  for (const ask of [() => api.get('Pod', 'ml', 'a'), () => api.list('Pod', { namespace: 'ml' })]) {
    const error = await ask().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(ApiError);
    expect(error).toMatchObject({ status: 0, reason: 'Disconnected' });
  }
});

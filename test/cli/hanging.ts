/**
 * An object store for tests. It serves a directory until it is told to hang: then it takes requests and does
 * not answer them. It checks no signatures and takes no writes.
 */
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';

/** Reaction to a request: its answer, nothing, or its answer without the last byte. */
export type Behaviour = 'answer' | 'nothing' | 'begin';

export interface HangingStore {
  env: NodeJS.ProcessEnv;
  /** Resolves when a request hangs. */
  hung: Promise<void>;
}

const BUCKET = 'bucket';
export const PLACE = `s3://${BUCKET}`;

/** The store ends with the test. `of` gets the name of the file that is asked for; '' asks for a list. */
export async function hangingStore(
  directory: string,
  of: (name: string) => Behaviour,
): Promise<HangingStore> {
  let hang: () => void = () => undefined;
  const hung = new Promise<void>((resolve) => {
    hang = resolve;
  });
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url!, 'http://store');
    const name = decodeURIComponent(pathname).slice(`/${BUCKET}/`.length);
    const behaviour = of(name);
    if (behaviour !== 'answer') hang();
    if (behaviour === 'nothing') return;
    if (name === '') list(directory, searchParams.get('prefix') ?? '', response);
    else get(join(directory, name), response, behaviour);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const keys = { AWS_ACCESS_KEY_ID: 'id', AWS_SECRET_ACCESS_KEY: 'key', AWS_REGION: 'us-east-1' };
  // The SDK warns of old versions of Node.
  const quiet = { NODE_NO_WARNINGS: '1' };
  return { env: { ...keys, ...quiet, KINTSUGI_S3_ENDPOINT: `http://127.0.0.1:${port}` }, hung };
}

function list(directory: string, prefix: string, response: ServerResponse): void {
  const files = readdirSync(directory, { recursive: true, withFileTypes: true });
  const contents = files
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .map((path) => ({ key: path.slice(directory.length + 1), bytes: readFileSync(path).length }))
    .filter(({ key }) => key.startsWith(prefix))
    .map(({ key, bytes }) => `<Contents><Key>${key}</Key><Size>${bytes}</Size></Contents>`);
  response.writeHead(200, { 'content-type': 'application/xml' });
  response.end(`<ListBucketResult><IsTruncated>false</IsTruncated>${contents.join('')}</ListBucketResult>`);
}

function get(path: string, response: ServerResponse, behaviour: Behaviour): void {
  const bytes = readFileSync(path);
  response.writeHead(200, { 'content-length': bytes.length });
  if (behaviour === 'answer') response.end(bytes);
  else response.write(bytes.subarray(0, -1));
}

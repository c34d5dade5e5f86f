/**
 * An S3 server for tests: whichever `KINTSUGI_TEST_S3` names by its address, with AWS_ACCESS_KEY_ID and
 * AWS_SECRET_ACCESS_KEY. And a proxy before it that loses, cuts and refuses answers.
 */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import {
  createServer,
  type IncomingMessage,
  type RequestOptions,
  request,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import { onTestFinished } from 'vitest';
import { S3Place } from '../../../src/stores/checkpoint/s3.js';

export const ENDPOINT = process.env.KINTSUGI_TEST_S3;
if (!ENDPOINT) {
  const how = 'set KINTSUGI_TEST_S3=http://host:port, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY';
  console.error(`\nLEFT OUT: tests of object stores: there is no S3 server (${how})`);
}
const REGION = { AWS_REGION: 'us-east-1' };

/** A new bucket. */
export async function makeBucket(): Promise<string> {
  const bucket = `kintsugi-test-${randomBytes(6).toString('hex')}`;
  const client = new S3Client({ endpoint: ENDPOINT!, forcePathStyle: true, region: REGION.AWS_REGION });
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  client.destroy();
  return bucket;
}

export async function s3Place(
  url: string,
  options: Parameters<typeof S3Place.open>[1] = {},
): Promise<S3Place> {
  const place = await S3Place.open(url, { endpoint: ENDPOINT, backoffMs: 1, ...options });
  onTestFinished(() => place.close());
  return place;
}

/**
 * A fault of a request. `busy`, `failed`: 503 or 500, and the server never sees it. `halfRequest`: its
 * body is cut on the way. `lost`: the server does it, the answer is lost. `halfAnswer`: the answer is cut.
 * `silent`: nothing happens at all.
 */
export type Fault = 'busy' | 'failed' | 'halfRequest' | 'lost' | 'halfAnswer' | 'silent' | undefined;

export interface Proxy {
  endpoint: string;
  /** Faults so far, by kind. */
  counts: Partial<Record<NonNullable<Fault>, number>>;
}

/** A proxy before the server; ends with the test. The host of requests is signed, so it is passed on. */
export async function startProxy(faultOf: (request: IncomingMessage) => Fault): Promise<Proxy> {
  const counts: Proxy['counts'] = {};
  const server = createServer((incoming, answer) => {
    const fault = faultOf(incoming);
    if (fault !== undefined) counts[fault] = (counts[fault] ?? 0) + 1;
    incoming.on('error', () => undefined);
    if (fault === 'busy' || fault === 'failed') {
      incoming.resume();
      const status = fault === 'busy' ? 503 : 500;
      answer.writeHead(status, { 'content-type': 'text/plain', 'content-length': fault.length }).end(fault);
    } else if (fault !== 'silent') forward(incoming, answer, fault);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(async () => {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  });
  return { endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, counts };
}

function forward(incoming: IncomingMessage, answer: ServerResponse, fault: Fault): void {
  const { hostname, port } = new URL(ENDPOINT!);
  const { method, url: path, headers } = incoming;
  const options: RequestOptions = { hostname, port, method: method!, path: path!, headers, agent: false };
  const upstream = request(options);
  const cut = () => incoming.socket.destroy();
  upstream.on('error', cut);
  upstream.on('response', (response) => {
    response.on('error', cut);
    if (fault === 'lost') {
      response.resume().on('end', cut);
      return;
    }
    answer.writeHead(response.statusCode!, response.headers);
    if (fault !== 'halfAnswer') {
      response.pipe(answer);
      return;
    }
    const chunks: Buffer[] = [];
    response.on('data', (chunk: Buffer) => chunks.push(chunk));
    response.on('end', () => {
      const whole = Buffer.concat(chunks);
      answer.write(whole.subarray(0, Math.floor(whole.length / 2)), cut);
    });
  });
  if (fault !== 'halfRequest') {
    incoming.pipe(upstream);
    return;
  }
  const half = Number(headers['content-length'] ?? 0) / 2;
  let seen = 0;
  incoming.on('data', (chunk: Buffer) => {
    upstream.write(chunk);
    seen += chunk.length;
    if (seen >= half) upstream.destroy();
  });
  incoming.on('end', () => upstream.destroy());
}

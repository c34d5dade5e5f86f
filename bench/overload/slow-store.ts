/**
 * An object store that takes one byte a second: it speaks as much of S3 as a PS needs to begin an upload, and
 * no upload ever ends. What the kernel holds for the connection is taken at once.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

const BYTE_MS = 1000;
const XML = { 'content-type': 'application/xml' };
const EMPTY = '<ListBucketResult><IsTruncated>false</IsTruncated><KeyCount>0</KeyCount></ListBucketResult>';
const MISSING = '<Error><Code>NoSuchKey</Code><Message>it is not there</Message></Error>';

export class SlowStore {
  /** Uploads that were begun. */
  uploads = 0;
  private readonly timers = new Set<NodeJS.Timeout>();

  private constructor(private readonly server: Server) {
    server.on('request', (request, response) => this.answer(request, response));
  }

  static async open(): Promise<SlowStore> {
    // Node would close a request that takes minutes.
    const server = createServer({ requestTimeout: 0, highWaterMark: 1 });
    const store = new SlowStore(server);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return store;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  private answer(request: IncomingMessage, response: ServerResponse): void {
    request.on('error', () => {});
    if (request.method === 'PUT') return this.take(request);
    request.resume();
    const lists = request.method === 'GET' && /[?&]list-type=2/.test(request.url ?? '');
    if (lists) response.writeHead(200, XML).end(EMPTY);
    else if (request.method === 'DELETE') response.writeHead(204).end();
    else response.writeHead(404, XML).end(request.method === 'HEAD' ? undefined : MISSING);
  }

  private take(request: IncomingMessage): void {
    this.uploads++;
    request.pause();
    const timer = setInterval(() => request.read(1), BYTE_MS);
    this.timers.add(timer);
    request.once('close', () => {
      clearInterval(timer);
      this.timers.delete(timer);
    });
  }

  close(): void {
    for (const timer of this.timers) clearInterval(timer);
    this.server.closeAllConnections();
    this.server.close();
  }
}

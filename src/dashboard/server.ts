/**
 * The page's server: files, the live data, and the buttons. It is a client of the job; the token stays in
 * this process. It listens on loopback only (see guard.ts for who is refused).
 */
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, join } from 'node:path';
import type { ConnectOptions } from '../client/client.js';
import { describe, KintsugiError } from '../errors.js';
import { PACKAGE_ROOT } from '../package-root.js';
import { Actions, actionOf } from './actions.js';
import { foreign, keyOf, PAGE_HEADERS, type Refusal, type Secrets, unasked, unread } from './guard.js';
import { patchOf, sectionsOf } from './view.js';
import { type Source, Watch, type WatchOptions } from './watch.js';

/** Options of {@link startDashboard}. */
export interface DashboardOptions extends Pick<ConnectOptions, 'token' | 'tls'> {
  /** host:port of the scheduler; of several, with commas between. */
  scheduler: string;
  /** 0: a free one. */
  port: number;
  connectTimeoutMs: number;
  /** How commands reach the scheduler, for those that the page shows. Default: `--scheduler`. */
  flags?: readonly string[] | undefined;
}

export interface Dashboard {
  /** The link for a browser, with a key if the job has a token. */
  readonly url: string;
  /** Rejects when the job will never be reached: UNAUTHORIZED, BAD_ARGUMENT. */
  readonly failed: Promise<never>;
  close(): Promise<void>;
}

const PAGE = join(PACKAGE_ROOT, 'src/dashboard/page');
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.mjs': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};
/** The only paths that are read from disk. */
const FILE = /^\/(?:vendor\/)?[a-z-]+\.(?:html|css|m?js|svg)$/;
const MAX_BODY_BYTES = 4096;
/** A page that reads nothing is let go when so much waits for it; it connects again. */
const MAX_UNREAD_BYTES = 16 << 20;
/** Pages that are open at the same time. */
const MAX_PAGES = 64;
/** A line that says nothing, so that both sides notice when the other one is gone. */
const BEAT_MS = 5000;

interface Page {
  response: ServerResponse;
  /** What it was told. */
  sections: ReadonlyMap<string, string>;
  /** Points of the chart that it has or will not get. */
  points: number;
}

/** What makes the view, told when there is a new one. Default: a watch of the job. */
export type MakeSource = (options: WatchOptions) => Source;

class PageServer {
  private readonly secrets: Secrets;
  private readonly pages = new Set<Page>();
  private readonly actions: Actions;
  private readonly source: Source;
  private readonly server: Server;
  private readonly beat: NodeJS.Timeout;
  private readonly hello: string;
  private sections: ReadonlyMap<string, string> = new Map();
  private reject: (error: Error) => void = () => {};
  readonly failed: Promise<never>;

  constructor(
    private readonly options: DashboardOptions,
    makeSource: MakeSource,
  ) {
    const { token, tls, scheduler, connectTimeoutMs } = options;
    const flags = options.flags ?? ['--scheduler', scheduler];
    this.failed = new Promise((_, reject) => {
      this.reject = reject;
    });
    this.failed.catch(() => {});
    this.secrets = { key: token && keyOf(token), secret: randomBytes(24).toString('base64url') };
    this.hello = JSON.stringify({ secret: this.secrets.secret, flags });
    this.server = createServer((request, response) => this.answer(request, response));
    this.actions = new Actions(
      flags,
      () => this.source.connected(),
      () => this.look(),
    );
    this.source = makeSource({
      ...{ scheduler, token, tls, connectTimeoutMs },
      onView: () => this.look(),
      onHopeless: (error) => this.reject(error),
    });
    this.beat = setInterval(() => this.tell(() => ':\n\n'), BEAT_MS);
  }

  async listen(): Promise<string> {
    const { port } = this.options;
    await new Promise<void>((resolve, reject) => {
      this.server.once('error', reject).listen(port, '127.0.0.1', resolve);
    }).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EADDRINUSE') throw error;
      throw new KintsugiError('PORT_IN_USE', `port ${port} of 127.0.0.1 is in use: give another --port`);
    });
    const { key } = this.secrets;
    const { port: bound } = this.server.address() as AddressInfo;
    return `http://127.0.0.1:${bound}/${key === undefined ? '' : `#${key}`}`;
  }

  async close(): Promise<void> {
    clearInterval(this.beat);
    const closed = new Promise((resolve) => this.server.close(resolve));
    this.server.closeAllConnections();
    await this.source.close();
    await closed;
  }

  // ---- live data

  private look(): void {
    const { series } = this.source;
    // A view of a large job is work: it is made while somebody looks.
    if (this.pages.size === 0) return;
    this.sections = sectionsOf(this.source.view(this.actions.shown)).set('hello', this.hello);
    this.tell((page) => {
      const patch = patchOf(page.sections, this.sections);
      const points = series.since(page.points);
      if (points.length > 0) patch.push(`"points":${JSON.stringify(points)}`);
      page.sections = this.sections;
      page.points = series.count;
      return patch.length > 0 ? `data: {${patch.join(',')}}\n\n` : '';
    });
  }

  /** Pages mostly know the same, so what one is told is seldom made twice; but a page may be new. */
  private tell(text: (page: Page) => string): void {
    for (const page of this.pages) {
      const { response } = page;
      const told = text(page);
      if (response.writableLength > MAX_UNREAD_BYTES) response.destroy();
      else if (told !== '') response.write(told);
    }
  }

  private stream(response: ServerResponse): void {
    response.writeHead(200, { ...PAGE_HEADERS, 'content-type': 'text/event-stream' });
    const page: Page = { response, sections: new Map(), points: 0 };
    this.pages.add(page);
    response.on('close', () => this.pages.delete(page)).on('error', () => {});
    this.look();
  }

  // ---- requests

  private answer(request: IncomingMessage, response: ServerResponse): void {
    const { method = '', headers } = request;
    const path = (request.url ?? '').split(/[?#]/, 1)[0]!;
    const ask = { method, headers };
    const [, action] = /^\/do\/([a-z]+)$/.exec(path) ?? [];
    if (action !== undefined) {
      const problem = foreign(ask);
      if (problem) return refuse(response, problem);
      if (method !== 'POST') return plain(response, 405, 'only POST changes something', { allow: 'POST' });
      const refusal = unasked(ask, this.secrets);
      return refusal ? refuse(response, refusal) : void this.act(action, request, response);
    }
    const isLive = path === '/live';
    const problem = isLive ? unread(ask, this.secrets) : foreign(ask);
    if (problem) return refuse(response, problem);
    if (method !== 'GET' && method !== 'HEAD')
      return plain(response, 405, 'this is only for reading', { allow: 'GET, HEAD' });
    if (isLive && method === 'HEAD') return plain(response, 200, '');
    if (isLive && this.pages.size >= MAX_PAGES)
      return plain(response, 503, `${MAX_PAGES} pages are open: close one`);
    if (isLive) return this.stream(response);
    file(response, path === '/' ? '/index.html' : path);
  }

  private async act(kind: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const action = actionOf(kind, JSON.parse(await bodyOf(request)));
      json(response, 202, this.actions.begin(action));
    } catch (error) {
      const code = error instanceof KintsugiError ? error.code : 'BAD_ARGUMENT';
      json(response, code === 'UNREACHABLE' ? 503 : 400, { code, message: describe(error) });
    }
  }
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MAX_BODY_BYTES)
      throw new KintsugiError('LIMIT', `a body of more than ${MAX_BODY_BYTES} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

function file(response: ServerResponse, path: string): void {
  try {
    if (!FILE.test(path)) throw new Error('no file of the page');
    const content = readFileSync(join(PAGE, path));
    response.writeHead(200, { ...PAGE_HEADERS, 'content-type': TYPES[extname(path)]! }).end(content);
  } catch {
    plain(response, 404, 'there is nothing here');
  }
}

function plain(
  response: ServerResponse,
  status: number,
  text: string,
  headers: Record<string, string> = {},
): void {
  const type = { 'content-type': 'text/plain; charset=utf-8' };
  response.writeHead(status, { ...PAGE_HEADERS, ...type, ...headers }).end(`${text}\n`);
}

const refuse = (response: ServerResponse, { status, message }: Refusal): void =>
  plain(response, status, message);

function json(response: ServerResponse, status: number, value: unknown): void {
  const type = { 'content-type': 'application/json' };
  response.writeHead(status, { ...PAGE_HEADERS, ...type }).end(JSON.stringify(value));
}

/**
 * Serves the page of a job on loopback. The job need not be there yet. Tests make their own `makeSource`.
 * @throws PORT_IN_USE
 */
export async function startDashboard(
  options: DashboardOptions,
  makeSource: MakeSource = (watched) => new Watch(watched),
): Promise<Dashboard> {
  const server = new PageServer(options, makeSource);
  try {
    const url = await server.listen();
    return { url, failed: server.failed, close: () => server.close() };
  } catch (error) {
    await server.close();
    throw error;
  }
}

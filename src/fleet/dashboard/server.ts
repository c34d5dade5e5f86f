/**
 * The page's server: files, the live data, and the buttons. It is a client of the job; the token stays in
 * this process. It listens on loopback only (see guard.ts for who is refused).
 */
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, join } from 'node:path';
import { codeOf, describe, KintsugiError } from '../../common/errors.js';
import { PACKAGE_ROOT } from '../../common/package-root.js';
import type { ConnectOptions } from '../../library/client/client.js';
import { limitText } from '../../protocol/limits.js';
import { Actions, actionOf } from './actions.js';
import {
  foreign,
  keyOf,
  PAGE_HEADERS,
  type PageRefusal,
  type PageSecrets,
  unasked,
  unread,
} from './guard.js';
import { patchOf, sectionsOf } from './view.js';
import { PageWatch, type SnapshotSource, type WatchOptions } from './watch.js';

/** Options of {@link startDashboard}. */
export interface DashboardOptions extends Pick<ConnectOptions, 'token' | 'tls'> {
  /** host:port of the scheduler; of several, with commas between. */
  scheduler: string;
  /** Port of the page; 0: a free one. */
  port: number;
  connectTimeoutMs: number;
  /** Flags by which the commands that the page shows reach the scheduler. Default: `--scheduler`. */
  flags?: readonly string[] | undefined;
}

export interface Dashboard {
  /** The link for a browser, with a key if the job has a token. */
  readonly url: string;
  /** Rejects when the job will never be reached: UNAUTHORIZED, BAD_ARGUMENT. */
  readonly failed: Promise<never>;
  close(): Promise<void>;
}

const PAGE = join(PACKAGE_ROOT, 'src/fleet/dashboard/page');
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
/** A page that reads nothing is disconnected when so many bytes wait for it; it connects again. */
const MAX_UNREAD_BYTES = 16 << 20;
/** Pages that are open at the same time. */
const MAX_PAGES = 64;
/** Milliseconds between empty lines, by which both sides notice when the other one is gone. */
const BEAT_MS = 5000;

interface PageFile {
  response: ServerResponse;
  /** Sections as they were last sent to it. */
  sections: ReadonlyMap<string, string>;
  /** Number of points of the chart that it has, or will not get. */
  points: number;
}

/** Makes the source of views, and passes it a callback for new ones. Default: a watch of the job. */
export type MakeSource = (options: WatchOptions) => SnapshotSource;

class PageServer {
  private readonly secrets: PageSecrets;
  private readonly pages = new Set<PageFile>();
  private readonly actions: Actions;
  private readonly source: SnapshotSource;
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
    // A view of a large job takes time, so none is made while nobody looks.
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

  /** Sends each page its text. A page that does not read is disconnected. */
  private tell(text: (page: PageFile) => string): void {
    for (const page of this.pages) {
      const { response } = page;
      const told = text(page);
      if (response.writableLength > MAX_UNREAD_BYTES) response.destroy();
      else if (told !== '') response.write(told);
    }
  }

  private stream(response: ServerResponse): void {
    response.writeHead(200, { ...PAGE_HEADERS, 'content-type': 'text/event-stream' });
    const page: PageFile = { response, sections: new Map(), points: 0 };
    this.pages.add(page);
    response.on('close', () => this.pages.delete(page)).on('error', () => {});
    this.look();
  }

  // ---- requests

  private answer(request: IncomingMessage, response: ServerResponse): void {
    const { method = '', headers } = request;
    const [path, query = ''] = (request.url ?? '').split(/[?#]/, 2) as [string, string?];
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
    const isTables = path === '/tables';
    const problem = isLive || isTables ? unread(ask, this.secrets) : foreign(ask);
    if (problem) return refuse(response, problem);
    if (method !== 'GET' && method !== 'HEAD')
      return plain(response, 405, 'this is only for reading', { allow: 'GET, HEAD' });
    if (isLive && method === 'HEAD') return plain(response, 200, '');
    if (isLive && this.pages.size >= MAX_PAGES)
      return plain(response, 503, `${MAX_PAGES} pages are open: close one`);
    if (isLive) return this.stream(response);
    if (isTables) return this.someTables(query, response);
    file(response, path === '/' ? '/index.html' : path);
  }

  private someTables(query: string, response: ServerResponse): void {
    try {
      json(response, 200, this.source.tables.asked(query));
    } catch (error) {
      plain(response, 400, describe(error));
    }
  }

  private async act(kind: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const action = actionOf(kind, JSON.parse(await bodyOf(request)));
      json(response, 202, this.actions.begin(action));
    } catch (error) {
      const code = codeOf(error, 'BAD_ARGUMENT');
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
      throw new KintsugiError('LIMIT', limitText('the body is too long', 'maxBodyBytes', MAX_BODY_BYTES));
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

const refuse = (response: ServerResponse, { status, message }: PageRefusal): void =>
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
  makeSource: MakeSource = (watched) => new PageWatch(watched),
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

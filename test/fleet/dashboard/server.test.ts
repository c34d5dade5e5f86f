/** The page's server: it refuses strangers, changes nothing by reading, and tells a page what it needs. */
import { once } from 'node:events';
import { type IncomingMessage, type OutgoingHttpHeaders, request } from 'node:http';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { keyOf } from '../../../src/fleet/dashboard/guard.js';
import { type Dashboard, startDashboard } from '../../../src/fleet/dashboard/server.js';
import { type Client, connect } from '../../../src/library/client/client.js';
import { type LocalCluster, startLocalCluster } from '../../../src/roles/cluster.js';

let cluster: LocalCluster;
let client: Client;
let dashboard: Dashboard;
const open: IncomingMessage[] = [];

async function begin(token?: string): Promise<void> {
  cluster = await startLocalCluster({ code: '2+1', ps: 3, groups: 3, token });
  client = await connect(cluster.address, { token });
  await client.createTable({ name: 'items', dim: 4 });
  dashboard = await startDashboard({ scheduler: cluster.address, port: 0, token, connectTimeoutMs: 5000 });
}
beforeEach(() => begin());
afterEach(async () => {
  for (const response of open.splice(0)) response.destroy();
  await dashboard.close();
  await client.close();
  await cluster.close();
});

const port = () => new URL(dashboard.url).port;

async function ask(method: string, path: string, headers: OutgoingHttpHeaders = {}, body = '') {
  const sent = request({ host: '127.0.0.1', port: port(), method, path, headers });
  sent.end(body);
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  if (response.headers['content-type'] === 'text/event-stream') {
    open.push(response);
    return { status: response.statusCode, headers: response.headers, body: '', response };
  }
  let text = '';
  for await (const chunk of response) text += chunk;
  return { status: response.statusCode, headers: response.headers, body: text, response };
}

type Sections = Record<string, unknown> & { hello: { secret: string; flags: string[] } };

/** Sections as a page has them, until they are `right`. */
async function until(right: (sections: Sections) => unknown, headers: OutgoingHttpHeaders = {}) {
  const { response } = await ask('GET', '/live', headers);
  let sections = {} as Sections;
  let rest = '';
  for await (const chunk of response.setEncoding('utf8') as AsyncIterable<string>) {
    const events = (rest + chunk).split('\n\n');
    rest = events.pop()!;
    for (const event of events.filter((each) => each.startsWith('data: ')))
      sections = { ...sections, ...JSON.parse(event.slice(6)) };
    if (right(sections)) return sections;
  }
  throw new Error('the stream ended');
}
const isUp = (sections: Sections) => 'job' in sections;
const changesOf = async () => (await client.status()).scaling.changes.length;

const POSTS = [
  ['drain', '{"node":"ps-0"}'],
  ['scale', '{"ps":3}'],
  ['rebalance', '{}'],
  ['checkpoint', '{}'],
] as const;

describe('what is refused', () => {
  const wrong: [string, OutgoingHttpHeaders][] = [
    ['a name that is not of loopback', { host: 'evil.example' }],
    ['a name that looks like loopback', { host: '127.0.0.1.evil.example' }],
    ['another origin', { origin: 'http://evil.example' }],
    ['an origin of another port', { origin: 'http://127.0.0.1:1' }],
    ['an origin without a name', { origin: 'null' }],
    ['an origin that is encrypted', { origin: 'https://127.0.0.1' }],
    ['another site', { 'sec-fetch-site': 'cross-site' }],
    ['another origin of the same site', { 'sec-fetch-site': 'same-site' }],
  ];
  test.each(wrong)('%s: page, live data and buttons', async (_, headers) => {
    const { hello } = await until(isUp);
    const right = { 'x-kintsugi-secret': hello.secret };
    for (const path of ['/', '/live', '/tables', '/app.js', '/nothing'])
      expect((await ask('GET', path, { ...right, ...headers })).status).toBe(403);
    for (const [kind, body] of POSTS)
      expect((await ask('POST', `/do/${kind}`, { ...right, ...headers }, body)).status).toBe(403);
    expect(await changesOf()).toBe(0);
  });

  test('a button without the secret of this process', async () => {
    const { hello } = await until(isUp);
    for (const secret of [undefined, '', 'wrong', `${hello.secret}x`])
      for (const [kind, body] of POSTS) {
        const headers = secret === undefined ? {} : { 'x-kintsugi-secret': secret };
        expect((await ask('POST', `/do/${kind}`, headers, body)).status).toBe(403);
      }
    expect(await changesOf()).toBe(0);
  });

  test('every way to change something by another method than POST', async () => {
    const { hello } = await until(isUp);
    const headers = { 'x-kintsugi-secret': hello.secret };
    for (const method of ['GET', 'HEAD', 'PUT', 'DELETE', 'OPTIONS', 'PATCH'])
      for (const path of ['/do/rebalance', '/do/drain?node=ps-0', '/do/scale?ps=3']) {
        const { status, headers: answered } = await ask(method, path, headers);
        expect([method, path, status, answered.allow]).toEqual([method, path, 405, 'POST']);
      }
    for (const path of ['/', '/live', '/tables', '/app.js'])
      expect((await ask('POST', path, headers, '{}')).status).toBe(405);
    expect(await changesOf()).toBe(0);
  });

  test('a body that is none, too long, or asks for what there is not', async () => {
    const { hello } = await until(isUp);
    const headers = { 'x-kintsugi-secret': hello.secret };
    const bodies: [string, string][] = [
      ['drain', ''],
      ['drain', '[]'],
      ['drain', '{"node":7}'],
      ['drain', '{"node":"ps-0","also":1}'],
      ['scale', '{"ps":0}'],
      ['scale', '{"ps":"3"}'],
      ['rebalance', `{"a":"${'x'.repeat(5000)}"}`],
      ['kill', '{}'],
    ];
    for (const [kind, body] of bodies) {
      const answer = await ask('POST', `/do/${kind}`, headers, body);
      expect([kind, body.slice(0, 30), answer.status]).toEqual([kind, body.slice(0, 30), 400]);
    }
    expect(await changesOf()).toBe(0);
  });

  test('more pages than it serves, and a HEAD of what has no end', async () => {
    expect((await ask('HEAD', '/live')).status).toBe(200);
    for (let i = 0; i < 64; i++) expect((await ask('GET', '/live')).status).toBe(200);
    const refused = await ask('GET', '/live');
    expect([refused.status, refused.body]).toEqual([503, '64 pages are open: close one\n']);
    open.splice(0).forEach((response) => void response.destroy());
    // The server learns of the end of a connection a little later.
    while ((await ask('GET', '/live')).status === 503);
  });

  test('a path that leaves the page’s folder', async () => {
    for (const path of ['/../server.ts', '/vendor/../../server.ts', '/%2e%2e/server.ts', '/vendor/README.md'])
      expect((await ask('GET', path)).status).toBe(404);
  });
});

describe('what is served', () => {
  test('the page with a policy that lets in nothing of others, to names of loopback', async () => {
    const policy =
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    for (const host of ['127.0.0.1', `localhost:${port()}`, '[::1]:9999']) {
      for (const path of ['/', '/app.js', '/vendor/preact.mjs', '/icon.svg', '/style.css', '/none']) {
        const { status, headers } = await ask('GET', path, { host, origin: `http://${host}` });
        expect([path, status]).toEqual([path, path === '/none' ? 404 : 200]);
        expect(headers['content-security-policy']).toBe(policy);
        expect(headers['x-content-type-options']).toBe('nosniff');
        expect(headers['access-control-allow-origin']).toBe(undefined);
      }
    }
    expect((await ask('GET', '/')).body).toContain('<script type="module" src="/app.js">');
  });

  test('the job, live: a node that is killed is down, and its shards go elsewhere', async () => {
    const isFull = (sections: Sections) => (sections.job as { redundancy: string })?.redundancy === 'full';
    const kinds = ({ events }: Sections) => ((events ?? []) as { kind: string }[]).map(({ kind }) => kind);
    const hasTables = ({ tables }: Sections) => (tables as { count: number } | undefined)?.count === 1;
    const first = await until((sections) => isFull(sections) && hasTables(sections));
    expect(first).toMatchObject({
      link: { state: 'up' },
      job: { redundancy: 'full', nodes: 3 },
      'host/host-0': { down: 0 },
    });
    const { body } = await ask('GET', '/tables');
    expect(JSON.parse(body)).toMatchObject({ count: 1, found: 1, from: 0, tables: [{ name: 'items' }] });
    await cluster.kill(1);
    const down = await until((sections) => (sections['host/host-1'] as { down: number }).down === 1);
    expect(down['host/host-1']).toMatchObject({ nodes: [{ name: 'ps-1', state: 'down' }] });
    await cluster.restart(1);
    const told = await until((sections) => isFull(sections) && kinds(sections).includes('node.lost'));
    expect(told.events).toContainEqual(expect.objectContaining({ kind: 'node.lost', subject: 'ps-1' }));
  });

  test('a button does what its command does, and every page is told how it went', async () => {
    const { hello } = await until(isUp);
    const headers = { 'x-kintsugi-secret': hello.secret, origin: `http://127.0.0.1:${port()}` };
    await cluster.add();
    const asked = await ask(
      'POST',
      '/do/drain',
      { ...headers, host: `127.0.0.1:${port()}` },
      '{"node":"ps-0"}',
    );
    expect(asked.status).toBe(202);
    const command = `kintsugi drain ps-0 --scheduler ${cluster.address}`;
    expect(JSON.parse(asked.body)).toMatchObject({ command, state: 'running' });
    const end = (sections: Sections) => (sections.actions as { state: string }[])[0]?.state !== 'running';
    expect((await until((sections) => isUp(sections) && end(sections))).actions).toMatchObject([
      { command, state: 'done', text: 'ps-0 has left' },
    ]);
    expect((await client.status()).nodes.map((node) => node.name)).not.toContain('ps-0');
    await ask('POST', '/do/checkpoint', headers, '{}');
    const refused = await until((sections) => isUp(sections) && end(sections));
    expect(refused.actions).toMatchObject([{ state: 'failed', text: /^BAD_ARGUMENT: / }, {}]);
  });
});

describe('a job with a token', () => {
  beforeEach(async () => {
    await dashboard.close();
    await client.close();
    await cluster.close();
    await begin('a token');
  });

  test('needs the key of the link for its data, not for the files of the page', async () => {
    const key = new URL(dashboard.url).hash.slice(1);
    expect(key).toBe(keyOf('a token'));
    expect(key).not.toContain('token');
    expect((await ask('GET', '/')).status).toBe(200);
    for (const headers of [{}, { 'x-kintsugi-key': 'wrong' }, { 'x-kintsugi-key': 'a token' }])
      for (const path of ['/live', '/tables']) expect((await ask('GET', path, headers)).status).toBe(401);
    const { hello } = await until(isUp, { 'x-kintsugi-key': key });
    const secret = { 'x-kintsugi-secret': hello.secret };
    expect((await ask('POST', '/do/rebalance', secret, '{}')).status).toBe(401);
    expect((await ask('POST', '/do/rebalance', { ...secret, 'x-kintsugi-key': key }, '{}')).status).toBe(202);
    expect(JSON.stringify(hello)).not.toContain('a token');
  });

  test('ends for one who has another token', async () => {
    const other = { scheduler: cluster.address, port: 0, token: 'another', connectTimeoutMs: 5000 };
    const failing = await startDashboard(other);
    await expect(failing.failed).rejects.toMatchObject({ code: 'UNAUTHORIZED' });
    await failing.close();
  });
});

test('a port that is taken is said', async () => {
  const options = { scheduler: cluster.address, port: Number(port()), connectTimeoutMs: 1000 };
  await expect(startDashboard(options)).rejects.toMatchObject({ code: 'PORT_IN_USE' });
});

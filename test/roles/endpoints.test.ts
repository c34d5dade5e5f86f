// /healthz, /readyz and /metrics of the roles, who may read them, and where a role may listen.
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { poolsFor } from '../../src/core/placement/job.js';
import { Scheduler } from '../../src/core/scheduler/scheduler.js';
import { silentServer } from '../net/transport/support.js';
import {
  COUNTING,
  client,
  cluster,
  EventLog,
  firstKeys,
  ps,
  redundant,
  rejection,
  scheduler,
} from './support.js';

/** A token that is long enough beyond loopback. */
const LONG = 'a secret of the usual length';

const get = async (address: string, path: string, token?: string) => {
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const response = await fetch(`http://${address}${path}`, { headers });
  return { status: response.status, type: response.headers.get('content-type'), body: await response.text() };
};

/** Prometheus text as name -> value, of what has no labels of its own; throws for a line that is none. */
function gauges(body: string): Record<string, number> {
  const values: Record<string, number> = {};
  for (const line of body.trimEnd().split('\n')) {
    if (line === '' || /^# (HELP|TYPE) [a-z0-9_]+ .+$/.test(line)) continue;
    const match = /^([a-z0-9_]+)\{(.*)\} (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|Nan)$/.exec(line);
    if (!match) throw new Error(`not Prometheus text: ${line}`);
    if (/^role="[a-z]+",name="[\w-]+"$/.test(match[2]!)) values[match[1]!] = Number(match[3]);
  }
  return values;
}

describe('a job without a token', () => {
  it('tells of itself', async () => {
    const job = await cluster({ code: '2+1' });
    const trainer = await client(job.address);
    const table = await trainer.createTable({ name: 't', ...COUNTING });
    await table.push(firstKeys(100), new Float32Array(200).fill(1));
    const { epoch } = await redundant(trainer, 3);

    const health = await get(job.address, '/healthz');
    expect(health).toMatchObject({ status: 200, type: 'application/json' });
    expect(JSON.parse(health.body)).toEqual({ role: 'scheduler', name: 'scheduler', alive: true });
    const ready = await get(job.address, '/readyz');
    expect(ready).toMatchObject({ status: 200, type: 'application/json' });
    expect(JSON.parse(ready.body)).toEqual({ role: 'scheduler', name: 'scheduler', ready: true });
    const metrics = await get(job.address, '/metrics');
    expect(metrics.status).toBe(200);
    expect(metrics.type).toContain('text/plain');
    expect(gauges(metrics.body)).toMatchObject({
      kintsugi_epoch: epoch,
      kintsugi_nodes_alive: 3,
      kintsugi_nodes_known: 3,
      kintsugi_redundant: 1,
      kintsugi_tables: 1,
    });

    for (const [index, node] of job.nodes.entries()) {
      const own = { role: 'ps', name: `ps-${index}` };
      expect(JSON.parse((await get(node.address, '/healthz')).body)).toEqual({ ...own, alive: true });
      expect(JSON.parse((await get(node.address, '/readyz')).body)).toEqual({ ...own, ready: true });
      const values = gauges((await get(node.address, '/metrics')).body);
      expect(values).toMatchObject({ kintsugi_recovering_shards: 0, kintsugi_epoch: epoch });
      // Six groups of two data shards and a parity, and three mirrored shards, rotated over three nodes.
      expect([values.kintsugi_owners, values.kintsugi_sinks]).toEqual([5, 3]);
      expect(values.kintsugi_engine_bytes).toBeGreaterThan(0);
      expect(values.kintsugi_sent_payload_bytes).toBeGreaterThan(0);
      expect(values.kintsugi_sent_messages_total).toBeGreaterThan(0);
      // As it was called before.
      expect(values.kintsugi_sent_messages).toBe(values.kintsugi_sent_messages_total);
      expect(values.process_resident_memory_bytes).toBeGreaterThan(1 << 20);
    }
    expect((await get(job.address, '/other')).status).toBe(404);
  });

  it('is not redundant while a node is away', async () => {
    const job = await cluster({ code: '1+1' });
    const trainer = await client(job.address);
    await redundant(trainer, 2);
    await job.kill(1);
    let values = gauges((await get(job.address, '/metrics')).body);
    for (let asked = 0; values.kintsugi_nodes_alive !== 1; asked++) {
      expect(asked).toBeLessThan(100_000);
      values = gauges((await get(job.address, '/metrics')).body);
    }
    expect(values).toMatchObject({ kintsugi_redundant: 0, kintsugi_nodes_known: 2 });
  });
});

describe('whether a role serves', () => {
  it('is asked apart from whether it lives', async () => {
    const { address } = await scheduler({ nodes: 2, pools: poolsFor({ k: 1, r: 1 }, 2) });
    expect((await get(address, '/healthz')).status).toBe(200);
    const waiting = await get(address, '/readyz');
    expect(waiting).toMatchObject({ status: 503, type: 'application/json' });
    expect(JSON.parse(waiting.body)).toEqual({
      role: 'scheduler',
      name: 'scheduler',
      ready: false,
      reason: 'the job is not formed: 0 of 2 nodes have joined',
    });
    const first = await ps({ scheduler: address, name: 'a', hostLabel: 'a' });
    const lonely = await get(first.address, '/readyz');
    expect(lonely.status).toBe(503);
    expect(JSON.parse(lonely.body)).toMatchObject({ ready: false, reason: 'the job is not formed' });
    const second = await ps({ scheduler: address, name: 'b', hostLabel: 'b' });
    await redundant(await client(address), 2);
    for (const role of [address, first.address, second.address])
      expect((await get(role, '/readyz')).status).toBe(200);
  });

  it('is told by a PS before it has joined', async () => {
    const silence = await silentServer();
    onTestFinished(() => silence.close());
    const log = new EventLog();
    const listening = log.next('ps.listening');
    const address = `127.0.0.1:${silence.port}`;
    const joined = ps({ scheduler: address, log, connectTimeoutMs: 60_000 });
    const own = `127.0.0.1:${(await listening).port}`;
    const answer = await get(own, '/readyz');
    expect(answer.status).toBe(503);
    expect(JSON.parse(answer.body)).toMatchObject({ reason: 'this node has not joined the job' });
    silence.close();
    await scheduler({ listen: address });
    await joined;
    await redundant(await client(address), 1);
    expect((await get(own, '/readyz')).status).toBe(200);
  });

  it('costs nothing that grows with the job', async () => {
    const job = await cluster({ code: '1+1' });
    await redundant(await client(job.address), 2);
    const status = vi.spyOn(Scheduler.prototype, 'status');
    try {
      for (let i = 0; i < 5; i++) {
        expect((await get(job.address, '/healthz')).status).toBe(200);
        expect((await get(job.address, '/readyz')).status).toBe(200);
      }
      expect(status).not.toHaveBeenCalled();
      // Scrapes at the same time get the same text.
      await Promise.all(Array.from({ length: 20 }, () => get(job.address, '/metrics')));
      expect(status.mock.calls.length).toBeLessThan(10);
    } finally {
      status.mockRestore();
    }
  });
});

describe('metrics', () => {
  it('have a token of their own: the token of the job does not open them', async () => {
    const job = await cluster({ code: '1+1', token: 'a secret', metricsToken: 'for metrics' });
    for (const address of [job.address, job.nodes[0]!.address]) {
      for (const path of ['/healthz', '/readyz']) expect((await get(address, path)).status).toBe(200);
      for (const token of [undefined, 'wrong', 'a secret'])
        expect((await get(address, '/metrics', token)).status).toBe(401);
      expect(gauges((await get(address, '/metrics', 'for metrics')).body).kintsugi_epoch).toBeGreaterThan(0);
    }
  });

  it('are open on loopback without such a token, and refused beyond it', async () => {
    const near = await scheduler({ token: 'a secret' });
    expect((await get(near.address, '/metrics')).status).toBe(200);
    const far = await scheduler({ listen: '0.0.0.0:0', token: LONG });
    const address = `127.0.0.1:${far.address.split(':')[1]}`;
    expect((await get(address, '/healthz')).status).toBe(200);
    for (const token of [undefined, LONG]) {
      const refused = await get(address, '/metrics', token);
      expect(refused.status).toBe(403);
      expect(refused.body).toContain('--metrics-token-file');
    }
  });

  it('must not have the token of the job, which never crosses the wire', async () => {
    const same = scheduler({ token: 'a secret', metricsToken: 'a secret' });
    expect(await rejection(same)).toMatchObject({ code: 'BAD_ARGUMENT' });
  });
});

describe('where a role listens', () => {
  it('beyond loopback only with a token', async () => {
    expect((await rejection(scheduler({ listen: '0.0.0.0:0' }))).code).toBe('TOKEN_REQUIRED');
    const { address } = await scheduler();
    expect((await rejection(ps({ scheduler: address, listen: '0.0.0.0:0' }))).code).toBe('TOKEN_REQUIRED');
    const guarded = await scheduler({ listen: '0.0.0.0:0', token: LONG });
    const port = guarded.address.split(':')[1];
    const node = await ps({
      scheduler: `127.0.0.1:${port}`,
      listen: '0.0.0.0:0',
      advertise: '127.0.0.1',
      token: LONG,
    });
    const trainer = await client(`127.0.0.1:${port}`, { token: LONG });
    const table = await trainer.createTable({ name: 't', ...COUNTING });
    await table.push(firstKeys(1), new Float32Array(2));
    expect((await trainer.status()).nodes[0]?.address).toBe(node.address);
  });

  it('says in the map what it was told to advertise', async () => {
    const { address } = await scheduler();
    const host = await ps({ scheduler: address, name: 'a', advertise: 'localhost' });
    expect(host.address).toMatch(/^localhost:\d+$/);
    const both = await ps({ scheduler: address, name: 'b', advertise: 'localhost:4711' });
    expect(both.address).toBe('localhost:4711');
    const v6 = await ps({ scheduler: address, name: 'c', advertise: '[::1]' });
    expect(v6.address).toMatch(/^\[::1\]:\d+$/);
    expect((await rejection(ps({ scheduler: address, name: 'd', advertise: 'a b' }))).code).toBe(
      'BAD_ARGUMENT',
    );
  });

  it('refuses a port in use and a name that is none', async () => {
    const { address } = await scheduler();
    expect((await rejection(scheduler({ listen: address }))).code).toBe('PORT_IN_USE');
    expect((await rejection(ps({ scheduler: address, listen: address }))).code).toBe('PORT_IN_USE');
    for (const name of ['', 'a b', 'x'.repeat(129), 'a/b']) {
      expect((await rejection(ps({ scheduler: address, name }))).code).toBe('BAD_ARGUMENT');
    }
  });
});

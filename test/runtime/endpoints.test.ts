// /healthz and /metrics of the roles, who may read them, and where a role may listen.
import { describe, expect, it } from 'vitest';
import { COUNTING, client, cluster, firstKeys, ps, redundant, rejection, scheduler } from './support.js';

const get = async (address: string, path: string, token?: string) => {
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const response = await fetch(`http://${address}${path}`, { headers });
  return { status: response.status, type: response.headers.get('content-type'), body: await response.text() };
};

/** Prometheus text as name -> value; throws for a line that is none. */
function gauges(body: string): Record<string, number> {
  const values: Record<string, number> = {};
  for (const line of body.trimEnd().split('\n')) {
    if (line === '' || /^# (HELP|TYPE) [a-z_]+ .+$/.test(line)) continue;
    const match = /^([a-z_]+)\{role="[a-z]+",name="[\w-]+"\} (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)$/.exec(line);
    if (!match) throw new Error(`not Prometheus text: ${line}`);
    values[match[1]!] = Number(match[2]);
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
    expect(JSON.parse(health.body)).toEqual({
      role: 'scheduler',
      name: 'scheduler',
      ok: true,
      epoch,
      redundancy: 'full',
    });
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
      const own = JSON.parse((await get(node.address, '/healthz')).body);
      expect(own).toMatchObject({ role: 'ps', name: `ps-${index}`, ok: true, epoch, recovering: 0 });
      const values = gauges((await get(node.address, '/metrics')).body);
      expect(values).toMatchObject({ kintsugi_recovering_shards: 0, kintsugi_epoch: epoch });
      // Three groups of two data shards and a parity, and three mirrored shards, rotated over three nodes.
      expect([values.kintsugi_owners, values.kintsugi_sinks]).toEqual([3, 2]);
      expect(values.kintsugi_engine_bytes).toBeGreaterThan(0);
      expect(values.kintsugi_sent_payload_bytes).toBeGreaterThan(0);
      expect(values.kintsugi_sent_messages).toBeGreaterThan(0);
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

describe('a job with a token', () => {
  it('shows its metrics to those who have it, its health to all', async () => {
    const job = await cluster({ code: '1+1', token: 'a secret' });
    for (const address of [job.address, job.nodes[0]!.address]) {
      expect((await get(address, '/healthz')).status).toBe(200);
      expect((await get(address, '/metrics')).status).toBe(401);
      expect((await get(address, '/metrics', 'wrong')).status).toBe(401);
      expect(gauges((await get(address, '/metrics', 'a secret')).body).kintsugi_epoch).toBeGreaterThan(0);
    }
  });
});

describe('where a role listens', () => {
  it('beyond loopback only with a token', async () => {
    expect((await rejection(scheduler({ listen: '0.0.0.0:0' }))).code).toBe('TOKEN_REQUIRED');
    const { address } = await scheduler();
    expect((await rejection(ps({ scheduler: address, listen: '0.0.0.0:0' }))).code).toBe('TOKEN_REQUIRED');
    const guarded = await scheduler({ listen: '0.0.0.0:0', token: 'a secret' });
    const port = guarded.address.split(':')[1];
    const node = await ps({
      scheduler: `127.0.0.1:${port}`,
      listen: '0.0.0.0:0',
      advertise: '127.0.0.1',
      token: 'a secret',
    });
    const trainer = await client(`127.0.0.1:${port}`, { token: 'a secret' });
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

// Replicas as processes: their answers, and pushes, which wait for no replica.
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { loadNative } from '../../src/engine/native.js';
import { type Client, connect } from '../../src/library/client/client.js';
import { shardCount } from '../../src/protocol/map.js';
import { type LocalCluster, startLocalCluster } from '../../src/roles/cluster.js';
import { COUNTING, EventLog, firstKeys, Pusher, statusWhere } from '../roles/support.js';
import { kintsugi, type Running, record, start } from './support.js';

let cluster: LocalCluster;
let client: Client;
let log: EventLog;
const running: Running[] = [];

beforeEach(async () => {
  log = new EventLog();
  const policy = { readerSilentMs: 400 };
  cluster = await startLocalCluster({ code: '2+1', ps: 4, groups: 4, log, policy });
  client = await connect(cluster.address);
});
afterEach(async () => {
  for (const { process } of running.splice(0)) process.kill('SIGKILL');
  await client.close();
  await cluster.close();
});

interface Follower {
  running: Running;
  url: string;
}

async function replica(...flags: string[]): Promise<Follower> {
  const args = ['replica', '--scheduler', cluster.address, '--log-format', 'json', ...flags];
  const started = start(args, { KINTSUGI_PULL_TOKEN: '' });
  running.push(started);
  const { address } = await record(started, 'replica.following');
  return { running: started, url: `http://${address}` };
}

const headers = (token?: string) => (token === undefined ? {} : { authorization: `Bearer ${token}` });

async function pull({ url }: Follower, body: object, token?: string) {
  const answer = await fetch(`${url}/pull`, {
    ...{ method: 'POST', body: JSON.stringify(body), headers: headers(token) },
  });
  return { status: answer.status, ...((await answer.json()) as Record<string, unknown>) };
}

/** Asks until the replica is ready; it fails at another answer than 503. */
async function ready({ url }: Follower): Promise<void> {
  for (;;) {
    const { status } = await fetch(`${url}/readyz`);
    if (status === 200) return;
    expect(status).toBe(503);
  }
}

/** Asks until the rows are not refused as too old. */
async function pulled(from: Follower, body: object) {
  for (;;) {
    const answer = await pull(from, body);
    if (answer.status !== 503) return answer;
    expect(answer).toMatchObject({ code: 'STALE_REPLICA' });
  }
}

/** Asks until the rows have the earlier pushes. */
async function rowsWhere(from: Follower, body: object, is: (rows: number[][]) => boolean) {
  for (;;) {
    const { rows } = (await pulled(from, body)) as unknown as { rows: number[][] };
    if (is(rows)) return rows;
  }
}

describe('kintsugi replica', () => {
  it('answers pulls as JSON and binary, and leaves without a trace', async () => {
    const table = await client.createTable({ name: 'items', ...COUNTING });
    await table.push(firstKeys(100), new Float32Array(200).fill(3));
    const follower = await replica();
    await ready(follower);
    const one = { table: 'items', keys: [7, '8', 1000] };
    expect(await pulled(follower, one)).toMatchObject({
      ...{ status: 200, dim: 2 },
      rows: [
        [3, 3],
        [3, 3],
        [0, 0],
      ],
    });
    expect(await pulled(follower, { ...one, missing: -1.5 })).toMatchObject({
      rows: [
        [3, 3],
        [3, 3],
        [-1.5, -1.5],
      ],
    });
    await table.push(firstKeys(1), new Float32Array(2).fill(4));
    await rowsWhere(follower, { table: 'items', keys: [0] }, ([row]) => row?.[0] === 7);

    const name = Buffer.from('items\0\0\0');
    const head = Buffer.from(Uint32Array.of(0x314c504b, 5, 2, 0xffff_ffff, 1, 0).buffer);
    head.writeFloatLE(9, 20);
    const body = Buffer.concat([head, name, Buffer.from(BigUint64Array.of(0n, 1000n).buffer)]);
    const type = { 'content-type': 'application/octet-stream' };
    const answer = await fetch(`${follower.url}/pull`, { method: 'POST', headers: type, body });
    expect(answer.status).toBe(200);
    const bytes = await answer.arrayBuffer();
    expect([...new Uint32Array(bytes, 0, 3)]).toEqual([0x314c504b, 2, 2]);
    expect([...new Float32Array(bytes, 16)]).toEqual([7, 7, 9, 9]);
    const short = await fetch(`${follower.url}/pull`, { method: 'POST', headers: type, body: head });
    expect(await short.json()).toMatchObject({ code: 'BAD_ARGUMENT' });

    const { replicas } = await statusWhere(client, 'a replica', (status) => status.replicas !== undefined);
    const address = follower.url.slice('http://'.length);
    expect(replicas).toMatchObject([{ address, share: [1, 1], shards: 12, complete: 12 }]);
    const { stdout } = await kintsugi(['status', '--scheduler', cluster.address]);
    expect(stdout).toContain(address);
    const metrics = await (await fetch(`${follower.url}/metrics`)).text();
    expect(metrics).toMatch(/kintsugi_lag_ms\{kind="embedding",role="replica".* \d/);
    follower.running.process.kill('SIGTERM');
    expect((await follower.running.ended).code).toBe(0);
    expect((await client.status()).replicas).toBeUndefined();
    const dropped = log.events.filter(({ event }) => event === 'replica.dropped');
    expect(dropped.filter(({ fields }) => !/^(left|disconnected)$/.test(`${fields.reason}`))).toEqual([]);
  });

  it('refuses what it cannot answer, each with a code', async () => {
    const table = await client.createTable({ name: 'items', ...COUNTING });
    await table.push(firstKeys(10), new Float32Array(20).fill(1));
    const follower = await replica('--max-lag', '10m');
    await ready(follower);
    const refusals: [object, number, string][] = [
      [{ table: 'items', keys: [1], maxLagMs: 0 }, 503, 'STALE_REPLICA'],
      [{ table: 'other', keys: [1] }, 404, 'UNKNOWN_TABLE'],
      [{ table: 'items', keys: [-1] }, 400, 'KEY_TYPE'],
      [{ table: 'items', keys: ['18446744073709551616'] }, 400, 'KEY_TYPE'],
      [{ table: 'items', keys: ['18446744073709551615'] }, 400, 'KEY_RESERVED'],
      [{ table: 'items', keys: 1 }, 400, 'BAD_ARGUMENT'],
      [{ table: 'items', keys: [], other: 1 }, 400, 'BAD_ARGUMENT'],
      [{ table: 'items', keys: [1], maxLagMs: 1.5 }, 400, 'BAD_ARGUMENT'],
      [{ table: 'items', keys: [1], missing: 1e39 }, 400, 'BAD_ARGUMENT'],
      [{ table: 'items', keys: ['1'.repeat(17 << 20)] }, 413, 'LIMIT'],
    ];
    for (const [body, status, code] of refusals) {
      // A client that is refused in the middle of its body may see its connection closed.
      const answer = await pull(follower, body).catch((error: unknown) => error);
      if (status !== 413 || !(answer instanceof Error)) expect(answer).toMatchObject({ status, code });
    }
    expect((await fetch(`${follower.url}/pull`)).status).toBe(404);
    expect((await fetch(`${follower.url}/metrics`, { method: 'POST' })).status).toBe(405);
  });

  it('serves some tables, or a share of the shards', async () => {
    const tables = await client.createTables([
      { name: 'a', ...COUNTING },
      { name: 'b', ...COUNTING },
      { name: 'c', ...COUNTING, pool: 'mirrored' },
    ]);
    for (const table of tables) await table.push(firstKeys(50), new Float32Array(100).fill(2));
    const [some, first, second] = await Promise.all([
      replica('--tables', 'b'),
      replica('--share', '1/2'),
      replica('--share', '2/2'),
    ]);
    await Promise.all([some, first, second].map(ready));
    expect(await pulled(some, { table: 'b', keys: [1] })).toMatchObject({ rows: [[2, 2]] });
    for (const table of ['a', 'c'])
      expect(await pull(some, { table, keys: [1] })).not.toMatchObject({ status: 200 });
    const { replicas = [] } = await statusWhere(client, 'all', ({ replicas: all }) => all?.length === 3);
    expect(replicas.find(({ tables: named }) => named)).toMatchObject({ tables: ['b'], shards: 8 });
    for (let key = 0; key < 20; key++) {
      const answers = [];
      for (const each of [first, second]) answers.push(await pull(each, { table: 'a', keys: [key] }));
      const held = answers.filter(({ status }) => status === 200);
      expect(held).toMatchObject([{ rows: [[2, 2]] }]);
      expect(answers.find(({ status }) => status !== 200)).toMatchObject({ code: 'STALE_REPLICA' });
    }
    for (const share of ['0/2', '3/2', '1', 'a/b']) {
      const { code, stderr } = await kintsugi(['replica', '--share', share]);
      expect([code, stderr]).toMatchObject([2, expect.stringContaining('BAD_ARGUMENT')]);
    }
  });

  it('serves rows of a table with a policy that are admitted, seen often and young enough', async () => {
    const policy = { counter: 2, ttl: 6 };
    const items = await client.createTable({ name: 'items', ...COUNTING, policy });
    const plain = await client.createTable({ name: 'plain', ...COUNTING });
    await plain.push(firstKeys(4), new Float32Array(8).fill(1));
    await client.createTable({ name: 'timed', ...COUNTING, policy: { ttl: 6, clock: 'seconds' } });
    // Each key is seen once in a step, so keys of one shard see the same clock.
    const candidates = firstKeys(1000);
    const { order } = loadNative().partition(candidates, shardCount(client.clusterMap.pools[0]!));
    const [rare, twice, often, clock] = [...order.subarray(0, 4)] as [number, number, number, number];
    const push = async (...keys: number[]) =>
      items.push(BigUint64Array.from(keys, BigInt), new Float32Array(keys.length * 2).fill(1));
    await push(rare, twice, often);
    await push(twice, often);
    await push(often);
    const [all, few] = await Promise.all([
      replica(),
      replica('--min-frequency', '3', '--max-age', '2,24h', '--name', 'few'),
    ]);
    await Promise.all([all, few].map(ready));
    const keys = [rare, twice, often];
    const read = (from: Follower, ...values: number[]) => {
      const body = { table: 'items', keys, missing: -1 };
      return rowsWhere(from, body, (rows) => `${rows.map(([x]) => x)}` === `${values}`);
    };
    await read(all, -1, 1, 2);
    await read(few, -1, -1, 2);
    const initial = { table: 'items', keys };
    await rowsWhere(few, initial, (rows) => `${rows.map(([x]) => x)}` === '0,0,2');
    expect(await pulled(few, { table: 'plain', keys: [1] })).toMatchObject({ rows: [[1, 1]] });
    // Training goes on with every row.
    expect((await items.pull(BigUint64Array.of(BigInt(twice))))[0]).toBe(1);
    for (let step = 0; step < 3; step++) await push(clock);
    await read(few, -1, -1, -1);
    await read(all, -1, 1, 2);
    await push(often);
    await read(few, -1, -1, 3);
    for (let step = 0; step < 6; step++) await push(clock);
    await read(all, -1, -1, 3);
    await push(clock);
    await read(all, -1, -1, -1);
    const { replicas = [] } = await statusWhere(client, 'both', ({ replicas: known }) => known?.length === 2);
    expect(replicas.map(({ served }) => served)).toEqual(
      expect.arrayContaining([undefined, { minFrequency: 3, maxAge: 2, maxAgeSeconds: 86_400 }]),
    );
    const { stdout } = await kintsugi(['status', '--scheduler', cluster.address]);
    expect(stdout).toContain('min-frequency 3, max-age 2,86400s');
    const { code, stderr } = await kintsugi(['replica', '--max-age', '-1']);
    expect(code).toBe(2);
    expect(stderr).toContain('BAD_ARGUMENT: --max-age must be steps like 2000, a time like 24h, or 2000,24h');
  });

  it('says that an age fits none of its tables, at its start and when they come later', async () => {
    const early = await replica('--max-age', '24h');
    await record(early.running, 'replica.ready');
    const policy = { ttl: 9 };
    await client.createTable({ name: 'bystep', ...COUNTING, policy });
    const why = 'an age of 86400 seconds fits no table: those with a policy count steps';
    await early.running.line((text) => text.includes(why));
    expect((await fetch(`${early.url}/readyz`)).status).toBe(503);
    const late = ['replica', '--scheduler', cluster.address, '--max-age', '24h'];
    expect(await kintsugi(late)).toMatchObject({ code: 2, stderr: expect.stringContaining(why) });
    await client.createTable({ name: 'timed', ...COUNTING, policy: { ...policy, clock: 'seconds' } });
    await ready(early);
    expect(await kintsugi([...late, '--tables', 'bystep'])).toMatchObject({ code: 2 });
    await ready(await replica('--max-age', '24h', '--tables', 'timed'));
    const waits = await replica('--tables', 'timed,soon');
    await waits.running.line((text) => text.includes('the job has no table \\"soon\\"'));
    await statusWhere(client, 'its report', ({ replicas = [] }) =>
      replicas.some((each) => each.tables?.[1] === 'soon'),
    );
    const { stdout } = await kintsugi(['status', '--scheduler', cluster.address]);
    expect(stdout).toContain(`is not ready: the job has no table "soon"\n`);
    await client.createTable({ name: 'soon', ...COUNTING });
    await record(waits.running, 'replica.ready');
    // No policy comes to a table that is there.
    expect(await kintsugi([...late, '--tables', 'soon'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('fits no table, as none of these has a policy: soon'),
    });
  });

  it('has a token of its own for pulls: neither that of the job nor that of metrics', async () => {
    const secret = await startLocalCluster({ code: '1+1', token: 'of the whole job' });
    onTestFinished(() => secret.close());
    const env = { KINTSUGI_TOKEN: 'of the whole job', KINTSUGI_METRICS_TOKEN: 'of metrics' };
    const args = ['replica', '--scheduler', secret.address, '--log-format', 'json'];
    const started = start(args, { ...env, KINTSUGI_PULL_TOKEN: 'of pulls' });
    running.push(started);
    const { address } = await record(started, 'replica.following');
    const follower = { running: started, url: `http://${address}` };
    await ready(follower);
    const body = { table: 'none', keys: [] };
    for (const token of [undefined, 'wrong', 'of the whole job', 'of metrics'])
      expect(await pull(follower, body, token)).toMatchObject({ status: 401, code: 'UNAUTHORIZED' });
    expect(await pull(follower, body, 'of pulls')).toMatchObject({ status: 404, code: 'UNKNOWN_TABLE' });
    expect((await fetch(`${follower.url}/metrics`, { headers: headers('of pulls') })).status).toBe(401);
    const same = await kintsugi(args, { ...env, KINTSUGI_PULL_TOKEN: 'of the whole job' });
    expect([same.code, same.stderr]).toMatchObject([2, expect.stringContaining('both tokens are the same')]);
    const far = start([...args, '--listen', '0.0.0.0:0', '--advertise', '127.0.0.1'], {
      ...env,
      KINTSUGI_PULL_TOKEN: '',
    });
    running.push(far);
    const open = { running: far, url: `http://${(await record(far, 'replica.following')).address}` };
    expect(await pull(open, body)).toMatchObject({ status: 403, code: 'TOKEN_REQUIRED' });
  });
});

describe('a replica under load', () => {
  let pusher: Pusher;
  const ROWS = 300;
  const ALL = { table: 'items', keys: Array.from({ length: ROWS }, (_, i) => i) };

  beforeEach(async () => {
    await client.createTable({ name: 'items', ...COUNTING });
    pusher = new Pusher(client, 'items', ROWS, 1);
  });
  afterEach(() => pusher.stop().catch(() => {}));

  /** Waits until the replica has exactly the values that were pushed. */
  async function catchesUp(follower: Follower): Promise<void> {
    await pusher.stop();
    const same = (rows: number[][]) => rows.every((row, i) => row[0] === pusher.sums[i * 2]);
    await rowsWhere(follower, ALL, same);
  }

  it('that is stopped is thrown out while pushes go on, and follows again when it is continued', async () => {
    const follower = await replica();
    await ready(follower);
    const dropped = log.next('replica.dropped');
    follower.running.process.kill('SIGSTOP');
    // Pushes are durable before and after the owner forgets the replica, so none waits for it.
    await pusher.more(20);
    expect(await dropped).toMatchObject({ reason: expect.stringMatching(/silent|bytes/) });
    await pusher.more(20);
    follower.running.process.kill('SIGCONT');
    await catchesUp(follower);
  });

  it('that was stopped does not say that what it has is new', async () => {
    const follower = await replica('--max-lag', '0s');
    await ready(follower);
    const acknowledged: { at: number; value: number }[] = [];
    const own = await client.createTable({ name: 'own', ...COUNTING });
    const add = async () => {
      await own.push(firstKeys(1), new Float32Array(2).fill(1));
      acknowledged.push({ at: performance.now(), value: acknowledged.length + 1 });
    };
    await add();
    await rowsWhere(follower, { table: 'own', keys: [0] }, ([row]) => row?.[0] === 1);
    follower.running.process.kill('SIGSTOP');
    for (let i = 0; i < 30; i++) await add();
    const asked = performance.now();
    const answer = pull(follower, { table: 'own', keys: [0] });
    await add();
    follower.running.process.kill('SIGCONT');
    const { rows, lagMs } = (await answer) as unknown as { rows: number[][]; lagMs: number };
    const least = acknowledged.findLast(({ at }) => at < asked - lagMs)?.value ?? 0;
    expect(rows[0]![0]).toBeGreaterThanOrEqual(least);
  });

  it('that is killed leaves nothing behind, and another one takes its place', async () => {
    const first = await replica();
    await ready(first);
    const dropped = log.next('replica.dropped');
    first.running.process.kill('SIGKILL');
    await pusher.more(20);
    expect(await dropped).toMatchObject({ reason: 'disconnected' });
    const second = await replica();
    await ready(second);
    await catchesUp(second);
  });

  it('follows new owners when those that it followed are killed', async () => {
    const follower = await replica('--max-lag', '0s');
    await ready(follower);
    await pusher.more(5);
    await cluster.kill(1);
    await pusher.more(20);
    const values: number[] = [];
    for (let i = 0; i < 20; i++) {
      const { rows } = (await pulled(follower, ALL)) as unknown as { rows: number[][] };
      values.push(rows.reduce((sum, row) => sum + row[0]!, 0));
    }
    await catchesUp(follower);
    expect(values.length).toBe(20);
  });
});

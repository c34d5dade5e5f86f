// The library against a real cluster in this process: tables, pulls, pushes and what it refuses. How a client
// comes and goes is in roles/connect.test.ts.
import { describe, expect, it } from 'vitest';
import { type OptimizerSpec, optimizerOf } from '../../../src/engine/optimizers.js';
import {
  begun,
  COUNTING,
  client,
  cluster,
  connected,
  firstKeys,
  keysOf,
  rejection,
} from '../../roles/support.js';

const LARGEST = 2n ** 64n - 2n;
const RESERVED = 2n ** 64n - 1n;

describe('tables', () => {
  it('creates a table once and finds it afterwards', async () => {
    const job = await cluster({ code: '2+1' });
    const [a, b] = [await client(job.address), await client(job.address)];
    const created = await a.createTable({ name: 'user', dim: 8, seed: 5 });
    const found = await b.createTable({ name: 'user', dim: 8, seed: 5 });
    expect(found.spec).toEqual(created.spec);
    expect(b.table('user').spec).toEqual(created.spec);
    expect(b.tables().map((table) => table.name)).toEqual(['user']);
    expect((await b.status()).tables).toEqual([
      { name: 'user', pool: 'embedding', dim: 8, optimizer: 'adagrad' },
    ]);
  });

  it('gives each of several clients that race for a name the same table', async () => {
    const job = await cluster({ code: '1+1' });
    const clients = await Promise.all(Array.from({ length: 4 }, () => client(job.address)));
    const tables = await Promise.all(clients.map((each) => each.createTable({ name: 'one', dim: 2 })));
    expect(new Set(tables.map((table) => table.spec.id)).size).toBe(1);
    expect(new Set(clients.map((each) => each.id)).size).toBe(4);
  });

  const adam = { kind: 'adam', lr: 0.1, beta1: 0.9, beta2: 0.99, eps: 1e-8 } as const;
  const slower = { ...adam, schedule: { kind: 'step', every: 3, factor: 0.5 } } as const;
  it.each<[object, string]>([
    [{ dim: 9 }, 'dim 8, not 9'],
    [{ seed: 6 }, 'seed 5, not 6'],
    [{ optimizer: { kind: 'sgd', lr: 0.1 } }, 'optimizer adam, not sgd'],
    [{ optimizer: { ...adam, lr: 0.2 } }, 'optimizer.lr 0.1, not 0.2'],
    [{ optimizer: { ...adam, clipNorm: 2 } }, 'optimizer.clipNorm none, not 2'],
    [{ optimizer: slower }, 'optimizer.schedule none, not {"kind":"step","every":3,"factor":0.5,"warmup":0}'],
    [{ initializer: { kind: 'zeros' } }, 'initializer uniform, not zeros'],
    [{ initializer: { kind: 'uniform', low: -1, high: 0.05 } }, 'initializer.low -0.05, not -1'],
    [{ pool: 'mirrored' }, 'pool "embedding", not "mirrored"'],
    [
      { dim: 4, optimizer: { ...adam, beta1: 0, beta2: 0 } },
      'dim 8, not 4; optimizer.beta1 0.9, not 0; optimizer.beta2 0.99, not 0',
    ],
  ])('refuses the name with another specification, and says what differs: %o', async (change, difference) => {
    const job = await connected();
    await job.createTable({ name: 'user', dim: 8, seed: 5, optimizer: adam });
    const again = { name: 'user', dim: 8, seed: 5, optimizer: adam };
    const { code, message } = await rejection(job.createTable({ ...again, ...change }));
    expect([code, message]).toEqual(['TABLE_EXISTS', `table "user" exists with ${difference}`]);
    expect(job.table('user').dim).toBe(8);
  });

  it('a table of another job, or one that was changed, is refused', async () => {
    const [a, b] = [await connected(), await connected()];
    const [first] = await a.createTables([{ name: 'first', ...COUNTING }]);
    await b.createTable({ name: 'other', ...COUNTING });
    const stranger = b.table('other');
    expect(stranger.spec.id).toBe(first!.spec.id);
    const twin = await (await connected()).createTable({ name: 'first', ...COUNTING });
    expect(twin.spec).toEqual(first!.spec);
    const [keys, gradients] = [keysOf(1), Float32Array.of(1, 1)];
    const { spec } = first!;
    const changed = (change: object) => ({ ...first!, spec: { ...spec, ...change } }) as typeof stranger;
    const cases: [string, typeof stranger][] = [
      ['UNKNOWN_TABLE', stranger],
      ['UNKNOWN_TABLE', twin],
      ['UNKNOWN_TABLE', changed({ id: 999 })],
      ['UNKNOWN_TABLE', changed({ name: 'nope' })],
      ['BAD_ARGUMENT', changed({ dim: 1 })],
      ['BAD_ARGUMENT', changed({ pool: 'mirrored' })],
      ['BAD_ARGUMENT', changed({ optimizer: undefined })],
      ['UNKNOWN_TABLE', { ...first!, spec: {} } as never],
      ['BAD_ARGUMENT', { ...first!, spec: 5 } as never],
    ];
    const found = [];
    for (const [, table] of cases) {
      const works = [
        () => a.push([{ table, keys, gradients }]),
        () => a.pull([{ table, keys }]),
        () => a.scan(table, { select: 'keys' }).next(),
      ];
      for (const work of works) found.push((await rejection((async () => work())())).code);
    }
    expect(found).toEqual(cases.flatMap(([code]) => [code, code, code]));
    // The refused call changed nothing, and a specification that says the same is as good.
    expect(await a.pull([{ table: changed({}), keys }])).toEqual([Float32Array.of(0, 0)]);
    expect(await first!.pull(keys)).toEqual(Float32Array.of(0, 0));
  });

  it('a table that another client of the job has just created', async () => {
    const job = await cluster({ code: '1+1' });
    const [a, b] = [await client(job.address), await client(job.address)];
    const table = await a.createTable({ name: 'new', ...COUNTING });
    await b.push([{ table, keys: keysOf(1), gradients: Float32Array.of(1, 2) }]);
    expect(await table.pull(keysOf(1))).toEqual(Float32Array.of(1, 2));
  });

  it('creates all tables of a call or none', async () => {
    const job = await connected();
    const { code } = await rejection(
      job.createTables([
        { name: 'good', dim: 4 },
        { name: 'bad', dim: 0 },
      ]),
    );
    expect(code).toBe('BAD_ARGUMENT');
    expect(job.tables()).toEqual([]);
    expect(() => job.table('good')).toThrow(expect.objectContaining({ code: 'UNKNOWN_TABLE' }));
  });

  it.each([
    ['an empty name', { name: '', dim: 4 }],
    ['too long a name', { name: 'x'.repeat(257), dim: 4 }],
    ['no dimension', { name: 't', dim: 0 }],
    ['too large a dimension', { name: 't', dim: 65_537 }],
    ['a pool that is not there', { name: 't', dim: 4, pool: 'other' }],
    [
      'an infinite rate',
      { name: 't', dim: 4, optimizer: { kind: 'sgd' as const, lr: Number.POSITIVE_INFINITY } },
    ],
    ['an unknown optimizer', { name: 't', dim: 4, optimizer: { kind: 'lion' } as unknown as OptimizerSpec }],
    ['a seed beyond 2^53', { name: 't', dim: 4, seed: 2 ** 53 }],
  ])('refuses %s and lives on', async (_, table) => {
    const job = await connected();
    expect((await rejection(job.createTable(table))).code).toBe('BAD_ARGUMENT');
    await job.createTable({ name: 'fine', dim: 4 });
  });

  it.each([
    ['a fractional dimension', { name: 't', dim: 1.5 }],
    ['a negative seed', { name: 't', dim: 4, seed: -1 }],
  ])('refuses %s before it goes on the wire', async (_, table) => {
    const job = await connected({ connectTimeoutMs: 5000 });
    const refusal = rejection(job.createTable(table));
    expect((await refusal).code).toBe('BAD_ARGUMENT');
  });
});

describe('pull', () => {
  it('answers initial values that depend on seed and key alone', async () => {
    const specs = [
      { name: 'a', dim: 6, seed: 1 },
      { name: 'same', dim: 6, seed: 1 },
      { name: 'other', dim: 6, seed: 2 },
    ];
    const [one, two] = [await connected({}, { code: '2+1' }), await connected({}, { code: '1+1', ps: 3 })];
    await one.createTables(specs);
    await two.createTables(specs.reverse());
    const keys = keysOf(0, 1, 2, 77, LARGEST, RESERVED - 2n);
    const pull = (job: typeof one, table: string) => job.pull([{ table, keys }]).then(([rows]) => rows!);
    const rows = await pull(one, 'a');
    expect(await pull(one, 'a')).toEqual(rows);
    expect(await pull(one, 'same')).toEqual(rows);
    expect(await pull(two, 'a')).toEqual(rows);
    expect(await pull(one, 'other')).not.toEqual(rows);
    expect(new Set(rows).size).toBe(rows.length);
    expect(Math.max(...rows.map(Math.abs))).toBeLessThanOrEqual(Math.fround(0.05));
  });

  it('does not make rows', async () => {
    const job = await connected();
    const table = await job.createTable({ name: 't', ...COUNTING });
    expect(await table.pull(firstKeys(500))).toEqual(new Float32Array(1000));
    expect((await job.status()).nodes.reduce((sum, node) => sum + node.rows, 0)).toBe(0);
  });

  it('keeps the order of the keys, repeats and several tables at once', async () => {
    const job = await connected();
    const [a, b] = await job.createTables([
      { name: 'a', ...COUNTING },
      { name: 'b', ...COUNTING, dim: 3 },
    ]);
    const keys = firstKeys(200);
    await job.push([
      { table: a!, keys, gradients: Float32Array.from({ length: 400 }, (_, i) => i) },
      { table: 'b', keys, gradients: Float32Array.from({ length: 600 }, (_, i) => 1000 + i) },
    ]);
    const shuffled = BigUint64Array.from({ length: 300 }, (_, i) => BigInt((i * 89) % 200));
    const [first, empty, second] = await job.pull([
      { table: b!, keys: shuffled },
      { table: a!, keys: new BigUint64Array(0) },
      { table: a!, keys: shuffled.subarray(100) },
    ]);
    expect(first).toEqual(
      Float32Array.from({ length: 900 }, (_, i) => 1000 + Number(shuffled[Math.floor(i / 3)]) * 3 + (i % 3)),
    );
    expect(empty).toEqual(new Float32Array(0));
    expect(second).toEqual(
      Float32Array.from({ length: 400 }, (_, i) => Number(shuffled[100 + Math.floor(i / 2)]) * 2 + (i % 2)),
    );
  });

  it('takes views of larger arrays', async () => {
    const job = await connected();
    const table = await job.createTable({ name: 't', ...COUNTING });
    const [keys, gradients] = [firstKeys(10), Float32Array.from({ length: 20 }, (_, i) => i)];
    await table.push(keys.subarray(3, 6), gradients.subarray(6, 12));
    expect(await table.pull(firstKeys(10).subarray(2, 7))).toEqual(
      Float32Array.of(0, 0, 6, 7, 8, 9, 10, 11, 0, 0),
    );
  });
});

describe('push', () => {
  it('adds the gradients of a key that comes several times', async () => {
    const job = await connected();
    const table = await job.createTable({
      name: 't',
      dim: 1,
      optimizer: { kind: 'adagrad', lr: 1, eps: 0, initialAccumulator: 0 },
      initializer: { kind: 'zeros' },
    });
    await table.push(keysOf(7, 8, 7, 7), Float32Array.of(1, 5, 2, 3));
    // Adagrad moves a fresh row by lr whatever the gradient; applied one after the other they would move it
    // further.
    expect(await table.pull(keysOf(7, 8))).toEqual(Float32Array.of(-1, -1));
    const [full] = await job.pullFull([{ table, keys: keysOf(7) }]);
    expect(full).toEqual(Float32Array.of(-1, 36));
  });

  it('takes empty requests, key 0 and the largest key', async () => {
    const job = await connected();
    const table = await job.createTable({ name: 't', ...COUNTING });
    await job.push([]);
    await table.push(new BigUint64Array(0), new Float32Array(0));
    expect(await job.pull([])).toEqual([]);
    await table.push(keysOf(0, LARGEST), Float32Array.of(1, 2, 3, 4));
    await table.push(keysOf(LARGEST, 0), Float32Array.of(30, 40, 10, 20));
    expect(await table.pull(keysOf(LARGEST, 0))).toEqual(Float32Array.of(33, 44, 11, 22));
  });

  it('refuses the reserved key without a change, and the next push still works', async () => {
    const job = await connected();
    const table = await job.createTable({ name: 't', ...COUNTING });
    // One shard alone holds the reserved key: of the other keys it takes some down with it, all or nothing
    // per shard.
    expect((await rejection(table.push(keysOf(RESERVED), Float32Array.of(1, 1)))).code).toBe('KEY_RESERVED');
    expect((await rejection(table.push(keysOf(RESERVED), Float32Array.of(1, 1)))).code).toBe('KEY_RESERVED');
    await table.push(firstKeys(100), new Float32Array(200).fill(2));
    expect(await table.pull(firstKeys(100))).toEqual(new Float32Array(200).fill(2));
    const counts = job.pushCounts();
    expect(counts.reduce((sum, count) => sum + count.refused, 0)).toBe(2);
    for (const { sent, acknowledged, refused } of counts) expect(acknowledged + refused).toBe(sent);
  });

  it('delivers a hundred pushes that are under way at once, each once', async () => {
    const job = await connected();
    const table = await job.createTable({ name: 't', ...COUNTING });
    const ones = new Float32Array(100).fill(1);
    await Promise.all(Array.from({ length: 100 }, () => table.push(firstKeys(50), ones)));
    expect(await table.pull(firstKeys(50))).toEqual(new Float32Array(100).fill(100));
  });

  it('keeps pushes of tables of both pools apart', async () => {
    const job = await connected();
    await job.createTables([
      { name: 'sparse', ...COUNTING },
      { name: 'copied', ...COUNTING, pool: 'mirrored' },
    ]);
    const keys = firstKeys(40);
    const of = (value: number) => new Float32Array(80).fill(value);
    await job.push([
      { table: 'sparse', keys, gradients: of(1) },
      { table: 'copied', keys, gradients: of(2) },
    ]);
    expect(
      await job.pull([
        { table: 'copied', keys },
        { table: 'sparse', keys },
      ]),
    ).toEqual([of(2), of(1)]);
    expect(new Set(job.pushCounts().map((count) => count.pool))).toEqual(new Set(['embedding', 'mirrored']));
  });

  it('waits while as many bytes are under way as it was allowed', async () => {
    const job = await connected({ maxInFlightBytes: 4096 });
    const table = await job.createTable({ name: 't', ...COUNTING });
    const keys = firstKeys(100);
    const pushes = Array.from({ length: 8 }, () => table.push(keys, new Float32Array(200).fill(1)));
    // The first alone fills half the room or more, so not all of them have a number yet.
    await begun(job);
    const numbered = Math.max(...job.pushCounts().map((count) => count.sent));
    expect(numbered).toBeGreaterThan(0);
    expect(numbered).toBeLessThan(8);
    await Promise.all(pushes);
    expect(Math.max(...job.pushCounts().map((count) => count.sent))).toBe(8);
    expect(await table.pull(keys)).toEqual(new Float32Array(200).fill(8));
  });

  it('does not wait for room when it is aborted already', async () => {
    const job = await connected({ maxInFlightBytes: 1 });
    const table = await job.createTable({ name: 't', ...COUNTING });
    const ended: string[] = [];
    const first = table.push(keysOf(5), Float32Array.of(1, 1)).then(() => ended.push('first'));
    await begun(job);
    const signal = AbortSignal.abort();
    const { code } = await rejection(table.push(keysOf(5), Float32Array.of(1, 1), { signal }));
    expect([code, ...ended]).toEqual(['ABORTED']);
    await first;
    expect(await table.pull(keysOf(5))).toEqual(Float32Array.of(1, 1));
  });

  it('lets a push pass that is larger than all the room', async () => {
    const job = await connected({ maxInFlightBytes: 1 });
    const table = await job.createTable({ name: 't', ...COUNTING });
    await Promise.all([1, 2, 3].map((value) => table.push(keysOf(5), Float32Array.of(value, value))));
    expect(await table.pull(keysOf(5))).toEqual(Float32Array.of(6, 6));
  });
});

describe('arguments', () => {
  it('are refused by code before anything is sent', async () => {
    const job = await connected();
    const table = await job.createTable({ name: 't', ...COUNTING });
    const code = (promise: Promise<unknown>) => rejection(promise).then((refusal) => refusal.code);
    const wrongKeys = [1, 2] as unknown as BigUint64Array;
    const signed = new BigInt64Array(2) as unknown as BigUint64Array;
    expect(await code(table.pull(wrongKeys))).toBe('KEY_TYPE');
    expect(await code(table.pull(signed))).toBe('KEY_TYPE');
    expect(await code(table.push(wrongKeys, new Float32Array(4)))).toBe('KEY_TYPE');
    expect(await code(table.push(keysOf(1, 2), new Float32Array(2)))).toBe('LENGTH_MISMATCH');
    expect(await code(table.push(keysOf(1, 2), new Float32Array(6)))).toBe('LENGTH_MISMATCH');
    expect(await code(table.push(keysOf(1, 2), new Float32Array(5)))).toBe('DIM_MISMATCH');
    expect(await code(table.push(keysOf(1), [1, 2] as unknown as Float32Array))).toBe('BAD_ARGUMENT');
    expect(await code(table.push(keysOf(1), new Float64Array(2) as unknown as Float32Array))).toBe(
      'BAD_ARGUMENT',
    );
    expect(await code(job.pull([{ table: 'nobody', keys: keysOf(1) }]))).toBe('UNKNOWN_TABLE');
    expect(await code(job.push([{ table: 'nobody', keys: keysOf(1), gradients: new Float32Array(2) }]))).toBe(
      'UNKNOWN_TABLE',
    );
    const twice = [1, 2].map((key) => ({ table, keys: keysOf(key), gradients: new Float32Array(2) }));
    expect(await code(job.push(twice))).toBe('BAD_ARGUMENT');
    expect(job.pushCounts()).toEqual([]);
    expect(await job.pull(twice.map(({ keys }) => ({ table, keys })))).toHaveLength(2);
    await table.push(keysOf(1), Float32Array.of(1, 1));
  });

  it('takes a learning rate with a push, for each table', async () => {
    const job = await connected();
    const at = async (name: string, optimizer: OptimizerSpec) =>
      job.createTable({ name, dim: 1, optimizer, initializer: { kind: 'zeros' } });
    const [a, b] = [await at('a', { kind: 'sgd', lr: 1 }), await at('b', { kind: 'sgd', lr: 1 })];
    const keys = firstKeys(40);
    const gradients = new Float32Array(40).fill(-1);
    await job.push([
      { table: a, keys, gradients, lr: 0.25 },
      { table: b, keys, gradients },
    ]);
    await b.push(keys, gradients, { lr: 0.5 });
    await b.push(keys, gradients, { lr: 0 });
    expect(new Set(await a.pull(keys))).toEqual(new Set([0.25]));
    expect(new Set(await b.pull(keys))).toEqual(new Set([1.5]));
    const refused = async (lr: unknown, table = a) =>
      rejection(table.push(keys, gradients, { lr: lr as number }));
    for (const lr of [-1, Number.NaN, Number.POSITIVE_INFINITY, 1e39, '1']) {
      const { code, message } = await refused(lr);
      expect([code, message]).toEqual(['BAD_ARGUMENT', expect.stringContaining('"a": the lr of a push')]);
    }
    const ftrl = await at('f', optimizerOf('ftrl', 0.1));
    expect((await refused(0.1, ftrl)).message).toContain('ftrl takes no lr');
    const rows = new Float32Array(40);
    expect((await rejection(job.assign([{ table: a, keys, gradients: rows, lr: 1 }]))).code).toBe(
      'BAD_ARGUMENT',
    );
    expect((await rejection(a.push(keys, gradients, { rate: 1 } as never))).message).toContain('"rate"');
    expect(new Set(await a.pull(keys))).toEqual(new Set([0.25]));
  });

  it.each(['', 'nowhere', 'host:port', '127.0.0.1:99999', 'a b:1'])('"%s" is no scheduler', async (text) => {
    expect((await rejection(client(text))).code).toBe('BAD_ARGUMENT');
  });
});

describe('whole rows', () => {
  it('can be pulled and assigned, and train on from there', async () => {
    const job = await connected();
    const optimizer = { kind: 'adagrad', lr: 1, eps: 0, initialAccumulator: 0 } as const;
    const table = await job.createTable({ name: 't', dim: 2, optimizer, initializer: { kind: 'zeros' } });
    expect(job.rowWidth(table.spec)).toBe(4);
    await job.assign([{ table, keys: keysOf(1, 2), gradients: Float32Array.of(10, 20, 9, 16, 1, 2, 0, 0) }]);
    const [rows] = await job.pullFull([{ table, keys: keysOf(2, 1) }]);
    expect(rows).toEqual(Float32Array.of(1, 2, 0, 0, 10, 20, 9, 16));
    await table.push(keysOf(1), Float32Array.of(4, 3));
    expect(await table.pull(keysOf(1))).toEqual(
      Float32Array.of(Math.fround(10 - 4 / 5), Math.fround(20 - 3 / 5)),
    );
  });
});

describe('the memory limit', () => {
  it('refuses new rows by code and keeps training those that are there', async () => {
    const job = await connected({}, { code: '1+1', memoryBytes: 24 << 20 });
    const table = await job.createTable({ name: 't', ...COUNTING, dim: 256 });
    const batch = 512;
    const push = (from: number, value: number) =>
      table.push(
        BigUint64Array.from({ length: batch }, (_, i) => BigInt(from + i)),
        new Float32Array(batch * 256).fill(value),
      );
    await push(0, 1);
    let refused: { code: string } | undefined;
    for (let from = batch; !refused && from < 200 * batch; from += batch) {
      refused = await push(from, 1).then(
        () => undefined,
        (error: { code: string }) => error,
      );
    }
    expect(refused?.code).toBe('MEMORY_LIMIT');
    await push(0, 2);
    expect(await table.pull(keysOf(0, batch - 1))).toEqual(new Float32Array(512).fill(3));
    // Parities follow what an owner elsewhere has accepted, so a node may be a little above its limit.
    for (const { bytes } of (await job.status()).nodes) expect(bytes).toBeLessThan(30 << 20);
  });
});

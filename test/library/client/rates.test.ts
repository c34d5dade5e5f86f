/** `Table.set`: the rate of a table changes for everybody, and every row before and after is exact. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Client, connect, load, optimizerOf, save, type TableOptions } from '../../../src/index.js';
import { internalsOf, resumeTables } from '../../../src/library/client/connected.js';
import { type LocalCluster, startLocalCluster } from '../../../src/roles/cluster.js';
import { rejection, temporaryDirectory } from '../../roles/support.js';

let cluster: LocalCluster;
let client: Client;
let other: Client;
beforeAll(async () => {
  cluster = await startLocalCluster({ ps: 4, code: '2+1' });
  [client, other] = await Promise.all([connect(cluster.address), connect(cluster.address)]);
});
afterAll(async () => {
  await Promise.all([client?.close(), other?.close()]);
  await cluster?.close();
});

const KEYS = BigUint64Array.from({ length: 64 }, (_, i) => BigInt(i * 7));
const gradients = (number: number, dim: number) =>
  Float32Array.from({ length: KEYS.length * dim }, (_, i) => Math.sin(number + i));
let made = 0;
const create = (optimizer: TableOptions['optimizer']) =>
  client.createTable({ name: `t${made++}`, dim: 5, optimizer, seed: 3 });

describe('a rate that is set', () => {
  it.each(['sgd', 'momentum', 'adagrad', 'rowwise_adagrad', 'adam'] as const)(
    'gives %s the rows of pushes that bring it themselves, also through the loss of a PS',
    async (kind) => {
      const [table, reference] = [await create(optimizerOf(kind, 0.5)), await create(optimizerOf(kind, 0.5))];
      const push = async (number: number, lr?: number) => {
        await table.push(KEYS, gradients(number, 5));
        await reference.push(KEYS, gradients(number, 5), { lr });
      };
      await push(0);
      await push(1);
      const lost = kind === 'adam' ? cluster.kill(0) : undefined;
      await table.set({ lr: 0.25 });
      await lost;
      await push(2, 0.25);
      await push(3, 0.25);
      const whole = async (name: string) => (await client.pullFull([{ table: name, keys: KEYS }]))[0]!;
      expect(await whole(table.name)).toEqual(await whole(reference.name));
      if (lost) await cluster.restart(0);
    },
  );

  it('is not one that single precision rounds to 0, also of a new table; 0 and others are', async () => {
    const refusal = (name: string) => ({
      code: 'BAD_ARGUMENT',
      message: expect.stringMatching(new RegExp(`${name} must be 0, or .* not 1e-60`)),
    });
    const table = await create({ kind: 'adam', lr: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-8 });
    expect(await rejection(table.set({ lr: 1e-60 }))).toMatchObject(refusal('lr'));
    expect(await rejection(create({ kind: 'sgd', lr: 1e-60 }))).toMatchObject(refusal('lr'));
    const tiny = create({ kind: 'adam', lr: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-60 });
    expect(await rejection(tiny)).toMatchObject(refusal('eps'));
    expect(table.spec.optimizer.lr).toBe(0.1);
    for (const lr of [0, 1e-45, 1e-38]) {
      await table.set({ lr });
      expect(table.spec.optimizer.lr).toBe(lr);
    }
  });

  it('is that of every client, and of tables that they hold already', async () => {
    const table = await create({ kind: 'sgd', lr: -1 });
    const { name, dim, optimizer, seed } = table.spec;
    const same = await other.createTable({ name, dim, optimizer, seed });
    await same.set({ lr: -3 });
    await table.push(KEYS, new Float32Array(KEYS.length * 5).fill(1));
    const [row] = await same.pull(KEYS.subarray(0, 1));
    expect(row).toBeCloseTo(3, 0);
    const { session } = internalsOf(client);
    await session.until(() => table.spec.optimizer.lr === -3);
    expect([same.spec.optimizer.lr, table.spec.earlierRates, optimizer.lr]).toEqual([-3, [-1], -1]);
    expect(client.table(name).spec).toEqual(same.spec);
  });

  it('that a program asks for anew with the old one is the table; another one is TABLE_EXISTS', async () => {
    const table = await create({ kind: 'sgd', lr: 0.1 });
    await table.set({ lr: 0.2 });
    const { name } = table;
    const again = (lr: number) =>
      client.createTable({ name, dim: 5, seed: 3, optimizer: { kind: 'sgd', lr } });
    expect((await again(0.1)).spec.optimizer.lr).toBe(0.2);
    expect((await again(0.2)).spec.optimizer.lr).toBe(0.2);
    const { code, message: text } = await rejection(again(0.3));
    expect([code, text]).toEqual(['TABLE_EXISTS', `table "${name}" exists with optimizer.lr 0.2, not 0.3`]);
  });

  it.each([
    ['sgd', { clipNorm: 0.5 }],
    ['adagrad', { lr: 0.125, clipNorm: 0.25 }],
    ['ftrl', { clipNorm: 0.25 }],
    ['adam', { schedule: { kind: 'cosine', steps: 7, floor: 0.25 } }],
    ['adamw', { lr: 0.125, clipNorm: 0.75, schedule: { kind: 'constant', warmup: 9 } }],
  ] as const)('gives %s with %j the rows of a table that has it from the start', async (kind, changes) => {
    const table = await create(optimizerOf(kind, 0.5));
    const push = (to: typeof table, number: number) => to.push(KEYS, gradients(number, 5));
    await push(table, 0);
    await push(table, 1);
    const optimizer = { ...optimizerOf(kind, 0.5), ...changes };
    const reference = await create(optimizer);
    const whole = async (name: string) => (await client.pullFull([{ table: name, keys: KEYS }]))[0]!;
    await client.assign([{ table: reference, keys: KEYS, gradients: await whole(table.name) }]);
    await table.set(changes);
    expect(table.spec.optimizer).toEqual(reference.spec.optimizer);
    for (const number of [2, 3]) for (const each of [table, reference]) await push(each, number);
    expect(await whole(table.name)).toEqual(await whole(reference.name));
    // Without what was added the table goes on as it was made.
    const first = await create(optimizerOf(kind, 0.5));
    await client.assign([{ table: first, keys: KEYS, gradients: await whole(table.name) }]);
    await table.set({ ...(kind !== 'ftrl' && { lr: 0.5 }), clipNorm: null, schedule: null });
    expect(table.spec.optimizer).toEqual(optimizerOf(kind, 0.5));
    for (const each of [table, first]) await push(each, 4);
    expect(await whole(table.name)).toEqual(await whole(first.name));
  });

  it('is refused where it cannot be', async () => {
    const table = await create(optimizerOf('ftrl', 0.5));
    const { code, message: text } = await rejection(table.set({ lr: 0.1 }));
    expect([code, text]).toEqual([
      'BAD_ARGUMENT',
      expect.stringContaining('lr stays 0.5 and cannot become 0.1'),
    ]);
    const adam = await create(optimizerOf('adam', 0.5));
    const wrong = [
      ...[{}, { lr: -1 }, { lr: '1' }, { lr: Number.NaN }, { lr: 1, dim: 3 }, undefined, { lr: null }],
      ...[{ lr: undefined }, { clipNorm: 0 }, { clipNorm: '1' }, { clipNorm: 1n }, { schedule: 'cosine' }],
      ...[
        { schedule: { kind: 'cosine' } },
        { schedule: { kind: 'cosine', steps: 3n } },
        { lr: 1, schedule: 1 },
      ],
      ...[
        { schedule: { kind: 'constant', steps: 3 } },
        { clipNorm: Symbol('x') },
        { schedule: 0 },
        { schedule: '' },
      ],
    ];
    for (const changes of wrong)
      expect([changes, (await rejection(adam.set(changes as never))).code]).toEqual([
        changes,
        'BAD_ARGUMENT',
      ]);
    const cosine = { kind: 'cosine', steps: 3 } as const;
    const whole = '{"kind":"cosine","floor":0,"steps":3,"warmup":0}';
    for (const [given, changes, field, was, wanted] of [
      [optimizerOf('sgd', 0.5), { schedule: cosine }, 'schedule', 'none', '{"kind":"cosine","steps":3}'],
      [
        { ...optimizerOf('sgd', 0.5), schedule: cosine },
        { lr: 1, schedule: null },
        'schedule',
        whole,
        'none',
      ],
      [optimizerOf('ftrl', 0.5), { clipNorm: 1, schedule: cosine }, 'schedule', 'none', ''],
    ] as const) {
      const other = await create(given);
      const before = other.spec.optimizer;
      const error = await rejection(other.set(changes));
      const expected = `${field} stays ${was} and cannot become ${wanted}`;
      expect([error.code, error.message, other.spec.optimizer]).toEqual([
        'BAD_ARGUMENT',
        expect.stringContaining(expected),
        before,
      ]);
    }
    const counting = await create({ ...optimizerOf('sgd', 0.5), schedule: cosine });
    await counting.set({ schedule: { kind: 'constant', warmup: 3 } });
    expect(counting.spec.optimizer.schedule).toEqual({ kind: 'constant', warmup: 3 });
    const signal = AbortSignal.abort();
    expect((await rejection(adam.set({ lr: 1 }, { signal }))).code).toBe('ABORTED');
    expect(adam.spec.optimizer.lr).toBe(0.5);
  });

  it('of a worker that resumes is set once', async () => {
    const table = await create({ kind: 'sgd', lr: 0.1 });
    const { name } = table;
    const resume = async (lr: number, rate: 'keep' | 'set') => {
      const set = rate === 'set' ? (['lr'] as const) : [];
      const asked = { name, dim: 5, seed: 3, optimizer: { kind: 'sgd' as const, lr }, set };
      return (await resumeTables(client, [asked]))[0]!.spec.optimizer.lr;
    };
    expect([await resume(0.3, 'keep'), await resume(0.2, 'set')]).toEqual([0.1, 0.2]);
    await table.set({ lr: 0.05 });
    expect([await resume(0.1, 'set'), await resume(0.2, 'set')]).toEqual([0.05, 0.05]);
  });

  it('is the rate of tables that are saved and loaded', async () => {
    const directory = temporaryDirectory();
    const mine = await startLocalCluster({ ps: 2, code: '1+1' });
    const [saving, loading] = [await connect(mine.address), await startLocalCluster({ ps: 2, code: '1+1' })];
    const into = await connect(loading.address);
    const table = await saving.createTable({ name: 'rows', dim: 2, optimizer: { kind: 'sgd', lr: 0.1 } });
    await table.push(KEYS, new Float32Array(KEYS.length * 2).fill(1));
    await table.set({ lr: 0.2 });
    await save(saving, directory);
    await load(into, directory);
    expect(into.table('rows').spec.optimizer).toEqual({ kind: 'sgd', lr: 0.2 });
    await Promise.all([saving.close(), into.close()]);
    await Promise.all([mine.close(), loading.close()]);
  });
});

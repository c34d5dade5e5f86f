/** Exports in memory: what look-ups give, how newer ones are followed, and what happens to damaged ones. */
import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { loadNative } from '../../../src/engine/native.js';
import { openExport, type SavedTable } from '../../../src/index.js';
import { ExportContent, TURN_BYTES } from '../../../src/library/serving/content.js';
import { compactCheckpoint } from '../../../src/stores/checkpoint/compact.js';
import { random, temporaryDirectory } from '../../stores/checkpoint/support.js';
import { BIASES, ITEMS, initialOf, Job } from './support.js';

const codeOf = (call: () => unknown): string => {
  try {
    call();
  } catch (error) {
    return (error as { code: string }).code;
  }
  return 'nothing was thrown';
};
const rejected = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => 'nothing was thrown',
    (error: unknown) => error,
  );

/** Without a timer: tests say when it looks. */
async function opened(url: string, options: Parameters<typeof openExport>[1] = {}) {
  const served = await openExport(url, { everyMs: 0, ...options });
  onTestFinished(() => served.close());
  return served;
}

const keys = (...numbers: number[]) => BigUint64Array.from(numbers, BigInt);

describe('look-ups', () => {
  it('give rows in the order of keys, initial values of others, or what is given for them', async () => {
    const job = new Job(temporaryDirectory());
    job.set(ITEMS, 7, 1.5);
    job.set(ITEMS, 9, 2.5);
    await job.export({ full: true });
    const served = await opened(job.url);
    const dim = ITEMS.dim;
    const rows = served.pull('items', keys(9, 8, 7, 9));
    expect([...rows.subarray(0, dim)]).toEqual(Array(dim).fill(2.5));
    expect([...rows.subarray(dim, 2 * dim)]).toEqual([...initialOf(ITEMS, 8n)]);
    expect([...rows.subarray(2 * dim)]).toEqual([...Array(dim).fill(1.5), ...Array(dim).fill(2.5)]);
    const into = new Float32Array(2 * dim).fill(9);
    expect(served.pull('items', keys(7, 7), into)).toBe(into);
    expect(into[0]).toBe(1.5);
    expect(served.pull('biases', keys(1))).toEqual(initialOf(BIASES, 1n));
    const gone = keys(1, 2);
    structuredClone(gone, { transfer: [gone.buffer] });
    expect(codeOf(() => served.pull('items', gone))).toBe('BAD_ARGUMENT');
    const other = await opened(job.url, { missing: -1, tables: ['items'] });
    expect([...other.pull('items', keys(8))]).toEqual(Array(dim).fill(-1));
    expect(codeOf(() => other.pull('biases', keys(1)))).toBe('UNKNOWN_TABLE');
    expect(other.tables.map(({ name }) => name)).toEqual(['items']);
    expect(other.status).toMatchObject({ number: 1, kind: 'export', rows: 2 });
  });

  it('show tables that nobody can change, and keep no options of the caller', async () => {
    const job = new Job(temporaryDirectory());
    job.set(ITEMS, 7, 1.5);
    await job.export({ full: true });
    const options = { tables: ['items'], missing: -1, everyMs: 0 };
    const opening = opened(job.url, options);
    options.tables[0] = 'biases';
    options.missing = 5;
    const served = await opening;
    expect(() => (served.tables as SavedTable[]).pop()).toThrow(TypeError);
    expect(() => Object.assign(served.tables[0]!, { dim: 1 })).toThrow(TypeError);
    job.set(ITEMS, 9, 2.5);
    await job.export({ full: true });
    await served.refresh();
    expect(served.tables.map(({ name }) => name)).toEqual(['items']);
    expect([...served.pull('items', keys(8))]).toEqual(Array(ITEMS.dim).fill(-1));
  });

  it('refuse what cannot be', async () => {
    const job = new Job(temporaryDirectory());
    await job.export({ full: true });
    const served = await opened(job.url);
    expect(codeOf(() => served.pull('items', [1n] as never))).toBe('KEY_TYPE');
    expect(codeOf(() => served.pull('items', keys(1), new Float32Array(1)))).toBe('LENGTH_MISMATCH');
    expect(codeOf(() => served.pull('items', keys(1), [] as never))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => served.pull('items', BigUint64Array.of(2n ** 64n - 1n)))).toBe('KEY_RESERVED');
    expect(codeOf(() => served.pull('none', keys(1)))).toBe('UNKNOWN_TABLE');
    await served.close();
    await served.close();
    expect(codeOf(() => served.pull('items', keys(1)))).toBe('CLOSED');
    expect(await rejected(served.refresh())).toMatchObject({ code: 'CLOSED' });
    const open = (options: object) => rejected(openExport(job.url, options));
    expect(await open({ tables: ['items', 'none'] })).toMatchObject({ code: 'UNKNOWN_TABLE' });
    expect(await open({ every: 3 })).toMatchObject({ code: 'BAD_ARGUMENT' });
    expect(await open({ everyMs: -1 })).toMatchObject({ code: 'BAD_ARGUMENT' });
    expect(await open({ missing: '0' })).toMatchObject({ code: 'BAD_ARGUMENT' });
    expect(await open({ signal: AbortSignal.abort() })).toMatchObject({ code: 'ABORTED' });
    expect(await rejected(openExport(temporaryDirectory()))).toMatchObject({ code: 'CHECKPOINT_MISSING' });
  });
});

describe('newer exports', () => {
  it('random histories: every look-up is of one export, whatever kind the next one is', async () => {
    for (let seed = 1; seed <= 3; seed++) {
      const next = random(seed);
      const job = new Job(temporaryDirectory());
      const change = (count: number) => {
        for (let i = 0; i < count; i++)
          job.set(next() % 3 ? ITEMS : BIASES, next() % 400, (next() % 1000) / 8);
      };
      change(300);
      await job.export({ full: true });
      const served = await opened(job.url, seed % 2 ? {} : { missing: 0.25 });
      const missing = seed % 2 ? undefined : 0.25;
      let before = job.content(missing);
      for (let round = 0; round < 10; round++) {
        const kind = next() % 8;
        change(next() % 120);
        if (kind === 0) job.forget((key) => key % 7n === 0n);
        if (kind === 1) job.reshape(1 + (next() % 3));
        if (kind === 2) job.remove(next() % 400);
        for (let n = next() % 3; n > 0; n--) {
          await job.export({ full: next() % 3 === 0 });
          change(next() % 60);
        }
        await job.export({ full: kind < 2 || next() % 3 === 0 });
        if (kind === 3) await compactCheckpoint(job.place);
        const after = job.content(missing);
        // While it is read, look-ups of all keys in one turn are the one export or the other.
        let isOver = false;
        let looks = 0;
        const looking = (async () => {
          while (!isOver) {
            const seen = job.look(served);
            expect(seen === before || seen === after).toBe(true);
            looks++;
            await new Promise(setImmediate);
          }
        })();
        expect(await served.refresh()).toBe(true);
        isOver = true;
        await looking;
        expect(looks).toBeGreaterThan(0);
        expect(job.look(served) === after).toBe(true);
        expect(await served.refresh()).toBe(false);
        before = after;
      }
    }
  });

  it('only files that are new are read, and rows that are the same take no memory twice', async () => {
    const job = new Job(temporaryDirectory());
    for (let key = 0; key < 20_000; key++) job.set(ITEMS, key, key);
    await job.export({ full: true });
    const served = await opened(job.url);
    const { bytes } = served.status;
    job.set(ITEMS, 3, -3);
    await job.export({ full: false });
    // The first files are needed no more: a reader that reads them again fails.
    rmSync(join(job.directory, '000001'), { recursive: true });
    expect(await served.refresh()).toBe(true);
    expect(served.pull('items', keys(3))[0]).toBe(-3);
    job.set(ITEMS, 4, -4);
    await job.export({ full: true });
    let most = 0;
    const watch = setInterval(() => {
      most = Math.max(most, served.status.bytes);
    });
    await served.refresh();
    clearInterval(watch);
    expect(served.pull('items', keys(3, 4))[ITEMS.dim]).toBe(-4);
    expect(served.status).toMatchObject({ number: 3, rows: 20_000 });
    expect(Math.max(most, served.status.bytes)).toBeLessThan(1.2 * bytes);
  });

  it('rows that are gone take the memory of one turn, however many they are', async () => {
    const job = new Job(temporaryDirectory());
    job.reshape(1);
    const count = 100_000;
    for (let key = 0; key < count; key++) job.set(ITEMS, key, 1.5);
    await job.export({ full: true });
    const served = await opened(job.url);
    for (let key = 0; key < count; key++) job.remove(key);
    await job.export({ full: false });
    const asked = vi.spyOn(ExportContent.prototype, 'withoutRow');
    expect(await served.refresh()).toBe(true);
    const sizes = asked.mock.calls.map(([, , into]) => into.byteLength);
    vi.restoreAllMocks();
    expect(sizes.reduce((sum, bytes) => sum + bytes)).toBe(count * ITEMS.dim * 4);
    expect(Math.max(...sizes)).toBeLessThanOrEqual(TURN_BYTES);
    for (const key of [0, count - 1])
      expect(served.pull('items', keys(key))).toEqual(initialOf(ITEMS, BigInt(key)));
  });

  it('are followed by themselves, and told', async () => {
    const job = new Job(temporaryDirectory());
    await job.export({ full: true });
    let tell: (number: number) => void = () => undefined;
    const told = new Promise<number>((resolve) => {
      tell = resolve;
    });
    const served = await opened(job.url, { everyMs: 1, onChange: ({ number }) => tell(number) });
    job.set(ITEMS, 1, 42);
    await job.export({ full: false });
    expect(await told).toBe(2);
    expect(served.pull('items', keys(1))[0]).toBe(42);
  });
});

describe('damage', () => {
  it('a newer export that is damaged is not served, and the next one is', async () => {
    const job = new Job(temporaryDirectory());
    job.set(ITEMS, 1, 1);
    await job.export({ full: true });
    const told: unknown[] = [];
    const served = await opened(job.url, { onChange: ({ failure }) => told.push(failure?.code) });
    job.set(ITEMS, 1, 2);
    const [file] = await job.export({ full: false });
    writeFileSync(join(job.directory, file!), 'x');
    for (let time = 0; time < 2; time++) {
      const error = await rejected(served.refresh());
      expect(error).toMatchObject({ code: 'BAD_CHECKPOINT', message: expect.stringContaining(file!) });
    }
    expect(served.pull('items', keys(1))[0]).toBe(1);
    expect(served.status).toMatchObject({ number: 1, failure: { code: 'BAD_CHECKPOINT', number: 2 } });
    // Opened now, it is passed over, too.
    const late = await opened(job.url);
    expect(late.status).toMatchObject({ number: 1, failure: { code: 'BAD_CHECKPOINT', number: 2 } });
    job.set(ITEMS, 1, 3);
    await job.export({ full: true });
    for (const each of [served, late]) {
      expect(await each.refresh()).toBe(true);
      expect(each.pull('items', keys(1))[0]).toBe(3);
      expect(each.status.failure).toBeUndefined();
    }
    await new Promise(setImmediate);
    expect(told).toEqual(['BAD_CHECKPOINT', undefined]);
    writeFileSync(join(job.directory, '000001', 'manifest.json'), 'x');
    writeFileSync(join(job.directory, '000002', 'manifest.json'), 'x');
    writeFileSync(join(job.directory, '000003', 'manifest.json'), 'x');
    expect(await rejected(openExport(job.url))).toMatchObject({
      code: 'BAD_CHECKPOINT',
      message: expect.stringContaining('000003'),
    });
  });

  it('a place that is gone leaves what is served, and is over when it is back', async () => {
    const job = new Job(temporaryDirectory());
    job.set(ITEMS, 1, 1);
    await job.export({ full: true });
    const served = await opened(job.url);
    renameSync(job.directory, `${job.directory}-away`);
    expect(await rejected(served.refresh())).toMatchObject({ code: 'CHECKPOINT_MISSING' });
    expect(served.status.failure).toMatchObject({ code: 'CHECKPOINT_MISSING' });
    expect(served.pull('items', keys(1))[0]).toBe(1);
    renameSync(`${job.directory}-away`, job.directory);
    expect(await served.refresh()).toBe(false);
    expect(served.status.failure).toBeUndefined();
    job.set(ITEMS, 1, 5);
    await job.export({ full: true });
    expect(await served.refresh()).toBe(true);
    expect(served.pull('items', keys(1))[0]).toBe(5);
  });

  it('a place that was made anew is seen, also where it has come to the same number', async () => {
    const job = new Job(temporaryDirectory());
    job.set(ITEMS, 1, 1);
    job.set(ITEMS, 2, 2);
    await job.export({ full: true });
    const served = await opened(job.url);
    expect(await served.refresh()).toBe(false);
    rmSync(job.url, { recursive: true });
    const other = new Job(job.url);
    other.set(ITEMS, 1, 5);
    await other.export({ full: true });
    expect(await served.refresh()).toBe(true);
    expect(served.pull('items', keys(1))[0]).toBe(5);
    expect([...served.pull('items', keys(2))]).toEqual([...initialOf(ITEMS, 2n)]);
    expect(await served.refresh()).toBe(false);
  });

  it('an export that lacks shards is refused', async () => {
    const job = new Job(temporaryDirectory());
    await job.export({ full: true, lost: true });
    expect(await rejected(openExport(job.url))).toMatchObject({ code: 'UNRECOVERABLE' });
  });
});

it('values by key: codes of the binding', () => {
  const native = loadNative();
  const shard = native.createShard(native.createMemory(0), 0, 1, 0);
  const { dim, initializer, seed, optimizer } = BIASES;
  shard.addTable({ id: 1, dim, initializer, seed, optimizer });
  const call = (...args: Parameters<typeof shard.readValues> | unknown[]) =>
    codeOf(() => shard.readValues(...(args as Parameters<typeof shard.readValues>)));
  const one = new Float32Array(dim);
  expect(call(1, keys(1), one, true)).toBe('nothing was thrown');
  expect(call(2, keys(1), one, true)).toBe('BAD_ARGUMENT');
  expect(call(1, keys(1, 2), one, true)).toBe('BAD_ARGUMENT');
  expect(call(1, keys(1), one, true, new Uint8Array(2))).toBe('BAD_ARGUMENT');
  expect(call(1, keys(1), one, true, [])).toBe('BAD_ARGUMENT');
  expect(call(1, [1n], one, true)).toBe('BAD_ARGUMENT');
  expect(call(1, keys(1), [1], true)).toBe('BAD_ARGUMENT');
  shard.close();
  expect(call(1, keys(1), one, true)).toBe('CLOSED');
});

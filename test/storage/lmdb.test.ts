// The stores of the scheduler's state: one value, replaced atomically, in call order.
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { open } from 'lmdb';
import { describe, expect, it, onTestFinished } from 'vitest';
import { newJob } from '../../src/core/scheduler/scheduler.js';
import { MemoryStore } from '../../src/storage/index.js';
import { openLmdbStore } from '../../src/storage/lmdb.js';

function directory(): string {
  const path = mkdtempSync(join(tmpdir(), 'kintsugi-store-'));
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

describe('MemoryStore', () => {
  it('holds the newest value', async () => {
    const store = new MemoryStore<number>();
    expect(await store.load()).toBeUndefined();
    await store.save(1);
    await store.save(2);
    expect(await store.load()).toBe(2);
    await store.close();
  });
});

describe('LMDB', () => {
  it('uses a directory whatever its name looks like', async () => {
    const path = join(directory(), 'job-1.0');
    mkdirSync(path);
    const store = openLmdbStore<number>(path);
    await store.save(7);
    await store.close();
    expect(readdirSync(path)).toContain('data.mdb');
  });

  it('gives a value back to the next process that opens the directory', async () => {
    const path = join(directory(), 'made', 'on', 'demand');
    const state = newJob('job', 5, [{ name: 'embedding', k: 4, r: 1, groups: 5 }]);
    state.names['ps-0'] = { id: 2 ** 40, inc: 3 };
    state.map.tables.push({
      id: 1,
      name: 'täble',
      pool: 'embedding',
      dim: 4,
      optimizer: { kind: 'sgd', lr: 1e-300 },
      initializer: { kind: 'zeros' },
      seed: Number.MAX_SAFE_INTEGER,
    });
    const first = openLmdbStore<typeof state>(path);
    expect(await first.load()).toBeUndefined();
    await first.save(state);
    await first.close();
    const second = openLmdbStore<typeof state>(path);
    expect(await second.load()).toEqual(state);
    await second.close();
  });

  it('applies saves in call order', async () => {
    const path = directory();
    const store = openLmdbStore<number>(path);
    await Promise.all(Array.from({ length: 200 }, (_, i) => store.save(i)));
    expect(await store.load()).toBe(199);
    await store.close();
    const again = openLmdbStore<number>(path);
    expect(await again.load()).toBe(199);
    await again.close();
  });

  it('refuses another format rather than misreading it', async () => {
    const path = directory();
    const other = open({ path, encoding: 'msgpack' });
    await other.put('state', { format: 3, value: 'from the future' });
    await other.close();
    const store = openLmdbStore(path);
    await expect(store.load()).rejects.toMatchObject({
      code: 'BAD_ARGUMENT',
      message: expect.stringContaining('format 3'),
    });
    await store.close();
  });

  it('refuses a path that is a file', () => {
    const path = join(directory(), 'file');
    writeFileSync(path, 'not a directory');
    expect(() => openLmdbStore(join(path, 'state'))).toThrow(
      expect.objectContaining({ code: 'BAD_ARGUMENT' }),
    );
  });
});

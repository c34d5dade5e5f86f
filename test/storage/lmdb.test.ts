// The stores of the scheduler's state: entries by key, transactions in call order.
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { entriesOf } from '../../src/core/scheduler/entries.js';
import { newJob, stateOf } from '../../src/core/scheduler/scheduler.js';
import { MemoryStore } from '../../src/storage/index.js';
import { openLmdbStore } from '../../src/storage/lmdb.js';

function directory(): string {
  const path = mkdtempSync(join(tmpdir(), 'kintsugi-store-'));
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

const map = (entries: Record<string, unknown>) => new Map(Object.entries(entries));

describe('MemoryStore', () => {
  it('holds the newest values, and not what was deleted', async () => {
    const store = new MemoryStore();
    expect(await store.load()).toEqual(new Map());
    await store.write(map({ a: 1, b: 1 }));
    await store.write(map({ a: 2, b: undefined }));
    expect(await store.load()).toEqual(map({ a: 2 }));
    await store.close();
  });
});

describe('LMDB', () => {
  it('uses a directory whatever its name looks like', async () => {
    const path = join(directory(), 'job-1.0');
    mkdirSync(path);
    const store = openLmdbStore(path);
    await store.write(map({ a: 7 }));
    await store.close();
    expect(readdirSync(path)).toContain('data.mdb');
  });

  it('gives a state back to the next process that opens the directory', async () => {
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
    const first = openLmdbStore(path);
    expect(stateOf(await first.load())).toBeUndefined();
    await first.write(entriesOf(state));
    await first.close();
    const second = openLmdbStore(path);
    expect(stateOf(await second.load())).toEqual({ state, outdated: false });
    await second.close();
  });

  it('applies writes in call order, each whole', async () => {
    const path = directory();
    const store = openLmdbStore(path);
    const writes = Array.from({ length: 200 }, (_, i) =>
      store.write(map({ last: i, [`k/${i}`]: i, [`k/${i - 2}`]: undefined })),
    );
    await Promise.all(writes);
    expect(await store.load()).toEqual(map({ last: 199, 'k/198': 198, 'k/199': 199 }));
    await store.close();
    const again = openLmdbStore(path);
    expect(await again.load()).toEqual(map({ last: 199, 'k/198': 198, 'k/199': 199 }));
    await again.close();
  });

  it('refuses a path that is a file', () => {
    const path = join(directory(), 'file');
    writeFileSync(path, 'not a directory');
    expect(() => openLmdbStore(join(path, 'state'))).toThrow(
      expect.objectContaining({ code: 'BAD_ARGUMENT' }),
    );
  });
});

// The stores of the scheduler's state: entries by key, transactions in call order.
import { spawn } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { open } from 'lmdb';
import { describe, expect, it, onTestFinished } from 'vitest';
import { entriesOf } from '../../../src/core/scheduler/entries.js';
import { newJob, stateOf } from '../../../src/core/scheduler/scheduler.js';
import { openDirectoryStore } from '../../../src/stores/decisions/directory.js';
import { MemoryStore } from '../../../src/stores/decisions/index.js';

function directory(): string {
  const path = mkdtempSync(join(tmpdir(), 'kintsugi-store-'));
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

const map = (entries: Record<string, unknown>) => new Map(Object.entries(entries));
const code = (wanted: string, message = '') =>
  expect.objectContaining({ code: wanted, message: expect.stringContaining(message) });

/** Entries that the next process finds. */
async function found(path: string): Promise<Record<string, unknown>> {
  const store = openDirectoryStore(path);
  try {
    return Object.fromEntries(await store.load());
  } finally {
    await store.close();
  }
}

/** A store whose journal has a first line, and a line for each of the changes. */
async function written(path: string, ...changes: Record<string, unknown>[]): Promise<void> {
  const store = openDirectoryStore(path);
  for (const each of changes) await store.write(map(each));
  await store.close();
}

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

describe('a directory', () => {
  it('may have any name, and is made on demand', async () => {
    const path = join(directory(), 'made', 'on', 'job-1.0');
    await written(path, { a: 7 });
    expect(readdirSync(path)).toEqual(['journal-1']);
    expect(await found(path)).toEqual({ a: 7 });
  });

  it('gives a state back to the next process that opens it', async () => {
    const path = directory();
    const state = newJob('job', 5, [{ name: 'embedding', k: 4, r: 1, groups: 5 }]);
    state.names['ps-0'] = { id: 2 ** 40, inc: 3 };
    state.map.tables.push({
      id: 1,
      name: 'täble\n',
      pool: 'embedding',
      dim: 4,
      optimizer: { kind: 'sgd', lr: 1e-300 },
      initializer: { kind: 'zeros' },
      seed: Number.MAX_SAFE_INTEGER,
    });
    const first = openDirectoryStore(path);
    expect(stateOf(await first.load())).toBeUndefined();
    await first.write(entriesOf(state));
    await first.close();
    const second = openDirectoryStore(path);
    expect(stateOf(await second.load())).toEqual({ state, outdated: false });
    await second.close();
  });

  it('applies writes in call order, each whole', async () => {
    const path = directory();
    const store = openDirectoryStore(path);
    const writes = Array.from({ length: 200 }, (_, i) =>
      store.write(map({ last: i, [`k/${i}`]: i, [`k/${i - 2}`]: undefined })),
    );
    await Promise.all(writes);
    expect(await store.load()).toEqual(map({ last: 199, 'k/198': 198, 'k/199': 199 }));
    await store.close();
    expect(await found(path)).toEqual({ last: 199, 'k/198': 198, 'k/199': 199 });
  });

  it('takes a transaction of any size while another one is being written', async () => {
    const path = directory();
    const store = openDirectoryStore(path);
    const all = Array.from({ length: 200_000 }, (_, i): [string, unknown] => [`key-${i}`, i]);
    await Promise.all([store.write(map({ a: 1 })), store.write(map({ a: 2 })), store.write(new Map(all))]);
    await store.close();
    expect(Object.keys(await found(path))).toHaveLength(all.length + 1);
  });

  it('keeps a value as it was when it was written', async () => {
    const path = directory();
    const store = openDirectoryStore(path);
    const value = { list: [1] };
    const writing = [store.write(map({ value })), store.write(map({ value, empty: null }))];
    value.list.push(2);
    await Promise.all(writing);
    await store.close();
    expect(await found(path)).toEqual({ value: { list: [1] }, empty: null });
  });

  it('has one journal, which is written anew when it has grown', async () => {
    const path = directory();
    const store = openDirectoryStore(path, 2000);
    for (let i = 0; i < 200; i++) await store.write(map({ [`k/${i % 10}`]: { i, text: 'x'.repeat(50) } }));
    await store.close();
    const names = readdirSync(path);
    expect(names).toHaveLength(1);
    expect(Number(names[0]!.slice('journal-'.length))).toBeGreaterThan(3);
    expect(statSync(join(path, names[0]!)).size).toBeLessThan(5000);
    const entries = await found(path);
    expect(Object.values(entries).map((value) => (value as { i: number }).i)).toEqual(
      Array.from({ length: 10 }, (_, i) => 190 + i),
    );
  });

  it('that cannot be used is refused', async () => {
    const path = join(directory(), 'file');
    writeFileSync(path, 'not a directory');
    expect(() => openDirectoryStore(join(path, 'state'))).toThrow(code('BAD_ARGUMENT'));
    const future = directory();
    await written(future, { a: 1 });
    const journal = join(future, 'journal-1');
    // The check of it is right, because another version has written it.
    writeFileSync(journal, '96b8c6a28b1ea733 {"kintsugi":2,"entries":[]}\n');
    await expect(found(future)).rejects.toEqual(code('BAD_ARGUMENT', 'newer version'));
  });
});

describe('what a crash leaves', () => {
  it('any part of the last transaction: it is there as a whole, or not at all', async () => {
    const path = directory();
    const store = openDirectoryStore(path);
    await store.write(map({ a: 0 }));
    await store.write(map({ a: 1, b: 'ä' }));
    const before = statSync(join(path, 'journal-1')).size;
    await store.write(map({ a: 2, b: undefined, c: 'ö'.repeat(20) }));
    await store.close();
    const bytes = readFileSync(join(path, 'journal-1'));
    const cut = directory();
    for (let length = before; length <= bytes.length; length++) {
      writeFileSync(join(cut, 'journal-1'), bytes.subarray(0, length));
      const expected = length < bytes.length ? { a: 1, b: 'ä' } : { a: 2, c: 'ö'.repeat(20) };
      expect(await found(cut)).toEqual(expected);
    }
    // A machine that lost its power may have the length of the file, and not all of its blocks.
    for (let at = before; at < bytes.length; at++) {
      writeFileSync(join(cut, 'journal-1'), Buffer.from(bytes).fill(0, before, at));
      const expected = at > before ? { a: 1, b: 'ä' } : { a: 2, c: 'ö'.repeat(20) };
      expect(await found(cut)).toEqual(expected);
    }
  });

  it('a journal that was being made, or was to be removed', async () => {
    const path = directory();
    await written(path, { a: 1 }, { a: 2 });
    copyFileSync(join(path, 'journal-1'), join(path, 'kept'));
    writeFileSync(join(path, 'journal-2.new'), 'half a li');
    await written(path, { b: 1 });
    copyFileSync(join(path, 'kept'), join(path, 'journal-1'));
    expect(readdirSync(path).sort()).toEqual(['journal-1', 'journal-3', 'kept']);
    await written(path, { b: 2 });
    expect(readdirSync(path).sort()).toEqual(['journal-4', 'kept']);
    expect(await found(path)).toEqual({ a: 2, b: 2 });
  });

  it('damage before the end is refused, with its place', async () => {
    const path = directory();
    const store = openDirectoryStore(path);
    for (let i = 0; i < 4; i++) await store.write(map({ a: i, text: 'abc' }));
    await store.close();
    const journal = join(path, 'journal-1');
    const bytes = readFileSync(journal);
    const second = bytes.indexOf('\n') + 1;
    for (const at of [0, 5, 17, 30, second, second + 20, second + 40]) {
      const damaged = Buffer.from(bytes);
      damaged[at]! ^= 1;
      writeFileSync(journal, damaged);
      const where = `journal-1" is damaged at byte ${at < second ? 0 : second}`;
      await expect(found(path)).rejects.toEqual(code('STORE_FAILED', where));
    }
    const third = bytes.indexOf('\n', second) + 1;
    writeFileSync(journal, Buffer.concat([bytes.subarray(0, second), bytes.subarray(third)]));
    await expect(found(path)).rejects.toEqual(code('STORE_FAILED', `damaged at byte ${second}`));
    for (const length of [0, 5, second - 1]) {
      writeFileSync(journal, bytes.subarray(0, length));
      await expect(found(path)).rejects.toEqual(code('STORE_FAILED', 'damaged at byte 0'));
    }
  });

  // The compiled one: a process of its own that writes as fast as it can.
  const module = fileURLToPath(new URL('../../../dist/src/stores/decisions/directory.js', import.meta.url));
  const PROGRAM = `
    import { openDirectoryStore } from '${module}';
    const store = openDirectoryStore(process.argv[1], 3000);
    const from = ((await store.load()).get('last') ?? -1) + 1;
    for (let i = from; ; i++) {
      await store.write(new Map([['last', i], ['k/' + (i % 20), i], ['twin', i]]));
      process.stdout.write(i + '\\n');
    }`;

  it('SIGKILL in the midst of writing: what was acknowledged is there', async () => {
    const path = directory();
    for (let round = 0; round < 3; round++) {
      const child = spawn(process.execPath, ['--input-type=module', '-e', PROGRAM, path], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      let said = '';
      const goal = 40 * (round + 1);
      child.stdout.on('data', (text: Buffer) => {
        said += text;
        if (said.split('\n').length > goal) child.kill('SIGKILL');
      });
      await new Promise((resolve) => child.on('close', resolve));
      const acknowledged = Number(said.trim().split('\n').at(-1));
      const entries = await found(path);
      expect(entries.last).toBeGreaterThanOrEqual(acknowledged);
      expect(entries.last).toBeLessThanOrEqual(acknowledged + 1);
      expect(entries.twin).toBe(entries.last);
      expect(entries[`k/${Number(entries.last) % 20}`]).toBe(entries.last);
    }
  });
});

describe('two schedulers on one directory', () => {
  it('who only reads disturbs nobody; who writes has the job, and the other one learns it', async () => {
    const path = directory();
    const first = openDirectoryStore(path);
    await first.write(map({ a: 1 }));
    const second = openDirectoryStore(path);
    expect(await second.load()).toEqual(map({ a: 1 }));
    const third = openDirectoryStore(path);
    await third.load();
    await first.write(map({ a: 2 }));
    // The write of `second` would undo the change that was acknowledged to `first`.
    await expect(second.write(map({ b: 1 }))).rejects.toEqual(code('DEPOSED'));
    await first.write(map({ a: 3 }));
    await expect(third.write(map({ b: 1 }))).rejects.toEqual(code('DEPOSED'));
    const fourth = openDirectoryStore(path);
    await fourth.load();
    await fourth.write(map({ a: 4 }));
    await expect(first.write(map({ a: 5 }))).rejects.toEqual(code('DEPOSED'));
    await expect(first.write(map({ a: 6 }))).rejects.toEqual(code('DEPOSED'));
    await fourth.write(map({ b: 1 }));
    expect(await found(path)).toEqual({ a: 4, b: 1 });
    for (const store of [first, second, third, fourth]) await store.close();
  });
});

describe('a job of version 0.1.0', () => {
  it('is read from its LMDB file once', async () => {
    const path = directory();
    const old = open<unknown, string>({ path, encoding: 'msgpack' });
    await old.put('state', { format: 3 });
    await old.put('node/1', { host: 'ä', list: [1, 2 ** 40, 0.1], none: null });
    await old.close();
    const entries = { state: { format: 3 }, 'node/1': { host: 'ä', list: [1, 2 ** 40, 0.1], none: null } };
    expect(await found(path)).toEqual(entries);
    expect(existsSync(join(path, 'data.mdb'))).toBe(true);
    await written(path, { b: 1 });
    expect(readdirSync(path).sort()).toEqual(['data.mdb.imported', 'journal-1']);
    expect(await found(path)).toEqual({ ...entries, b: 1 });
  });

  it('that is something else is refused', async () => {
    const path = directory();
    writeFileSync(join(path, 'data.mdb'), 'x'.repeat(8192));
    await expect(found(path)).rejects.toEqual(code('BAD_ARGUMENT', 'not an LMDB file'));
  });
});

it('a folder that nobody may make is the store that fails, a file in its place a bad argument', () => {
  // Not even root makes folders there.
  expect(() => openDirectoryStore('/sys/kintsugi')).toThrow(code('STORE_FAILED', '/sys/kintsugi'));
  const file = join(directory(), 'file');
  writeFileSync(file, '');
  expect(() => openDirectoryStore(file)).toThrow(code('BAD_ARGUMENT', file));
});

// Folders that are made on the way to a state or a checkpoint, and their names in the folders above.
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { beforeEach, expect, it, onTestFinished, vi } from 'vitest';
import { openDirectoryStore } from '../../../src/stores/decisions/directory.js';
import { syncDirectory } from '../../../src/stores/decisions/sync.js';

vi.mock('../../../src/stores/decisions/sync.js', async (original) => {
  const actual = await original<typeof import('../../../src/stores/decisions/sync.js')>();
  return { ...actual, syncDirectory: vi.fn(actual.syncDirectory) };
});

const synced = () => vi.mocked(syncDirectory).mock.calls.map(([path]) => path);
beforeEach(() => void vi.mocked(syncDirectory).mockClear());

function directory(): string {
  const path = mkdtempSync(join(tmpdir(), 'kintsugi-folder-'));
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

async function writtenAt(path: string): Promise<void> {
  const store = openDirectoryStore(path);
  await store.write(new Map([['map', 1]]));
  await store.close();
}

it('the first write to a state makes every folder durable that was made for it', async () => {
  const root = directory();
  const path = join(root, 'a', 'b', 'c');
  await writtenAt(path);
  expect(synced()).toEqual([path, join(root, 'a', 'b'), join(root, 'a'), root]);
});

it('also where the state is named from the current directory', async () => {
  const root = directory();
  await writtenAt(relative(process.cwd(), join(root, 'a', 'b')));
  expect(synced().slice(1)).toEqual([join(root, 'a'), root]);
});

it('a folder that was there may be one that was just made', async () => {
  const root = directory();
  mkdirSync(join(root, 'a'));
  await writtenAt(join(root, 'a'));
  expect(synced()).toEqual([join(root, 'a'), root]);
});

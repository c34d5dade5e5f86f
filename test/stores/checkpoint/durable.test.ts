/** Folders of a manifest are durable when it is stored, whoever made them. */
import { mkdirSync } from 'node:fs';
import { join, relative } from 'node:path';
import { expect, test, vi } from 'vitest';
import { DirectoryPlace } from '../../../src/stores/checkpoint/directory.js';
import { syncDirectory } from '../../../src/stores/decisions/sync.js';
import { temporaryDirectory } from './support.js';

vi.mock('../../../src/stores/decisions/sync.js', async (original) => {
  const actual = await original<typeof import('../../../src/stores/decisions/sync.js')>();
  return { ...actual, syncDirectory: vi.fn(actual.syncDirectory) };
});

test('every folder that is made on the way to a file is durable', async () => {
  const root = temporaryDirectory();
  const place = new DirectoryPlace(join(root, 'a', 'place'));
  vi.mocked(syncDirectory).mockClear();
  await place.put('000001/part', [new Uint8Array(1)]);
  const synced = vi.mocked(syncDirectory).mock.calls.map(([path]) => relative(root, path));
  expect(synced).toEqual(['a/place', 'a', '', 'a/place', 'a/place/000001']);
});

test('a manifest is durable in folders that a writer made who died before they were', async () => {
  const root = join(temporaryDirectory(), 'place');
  mkdirSync(join(root, '.partial'), { recursive: true });
  mkdirSync(join(root, '000001'));
  const place = new DirectoryPlace(root);
  await place.put('000001/manifest.json', [new Uint8Array(1)], { ifAbsent: true });
  const synced = vi.mocked(syncDirectory).mock.calls.map(([path]) => path);
  expect(synced.slice(-3)).toEqual([join(root, '000001'), root, join(root, '..')]);
});

/** Folders that are durable, with their names in the folders above. */
import { mkdir } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { syncDirectory } from './sync.js';

/** Makes a folder and those above it, durably. */
export async function makeFolder(path: string): Promise<void> {
  const first = await mkdir(path, { recursive: true });
  if (first !== undefined) await syncMade(path, first);
}

/** Makes durable that there is a folder, and those above it up to `first`, which `mkdir` says it has made. */
export async function syncMade(path: string, first: string): Promise<void> {
  const { length } = resolve(first);
  for (let made = resolve(path); ; made = dirname(made)) {
    await syncDirectory(dirname(made));
    if (made.length <= length) return;
  }
}

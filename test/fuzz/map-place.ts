/** A place in memory. */
import { createHash } from 'node:crypto';
import { publishCheckpoint } from '../../src/stores/checkpoint/checkpoints.js';
import {
  noSuchFile,
  type Place,
  type StoredFile,
  type StoredObject,
  tooLarge,
} from '../../src/stores/checkpoint/place.js';
import { draftOf, joined, writeShards } from '../stores/checkpoint/support.js';

export class MapPlace implements Place {
  readonly url = 'memory';
  readonly files = new Map<string, Uint8Array<ArrayBuffer>>();

  static async withCheckpoint(seed: number): Promise<MapPlace> {
    const place = new MapPlace();
    await publishCheckpoint(place, draftOf(1, await writeShards(place, 1, seed % 1000)));
    return place;
  }

  async put(name: string, parts: readonly Uint8Array[]): Promise<StoredObject> {
    const bytes = joined(parts);
    this.files.set(name, bytes);
    return { bytes: bytes.byteLength, sha256: createHash('sha256').update(bytes).digest('hex') };
  }

  async get(name: string, { atMost = 2 ** 30 } = {}): Promise<Uint8Array<ArrayBuffer>> {
    const file = this.files.get(name);
    if (!file) throw noSuchFile(name);
    if (file.byteLength > atMost) throw tooLarge(name, file.byteLength, atMost);
    return file.slice();
  }

  async *list(prefix: string): AsyncGenerator<StoredFile> {
    for (const [name, { byteLength: bytes }] of this.files)
      if (name.startsWith(prefix)) yield { name, bytes };
  }

  async remove(names: readonly string[]): Promise<void> {
    for (const name of names) this.files.delete(name);
  }

  async close(): Promise<void> {}
}

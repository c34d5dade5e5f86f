/**
 * The checkpoint that the comparison needs, and as lean as it can be made: training goes on while it is
 * written, rows go from the answers of the PS to one file per shard without conversion or hashing, and come
 * back as large assignments that overlap with reading. It is complete when the directory has its name: one
 * that was under way at the failure does not count.
 */
import { mkdir, open, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Client } from '../../../src/library/client/client.js';
import { eachAtMost, ranges } from '../../../src/library/client/concurrent.js';
import { internalsOf } from '../../../src/library/client/connected.js';
import { batchRows, poolOfTable, shardKeys } from '../../../src/library/client/scan.js';
import { pullRows, sortedLists } from '../../../src/library/tools/rows.js';
import { shardCount } from '../../../src/protocol/map.js';

/** Shards that are written at once, and batches that are restored at once. */
const AT_ONCE = 4;

const bytesOf = (view: BigUint64Array | Float32Array) =>
  new Uint8Array(view.buffer, view.byteOffset, view.byteLength);

/** @returns rows written */
export async function writeCheckpoint(client: Client, table: string, directory: string): Promise<number> {
  const { spec } = client.table(table);
  const partial = `${directory}.partial`;
  await rm(partial, { recursive: true, force: true });
  await mkdir(partial, { recursive: true });
  let rows = 0;
  const pool = poolOfTable(client.clusterMap, spec);
  const shards = Array.from({ length: shardCount(pool) }, (_, shard) => shard);
  const { session } = internalsOf(client);
  await eachAtMost(AT_ONCE, shards, async (shard) => {
    const file = await open(join(partial, `${shard}`), 'w');
    try {
      // A batch is its keys and then its rows, as many as fit, but for the last one of a file.
      for await (const keys of sortedLists(shardKeys(session, spec, shard), Number.POSITIVE_INFINITY)) {
        rows += keys.length;
        for await (const batch of pullRows(client, spec, keys)) {
          await file.write(bytesOf(batch.keys));
          await file.write(bytesOf(batch.rows));
        }
      }
      await file.datasync();
    } finally {
      await file.close();
    }
  });
  await rm(directory, { recursive: true, force: true });
  await rename(partial, directory);
  return rows;
}

/** Into an empty table of the same width. @returns rows restored */
export async function restoreCheckpoint(client: Client, table: string, directory: string): Promise<number> {
  const { spec } = client.table(table);
  const width = client.rowWidth(spec);
  const rowBytes = 8 + width * 4;
  let rows = 0;
  for (const name of await readdir(directory)) {
    const file = await open(join(directory, name), 'r');
    try {
      const total = Math.floor((await file.stat()).size / rowBytes);
      rows += total;
      await eachAtMost(AT_ONCE, ranges(total, batchRows(width)), async ([start, end]) => {
        const bytes = new Uint8Array((end - start) * rowBytes);
        await file.read(bytes, 0, bytes.length, start * rowBytes);
        const keys = new BigUint64Array(bytes.buffer, 0, end - start);
        const gradients = new Float32Array(bytes.buffer, keys.byteLength);
        await client.assign([{ table, keys, gradients }]);
      });
    } finally {
      await file.close();
    }
  }
  return rows;
}

/**
 * A digest of everything that training has produced: the evidence that a recovered job has, bit for bit, what
 * an undisturbed one has. It depends on rows only, not on where they lie: SHA-256 over the tables in order of
 * name, of each
 *
 *   u32 bytes of its name, its name (UTF-8), u32 floats per row, u64 rows, then per row in order of key:
 *   u64 key, f32 values[dim], f32 optimizer state[...]            (little-endian, no padding)
 *
 * A job that is being trained has no single state; digest it when its workers have stopped.
 */
import { createHash, type Hash } from 'node:crypto';
import { KintsugiError } from '../../common/errors.js';
import { limitText } from '../../protocol/limits.js';
import type { TableSpec } from '../../protocol/map.js';
import type { Client } from '../client/client.js';
import { internalsOf } from '../client/connected.js';
import { keysInOrder, rowCounts } from '../client/scan.js';
import { pullRows, type RowBatch } from './rows.js';

/** Keys that are held at once, of 8 bytes each: what the memory of a digest depends on, with `pullRows`. */
const KEYS_AT_ONCE = 1 << 20;
/** The number of a table's rows comes before them. A table that has become longer is read again. */
const MAX_ATTEMPTS = 5;

/** A digest, and what it was made of. */
export interface Digest {
  /** hexadecimal */
  sha256: string;
  /** Rows of all tables together. */
  rows: number;
  tables: number;
}

/**
 * SHA-256 over every row of every table: keys, values and optimizer state, without the tables of audits. Jobs
 * of different shapes with the same rows have the same digest. With a policy, ages of rows belong to them.
 * Stop training first: a job that is being trained has no single state.
 * @throws LIMIT (rows of a table come or go again and again while it is read), UNRECOVERABLE, BAD_ARGUMENT,
 * CLOSED
 */
export async function digest(client: Client): Promise<Digest> {
  const { session } = internalsOf(client);
  let hash = createHash('sha256');
  const tables = client.tables().sort((a, b) => (a.name < b.name ? -1 : 1));
  let counts = await rowCounts(session);
  let rows = 0;
  for (const spec of tables) {
    for (let attempt = 1; ; attempt++) {
      const before = hash.copy();
      const wanted = counts.get(spec.id) ?? 0;
      const read = await addTable(client, spec, wanted, hash);
      if (read === wanted) {
        rows += wanted;
        break;
      }
      if (attempt === MAX_ATTEMPTS) {
        const text = `rows of table "${spec.name}" came or went while it was read; stop training first`;
        throw new KintsugiError('LIMIT', limitText(text, 'maxDigestAttempts', MAX_ATTEMPTS));
      }
      hash = before;
      // Counts of a table with a policy have rows that are gone and not evicted yet.
      counts = spec.policy ? new Map(counts).set(spec.id, read) : await rowCounts(session);
    }
  }
  return { sha256: hash.digest('hex'), rows, tables: tables.length };
}

/** Adds a table that has `rows` rows, and returns how many there were. */
async function addTable(client: Client, spec: TableSpec, rows: number, hash: Hash): Promise<number> {
  const width = client.rowWidth(spec);
  hash.update(tableHeader(spec.name, width, rows));
  let read = 0;
  if (rows === 0) return read;
  for await (const keys of keysInOrder(internalsOf(client).session, spec, KEYS_AT_ONCE, rows)) {
    read += keys.length;
    for await (const batch of pullRows(client, spec, keys)) hash.update(interleave(batch, width));
  }
  return read;
}

function tableHeader(name: string, width: number, rows: number): Uint8Array {
  const text = new TextEncoder().encode(name);
  const header = new Uint8Array(text.length + 16);
  const view = new DataView(header.buffer);
  view.setUint32(0, text.length, true);
  header.set(text, 4);
  view.setUint32(text.length + 4, width, true);
  view.setBigUint64(text.length + 8, BigInt(rows), true);
  return header;
}

/**
 * key, row, key, row ...: as 32-bit words, so that bits stay what they are (also of NaNs) and no call is made
 * per row.
 */
export function interleave({ keys, rows }: RowBatch, width: number): Uint32Array {
  const from = new Uint32Array(rows.buffer, rows.byteOffset, rows.length);
  const keyWords = new Uint32Array(keys.buffer, keys.byteOffset, keys.length * 2);
  const to = new Uint32Array(keys.length * (width + 2));
  let at = 0;
  let word = 0;
  for (let i = 0; i < keys.length; i++) {
    to[at++] = keyWords[i * 2]!;
    to[at++] = keyWords[i * 2 + 1]!;
    for (let x = 0; x < width; x++) to[at++] = from[word++]!;
  }
  return to;
}

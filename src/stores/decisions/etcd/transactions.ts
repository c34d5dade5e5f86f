/**
 * Entries as keys of etcd, and changes as operations that fit into its transactions. etcd takes 128
 * operations and 1.5 MB in one request by default.
 *
 * | key below the prefix | value |
 * | --- | --- |
 * | leader | address of the leader, with its lease |
 * | sequence | another value after each transaction, so that none is carried out twice |
 * | entry/KEY | an entry as JSON, or `#N`: it is in N pieces |
 * | entry/KEY NUL I | piece I of a large entry |
 * | log/I | piece I of a transaction that is too large for one request |
 * | commit | number of pieces of a logged transaction that holds, and is to be carried out |
 */
import { KintsugiError } from '../../../common/errors.js';
import type { Entries } from '../index.js';

const MAX_OPERATIONS = 100;
const MAX_REQUEST_BYTES = 1024 * 1024;
/** Most bytes of one piece of a value. */
const MAX_PIECE_BYTES = 512 * 1024;

const NUL = '\0';

export interface Operation {
  bytes: number;
  /** The operation in the JSON of the gateway. */
  request: object;
}

export const base64 = (text: string | Uint8Array): string => Buffer.from(text as string).toString('base64');

export function put(key: string, value: string | Uint8Array): Operation {
  const bytes = Buffer.byteLength(key) + Buffer.byteLength(value);
  return { bytes, request: { requestPut: { key: base64(key), value: base64(value) } } };
}

export function remove(key: string): Operation {
  return { bytes: Buffer.byteLength(key), request: { requestDeleteRange: { key: base64(key) } } };
}

/** All keys from `first` to before `end`. */
export function removeRange(first: string, end: string): Operation {
  const request = { requestDeleteRange: { key: base64(first), range_end: base64(end) } };
  return { bytes: first.length + end.length, request };
}

/** The first key behind those that begin with `prefix`. */
export function endOf(prefix: string): string {
  return prefix.slice(0, -1) + String.fromCharCode(prefix.charCodeAt(prefix.length - 1) + 1);
}

/** The operations in order, in as few transactions as possible. */
export function batches(operations: readonly Operation[]): Operation[][] {
  const all: Operation[][] = [];
  let bytes = 0;
  for (const operation of operations) {
    const last = all.at(-1);
    if (last && last.length < MAX_OPERATIONS && bytes + operation.bytes <= MAX_REQUEST_BYTES) {
      last.push(operation);
      bytes += operation.bytes;
    } else {
      all.push([operation]);
      bytes = operation.bytes;
    }
  }
  return all;
}

/** Slices of bytes that each fit into a value. */
export function pieces(text: string): Buffer[] {
  const bytes = Buffer.from(text);
  const count = Math.ceil(bytes.length / MAX_PIECE_BYTES);
  return Array.from({ length: count }, (_, i) =>
    bytes.subarray(i * MAX_PIECE_BYTES, (i + 1) * MAX_PIECE_BYTES),
  );
}

/** Entries in etcd: which operations change them, and what keys and values say. */
export class EntryKeys {
  /** Key of an entry that is in pieces -> how many there are, perhaps of different values. */
  private readonly split = new Map<string, number>();

  /** `root`: the beginning of the keys of all entries. */
  constructor(private readonly root: string) {}

  /** No key comes twice, nor in a range that is removed: etcd refuses such a transaction. */
  operations(changes: Entries): Operation[] {
    const operations: Operation[] = [];
    for (const [key, value] of changes) {
      const path = this.root + key;
      const parts = value === undefined ? [] : pieces(JSON.stringify(value));
      const count = parts.length > 1 ? parts.length : 0;
      for (let i = count; i < (this.split.get(key) ?? 0); i++) operations.push(remove(`${path}${NUL}${i}`));
      if (count > 0) this.split.set(key, count);
      else this.split.delete(key);
      if (parts.length === 0) operations.push(remove(path));
      else operations.push(put(path, count > 0 ? `#${count}` : parts[0]!));
      if (count > 0) for (const [i, part] of parts.entries()) operations.push(put(`${path}${NUL}${i}`, part));
    }
    return operations;
  }

  /** Entries in the keys that were read. Those that are `replaced` may be half-written, and are left out. */
  entries(read: ReadonlyMap<string, Buffer>, replaced: Entries): Map<string, unknown> {
    const entries = new Map<string, unknown>();
    this.split.clear();
    for (const [path, value] of read) {
      const [key, piece] = path.slice(this.root.length).split(NUL) as [string, string?];
      if (piece !== undefined) this.split.set(key, Math.max(this.split.get(key) ?? 0, Number(piece) + 1));
      if (piece !== undefined || replaced.has(key)) continue;
      const text = value.toString();
      const count = /^#(\d+)$/.exec(text)?.[1];
      const whole = count === undefined ? text : joined(read, `${path}${NUL}`, Number(count));
      entries.set(key, JSON.parse(whole));
    }
    return entries;
  }
}

/** @throws STORE_FAILED when a piece is missing */
export function joined(read: ReadonlyMap<string, Buffer>, path: string, count: number): string {
  const parts = Array.from({ length: count }, (_, i) => read.get(`${path}${i}`));
  if (parts.includes(undefined))
    throw new KintsugiError('STORE_FAILED', `a piece of "${path.replace(NUL, '')}" is missing in etcd`);
  return Buffer.concat(parts as Buffer[]).toString();
}

/**
 * Entries as keys of etcd, and changes as operations that fit into its transactions. etcd takes 128
 * operations and 1.5 MB in one request by default.
 *
 * | key below the prefix | value |
 * | --- | --- |
 * | leader | address of the leader, with its lease |
 * | entry/KEY | an entry as JSON, or `#N`: it is in N pieces |
 * | entry/KEY NUL I | piece I of a large entry |
 * | log/I | piece I of a transaction that is too large for one request |
 * | commit | number of pieces of a logged transaction that holds, and is to be carried out |
 */
import type { Entries } from '../index.js';

export const MAX_OPERATIONS = 100;
export const MAX_REQUEST_BYTES = 1024 * 1024;
/** Of a value. */
export const MAX_PIECE_BYTES = 512 * 1024;

const NUL = '\0';

export interface Operation {
  bytes: number;
  /** As the gateway has it. */
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

/** In order, as few as fit. */
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
  /** Keys of entries that are in pieces. */
  private readonly split = new Set<string>();

  /** `root`: what the keys of all entries begin with. */
  constructor(private readonly root: string) {}

  operations(changes: Entries): Operation[] {
    const operations: Operation[] = [];
    for (const [key, value] of changes) {
      const path = this.root + key;
      if (this.split.delete(key)) operations.push(removeRange(`${path}${NUL}`, `${path}\u0001`));
      if (value === undefined) {
        operations.push(remove(path));
        continue;
      }
      const parts = pieces(JSON.stringify(value));
      if (parts.length === 1) {
        operations.push(put(path, parts[0]!));
        continue;
      }
      this.split.add(key);
      operations.push(put(path, `#${parts.length}`));
      for (const [i, part] of parts.entries()) operations.push(put(`${path}${NUL}${i}`, part));
    }
    return operations;
  }

  /** Of what was read. */
  entries(read: ReadonlyMap<string, Buffer>): Map<string, unknown> {
    const entries = new Map<string, unknown>();
    this.split.clear();
    for (const [path, value] of read) {
      const key = path.slice(this.root.length);
      if (key.includes(NUL)) continue;
      const text = value.toString();
      const count = /^#(\d+)$/.exec(text)?.[1];
      if (count !== undefined) this.split.add(key);
      const whole = count === undefined ? text : joined(read, `${path}${NUL}`, Number(count));
      entries.set(key, JSON.parse(whole));
    }
    return entries;
  }
}

/** @throws when a piece is missing */
export function joined(read: ReadonlyMap<string, Buffer>, path: string, count: number): string {
  const parts = Array.from({ length: count }, (_, i) => read.get(`${path}${i}`));
  if (parts.includes(undefined)) throw new Error(`a piece of "${path}" is missing`);
  return Buffer.concat(parts as Buffer[]).toString();
}

/**
 * A segment: one safetensors file with rows of one shard. Its tensors are `<table>.keys` U64[n],
 * `<table>.values` F32[n, dim], `<table>.state` F32[n, w] where rows have state, `<table>.removed` U64[m]
 * where rows were removed, slots of its filter (filter-part.ts) where it has one, and the de-duplication
 * state of the shard (sessions.ts) in its last segment. Tensors of 8-byte numbers come first, so that
 * every tensor can be used in place.
 *
 * Encoding copies no row: a segment is a list of byte arrays. Decoding gives views of the file's bytes,
 * and takes memory only for lists as long as the file is.
 */

import { invariant } from '../../common/errors.js';
import type { OptimizerSpec } from '../../engine/optimizers.js';
import type { TablePolicy } from '../../engine/policies.js';
import { CHECKPOINT_FORMAT, CHECKPOINT_VERSION } from '../../protocol/checkpoints.js';
import type { DedupEntry } from '../../protocol/messages.js';
import { byteLength, bytesOf } from './bytes.js';
import { areOfFilter, type FilterRead, type FilterToWrite, filterText, parsedFilter } from './filter-part.js';
import { rowParts } from './layout.js';
import {
  bad,
  DTYPES,
  type Dtype,
  decodeHeader,
  encodeHeader,
  type Tensor,
  type TensorLayout,
  type TensorSpec,
} from './safetensors.js';
import { decodeSessions, encodeSessions, SESSION_COLUMNS } from './sessions.js';

/** Most bytes of a segment's header: all tables of a job with the longest names take fewer. */
const MAX_SEGMENT_HEADER_BYTES = 16 * 1024 * 1024;

/** Which shard a segment is of, and the stream position that it belongs to. */
export interface SegmentOwner {
  group: number;
  member: number;
  position: number;
}

/** A part of the state of a row, such as `exp_avg`. */
export interface StateSize {
  name: string;
  floats: number;
}

interface TableShape {
  name: string;
  dim: number;
  /** The parts of `state` in their order; empty: rows have values only. */
  stateParts: readonly StateSize[];
}

/** Rows of a table to be written; the arrays of a list follow each other. */
export interface TableToWrite extends TableShape {
  /** n keys */
  keys: readonly BigUint64Array[];
  /** n x dim floats */
  values: readonly Float32Array[];
  /** n x w floats; w is the sum of `stateParts` */
  state: readonly Float32Array[];
  /** Keys whose rows are gone; they are removed before the rows of this segment come. */
  removed?: readonly BigUint64Array[] | undefined;
  /** Some slots of the filter of a table that has one. */
  filter?: FilterToWrite | undefined;
}

/** Rows of a table that were read: views of the segment's bytes. */
export interface TableRead extends TableShape {
  keys: BigUint64Array;
  values: Float32Array;
  state: Float32Array;
  removed: BigUint64Array;
  filter?: FilterRead;
}

export interface Segment extends SegmentOwner {
  tables: TableRead[];
  /** Set in the last segment of a shard. */
  sessions: DedupEntry[] | undefined;
}

/** The state of rows of a table. */
export function statePartsOf(dim: number, optimizer: OptimizerSpec, policy?: TablePolicy): StateSize[] {
  return rowParts(dim, optimizer, policy)
    .slice(1)
    .map(({ name, floats }) => ({ name, floats }));
}

function widthOf(parts: readonly StateSize[]): number {
  return parts.reduce((sum, { floats }) => sum + floats, 0);
}

/** Rows of all tables. */
export function rowsOf(tables: readonly TableToWrite[]): number {
  return tables.reduce((sum, table) => sum + byteLength(table.keys.map(bytesOf)) / 8, 0);
}

// ---- encoding

const VERSION = String(CHECKPOINT_VERSION);
const CODES = 'sessions.codes';

/** The file as parts that follow each other. `sessions`: only in the last segment of a shard. */
export function encodeSegment(
  tables: readonly TableToWrite[],
  sessions: readonly DedupEntry[] | undefined,
  { group, member, position }: SegmentOwner,
): Uint8Array[] {
  const metadata: Record<string, string> = {
    format: CHECKPOINT_FORMAT,
    version: VERSION,
    group: String(group),
    member: String(member),
    position: String(position),
  };
  const specs: TensorSpec[] = [];
  const parts: Uint8Array[] = [];
  const add = (spec: TensorSpec, arrays: readonly ArrayBufferView[]): void => {
    const bytes = arrays.map(bytesOf);
    const wanted = spec.shape.reduce((product, size) => product * size, DTYPES[spec.dtype]);
    invariant(byteLength(bytes) === wanted, 'arrays have the shape of their tensor', spec);
    specs.push(spec);
    for (const each of bytes) parts.push(each);
  };
  const countOf = (arrays: readonly BigUint64Array[]): number =>
    arrays.reduce((sum, { length }) => sum + length, 0);
  for (const { name, keys, removed = [], filter } of tables) {
    add({ name: `${name}.keys`, dtype: 'U64', shape: [countOf(keys)] }, keys);
    const gone = countOf(removed);
    if (gone > 0) add({ name: `${name}.removed`, dtype: 'U64', shape: [gone] }, removed);
    if (!filter) continue;
    add({ name: `${name}.filter.slots`, dtype: 'U64', shape: [countOf(filter.slots)] }, filter.slots);
    metadata[`${name}.filter`] = filterText(filter.state);
  }
  if (sessions) {
    const numbers = encodeSessions(sessions);
    for (const name of ['ended', 'last', 'refused'] as const) {
      const columns = SESSION_COLUMNS[name];
      const count = numbers[name].length / 2 / columns;
      if (name === 'refused' && count === 0) continue;
      add({ name: `sessions.${name}`, dtype: 'U64', shape: [count, columns] }, [numbers[name]]);
    }
    if (numbers.codes.length > 0) metadata[CODES] = numbers.codes.join();
  }
  for (const { name, dim, stateParts, keys, values, state } of tables) {
    const rows = countOf(keys);
    add({ name: `${name}.values`, dtype: 'F32', shape: [rows, dim] }, values);
    if (stateParts.length === 0) continue;
    add({ name: `${name}.state`, dtype: 'F32', shape: [rows, widthOf(stateParts)] }, state);
    metadata[`${name}.state`] = stateParts.map((part) => `${part.name}:${part.floats}`).join();
  }
  for (const { name, filter } of tables) {
    if (!filter) continue;
    const shape = [countOf(filter.slots), filter.width];
    add({ name: `${name}.filter.counters`, dtype: 'U8', shape }, filter.counters);
  }
  invariant(new Set(specs.map(({ name }) => name)).size === specs.length, 'a table occurs once');
  const { header } = encodeHeader(specs, metadata);
  invariant(header.byteLength <= MAX_SEGMENT_HEADER_BYTES, 'the header is small', header.byteLength);
  return [header, ...parts];
}

// ---- decoding

/**
 * Reads a whole file, whose bytes must not change afterwards. @throws BAD_CHECKPOINT with the file's name and
 * what is wrong
 */
export function decodeSegment(bytes: Uint8Array, file: string): Segment {
  const layout = layoutOf(bytes, file);
  const { metadata } = layout;
  if (metadata.format !== CHECKPOINT_FORMAT) throw bad(file, 'it is not a segment of a checkpoint');
  if (metadata.version !== VERSION) {
    throw bad(file, `format version ${metadata.version}; this program reads version ${VERSION}`);
  }
  const reader = new SegmentReader(bytes, layout, file);
  const tables = reader.tableNames().map((name) => reader.table(name));
  const sessions = reader.sessions();
  const owner = {
    group: reader.number('group'),
    member: reader.number('member'),
    position: reader.number('position'),
  };
  reader.refuseRest();
  return { ...owner, tables, sessions };
}

function layoutOf(bytes: Uint8Array, file: string): TensorLayout {
  if (bytes.byteLength < 8) throw bad(file, `truncated: ${bytes.byteLength} bytes`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const length = view.getBigUint64(0, true);
  if (length > BigInt(MAX_SEGMENT_HEADER_BYTES)) throw bad(file, `a header of ${length} bytes`);
  const end = 8 + Number(length);
  if (end > bytes.byteLength) {
    throw bad(file, `truncated: ${bytes.byteLength} bytes, the header alone has ${length}`);
  }
  return decodeHeader(bytes.subarray(8, end), bytes.byteLength, file);
}

const KEYS = '.keys';

/** Takes the tensors of a file one after the other. A tensor that is left does not belong in the file. */
class SegmentReader {
  private readonly rest: Map<string, Tensor>;

  constructor(
    private readonly bytes: Uint8Array,
    private readonly layout: TensorLayout,
    private readonly file: string,
  ) {
    this.rest = new Map(layout.tensors);
  }

  tableNames(): string[] {
    const names = [...this.rest.keys()].filter((name) => name.endsWith(KEYS));
    return names.map((name) => name.slice(0, -KEYS.length));
  }

  table(name: string): TableRead {
    const keys = this.take(`${name}.keys`, 'U64', 1)!;
    const values = this.take(`${name}.values`, 'F32', 2);
    const state = this.take(`${name}.state`, 'F32', 2);
    const removed = this.take(`${name}.removed`, 'U64', 1);
    if (name === '' || !values) throw this.bad(`table "${name}" has no values`);
    const [rows, dim] = values.shape as [number, number];
    const stateParts = this.stateParts(name);
    const width = widthOf(stateParts);
    if (keys.shape[0] !== rows) throw this.bad(`table "${name}" has ${keys.shape[0]} keys, ${rows} rows`);
    if (dim < 1) throw this.bad(`table "${name}" has rows without values`);
    const shape = state ? state.shape : [rows, 0];
    if (shape[0] !== rows || shape[1] !== width) {
      throw this.bad(`table "${name}" has state of the shape [${shape}], not [${rows},${width}]`);
    }
    const filter = this.filter(name);
    return {
      name,
      dim,
      stateParts,
      ...(filter && { filter }),
      keys: this.numbers(keys),
      values: this.floats(values),
      state: state ? this.floats(state) : new Float32Array(0),
      removed: removed ? this.numbers(removed) : new BigUint64Array(0),
    };
  }

  private filter(table: string): FilterRead | undefined {
    const slots = this.take(`${table}.filter.slots`, 'U64', 1);
    const counters = this.take(`${table}.filter.counters`, 'U8', 2);
    const text = this.text(`${table}.filter`);
    if (text === undefined && !slots && !counters) return undefined;
    const state = parsedFilter(text ?? '');
    if (!state || !slots || !counters) throw this.bad(`table "${table}" has no valid filter`);
    const [count, width] = counters.shape as [number, number];
    const filter = { state, width, slots: this.numbers(slots), counters: this.octets(counters) };
    if (slots.shape[0] !== count || !areOfFilter(filter.slots, state))
      throw this.bad(`the filter of table "${table}" has other slots than its counters`);
    return filter;
  }

  sessions(): DedupEntry[] | undefined {
    const ended = this.take('sessions.ended', 'U64', 2);
    const last = this.take('sessions.last', 'U64', 2);
    const refused = this.take('sessions.refused', 'U64', 2);
    if (!ended && !last && !refused) return undefined;
    if (!ended || !last) throw this.bad('the state of sessions is not complete');
    const halves = (tensor: Tensor | undefined, columns: number): Uint32Array => {
      if (!tensor) return new Uint32Array(0);
      if (tensor.shape[1] !== columns) throw this.bad(`tensor "${tensor.name}" needs ${columns} columns`);
      const { buffer, byteOffset, length } = this.numbers(tensor);
      return new Uint32Array(buffer, byteOffset, 2 * length);
    };
    const codes = this.text(CODES);
    return decodeSessions(
      {
        ended: halves(ended, SESSION_COLUMNS.ended),
        last: halves(last, SESSION_COLUMNS.last),
        refused: halves(refused, SESSION_COLUMNS.refused),
        codes: codes === undefined ? [] : codes.split(','),
      },
      this.file,
    );
  }

  number(name: string): number {
    const found = this.text(name) ?? '';
    const number = Number(found);
    if (!/^\d{1,16}$/.test(found) || !Number.isSafeInteger(number)) throw this.bad(`no valid "${name}"`);
    return number;
  }

  refuseRest(): void {
    for (const name of this.rest.keys()) throw this.bad(`tensor "${name}" belongs to no table`);
  }

  private bad(problem: string): Error {
    return bad(this.file, problem);
  }

  private text(name: string): string | undefined {
    return Object.hasOwn(this.layout.metadata, name) ? this.layout.metadata[name] : undefined;
  }

  /** `name:floats,...` */
  private stateParts(table: string): StateSize[] {
    const listed = this.text(`${table}.state`);
    if (listed === undefined) return [];
    return listed.split(',').map((part) => {
      const [, name, floats] = /^([a-z_]{1,64}):(\d{1,6})$/.exec(part) ?? [];
      if (name === undefined || Number(floats) < 1) throw this.bad(`table "${table}" has no valid state`);
      return { name, floats: Number(floats) };
    });
  }

  private take(name: string, dtype: Dtype, dimensions: number): Tensor | undefined {
    const tensor = this.rest.get(name);
    if (!tensor) return undefined;
    if (tensor.dtype !== dtype || tensor.shape.length !== dimensions) {
      throw this.bad(`tensor "${name}" is ${tensor.dtype} of ${tensor.shape.length} dimensions`);
    }
    this.rest.delete(name);
    return tensor;
  }

  private numbers({ start, bytes }: Tensor): BigUint64Array {
    const { buffer, byteOffset } = this.aligned(start, bytes, 8);
    return new BigUint64Array(buffer, byteOffset, bytes / 8);
  }

  private floats({ start, bytes }: Tensor): Float32Array {
    const { buffer, byteOffset } = this.aligned(start, bytes, 4);
    return new Float32Array(buffer, byteOffset, bytes / 4);
  }

  private octets({ start, bytes }: Tensor): Uint8Array {
    return this.bytes.subarray(start, start + bytes);
  }

  /** In place, or a copy where another program has written tensors in an order that does not align them. */
  private aligned(start: number, bytes: number, item: number): Uint8Array {
    const found = this.bytes.subarray(start, start + bytes);
    return found.byteOffset % item === 0 ? found : new Uint8Array(found);
  }
}

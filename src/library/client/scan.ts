/**
 * Reading a table as a whole, with memory that does not grow with it: pages of keys, shard by shard, and the
 * rows of each page. A page begins where the one before it ended, by slot or by key. Neither changes when a
 * shard moves or is recovered, so a scan goes on with the new owner.
 */
import { aborted, KintsugiError } from '../../common/errors.js';
import { checkInteger, checkOptions, checkSignal, type OptionKeys } from '../../common/options.js';
import { longs } from '../../core/shared/bytes.js';
import { type FrozenMap, locate, type Pool, poolOf, shardCount, type TableSpec } from '../../protocol/map.js';
import { pipelined, ranges } from './concurrent.js';
import type { ClientInternals } from './internals.js';
import type { RequestOptions, ScanBatch, ScanOptions, Table } from './options.js';
import { askOwner } from './questions.js';
import { rowBytes } from './sections.js';
import type { Session } from './session.js';

/** Most keys in one answer. */
export const PAGE_KEYS = 65_536;
/** Bytes of keys and rows in one request, unless the caller wants less. */
const BATCH_BYTES = 4 << 20;
/** Batches under way while one is being handled. */
const DEPTH = 2;
/** Shards that are asked for keys at once. */
const SHARDS_AT_ONCE = 4;

const SCAN_OPTIONS = { select: true, batchRows: true, signal: checkSignal } satisfies OptionKeys<ScanOptions>;

/** Rows in one batch: as many as `bytes` hold, at least one. */
export function batchRows(width: number, bytes = BATCH_BYTES): number {
  return Math.max(1, Math.floor(bytes / rowBytes(width)));
}

export function poolOfTable(map: FrozenMap, spec: TableSpec): Pool {
  const pool = poolOf(map, spec.pool);
  if (!pool) throw new KintsugiError('INTERNAL', `table "${spec.name}" is in an unknown pool "${spec.pool}"`);
  return pool;
}

/** See `Client.scan`. @throws BAD_ARGUMENT */
export function scan(
  client: ClientInternals,
  spec: TableSpec,
  options: ScanOptions,
): AsyncGenerator<ScanBatch, void> {
  checkOptions('scan', options, SCAN_OPTIONS);
  const { select = 'values', signal } = options;
  if (select !== 'values' && select !== 'rows' && select !== 'keys') {
    throw new KintsugiError('BAD_ARGUMENT', `scan: select must be values, rows or keys, not ${select}`);
  }
  if (options.batchRows !== undefined) checkInteger('scan: batchRows', options.batchRows, 1);
  const floats = { keys: 0, values: spec.dim, rows: client.requests.rowWidth(spec) }[select];
  const size = options.batchRows ?? batchRows(floats);
  const batches = pipelined(DEPTH, batchesOfKeys(client.session, spec, size, { signal }), async (keys) => {
    if (select === 'keys') return { keys, rows: new Float32Array(0) };
    return { keys, rows: await pullRows(client, spec, keys, select, { signal }) };
  });
  return untilAborted(batches, signal);
}

/** A batch that is there already is not given after an abort. @throws ABORTED */
async function* untilAborted<T>(batches: AsyncIterable<T>, signal?: AbortSignal): AsyncGenerator<T, void> {
  for await (const batch of batches) {
    if (signal?.aborted) throw aborted();
    yield batch;
  }
}

/** Rows of `keys`, in their order. */
export async function pullRows(
  { requests }: ClientInternals,
  spec: TableSpec,
  keys: BigUint64Array,
  select: 'values' | 'rows',
  options: RequestOptions = {},
): Promise<Float32Array> {
  // By its id: another table may have the name by now.
  const [rows] = await requests.pull([{ table: { spec } as Table, keys }], select, options);
  return rows!;
}

// ---- keys

/** Where the next page begins; -1: there is none. */
type Cursor = number | bigint;

interface ScanPage {
  keys: BigUint64Array;
  next: Cursor;
}

function askPage(
  session: Session,
  spec: TableSpec,
  shard: number,
  page: { order: 'slot' | 'key'; from: Cursor; max: number },
  options: RequestOptions,
): Promise<ScanPage> {
  const { group: g, member: m } = locate(poolOfTable(session.map, spec), shard);
  const question = { t: 'keys' as const, g, m, table: spec.id, ...page };
  const read = ({ next }: { next: Cursor }, [keys]: readonly Uint8Array[]): ScanPage => ({
    keys: longs(keys),
    next,
  });
  return askOwner(session, question, read, options);
}

const numbersTo = (count: number): number[] => Array.from({ length: count }, (_, number) => number);

/** Keys of a table in batches of at most `size`, each of one shard. */
async function* batchesOfKeys(
  session: Session,
  spec: TableSpec,
  size: number,
  options: RequestOptions,
): AsyncGenerator<BigUint64Array> {
  const shards = numbersTo(shardCount(poolOfTable(session.map, spec)));
  const firstPages = pipelined(SHARDS_AT_ONCE, shards, async (shard) => {
    const page = await askPage(session, spec, shard, { order: 'slot', from: 0, max: PAGE_KEYS }, options);
    return { shard, page };
  });
  for await (const { shard, page } of firstPages) {
    for await (const keys of pagesFrom(session, spec, shard, page, options)) {
      for (const [start, end] of ranges(keys.length, size)) yield keys.slice(start, end);
    }
  }
}

/** Keys of the rows of one shard in the order of their slots, page by page. A page may have none. */
export async function* shardKeys(
  session: Session,
  spec: TableSpec,
  shard: number,
  options: RequestOptions = {},
): AsyncGenerator<BigUint64Array> {
  const first = await askPage(session, spec, shard, { order: 'slot', from: 0, max: PAGE_KEYS }, options);
  yield* pagesFrom(session, spec, shard, first, options);
}

async function* pagesFrom(
  session: Session,
  spec: TableSpec,
  shard: number,
  first: ScanPage,
  options: RequestOptions,
): AsyncGenerator<BigUint64Array> {
  for (let page = first; ; ) {
    yield page.keys;
    if (page.next === -1) return;
    page = await askPage(session, spec, shard, { order: 'slot', from: page.next, max: PAGE_KEYS }, options);
  }
}

/**
 * All keys of a table, ascending, in runs of about `size` keys. In each round every shard gives its least
 * keys that have not been seen. The bound of a round is the least of the last keys that unfinished shards
 * gave. All keys up to the bound are known, and are given; the next round begins after the bound. Owners read
 * all their keys in every round, so this is for tables that are at rest.
 * @param rows of the table, about
 */
export async function* keysInOrder(
  session: Session,
  spec: TableSpec,
  size: number,
  rows: number,
): AsyncGenerator<BigUint64Array> {
  let open = numbersTo(shardCount(poolOfTable(session.map, spec)));
  const small = rows <= SMALL_SHARD * open.length;
  for (let from = 0n; open.length > 0; ) {
    const max = Math.min(PAGE_KEYS, Math.max(MIN_ORDERED, Math.ceil(size / open.length)));
    const pages = new Map<number, ScanPage>();
    const asked = pipelined(small ? SMALL_AT_ONCE : ORDERED_AT_ONCE, open, async (shard) => {
      pages.set(shard, await askPage(session, spec, shard, { order: 'key', from, max }, {}));
    });
    for await (const _ of asked);
    const unfinished = [...pages.values()].filter((page) => page.next !== -1);
    const bound = unfinished.map(({ keys }) => keys.at(-1)!).reduce(least, GREATEST_KEY);
    const parts = [...pages.values()].map(({ keys }) => keys.subarray(0, countUpTo(keys, bound)));
    const run = concatenate(parts).sort();
    if (run.length > 0) yield run;
    open = open.filter((shard) => {
      const { keys, next } = pages.get(shard)!;
      return next !== -1 || (keys.at(-1) ?? 0n) > bound;
    });
    from = bound + 1n;
  }
}

/** A round with fewer keys per shard would cost more for the asking than for the keys. */
const MIN_ORDERED = 256;
/**
 * Shards that are asked for their least keys at once: of large ones few, because an owner answers nobody else
 * while it reads its keys. Of small ones many: a question then costs more than its answer.
 */
const ORDERED_AT_ONCE = 8;
const SMALL_AT_ONCE = 64;
/** Rows of a shard that take no time worth mentioning to read. */
const SMALL_SHARD = 4096;
/** 2^64-1 is no key. */
const GREATEST_KEY = 2n ** 64n - 2n;

const least = (a: bigint, b: bigint): bigint => (a < b ? a : b);

/** How many of the ascending `keys` are not above `bound`. */
export function countUpTo(keys: BigUint64Array, bound: bigint): number {
  let [low, high] = [0, keys.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (keys[middle]! <= bound) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function concatenate(lists: readonly BigUint64Array[]): BigUint64Array {
  const all = new BigUint64Array(lists.reduce((sum, list) => sum + list.length, 0));
  let at = 0;
  for (const list of lists) {
    all.set(list, at);
    at += list.length;
  }
  return all;
}

/** Rows of every table, by the table's id, as the owners count them. @throws UNRECOVERABLE, CLOSED */
export async function rowCounts(session: Session): Promise<Map<number, number>> {
  const counts = new Map<number, number>();
  const shards = session.map.groups.flatMap(({ id: g, data }) => data.map((_, m) => ({ g, m })));
  const asked = pipelined(ORDERED_AT_ONCE, shards, ({ g, m }) =>
    askOwner(session, { t: 'shardStats', g, m }, ({ tables }) => tables),
  );
  for await (const tables of asked) {
    for (const { table, rows } of tables) counts.set(table, (counts.get(table) ?? 0) + rows);
  }
  return counts;
}

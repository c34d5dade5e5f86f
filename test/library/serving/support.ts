/** A job of tests that exports: its rows by key, and what has changed since the last export. */

import { loadNative } from '../../../src/engine/native.js';
import { optimizerOf } from '../../../src/engine/optimizers.js';
import type { Export } from '../../../src/index.js';
import {
  type SavedShard,
  type SavedTable,
  type SegmentRef,
  segmentName,
} from '../../../src/protocol/checkpoints.js';
import { locate, type Pool } from '../../../src/protocol/map.js';
import { publishCheckpoint, storeSegment } from '../../../src/stores/checkpoint/checkpoints.js';
import { DirectoryPlace } from '../../../src/stores/checkpoint/directory.js';
import type { TableToWrite } from '../../../src/stores/checkpoint/segment.js';

export const ITEMS: SavedTable = {
  name: 'items',
  pool: 'embedding',
  dim: 6,
  optimizer: optimizerOf('adam', 0.1),
  initializer: { kind: 'uniform', low: -1, high: 1 },
  seed: 4,
};
export const BIASES: SavedTable = {
  name: 'biases',
  pool: 'embedding',
  dim: 1,
  optimizer: optimizerOf('sgd', 0.1),
  initializer: { kind: 'constant', value: 0.5 },
  seed: 1,
};
const TABLES = [ITEMS, BIASES];
/** All keys that tests ask for. */
const ASKED = BigUint64Array.from({ length: 420 }, (_, i) => BigInt(i));

const known = new Map<string, Float32Array>();

export function initialOf(table: SavedTable, key: bigint): Float32Array {
  const name = `${table.name} ${key}`;
  const values = known.get(name) ?? computed(table, key);
  known.set(name, values);
  return values;
}

function computed({ dim, optimizer, initializer, seed }: SavedTable, key: bigint): Float32Array {
  const native = loadNative();
  const shard = native.createShard(native.createMemory(0), 0, 1, 0);
  shard.addTable({ id: 1, dim, optimizer, initializer, seed });
  const values = new Float32Array(dim);
  shard.readValues(1, BigUint64Array.of(key), values, true);
  shard.close();
  return values;
}

let jobs = 0;

export class Job {
  private readonly id = ++jobs;
  readonly place: DirectoryPlace;
  readonly url: string;
  private readonly rows = new Map(TABLES.map(({ name }) => [name, new Map<bigint, number>()]));
  private changed = new Map(TABLES.map(({ name }) => [name, new Set<bigint>()]));
  private removed: bigint[] = [];
  private pool: Pool = { name: 'embedding', k: 2, r: 1, firstGroup: 0, groups: 1 };
  private segments: SegmentRef[][] = [];
  private mustBeFull = true;

  constructor(readonly directory: string) {
    this.place = new DirectoryPlace(directory);
    this.url = directory;
  }

  /** All values of a row. */
  set({ name }: SavedTable, key: number, value: number): void {
    this.rows.get(name)!.set(BigInt(key), value);
    this.changed.get(name)!.add(BigInt(key));
  }

  /** Rows are gone as if they had never been: the job was set back. */
  forget(which: (key: bigint) => boolean): void {
    for (const rows of this.rows.values()) for (const key of rows.keys()) if (which(key)) rows.delete(key);
    this.mustBeFull = true;
  }

  /** A row of `items` is removed, and the next export says so. */
  remove(key: number): void {
    if (this.rows.get('items')!.delete(BigInt(key))) this.removed.push(BigInt(key));
    this.changed.get('items')!.delete(BigInt(key));
  }

  /** Another number of shards. */
  reshape(k: number): void {
    this.pool = { ...this.pool, k };
    this.mustBeFull = true;
  }

  /** Returns the names of the files that are new. */
  async export({ full, lost = false }: { full: boolean; lost?: boolean }): Promise<string[]> {
    const number = await this.nextNumber();
    const isFull = full || this.mustBeFull || this.segments.length !== this.pool.k;
    const attempt = (this.id * 2 ** 16 + number).toString(16).padStart(8, '0');
    const shards: SavedShard[] = [];
    const written: string[] = [];
    for (let shard = 0; shard < this.pool.k; shard++) {
      const home = locate(this.pool, shard);
      const tables = TABLES.map((table) => this.part(table, shard, isFull));
      const before = isFull ? [] : this.segments[shard]!;
      const added: SegmentRef[] = [];
      // In two files, where there are enough rows.
      for (const [part, some] of halves(tables).entries()) {
        const name = segmentName({ number, attempt }, home, part);
        const owner = { ...home, position: number };
        added.push(await storeSegment(this.place, name, some, undefined, owner));
        written.push(name);
      }
      const segments = [...before, ...added];
      this.segments[shard] = segments;
      shards.push({ pool: 'embedding', shard, ...home, position: number, since: isFull ? 0 : 1, segments });
    }
    this.segments.length = this.pool.k;
    await publishCheckpoint(this.place, {
      ...{
        number,
        kind: 'export',
        attempt,
        job: 'job',
        createdAt: new Date(0).toISOString(),
        barrier: false,
      },
      ...{ pools: [this.pool], tables: TABLES, shards: lost ? shards.slice(1) : shards },
    });
    this.changed = new Map(TABLES.map(({ name }) => [name, new Set()]));
    this.removed = [];
    this.mustBeFull = false;
    return written;
  }

  private async nextNumber(): Promise<number> {
    let newest = 0;
    for await (const { name } of this.place.list(''))
      if (name.endsWith('/manifest.json')) newest = Math.max(newest, Number.parseInt(name, 10));
    return Math.max(newest, this.last) + 1;
  }
  private get last(): number {
    const names = this.segments.flat().map(({ name }) => Number.parseInt(name, 10));
    return Math.max(0, ...names);
  }

  private part({ name, dim }: SavedTable, shard: number, isFull: boolean): TableToWrite {
    const rows = this.rows.get(name)!;
    const mine = (key: bigint) => Number(key % BigInt(this.pool.k)) === shard;
    const keys = [...(isFull ? rows.keys() : this.changed.get(name)!)].filter(mine);
    const values = Float32Array.from({ length: keys.length * dim }, (_, i) => {
      return rows.get(keys[Math.floor(i / dim)]!)!;
    });
    const removed = isFull || name !== 'items' ? [] : this.removed.filter((key) => mine(key));
    return {
      ...{ name, dim, stateParts: [], keys: [BigUint64Array.from(keys)], values: [values], state: [] },
      removed: [BigUint64Array.from(removed)],
    };
  }

  /** All bits that a look-up of everything gives. */
  content(missing: number | undefined): string {
    return bitsOf(
      TABLES.map((table) => {
        const rows = this.rows.get(table.name)!;
        const all = new Float32Array(ASKED.length * table.dim);
        for (const [i, key] of ASKED.entries()) {
          const value = rows.get(key) ?? missing;
          if (value === undefined) all.set(initialOf(table, key), i * table.dim);
          else all.fill(value, i * table.dim, (i + 1) * table.dim);
        }
        return all;
      }),
    );
  }

  /** The same of what is served. */
  look(served: Export): string {
    return bitsOf(TABLES.map(({ name }) => served.pull(name, ASKED)));
  }
}

const bitsOf = (all: Float32Array[]) =>
  all.map(({ buffer }) => Buffer.from(buffer).toString('latin1')).join();

function halves(tables: TableToWrite[]): TableToWrite[][] {
  const [items] = tables;
  const half = Math.floor(items!.keys[0]!.length / 2);
  if (half === 0) return [tables];
  const { keys, values, dim } = items!;
  const first = { ...items!, keys: [keys[0]!.slice(0, half)], values: [values[0]!.slice(0, half * dim)] };
  const rest = { keys: [keys[0]!.slice(half)], values: [values[0]!.slice(half * dim)], removed: [] };
  return [[first], [{ ...items!, ...rest }, ...tables.slice(1)]];
}

/**
 * REQUEST sections of a schedule: one push writes to every table of its pool, and one pull reads from all of
 * them, so that a push which was applied in part shows.
 */

import type { NativeAddon, SectionPart } from '../engine/native.js';
import { auditKeys } from '../library/client/audit.js';
import { type ClusterMap, type Pool, type TableSpec, tableByName } from '../protocol/map.js';
import { gradient } from './learners.js';
import { digitRow } from './settings.js';
import { bit, type SimTable } from './tables.js';

const ONE = Uint32Array.of(0);
const TWO = Uint32Array.of(0, 1);
const NONE = new Float32Array(0);
/** First numbers of the writers that are no clients, which have the numbers below. */
const SHARED = 1_000_000;
export const RANGES = 2_000_000;
const PROCESSES = 3_000_000;

/** A pool with its tables, as the map names them. */
export interface Store {
  pool: Pool;
  tables: readonly (SimTable & { id: TableSpec['id'] })[];
}

/** `owner` names a writer's row in tables that add, `process` the row that takes its gradients in order. */
export interface SectionWriter {
  owner: number;
  process: number;
}

export class SimulatedSections {
  private readonly mainRows = new Map<number, Float32Array>();

  constructor(
    private readonly native: NativeAddon,
    private readonly tables: readonly SimTable[],
  ) {}

  /** The pools of the job with their tables; undefined before all are in the map. */
  stores(map: ClusterMap): Store[] | undefined {
    if (map.groups.length === 0) return undefined;
    const known = this.tables.map((table) => ({ ...table, id: tableByName(map, table.name)?.id ?? 0 }));
    if (known.some(({ id }) => id === 0)) return undefined;
    return map.pools.map((pool) => ({ pool, tables: known.filter((table) => table.pool === pool.name) }));
  }

  sharedKey(pool: Pool, shard: number, index: number): bigint {
    return auditKeys(this.native, pool, SHARED + index)[shard]!;
  }

  /** The key of a writer's row in all tables that add. */
  ownKey({ pool }: Store, shard: number, owner: number): bigint {
    return auditKeys(this.native, pool, owner)[shard]!;
  }

  private key(table: SimTable, pool: Pool, shard: number, { owner, process }: SectionWriter): bigint {
    return auditKeys(this.native, pool, table.learner ? PROCESSES + process : owner)[shard]!;
  }

  /** Push `number` of a writer: a bit in tables that add, else a gradient; `amount` to the shared row. */
  push(
    { pool, tables }: Store,
    shard: number,
    writer: SectionWriter,
    push: { number: number; shared: bigint; amount: number },
  ): Uint8Array {
    const parts = tables.map((table, index): SectionPart => {
      const { id, dim, learner, settable } = table;
      const own = this.key(table, pool, shard, writer);
      if (learner?.deletes?.(push.number))
        return {
          table: id,
          width: 0,
          keys: BigUint64Array.of(own),
          rows: NONE,
          order: ONE,
          start: 0,
          end: 1,
        };
      if (index > 0) {
        const rows = new Float32Array(dim);
        if (settable) rows.set(digitRow(push.number, dim));
        else if (learner) for (let i = 0; i < dim; i++) rows[i] = gradient(push.number, i);
        else rows.fill(bit(push.number));
        const lr = learner?.rate(push.number);
        const count = learner?.count?.(push.number);
        const score = learner?.score?.(push.number);
        const extras = {
          ...(lr !== undefined && { lr }),
          ...(count && { counts: Uint32Array.of(count) }),
          ...(score !== undefined && { scores: Float32Array.of(score) }),
        };
        const keys = BigUint64Array.of(own);
        return { table: id, width: dim, keys, rows, ...extras, order: ONE, start: 0, end: 1 };
      }
      const rows = this.rows(dim);
      rows.fill(bit(push.number), 0, dim);
      rows.fill(push.amount, dim);
      const keys = BigUint64Array.of(own, push.shared);
      return { table: id, width: dim, keys, rows, order: TWO, start: 0, end: 2 };
    });
    return this.native.encodeRequest(0, parts);
  }

  private rows(dim: number): Float32Array {
    let rows = this.mainRows.get(dim);
    if (!rows) {
      rows = new Float32Array(2 * dim);
      this.mainRows.set(dim, rows);
    }
    return rows;
  }

  /** The writer's rows of all tables, without optimizer state. */
  pull({ pool, tables }: Store, shard: number, writer: SectionWriter): Uint8Array {
    const parts = tables.map((table) => {
      const keys = BigUint64Array.of(this.key(table, pool, shard, writer));
      return { table: table.id, width: table.dim, keys, order: ONE, start: 0, end: 1 };
    });
    return this.native.encodeRequest(0, parts);
  }

  /** Whole rows, with optimizer state: of the first writer in tables that add, of every writer elsewhere. */
  wholeRows({ pool, tables }: Store, shard: number, writers: readonly SectionWriter[]): Uint8Array {
    const parts = tables.map((table) => {
      const keys = BigUint64Array.from(table.learner ? writers : writers.slice(0, 1), (writer) =>
        this.key(table, pool, shard, writer),
      );
      const width = this.native.rowWidth(table.dim, table.optimizer, table.policy);
      const order = Uint32Array.from(keys, (_, i) => i);
      return { table: table.id, width, keys, order, start: 0, end: keys.length };
    });
    return this.native.encodeRequest(1, parts);
  }

  /** One row of the main table. */
  sharedRow({ tables }: Store, key: bigint): Uint8Array {
    const { id, dim } = tables[0]!;
    const part = { table: id, width: dim, keys: BigUint64Array.of(key), order: ONE, start: 0, end: 1 };
    return this.native.encodeRequest(0, [part]);
  }
}

/** The rows of each table in a ROWS section: `floats` says how many floats a table has there. */
export function rowsOf(section: Uint8Array, floats: readonly number[]): Float32Array[] {
  const bytes = section.slice();
  let at = 0;
  return floats.map((count) => {
    const rows = new Float32Array(bytes.buffer, at, count);
    at += Math.ceil((count * 4) / 8) * 8;
    return rows;
  });
}

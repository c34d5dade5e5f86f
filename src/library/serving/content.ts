/**
 * The rows of one export in memory, in the engine's tables: values only, by key. What a newer export changes
 * is first collected in an overlay that no look-up sees. `show` makes it count, in one turn of the event
 * loop, so a look-up sees one export. From then on a look-up reads the base and then the overlay, while the
 * rows of the overlay are copied to the base little by little.
 */

import { KintsugiError } from '../../common/errors.js';
import { loadNative, type NativeMemory, type NativeShard, PushStatus } from '../../engine/native.js';
import { optimizerOf } from '../../engine/optimizers.js';
import type { SavedTable } from '../../protocol/checkpoints.js';
import { turn } from '../../stores/checkpoint/bytes.js';
import { wordsOf } from '../../stores/checkpoint/layout.js';

/** Bytes of rows that are handled in one turn of the event loop. */
export const TURN_BYTES = 1024 * 1024;

/** A table, as look-ups know it. */
export interface ServedTable {
  id: number;
  spec: SavedTable;
}

export class ExportContent {
  private readonly native = loadNative();
  private readonly memory: NativeMemory = this.native.createMemory(0);
  private readonly tables = new Map<string, ServedTable>();
  private readonly base = this.newLayer();
  /** Collected, and not shown yet. */
  private coming: NativeShard | undefined;
  /** Shown, and not wholly in the base yet. */
  private shown: NativeShard | undefined;

  /** @param missing what keys without a row read as; undefined: as their initial values */
  constructor(private readonly missing: number | undefined) {}

  get bytes(): number {
    return this.memory.usedBytes;
  }

  /** Rows in memory. */
  get rows(): number {
    return this.base.stats().reduce((sum, { rows }) => sum + rows, 0);
  }

  table(name: string): ServedTable | undefined {
    return this.tables.get(name);
  }

  /** Adds a table, unless it is there. */
  add(spec: SavedTable): void {
    if (this.tables.has(spec.name)) return;
    const table = { id: this.tables.size + 1, spec };
    this.tables.set(spec.name, table);
    for (const layer of [this.base, this.coming, this.shown]) if (layer) addTo(layer, table);
  }

  private newLayer(): NativeShard {
    const layer = this.native.createShard(this.memory, 0, 1, 0);
    for (const table of this.tables?.values() ?? []) addTo(layer, table);
    return layer;
  }

  // ---- look-ups

  /**
   * Rows of keys into `into`. @throws an error with the code KEY_RESERVED
   */
  pull({ id }: ServedTable, keys: BigUint64Array, into: Float32Array): void {
    if (this.missing !== undefined) into.fill(this.missing);
    this.base.readValues(id, keys, into, this.missing === undefined);
    this.shown?.readValues(id, keys, into, false);
  }

  /** Fills in the values of keys without a row, for all keys. */
  withoutRow({ id }: ServedTable, keys: BigUint64Array, into: Float32Array): void {
    if (this.missing !== undefined) {
      into.fill(this.missing);
      return;
    }
    const blank = this.newLayer();
    blank.readValues(id, keys, into, true);
    blank.close();
  }

  // ---- a newer export

  /** Rows that count at once: nobody looks anything up yet. Returns how many are new. */
  load(table: ServedTable, keys: BigUint64Array, values: Float32Array): number {
    const before = this.rowsOf(table);
    put(this.base, table, keys, values);
    return this.rowsOf(table) - before;
  }

  private rowsOf({ id }: ServedTable): number {
    return this.base.stats().find(({ table }) => table === id)?.rows ?? 0;
  }

  /** Rows of the next export, which `show` makes count. Returns how many of them are new. */
  collect(table: ServedTable, keys: BigUint64Array, values: Float32Array): number {
    this.coming ??= this.newLayer();
    const found = new Uint8Array(keys.length);
    const ignored = new Float32Array(values.length);
    this.base.readValues(table.id, keys, ignored, false, found);
    this.coming.readValues(table.id, keys, ignored, false, found);
    put(this.coming, table, keys, values);
    return found.reduce((sum, has) => sum - has, keys.length);
  }

  /**
   * Rows of the next export, each key once, of which those are collected that differ from the rows that are
   * there. Returns how many keys have a row already.
   */
  collectDifferent(table: ServedTable, keys: BigUint64Array, values: Float32Array): number {
    this.coming ??= this.newLayer();
    const { dim } = table.spec;
    const found = new Uint8Array(keys.length);
    const present = new Float32Array(values.length);
    const count = this.base.readValues(table.id, keys, present, false, found);
    const changed = differing(wordsOf(values), wordsOf(present), dim, found);
    if (changed.length === keys.length) {
      put(this.coming, table, keys, values);
    } else if (changed.length > 0) {
      const someKeys = BigUint64Array.from(changed, (row) => keys[row]!);
      const some = new Float32Array(changed.length * dim);
      for (const [i, row] of changed.entries()) {
        wordsOf(some).set(wordsOf(values.subarray(row * dim, (row + 1) * dim)), i * dim);
      }
      put(this.coming, table, someKeys, some);
    }
    return count;
  }

  /** Forgets what was collected. */
  discard(): void {
    this.coming?.close();
    this.coming = undefined;
  }

  /** Serves from now on what was collected. */
  show(): void {
    this.shown = this.coming;
    this.coming = undefined;
  }

  /** Copies what is shown to the base, in pieces. Look-ups are the same at every moment of it. */
  async settle(isClosed: () => boolean): Promise<void> {
    const { shown } = this;
    if (!shown) return;
    shown.endSnapshot();
    shown.beginSnapshot(0);
    for (;;) {
      await turn();
      if (isClosed()) return;
      const piece = shown.readSnapshot(TURN_BYTES);
      if (!piece) break;
      const table = [...this.tables.values()].find(({ id }) => id === piece.table)!;
      put(this.base, table, piece.keys, piece.values);
    }
    shown.close();
    this.shown = undefined;
  }

  close(): void {
    for (const layer of [this.base, this.coming, this.shown]) layer?.close();
    this.coming = undefined;
    this.shown = undefined;
  }
}

/** Rows without state: the engine has that of no optimizer for `sgd`. */
const WITHOUT_STATE = optimizerOf('sgd', 1);
const NOTHING = new Float32Array(0);

function addTo(layer: NativeShard, { id, spec: { dim, initializer, seed } }: ServedTable): void {
  layer.addTable({ id, dim, initializer, seed, optimizer: WITHOUT_STATE });
}

function put(
  layer: NativeShard,
  { id, spec }: ServedTable,
  keys: BigUint64Array,
  values: Float32Array,
): void {
  const status = layer.loadRows(id, keys, values, NOTHING);
  if (status === PushStatus.APPLIED) return;
  if (status === PushStatus.KEY_RESERVED)
    throw new KintsugiError('BAD_CHECKPOINT', `table "${spec.name}" has a row of the reserved key`);
  throw new KintsugiError('MEMORY_LIMIT', `there is no memory for ${keys.length} rows of "${spec.name}"`);
}

/** Rows of `values` that are not `present`, or not found there. */
function differing(values: Uint32Array, present: Uint32Array, dim: number, found: Uint8Array): number[] {
  const rows: number[] = [];
  for (let row = 0; row < found.length; row++) {
    let same = found[row] === 1;
    for (let at = row * dim; same && at < (row + 1) * dim; at++) same = values[at] === present[at];
    if (!same) rows.push(row);
  }
  return rows;
}

/**
 * The real engine with a memory for answers. The core asks shards and sinks for their counts at every tick,
 * and they have seldom changed since the last one: an answer is kept until a call that may change it. All
 * work is done by the engine.
 */

import { KintsugiError } from '../common/errors.js';
import type {
  BlockList,
  CompletedBlocks,
  EngineTable,
  Extent,
  NativeAddon,
  NativeMemory,
  NativeShard,
  NativeSink,
  TableStats,
} from '../engine/native.js';
import type { SnapshotBegun, SnapshotRows } from '../engine/snapshots.js';
import type { TableSpec } from '../protocol/map.js';

const NOTHING_COMPLETED: CompletedBlocks[] = [];

/** Rows with their state, by the name of their table and by key. */
export type EngineContent = Map<string, Map<bigint, Float32Array>>;

/** Evictions since somebody watches a table, and the batch that each was flushed with, from 1. */
export interface EvictionLog {
  entries: { key: bigint; reason: number; batch: number }[];
  /** The number that readers are told for the first one. */
  first: number | undefined;
  /** When an answer was looked at last, how many were durable then, and at an earlier time. */
  lookedAt: number;
  durable: number;
  least: number;
}

export class RememberingShard implements NativeShard {
  /** Answers of the engine; undefined: a call may have changed them since. So with the next ones. */
  private absentKeys: number | undefined;
  private absentRows: number | undefined;
  private ready: boolean | undefined;
  private open: boolean | undefined;
  private known: TableStats[] | undefined;
  private held: EngineContent | undefined;
  /** Content of the shard when its newest snapshot began. */
  taken: EngineContent | undefined;
  private readonly tables: EngineTable[] = [];
  private batches = 0;
  /** By table, exactly while it is watched. */
  readonly logs = new Map<number, EvictionLog>();

  constructor(
    private readonly real: NativeShard,
    private readonly native: NativeAddon,
    private readonly refuses: () => boolean,
  ) {}

  /** @throws MEMORY_LIMIT, as the engine does where the system refuses memory */
  private needMemory(): void {
    if (this.refuses()) throw new KintsugiError('MEMORY_LIMIT', 'the system refuses memory for a shard');
  }

  private forget(): void {
    this.absentKeys = this.absentRows = this.ready = this.open = this.known = this.held = undefined;
  }

  addTable(table: EngineTable): void {
    this.forget();
    if (!this.tables.some(({ id }) => id === table.id)) this.tables.push(table);
    this.real.addTable(table);
  }

  dropTable(id: number): void {
    this.forget();
    const at = this.tables.findIndex((table) => table.id === id);
    if (at >= 0) this.tables.splice(at, 1);
    this.real.dropTable(id);
  }

  adopt(table: number, extent: number): void {
    this.needMemory();
    this.forget();
    this.real.adopt(table, extent);
  }

  checkExtents(extents: readonly Extent[]): void {
    this.real.checkExtents(extents);
  }

  watch(table: number, on: boolean): void {
    if (on) this.logs.set(table, { entries: [], first: undefined, lookedAt: 0, durable: 0, least: 0 });
    else this.logs.delete(table);
    this.real.watch(table, on);
  }

  tell(seconds: number, maxDelta: number): void {
    this.forget();
    this.real.tell(seconds, maxDelta);
  }

  takeEvicted(): ReturnType<NativeShard['takeEvicted']> {
    const taken = this.real.takeEvicted();
    for (const { table, keys, reasons } of taken) {
      const log = this.logs.get(table)!.entries;
      for (const [i, key] of keys.entries()) log.push({ key, reason: reasons[i]!, batch: this.batches + 1 });
    }
    return taken;
  }

  dropBatch(): void {
    this.forget();
    this.batches++;
    this.real.dropBatch();
  }

  push(section: Uint8Array, maxDelta?: number): number {
    this.forget();
    return this.real.push(section, ...(maxDelta === undefined ? [] : [maxDelta]));
  }

  pull(section: Uint8Array, into?: Uint8Array, at?: number): Uint8Array | number {
    return this.real.pull(section, into, at);
  }

  missing(): BlockList {
    return this.real.missing();
  }

  get dirty(): boolean {
    this.open ??= this.real.dirty;
    return this.open;
  }

  get openBytes(): number {
    return this.real.openBytes;
  }

  flush(): Uint8Array {
    this.forget();
    this.batches++;
    return this.real.flush();
  }

  applyDelta(delta: Uint8Array): number {
    this.forget();
    return this.real.applyDelta(delta);
  }

  read(...call: Parameters<NativeShard['read']>): {
    present: BlockList;
    bytes: Uint8Array;
    lacking: BlockList;
  } {
    return this.real.read(...call);
  }

  install(blocks: BlockList, bytes: Uint8Array): number {
    this.forget();
    return this.real.install(blocks, bytes);
  }

  filterAbsent(blocks: BlockList): BlockList {
    return this.real.filterAbsent(blocks);
  }

  nextAbsent(kind: 0 | 1, max: number): BlockList {
    return this.real.nextAbsent(kind, max);
  }

  get absentKeyBlocks(): number {
    this.absentKeys ??= this.real.absentKeyBlocks;
    return this.absentKeys;
  }

  get absentRowBlocks(): number {
    this.absentRows ??= this.real.absentRowBlocks;
    return this.absentRows;
  }

  get keysReady(): boolean {
    this.ready ??= this.real.keysReady;
    return this.ready;
  }

  tableReady(table: number): boolean {
    return this.real.tableReady(table);
  }

  addEquations(
    parityIndex: number,
    parityCount: number,
    lacking: number[],
    ok: boolean,
    blocks: BlockList,
    bytes: Uint8Array,
  ): ReturnType<NativeShard['addEquations']> {
    // The engine keeps nothing of a block that is there already: a late copy of an answer needs no memory.
    if (this.real.filterAbsent(blocks).length > 0) this.needMemory();
    this.forget();
    return this.real.addEquations(parityIndex, parityCount, lacking, ok, blocks, bytes);
  }

  dropEquations(): void {
    this.real.dropEquations();
  }

  beginSnapshot(...asked: Parameters<NativeShard['beginSnapshot']>): SnapshotBegun {
    const begun = this.real.beginSnapshot(...asked);
    this.taken = this.content();
    return begun;
  }

  /** Content of the shard, for reading only; the same object until a call may have changed it. */
  content(): EngineContent {
    this.held ??= this.contentNow();
    return this.held;
  }

  private contentNow(): EngineContent {
    const content: EngineContent = new Map();
    for (const table of this.tables) {
      const { id, dim, optimizer, policy } = table;
      const width = this.native.rowWidth(dim, optimizer, policy);
      const rows = new Map<bigint, Float32Array>();
      content.set((table as TableSpec).name, rows);
      const { keys } = this.real.keys(id, 0, 1 << 20);
      if (keys.length === 0) continue;
      const order = Uint32Array.from(keys, (_, i) => i);
      const part = { table: id, width, keys, order, start: 0, end: keys.length };
      const section = this.real.pull(this.native.encodeRequest(1, [part])) as Uint8Array;
      const floats = new Float32Array(section.slice().buffer);
      for (const [i, key] of keys.entries()) rows.set(key, floats.slice(i * width, (i + 1) * width));
    }
    return content;
  }

  readSnapshot(maxBytes: number): SnapshotRows | undefined {
    return this.real.readSnapshot(maxBytes);
  }

  endSnapshot(): void {
    this.real.endSnapshot();
  }

  get snapshotBytes(): number {
    return this.real.snapshotBytes;
  }

  loadRows(table: number, keys: BigUint64Array, values: Float32Array, state: Float32Array): number {
    this.forget();
    return this.real.loadRows(table, keys, values, state);
  }

  unloadRows(table: number, keys: BigUint64Array): number {
    this.forget();
    return this.real.unloadRows(table, keys);
  }

  filters(): ReturnType<NativeShard['filters']> {
    return this.real.filters();
  }

  loadFilter(...args: Parameters<NativeShard['loadFilter']>): number {
    this.forget();
    return this.real.loadFilter(...args);
  }

  serve(...args: Parameters<NativeShard['serve']>): void {
    this.real.serve(...args);
  }

  readValues(...args: Parameters<NativeShard['readValues']>): number {
    return this.real.readValues(...args);
  }

  extents(): Extent[] {
    return this.real.extents();
  }

  extentsOf(blocks: BlockList): Extent[] {
    return this.real.extentsOf(blocks);
  }

  keys(table: number, from: number, max: number): { keys: BigUint64Array; next: number } {
    return this.real.keys(table, from, max);
  }

  keysInOrder(table: number, least: bigint, max: number): { keys: BigUint64Array; next: bigint | -1 } {
    return this.real.keysInOrder(table, least, max);
  }

  stats(): TableStats[] {
    this.known ??= this.real.stats();
    return this.known;
  }

  get rows(): number {
    return this.real.rows;
  }

  get bytes(): number {
    return this.real.bytes;
  }

  close(): void {
    this.forget();
    this.real.close();
  }
}

class RememberingSink implements NativeSink {
  private whole: boolean | undefined;
  private readonly excluded: (number | undefined)[] = [];
  private active: number | undefined;
  /** There are accumulators, or were when the completed ones were last taken. */
  private accumulating = false;

  constructor(private readonly real: NativeSink) {}

  private forget(): void {
    this.whole = this.active = undefined;
    this.excluded.length = 0;
  }

  dropTable(id: number): void {
    this.forget();
    this.real.dropTable(id);
  }

  start(member: number, extents: Extent[]): void {
    this.forget();
    this.real.start(member, extents);
  }

  learn(member: number, extents: Extent[]): void {
    this.forget();
    this.real.learn(member, extents);
  }

  apply(member: number, delta: Uint8Array): BlockList | number {
    this.forget();
    return this.real.apply(member, delta);
  }

  content(member: number, blocks: BlockList, bytes: Uint8Array): number {
    this.forget();
    return this.real.content(member, blocks, bytes);
  }

  lacking(member: number, blocks: BlockList): void {
    this.forget();
    this.real.lacking(member, blocks);
  }

  recover(member: number, blocks: BlockList): BlockList {
    this.forget();
    this.accumulating = true;
    return this.real.recover(member, blocks);
  }

  check(blocks: BlockList): BlockList {
    this.forget();
    this.accumulating = true;
    return this.real.check(blocks);
  }

  takeCompleted(): CompletedBlocks[] {
    if (!this.accumulating) return NOTHING_COMPLETED;
    const completed = this.real.takeCompleted();
    this.accumulating = this.accumulators > 0;
    return completed;
  }

  nextPending(member: number, max: number): BlockList {
    return this.real.nextPending(member, max);
  }

  dropAccumulators(): void {
    this.forget();
    this.real.dropAccumulators();
  }

  get accumulators(): number {
    this.active ??= this.real.accumulators;
    return this.active;
  }

  nextExcluded(member: number, max: number): BlockList {
    return this.real.nextExcluded(member, max);
  }

  excludedBlocks(member: number): number {
    let count = this.excluded[member];
    if (count === undefined) {
      count = this.real.excludedBlocks(member);
      this.excluded[member] = count;
    }
    return count;
  }

  get complete(): boolean {
    this.whole ??= this.real.complete;
    return this.whole;
  }

  extents(member: number): Extent[] {
    return this.real.extents(member);
  }

  allBlocks(from: number, max: number): BlockList {
    return this.real.allBlocks(from, max);
  }

  get bytes(): number {
    return this.real.bytes;
  }

  close(): void {
    this.forget();
    this.real.close();
  }
}

/** `refuses`: true while the system refuses memory to a shard that is taken over. */
export function remembering(native: NativeAddon, refuses = () => false): NativeAddon {
  return {
    ...native,
    createShard: (memory: NativeMemory, member: number, k: number, r: number) =>
      new RememberingShard(native.createShard(memory, member, k, r), native, refuses),
    createSink: (memory: NativeMemory, k: number, r: number, parityIndex: number, complete: boolean) =>
      new RememberingSink(native.createSink(memory, k, r, parityIndex, complete)),
  };
}

/**
 * Saves the data shards of a node for a checkpoint, one after the other, so that the engine keeps copies of
 * changing rows for one shard at a time. Rows are read a little per turn, at the pace that leaves
 * room for requests, and handed out as files to be stored. A shard is reported as saved when all its files
 * are stored and the position that they show is committed.
 *
 * Pushes never wait for it. When the kept rows and the files that are not stored yet exceed
 * `Policy.checkpointBytes`, the attempt fails.
 *
 * Within an attempt a shard is begun at most once in a generation, and names of files have both. So no file
 * is ever written twice with different content, whatever comes late or twice.
 */
import { describe, type ErrorCode } from '../../common/errors.js';
import type { SnapshotRows } from '../../engine/snapshots.js';
import { BLOCK_BYTES } from '../../protocol/blocks.js';
import { MAX_SEGMENT_BYTES } from '../../protocol/checkpoints.js';
import { shardKey } from '../../protocol/items.js';
import { limitText } from '../../protocol/limits.js';
import { SCHEDULER } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import type { SavedSegment } from '../../protocol/saving.js';
import type { Owner } from '../shard/owner.js';
import { bytesOf, type ShardSnapshot } from '../shard/snapshot.js';
import type { StoredTable } from '../shared/outbox.js';
import { RateLimit } from '../shared/rate.js';
import type { NodeHost } from './host.js';
import type { Owners } from './owners.js';

/** Share of `checkpointBytes` that files on their way to the place may take. Beyond it reading waits. */
const WINDOW = 1 / 4;
/** Share of `checkpointBytes` from which on reading has no limit of speed. */
const HURRY = 1 / 2;

export type StoreAnswer =
  /** The file is stored durably. `bytes` is its size. */
  | { kind: 'stored'; token: number; bytes: number; sha256: string }
  | { kind: 'storeFailed'; token: number; code: ErrorCode; message: string };

/** A shard that has begun and is not saved. */
interface Save {
  owner: Owner;
  snapshot: ShardSnapshot;
  /** Rows of the file that is being filled, by table. */
  tables: Map<number, StoredTable>;
  /** Size and number of these rows. */
  bytes: number;
  rows: number;
  /** True: all rows are read, and the last file is handed out. */
  read: boolean;
  /** Files that were handed out, in order; one that is not stored yet has no size and digest. */
  segments: SavedSegment[];
  /** Number of files that are handed out and not stored yet. */
  open: number;
}

interface SaveOrder {
  message: MessageOf<'saveShards'>;
  rate: RateLimit;
  /** Generations of the shards that were begun, by `shardKey`. Each generation begins once. */
  begun: Map<number, number>;
  /** Reports of saved shards, by `shardKey`. They are repeated whenever the scheduler asks. */
  answers: Map<number, MessageOf<'shardSaved'>>;
  /** Report of the failure, after which no shard is saved; undefined: the order has not failed. */
  failed: MessageOf<'saveFailed'> | undefined;
}

export class Saving {
  /** The newest attempt that the scheduler has asked for and not ended. */
  private order: SaveOrder | undefined;
  /** The highest number of an attempt that is over: an order for it, or for an older one, comes late. */
  private ended = 0;
  /** Shards that have begun and are not saved, the one that is read first. */
  private saves: Save[] = [];
  private nextToken = 1;
  /**
   * Files that are on their way to the place, by token. Those of an attempt that was given up take memory
   * until they are answered.
   */
  private readonly handed = new Map<number, { save: Save; index: number; bytes: number }>();
  /** Sum of the bytes of `handed`. */
  private handedBytes = 0;

  constructor(
    private readonly host: NodeHost,
    private readonly owners: Owners,
  ) {}

  /** True: a shard has rows to be read, and reading has nothing to wait for. */
  get needsTurn(): boolean {
    const { order, current } = this;
    if (!order || !current || order.failed) return false;
    return this.handedBytes <= this.host.policy.checkpointBytes * WINDOW && (this.hurries || order.rate.open);
  }

  private get hurries(): boolean {
    return this.heldBytes > this.host.policy.checkpointBytes * HURRY;
  }

  /** Bytes of files that are being filled, or are not stored yet. */
  get fileBytes(): number {
    let bytes = this.handedBytes;
    for (const { bytes: filled } of this.saves) bytes += filled;
    return bytes;
  }

  private get heldBytes(): number {
    let bytes = this.fileBytes;
    for (const { snapshot } of this.saves) bytes += snapshot.keptBytes;
    return bytes;
  }

  /**
   * The bounds on the size of a file: a restore refuses to read a larger one, and a file that fills
   * `checkpointBytes` by itself would never be handed out.
   */
  private get segmentBytes(): number {
    const { segmentBytes, checkpointBytes } = this.host.policy;
    return Math.min(segmentBytes, checkpointBytes * WINDOW, MAX_SEGMENT_BYTES / 2);
  }

  /** The shard that is being read. */
  private get current(): Save | undefined {
    return this.saves.find(({ read }) => !read);
  }

  // ---- messages

  onSave(message: MessageOf<'saveShards'>): void {
    const { id, rate } = message;
    if (id <= this.ended || id < (this.order?.message.id ?? 0)) return;
    if (id === this.order?.message.id) this.order.message = message;
    else {
      this.drop();
      const limit = new RateLimit(rate, this.host.pace, 'save');
      limit.tick(this.host.now);
      this.order = { message, rate: limit, begun: new Map(), answers: new Map(), failed: undefined };
    }
    this.begin();
    this.answer(message);
  }

  onEnded({ id }: MessageOf<'saveEnded'>): void {
    this.ended = Math.max(this.ended, id);
    if (this.order && this.order.message.id <= id) this.drop();
  }

  private answer({ id, shards }: MessageOf<'saveShards'>): void {
    const { order } = this;
    if (order?.failed) this.host.out.send(SCHEDULER, order.failed);
    if (!order || order.failed) return;
    for (const [g, m, gen] of shards) {
      const saved = order.answers.get(shardKey(g, m));
      if (saved?.gen === gen) this.host.out.send(SCHEDULER, saved);
    }
    this.progress(id);
  }

  private progress(id: number): void {
    const items = this.saves.map(({ owner, snapshot, bytes }): [number, number, number, number] => {
      return [owner.group.id, owner.member, owner.gen, snapshot.bytesLeft + bytes];
    });
    this.host.out.send(SCHEDULER, { t: 'saveProgress', id, items });
  }

  // ---- turns

  tick(): void {
    if (!this.order) return;
    this.order.rate.tick(this.host.now);
    this.settle();
    this.turn();
  }

  /** Reads a little, and hands out a file when it is full. */
  turn(): void {
    if (this.exceeds()) return;
    const { current, order } = this;
    if (current && order && this.needsTurn)
      this.unlessRefused(current.owner, () => this.read(current, order));
  }

  private read(current: Save, order: SaveOrder): void {
    const rows = current.snapshot.read(Math.min(this.host.policy.saveChunkBytes, this.segmentBytes));
    if (rows) {
      const bytes = bytesOf(rows);
      order.rate.take(Math.ceil(bytes / BLOCK_BYTES));
      this.take(current, rows, bytes);
      if (current.bytes >= this.segmentBytes) this.handOut(current);
      return;
    }
    current.read = true;
    // The last file of a full job has the de-duplication state, whether anything has changed or not.
    if (order.message.kind === 'full job' || current.tables.size > 0) this.handOut(current);
    this.settle();
  }

  /**
   * Pushes go on, so the rows that are kept for the attempt need a limit. True: the limit is exceeded, and
   * the attempt has failed.
   */
  private exceeds(): boolean {
    const { checkpointBytes } = this.host.policy;
    if (this.saves.length === 0 || this.heldBytes <= checkpointBytes) return false;
    const message = limitText(
      'rows and files of a checkpoint take too much',
      'checkpointBytes',
      checkpointBytes,
    );
    this.fail(this.saves[0]!.owner, 'LIMIT', message);
    return true;
  }

  private begin(): void {
    const { order } = this;
    if (!order || order.failed || (this.saves.length > 0 && !order.message.barrier)) return;
    for (const [g, m, gen, since] of order.message.shards) {
      const key = shardKey(g, m);
      const owner = this.owners.at(g, m);
      if (owner?.gen !== gen || !owner.complete || order.begun.get(key) === gen) continue;
      order.begun.set(key, gen);
      this.unlessRefused(owner, () => {
        const { kind, served = {} } = order.message;
        const snapshot = owner.snapshot(since, kind === 'export' ? served : undefined);
        const nothing = { tables: new Map<number, StoredTable>(), bytes: 0, rows: 0, read: false, open: 0 };
        const save = { owner, snapshot, segments: [], ...nothing };
        // A file says which filters there were, also where they have counted nothing.
        for (const table of snapshot.filters.keys()) this.tableOf(save, table);
        this.saves.push(save);
      });
      if (!order.message.barrier) return;
    }
  }

  private take(save: Save, piece: SnapshotRows, bytes: number): void {
    const { table, keys, values, state, removed, filter } = piece;
    const { kind, tables } = this.order!.message;
    if (tables && !tables.includes(table)) return;
    const saved = this.tableOf(save, table);
    if (removed) saved.removed = [...(saved.removed ?? []), removed];
    else if (filter) {
      saved.filter!.slots.push(filter.slots);
      saved.filter!.counters.push(filter.counters);
    } else {
      saved.keys.push(keys);
      saved.values.push(values);
      if (kind === 'full job') saved.state.push(state);
    }
    save.rows += keys.length;
    save.bytes += kind === 'full job' ? bytes : bytes - state.byteLength;
  }

  private tableOf({ snapshot, tables }: Save, table: number): StoredTable {
    let saved = tables.get(table);
    if (!saved) {
      const name = this.host.map.tables.find(({ id }) => id === table)?.name ?? '';
      const state = snapshot.filters.get(table);
      const filter = state && { filter: { state, slots: [], counters: [] } };
      saved = { name, keys: [], values: [], state: [], ...filter };
      tables.set(table, saved);
    }
    return saved;
  }

  private handOut(save: Save): void {
    const { url, prefix, kind } = this.order!.message;
    const { owner, snapshot, tables, rows, bytes, read } = save;
    const { group, member, gen } = owner;
    const index = save.segments.length;
    const name = `${prefix}-g${group.id}-m${member}-${gen}-${index}.safetensors`;
    const token = this.nextToken++;
    save.segments.push([name, 0, '', rows]);
    save.open++;
    this.handed.set(token, { save, index, bytes });
    this.handedBytes += bytes;
    const sessions = read && kind === 'full job' ? { sessions: [...snapshot.dedup] } : {};
    this.host.out.store({
      ...{ token, url, name, valuesOnly: kind === 'export', tables: [...tables.values()], ...sessions },
      ...{ group: group.id, member, position: snapshot.position },
    });
    save.tables = new Map();
    save.bytes = save.rows = 0;
  }

  onStore(answer: StoreAnswer): void {
    const file = this.handed.get(answer.token);
    if (!file) return;
    this.handed.delete(answer.token);
    this.handedBytes -= file.bytes;
    const { save, index } = file;
    if (!this.saves.includes(save)) return;
    if (answer.kind === 'storeFailed') return this.fail(save.owner, answer.code, answer.message);
    const [name, , , rows] = save.segments[index]!;
    save.segments[index] = [name, answer.bytes, answer.sha256, rows];
    save.open--;
    this.settle();
  }

  /** The shard is saved when everything is stored and nothing of it can be rolled back. */
  private settle(): void {
    const { order } = this;
    if (!order) return;
    const isDone = ({ read, open, snapshot }: Save) => read && open === 0 && snapshot.isCommitted;
    for (const { owner, snapshot, segments } of this.saves.filter(isDone)) {
      const { group, member, gen } = owner;
      const { position, stamp, since } = snapshot;
      const shard = { g: group.id, m: member, gen };
      const { id } = order.message;
      const saved = { t: 'shardSaved' as const, id, ...shard, position, stamp, since, segments };
      order.answers.set(shardKey(group.id, member), saved);
      this.host.out.send(SCHEDULER, saved);
    }
    this.saves = this.saves.filter((save) => !isDone(save));
    this.begin();
  }

  // ---- ends

  /** The ownership is over. Its snapshot is gone with the shard, and the scheduler asks another node. */
  dropped(owner: Owner): void {
    this.saves = this.saves.filter((save) => save.owner !== owner);
  }

  /** Runs a step for a shard. The attempt fails if the system refuses memory. */
  private unlessRefused(owner: Owner, step: () => void): void {
    try {
      step();
    } catch (error) {
      if ((error as { code?: unknown } | undefined)?.code !== 'MEMORY_LIMIT') throw error;
      this.fail(owner, 'MEMORY_LIMIT', describe(error));
    }
  }

  private fail({ group, member: m, gen }: Owner, code: ErrorCode, message: string): void {
    const { order } = this;
    if (!order) return;
    order.failed = { t: 'saveFailed', id: order.message.id, g: group.id, m, gen, code, message };
    this.host.out.send(SCHEDULER, order.failed);
    this.giveUp();
  }

  private drop(): void {
    this.giveUp();
    this.order = undefined;
  }

  private giveUp(): void {
    for (const { snapshot, read } of this.saves) if (!read) snapshot.giveUp();
    this.saves = [];
  }
}

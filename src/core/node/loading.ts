/**
 * Loads shards from a checkpoint. The files of a shard are loaded oldest first, so that the newest version of
 * a row stays. A few files are read at once, those of one shard before those of the next one, so that the
 * first shards serve soon. If the checkpoint has other shards, a shard loads the files of those that share
 * keys with it, and takes the rows whose keys are its own. The scheduler is told when a shard is loaded, or
 * why it is not. It asks again until the map has the shard without its mark (rule 37).
 */
import { describe, type ErrorCode } from '../../common/errors.js';
import { type NativeAddon, PushStatus } from '../../engine/native.js';
import type { SegmentRef } from '../../protocol/checkpoints.js';
import { shardKey } from '../../protocol/items.js';
import { type ClusterMap, SCHEDULER, shardAt, shardCount } from '../../protocol/map.js';
import type { DedupEntry, MessageOf } from '../../protocol/messages.js';
import type { Owner } from '../shard/owner.js';
import { isTombstone } from '../shared/dedup.js';
import type { NodeHost } from './host.js';
import { type FetchedFilter, LoadedFilters } from './loaded-filters.js';
import type { Owners } from './owners.js';
import { rowsAt } from './rows.js';

/** The most files that are on their way, or wait for an older file of their shard, at a time. */
const FILES_AT_ONCE = 4;
/**
 * Parities are not built until no file has come for so long: building them would slow the shards that are
 * still to be loaded. A node that has loaded its own shards waits for those of the others in the same way.
 */
const PATIENCE_MS = 1000;

export interface FetchedTable {
  name: string;
  keys: BigUint64Array;
  values: Float32Array;
  state: Float32Array;
  /** Keys whose rows of older files are gone. */
  removed?: BigUint64Array;
  filter?: FetchedFilter | undefined;
}

/** The file that an effect `fetch` asked for, as it was stored. */
export interface FetchedFile {
  kind: 'fetched';
  token: number;
  tables: readonly FetchedTable[];
  sessions?: readonly DedupEntry[];
  /**
   * The bytes that arrays of `tables` are views of. They are the node's, which discards them when the rows
   * are in the shard, or when nobody wants them any more.
   */
  content?: Uint8Array;
}

export type FetchAnswer =
  | FetchedFile
  | { kind: 'fetchFailed'; token: number; code: ErrorCode; message: string };

/** A file, with the shard that it belongs to in the checkpoint. */
interface LoadedFile {
  segment: SegmentRef;
  group: number;
  member: number;
}

interface ShardLoad {
  owner: Owner;
  message: MessageOf<'loadShard'>;
  files: readonly LoadedFile[];
  filters: LoadedFilters;
  /** Index of the file that is put into the shard next: all older ones are in it. */
  next: number;
  /** Index of the file that is read next; `next` or more. */
  wanted: number;
  /** Files that came before an older one, by their index: from `next` on, below `wanted`. */
  early: Map<number, FetchedFile>;
  /** De-duplication state of the newest file that is in the shard; the last file of a shard has one. */
  sessions: readonly DedupEntry[] | undefined;
  /** True: no file is read until the scheduler asks again. */
  failed: boolean;
}

export class Loading {
  /** Loads that are not finished, by `shardKey`. */
  private readonly loads = new Map<number, ShardLoad>();
  /** Files on their way, by their token. */
  private readonly reading = new Map<number, { load: ShardLoad; index: number }>();
  private nextToken = 1;
  /**
   * Milliseconds of the last file that came, or that was asked for while no other was on its way, or of the
   * last shard that another node has loaded.
   */
  private busyAt = Number.NEGATIVE_INFINITY;
  /** Shards that the map marks as to be loaded, and the map. */
  private marked = 0;
  private looked: ClusterMap | undefined;

  constructor(
    private readonly host: Pick<NodeHost, 'now' | 'out' | 'map' | 'discard'>,
    private readonly owners: Pick<Owners, 'at'>,
    private readonly native: Pick<NativeAddon, 'partition'>,
  ) {}

  onLoad(message: MessageOf<'loadShard'>): void {
    const { g, m, gen } = message;
    const owner = this.owners.at(g, m);
    if (owner?.gen !== gen || owner.phase !== 'RESTORE') return;
    if (owner.isLoaded) return this.tell(owner);
    const key = shardKey(g, m);
    const known = this.loads.get(key);
    // Rows that are loaded stay: after a failure the load goes on at the same file.
    if (known) known.failed = false;
    else {
      const begin = { next: 0, wanted: 0, early: new Map(), sessions: undefined, failed: false };
      const files = message.parts.flatMap(({ group, member, segments }) =>
        segments.map((segment) => ({ segment, group, member })),
      );
      const nameOf = (table: number) => this.host.map.tables.find(({ id }) => id === table)?.name ?? '';
      const filters = new LoadedFilters(owner, message.parts, nameOf);
      this.loads.set(key, { owner, message, files, filters, ...begin });
    }
    this.pump();
  }

  /** Rows of data shards are coming, here or to other nodes that load at the same time. */
  get isBusy(): boolean {
    return (this.reading.size > 0 || this.marked > 0) && this.host.now - this.busyAt < PATIENCE_MS;
  }

  /** Looks at the shards that other nodes load. A node that does not wait already does not begin to. */
  tick(): void {
    const { map } = this.host;
    if (map === this.looked) return;
    this.looked = map;
    let marked = 0;
    for (const { data } of map.groups) for (const { restore } of data) if (restore) marked++;
    if (this.isBusy && marked !== this.marked) this.busyAt = this.host.now;
    this.marked = marked;
  }

  /** Bytes of files that are on their way, or wait for an older one. */
  get fileBytes(): number {
    let bytes = 0;
    for (const { load, index } of this.reading.values()) bytes += load.files[index]!.segment.bytes;
    for (const { early, files } of this.loads.values())
      for (const index of early.keys()) bytes += files[index]!.segment.bytes;
    return bytes;
  }

  /** The ownership is over, and its load with it. */
  dropped({ group, member }: Owner): void {
    const key = shardKey(group.id, member);
    const load = this.loads.get(key);
    this.loads.delete(key);
    if (load) this.forget(load);
  }

  /** Forgets the files of this load that are on their way. */
  private forget(load: ShardLoad): void {
    for (const [token, file] of this.reading) if (file.load === load) this.reading.delete(token);
    for (const file of load.early.values()) this.discard(file);
    load.early.clear();
    load.wanted = load.next;
  }

  private pump(): void {
    let files = this.reading.size;
    for (const { early } of this.loads.values()) files += early.size;
    for (const load of this.loads.values()) {
      const { length } = load.files;
      if (!load.failed && load.next === length) this.finish(load);
      while (files < FILES_AT_ONCE && !load.failed && load.wanted < length) {
        files++;
        this.fetchNext(load);
      }
    }
  }

  private fetchNext(load: ShardLoad): void {
    const { owner, message, files } = load;
    const index = load.wanted++;
    if (this.reading.size === 0) this.busyAt = this.host.now;
    const token = this.nextToken++;
    this.reading.set(token, { load, index });
    const pool = this.host.map.pools[owner.group.pool]!.name;
    this.host.out.fetchFile({ token, url: message.url, pool, ...files[index]! });
  }

  onFetch(answer: FetchAnswer): void {
    const file = this.reading.get(answer.token);
    if (!file) return this.discard(answer);
    this.reading.delete(answer.token);
    this.busyAt = this.host.now;
    const { load, index } = file;
    if (answer.kind === 'fetchFailed') this.fail(load, answer.code, answer.message);
    else {
      load.early.set(index, answer);
      this.takeEarly(load);
    }
    this.pump();
  }

  /** Puts all files into the shard that have no older one before them. */
  private takeEarly(load: ShardLoad): void {
    for (let file = load.early.get(load.next); file; file = load.early.get(load.next)) {
      const problem = this.take(load, file.tables);
      if (problem) return this.fail(load, problem, `${load.files[load.next]!.segment.name} cannot be loaded`);
      load.early.delete(load.next++);
      load.sessions = file.sessions;
      this.discard(file);
    }
  }

  /** Nobody has views of the file any more: the engine has copied what it needs. */
  private discard(file: FetchAnswer): void {
    if (file.kind === 'fetched' && file.content) this.host.discard(file.content);
  }

  private take(load: ShardLoad, tables: readonly FetchedTable[]): ErrorCode | undefined {
    const { owner, message, filters, files, next } = load;
    for (const table of tables) {
      const id = this.host.map.tables.find(({ name }) => name === table.name)?.id;
      if (id === undefined) return 'BAD_CHECKPOINT';
      // Keys of other shards have no rows here.
      if (table.removed && owner.native.unloadRows(id, table.removed) !== PushStatus.APPLIED)
        return 'BAD_CHECKPOINT';
      const { keys, values, state } = message.reshaped ? this.ownRows(owner, table) : table;
      const problem = problemOf(owner.native.loadRows(id, keys, values, state));
      if (problem) return problem;
    }
    // After a failure the file is taken again: its rows replace themselves, and its filters come last.
    return problemOf(filters.take(files[next]!.segment, tables));
  }

  /** Rows whose keys belong to this shard. */
  private ownRows({ group, member }: Owner, table: FetchedTable): FetchedTable {
    const pool = this.host.map.pools[group.pool]!;
    const shard = shardAt(pool, group.id, member);
    const { order, starts } = this.native.partition(table.keys, shardCount(pool));
    return rowsAt(table, order.subarray(starts[shard]!, starts[shard + 1]!));
  }

  private finish(load: ShardLoad): void {
    const { owner, message, files } = load;
    const last = files.at(-1)?.segment.name ?? 'the manifest';
    const sessions = message.reshaped ? [] : common(load.sessions, message.sessionsBelow);
    if (!sessions) return this.fail(load, 'BAD_CHECKPOINT', `${last} has no state of sessions`);
    const problem = problemOf(load.filters.finish(this.host.out));
    if (problem) return this.fail(load, problem, 'the filters cannot be loaded');
    this.dropped(owner);
    owner.loaded(sessions);
    this.tell(owner);
  }

  private tell({ group, member: m, gen }: Owner): void {
    this.host.out.send(SCHEDULER, { t: 'shardLoaded', g: group.id, m, gen });
  }

  private fail(load: ShardLoad, code: ErrorCode, message: string): void {
    load.failed = true;
    this.forget(load);
    const { group, member: m, gen } = load.owner;
    const text = describe(message).slice(0, 1000);
    this.host.out.send(SCHEDULER, { t: 'loadFailed', g: group.id, m, gen, code, message: text });
  }
}

function problemOf(status: number): ErrorCode | undefined {
  if (status === PushStatus.APPLIED) return undefined;
  return status === PushStatus.MEMORY_LIMIT ? 'MEMORY_LIMIT' : 'BAD_CHECKPOINT';
}

/**
 * The entries of sessions below an id: those that the checkpoint and this job have in common. Undefined: the
 * checkpoint has none.
 */
function common(
  entries: readonly DedupEntry[] | undefined,
  below = Number.POSITIVE_INFINITY,
): readonly DedupEntry[] | undefined {
  return entries?.flatMap((entry): DedupEntry[] => {
    if (entry[0] >= below) return [];
    return isTombstone(entry) ? [[entry[0], Math.min(entry[1], below - 1), 'ENDED']] : [entry];
  });
}

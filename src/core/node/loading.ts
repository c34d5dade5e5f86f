/**
 * Shards that are loaded from a checkpoint: file after file, oldest first, so that of a row that several of
 * them have the newest stays. A few shards of a node are loaded at a time, one file of each. The scheduler is
 * told when a shard is there, or why it is not; it asks again until the map says that it is (rule 37).
 */
import { describe, type ErrorCode } from '../../errors.js';
import { PushStatus } from '../../native.js';
import { shardKey } from '../../protocol/items.js';
import { type ClusterMap, SCHEDULER } from '../../protocol/map.js';
import type { DedupEntry, MessageOf } from '../../protocol/messages.js';
import type { Owner } from '../shard/owner.js';
import type { Outbox } from '../shared/outbox.js';

/** Files that are read at once. */
const FILES_AT_ONCE = 4;

export interface FetchedTable {
  name: string;
  keys: BigUint64Array;
  values: Float32Array;
  state: Float32Array;
}

export type FetchAnswer =
  /** The file of a `fetch`, as it was stored. */
  | { kind: 'fetched'; token: number; tables: readonly FetchedTable[]; sessions?: readonly DedupEntry[] }
  | { kind: 'fetchFailed'; token: number; code: ErrorCode; message: string };

export interface LoadingHost {
  readonly out: Outbox;
  readonly map: ClusterMap;
  ownerAt(g: number, m: number): Owner | undefined;
}

interface Load {
  owner: Owner;
  message: MessageOf<'loadShard'>;
  /** The next file, and the one that is read now. */
  next: number;
  token: number | undefined;
  /** Of the last file. */
  sessions: readonly DedupEntry[] | undefined;
}

export class Loading {
  /** By `shardKey`. */
  private readonly loads = new Map<number, Load>();
  private nextToken = 1;

  constructor(private readonly host: LoadingHost) {}

  onLoad(message: MessageOf<'loadShard'>): void {
    const { g, m, gen } = message;
    const owner = this.host.ownerAt(g, m);
    if (owner?.gen !== gen || owner.phase !== 'RESTORE') return;
    if (owner.isLoaded) return this.tell(owner);
    const key = shardKey(g, m);
    // What is loaded stays: after a failure it goes on at the same file.
    if (!this.loads.has(key))
      this.loads.set(key, { owner, message, next: 0, token: undefined, sessions: undefined });
    this.pump();
  }

  /** The ownership is over. */
  dropped({ group, member }: Owner): void {
    this.loads.delete(shardKey(group.id, member));
  }

  private pump(): void {
    let reading = 0;
    for (const { token } of this.loads.values()) if (token !== undefined) reading++;
    for (const load of this.loads.values()) {
      if (reading >= FILES_AT_ONCE) return;
      if (load.token !== undefined) continue;
      reading++;
      this.fetchNext(load);
    }
  }

  private fetchNext(load: Load): void {
    const { owner, message, next } = load;
    const segment = message.segments[next];
    if (!segment) return this.finish(load);
    load.token = this.nextToken++;
    const { group, member } = owner;
    this.host.out.fetchFile({ token: load.token, url: message.url, segment, group: group.id, member });
  }

  onFetch(answer: FetchAnswer): void {
    const load = [...this.loads.values()].find(({ token }) => token === answer.token);
    if (!load) return;
    load.token = undefined;
    if (answer.kind === 'fetchFailed') return this.fail(load, answer.code, answer.message);
    const problem = this.take(load, answer.tables);
    if (problem)
      return this.fail(load, problem, `${load.message.segments[load.next]!.name} cannot be loaded`);
    load.next++;
    load.sessions = answer.sessions;
    this.fetchNext(load);
    this.pump();
  }

  private take({ owner }: Load, tables: readonly FetchedTable[]): ErrorCode | undefined {
    for (const { name, keys, values, state } of tables) {
      const id = this.host.map.tables.find((table) => table.name === name)?.id;
      if (id === undefined) return 'BAD_CHECKPOINT';
      const status = owner.native.loadRows(id, keys, values, state);
      if (status === PushStatus.MEMORY_LIMIT) return 'MEMORY_LIMIT';
      if (status !== PushStatus.APPLIED) return 'BAD_CHECKPOINT';
    }
    return undefined;
  }

  private finish(load: Load): void {
    const { owner, sessions, message } = load;
    const last = message.segments.at(-1)?.name ?? 'the manifest';
    if (!sessions) return this.fail(load, 'BAD_CHECKPOINT', `${last} has no state of sessions`);
    this.dropped(owner);
    owner.loaded(sessions);
    this.tell(owner);
  }

  private tell({ group, member: m, gen }: Owner): void {
    this.host.out.send(SCHEDULER, { t: 'shardLoaded', g: group.id, m, gen });
  }

  private fail({ owner }: Load, code: ErrorCode, message: string): void {
    const { group, member: m, gen } = owner;
    const text = describe(message).slice(0, 1000);
    this.host.out.send(SCHEDULER, { t: 'loadFailed', g: group.id, m, gen, code, message: text });
  }
}

/** The library's client, as its users see it: `connect` (client.ts) makes one. */
import type { EventFields, JobEvent, ToldKind } from '../../protocol/events.js';
import type { FrozenMap, TableSpec } from '../../protocol/map.js';
import type { JobStatus } from '../../protocol/messages.js';
import type { EventsOptions } from './events.js';
import type { JobSnapshot, ObserveOptions } from './observe.js';
import type {
  CheckpointResult,
  EvictionBatch,
  EvictionsOptions,
  PullInto,
  PullOptions,
  PullRequest,
  PushCounts,
  PushRequest,
  RequestOptions,
  ScanBatch,
  ScanOptions,
  Table,
  TableOptions,
} from './options.js';
import type { RestoredLost, RestoreLostOptions } from './restore.js';

/**
 * A connection to a running job; `connect` makes one. Requests wait while shards that they need are
 * being recovered, and survive the loss of nodes and of the scheduler.
 */
export interface Client {
  /** This client's id; unique in the job for ever. */
  readonly id: number;

  /**
   * The newest map of the cluster that this client knows: nodes, pools, tables, and where each shard is. It
   * is frozen; a newer one is another object.
   */
  readonly clusterMap: FrozenMap;

  /** Pushes to shards that are not durable yet. */
  readonly unacknowledged: number;

  // ---- tables

  /**
   * Creates a table, or finds it when it exists with the same specification.
   *
   * @example
   * ```ts
   * const items = await client.createTable({ name: 'items', dim: 16, optimizer: { kind: 'sgd', lr: 0.1 } });
   * ```
   * @throws TABLE_EXISTS (with another specification), BAD_ARGUMENT, LIMIT, CLOSED
   */
  createTable(options: TableOptions): Promise<Table>;

  /**
   * Creates several tables at once, or finds them: all, or none when one of them cannot be.
   * @returns the tables in the order of `options`
   * @throws TABLE_EXISTS, BAD_ARGUMENT, LIMIT, CLOSED
   */
  createTables(options: readonly TableOptions[]): Promise<Table[]>;

  /**
   * A table that exists, as it was created: no specification is needed.
   * @throws UNKNOWN_TABLE
   */
  table(name: string): Table;

  /** Specifications of the tables of the job, without the ones that audits use. */
  tables(): TableSpec[];

  /**
   * float32 values of a whole row of a table: `dim` values, then the state of its optimizer.
   * @throws BAD_ARGUMENT
   */
  rowWidth(spec: TableSpec): number;

  // ---- rows

  /**
   * Rows of several tables in one request per node. A row that was never pushed has its initial value. Rows
   * may have changes that are not durable yet.
   *
   * @example
   * ```ts
   * const [users, items] = await client.pull([
   *   { table: 'users', keys: BigUint64Array.of(7n) },
   *   { table: 'items', keys: BigUint64Array.of(42n, 43n) },
   * ]);
   * ```
   * @returns per request keys.length x dim, row-major: its `into`, or a new array
   * @throws KEY_TYPE, KEY_RESERVED, LENGTH_MISMATCH, UNKNOWN_TABLE, UNRECOVERABLE, BAD_ARGUMENT, ABORTED,
   * CLOSED; STALE_REPLICA when replicas are asked and none has what is new enough
   */
  pull(requests: readonly PullInto[], options?: PullOptions): Promise<Float32Array[]>;

  /**
   * Whole rows: values, then optimizer state, without padding.
   * @returns per request keys.length x `rowWidth`, row-major
   * @throws what {@link pull} throws
   */
  pullFull(requests: readonly PullRequest[], options?: RequestOptions): Promise<Float32Array[]>;

  /**
   * Applies gradients to several tables in one request per node. Resolves when they are durable: every live
   * parity of their shards has them. A table is named once. Atomic per shard, not across shards; what goes to
   * one shard beyond 4 MiB of keys and rows is several pushes. `lr` of a request is its learning rate in this
   * push, in place of its table's.
   *
   * @example
   * ```ts
   * const keys = BigUint64Array.of(42n, 43n);
   * await client.push([{ table: 'items', keys, gradients: new Float32Array(2 * 16).fill(0.1) }]);
   * ```
   * @throws LENGTH_MISMATCH, DIM_MISMATCH, KEY_TYPE, KEY_RESERVED, MEMORY_LIMIT, UNKNOWN_TABLE,
   * UNRECOVERABLE, BAD_ARGUMENT, ABORTED, CLOSED
   */
  push(requests: readonly PushRequest[], options?: RequestOptions): Promise<void>;

  /**
   * Sets whole rows (values, then optimizer state, without padding) instead of applying gradients: for
   * loading what was saved. `gradients` of each request are the rows, keys.length x `rowWidth`.
   * @throws what {@link push} throws; BAD_ARGUMENT for a client that connected with `audit`
   */
  assign(requests: readonly PushRequest[], options?: RequestOptions): Promise<void>;

  /**
   * Deletes rows, with their optimizer state: nothing of them is left in memory, in that of parities and
   * replicas neither. Resolves when that is durable, as {@link push} does. A key that has no row changes
   * nothing; a deleted key that is pushed again starts from its initial value. A table is named once.
   * Checkpoints and exports that are there keep the rows; the next ones do not have them.
   * @throws what {@link push} throws; BAD_ARGUMENT for a client that connected with `audit`
   */
  delete(requests: readonly PullRequest[], options?: RequestOptions): Promise<void>;

  /**
   * All rows of a table, in batches, shard by shard. Client and nodes keep a few batches, however large the
   * table is. Training may go on meanwhile:
   *
   * - Every row that was durable when the scan began is given once, whatever moves or is lost meanwhile.
   * - A row that is new since then is given or not. It may be given twice if its node was lost before it was
   *   durable.
   * - A row is whole, of one moment. Different rows are of different moments.
   *
   * A shard that is being recovered is waited for. Leaving the loop ends the scan.
   *
   * @example
   * ```ts
   * for await (const { keys, rows } of client.scan('items')) console.log(keys.length, rows.length);
   * ```
   * @param table a table or its name
   * @throws UNKNOWN_TABLE and BAD_ARGUMENT at the call; the iterator throws UNRECOVERABLE, ABORTED, CLOSED
   */
  scan(table: PullRequest['table'], options?: ScanOptions): AsyncGenerator<ScanBatch, void>;

  /**
   * The keys whose rows leave a table, by its policy or by `delete`, in batches, without an end: for who
   * keeps something beside a row. A key is told when the eviction is durable, about `pollMs` later. It may
   * have come back by then: its new row began from nothing.
   *
   * - The first batch has no keys: what leaves from then on is told. It does not come where `from` is given.
   * - PS keep evictions while somebody asks for them, and for a minute after that. What they cannot keep, and
   *   what was not told when a shard gets another PS (a loss, a move), is a batch with `gap`. Then other keys
   *   may have left, too, and a scan tells which are there.
   *
   * Keys of one shard come in the order in which they left. A table that is dropped ends the stream with
   * UNKNOWN_TABLE.
   *
   * @example
   * ```ts
   * for await (const { keys, gap, position } of client.evictions('items')) {
   *   if (gap) await compareWith(client.scan('items', { select: 'keys' }));
   *   for (const key of keys) features.delete(key);
   * }
   * ```
   * @param table a table or its name
   * @throws UNKNOWN_TABLE and BAD_ARGUMENT at the call; the iterator throws UNKNOWN_TABLE, UNRECOVERABLE,
   * ABORTED, CLOSED
   */
  evictions(table: PullRequest['table'], options?: EvictionsOptions): AsyncGenerator<EvictionBatch, void>;

  // ---- the job

  /**
   * Nodes, pools, tables, redundancy, recoveries and changes, as the scheduler knows them now.
   * @throws CLOSED
   */
  status(): Promise<JobStatus>;

  /**
   * The status, and the counters of the scheduler, of every PS and of the workers, all at about one moment.
   * Counters count since the start of their process; `ratesBetween` has what happened between two looks.
   *
   * @example
   * ```ts
   * const { nodes, workers, missing } = await client.observe();
   * ```
   * @throws UNREACHABLE when the scheduler does not answer in time, BAD_ARGUMENT, CLOSED
   */
  observe(options?: ObserveOptions): Promise<JobSnapshot>;

  /**
   * The events of the job: the newest 1,000 that its scheduler keeps, oldest first, and with
   * `follow` those that come. All are durable; an iteration survives the loss of the scheduler.
   *
   * @example
   * ```ts
   * for await (const { kind, subject } of client.events({ follow: true })) console.log(kind, subject);
   * ```
   * @throws BAD_ARGUMENT at the call; the iterator throws ABORTED, CLOSED
   */
  events(options?: EventsOptions): AsyncGenerator<JobEvent, void>;

  /**
   * Adds an event of the caller's: what an autoscaler has decided, and why.
   * @param fields those that docs/events.md lists for the kind
   * @returns its number, when it is durable
   * @throws BAD_ARGUMENT, LIMIT when there are too many of this kind; CLOSED
   */
  tellEvent(kind: ToldKind, fields: EventFields): Promise<number>;

  /**
   * Has a checkpoint of the job made now, and waits until it is complete. One that is under way is waited for
   * first, so what was durable before the call is in it.
   *
   * @example
   * ```ts
   * const { number, bytes } = await client.checkpoint();
   * ```
   * @throws BAD_ARGUMENT when the job has no place for checkpoints; why there is none: PLACE_FAILED, LIMIT,
   * MEMORY_LIMIT, CHECKPOINT_TAKEN, BAD_CHECKPOINT, UNRECOVERABLE, TIMEOUT, ABORTED; CLOSED
   */
  checkpoint(): Promise<CheckpointResult>;

  /**
   * Loads the shards of the running job that are beyond repair from a checkpoint, and waits until they serve.
   * These shards are then as they were when the checkpoint was taken; everything else stays as it is. Clients
   * go on: later pushes to these shards are lost although they were acknowledged, and pushes without an
   * acknowledgement are sent again.
   *
   * @param place a directory, or `s3://bucket/prefix`, as the scheduler and all PS see it
   * @example
   * ```ts
   * const { number, agoMs, shards } = await client.restore('/mnt/shared/job', { onlyLost: true });
   * ```
   * @throws NOT_READY while a shard of the same group is still being recovered, or another restore is under
   * way; CHECKPOINT_MISSING, BAD_CHECKPOINT with the name of the file, PLACE_FAILED, DEPENDENCY_MISSING;
   * BAD_ARGUMENT when the checkpoint has other tables or is an export; MEMORY_LIMIT, ABORTED, CLOSED
   */
  restore(place: string, options: RestoreLostOptions): Promise<RestoredLost>;

  /** Numbers that this client gave to pushes and saw acknowledged, for each shard that it pushed to. */
  pushCounts(): PushCounts[];

  /**
   * Ends this client; what still waits is rejected with CLOSED. Await pushes first: those that are under way
   * may or may not be applied.
   */
  close(): Promise<void>;
}

/** Types that callers of the library give and get: options and requests, and which names each may have. */

import {
  checkFunction,
  checkLogger,
  checkSecret,
  checkSignal,
  checkSwitch,
  type OptionKeys,
} from '../../common/options.js';
import type { ClientPolicy } from '../../core/client/client.js';
import type { InitializerSpec, OptimizerSpec } from '../../engine/native.js';
import type { EvictionReason, TablePolicy } from '../../engine/policies.js';
import type { Logger } from '../../net/log.js';
import type { ClientTls } from '../../net/transport/index.js';
import type { TableSpec } from '../../protocol/map.js';
import type { TableChanges } from '../../protocol/settings.js';

/** Options of {@link connect}. */
export interface ConnectOptions {
  /** The shared secret of the job. It never crosses the wire. Default: none. */
  token?: string | undefined;
  /**
   * The job speaks TLS: how to verify its certificates; `{}` goes by the public authorities. Default: no TLS.
   */
  tls?: ClientTls | undefined;
  /** Milliseconds to wait for the scheduler and for the job's groups to be formed. Default: 10,000. */
  connectTimeoutMs?: number | undefined;
  /** Ends the connecting with ABORTED; what happens later does not look at it. */
  signal?: AbortSignal | undefined;
  /** false: do not wait for the groups; only `status` is useful before they are formed. Default: true. */
  waitForJob?: boolean | undefined;
  /**
   * Bytes that pushes which are not durable yet may hold, and likewise the rows that pulls have asked for.
   * Further pushes and pulls wait. Default: 256 MiB.
   */
  maxInFlightBytes?: number | undefined;
  /**
   * Every push also adds 1 to an audit row of its (client, shard), to prove afterwards that none was lost or
   * repeated. Default: false.
   */
  audit?: boolean | undefined;
  /** When requests are repeated. Default: after 500 ms, doubling up to 8 s. */
  policy?: Partial<ClientPolicy> | undefined;
  /** Takes what the client tells of its connections. Default: nobody. */
  log?: Logger | undefined;
  /**
   * `pull` asks replicas (`kintsugi replica`) and not owners; `true` is `{}`. Everything else is as without.
   * Default: false.
   */
  replica?: boolean | ReplicaOptions | undefined;
}

/** How a client reads from replicas. */
export interface ReplicaOptions {
  /**
   * Milliseconds: rows of a state that is older are refused, and another replica is asked. Default: what each
   * replica allows.
   */
  maxLagMs?: number | undefined;
  /**
   * True: owners are asked for rows that no replica gives. Default: false, the pull fails with STALE_REPLICA.
   */
  owners?: boolean | undefined;
  /**
   * Every value of a key without a row. Default: its initial value, as the table says. Owners give initial
   * values, so it does not go with `owners: true`.
   */
  missing?: number | undefined;
}

export const REPLICA_OPTIONS = {
  maxLagMs: true,
  owners: checkSwitch,
  missing: true,
} satisfies OptionKeys<ReplicaOptions>;

/** The age and the states of rows that replicas gave. */
export interface ReplicaAnswer {
  /** Everything that was acknowledged so many milliseconds before the pull began is in the rows. */
  lagMs: number;
  /**
   * The state that the rows of each shard are of: the generation of the ownership, and the position in its
   * stream. Shards that an owner answered are not among them.
   */
  states: { pool: string; shard: number; generation: number; position: number }[];
}

export const CONNECT_OPTIONS = {
  token: checkSecret,
  tls: true,
  connectTimeoutMs: true,
  signal: checkSignal,
  waitForJob: checkSwitch,
  maxInFlightBytes: true,
  audit: checkSwitch,
  policy: true,
  log: checkLogger,
  replica: true,
} satisfies OptionKeys<ConnectOptions>;

/** Options of a pull or a push. */
export interface RequestOptions {
  /**
   * Aborting ends the waiting with ABORTED. A push that has begun is still delivered; of one beyond 16 MiB,
   * what was sent by then.
   */
  signal?: AbortSignal | undefined;
}

export const REQUEST_OPTIONS = { signal: checkSignal } satisfies OptionKeys<RequestOptions>;

/** Options of {@link Table.push}. */
export interface PushOptions extends RequestOptions {
  /** See {@link PushRequest.lr}. */
  lr?: number | undefined;
  /** See {@link PushRequest.counts}. */
  counts?: Uint32Array | undefined;
  /** See {@link PushRequest.scores}. */
  scores?: Float32Array | undefined;
}

export const PUSH_OPTIONS = {
  ...REQUEST_OPTIONS,
  lr: true,
  counts: true,
  scores: true,
} satisfies OptionKeys<PushOptions>;

/** Options of a pull. */
export interface PullOptions extends RequestOptions {
  /** Called before the pull resolves, if replicas were asked: how old the rows may be. */
  onAnswer?: ((answer: ReplicaAnswer) => void) | undefined;
}

export const PULL_OPTIONS = { ...REQUEST_OPTIONS, onAnswer: checkFunction } satisfies OptionKeys<PullOptions>;

/** Name and specification of a table. */
export interface TableOptions {
  /** 1 to 256 characters; not beginning with `__audit/`, as the tables of audits do. */
  name: string;
  /** float32 values per row, 1 to 65,536. */
  dim: number;
  /** How gradients change rows. Default: Adagrad with lr 0.05, eps 1e-10 and an initial accumulator of 0. */
  optimizer?: OptimizerSpec | undefined;
  /** Values of a row that was never pushed; they depend on (seed, key) only. Default: uniform in +-0.05. */
  initializer?: InitializerSpec | undefined;
  /** Integer from 0 to 2^53-1. Default: 0. */
  seed?: number | undefined;
  /** Which rows go by themselves, and which are not admitted yet. Default: all stay, and all are admitted. */
  policy?: TablePolicy | undefined;
  /** `embedding`, with the code of the job, or `mirrored`, with r copies. Default: `embedding`. */
  pool?: string | undefined;
}

export const TABLE_OPTIONS = {
  name: true,
  dim: true,
  optimizer: true,
  initializer: true,
  seed: true,
  policy: true,
  pool: true,
} satisfies OptionKeys<TableOptions>;

export type { TableChanges };

/** Settings that {@link Table.set} changes, one or several of them. */
export const TABLE_CHANGES = {
  lr: true,
  // Null takes these away.
  clipNorm: () => {},
  schedule: () => {},
  policy: true,
} satisfies OptionKeys<TableChanges>;

/** A table of the job, as {@link Client.createTable} and {@link Client.table} give it. */
export interface Table {
  readonly name: string;
  /** float32 values per row. */
  readonly dim: number;
  /** As this client knows it now: settings change with {@link set}, also with that of others. */
  readonly spec: TableSpec;
  /**
   * Rows of `keys`.
   * @returns keys.length x dim, row-major, in the order of `keys`
   * @throws what {@link Client.pull} throws
   */
  pull(keys: BigUint64Array, options?: PullOptions): Promise<Float32Array>;
  /**
   * Applies gradients with the table's optimizer; resolves when they are durable.
   * @param gradients keys.length x dim, row-major; those of repeated keys are summed first
   *
   * @example
   * ```ts
   * // A batch named key 42 five times: its gradients are summed here, and it was seen five times.
   * await items.push(BigUint64Array.of(42n), summed, { counts: Uint32Array.of(5) });
   * ```
   * @throws what {@link Client.push} throws
   */
  push(keys: BigUint64Array, gradients: Float32Array, options?: PushOptions): Promise<void>;
  /**
   * Deletes the rows of `keys`, durably; see {@link Client.delete}. Keys without a row change nothing.
   * @throws what {@link Client.delete} throws
   */
  delete(keys: BigUint64Array, options?: RequestOptions): Promise<void>;
  /** All rows, see {@link Client.scan}. */
  scan(options?: ScanOptions): AsyncGenerator<ScanBatch, void>;
  /** The keys whose rows leave the table, see {@link Client.evictions}. */
  evictions(options?: EvictionsOptions): AsyncGenerator<EvictionBatch, void>;
  /**
   * Changes learning rate, largest norm of a gradient, schedule or policy of the table, for everybody and
   * durably. Pushes that begin when this has resolved have the new ones, and those that were durable before
   * the call have the old ones. Of those between, each shard decides: a push has one or the other on each,
   * and never a part of both. A push with an `lr` of its own keeps that. A policy takes the place of the
   * whole former one; rows that went under that stay gone.
   *
   * @example
   * ```ts
   * await items.set({ lr: 0.01, clipNorm: 1 });
   * await items.set({ clipNorm: null });
   * await items.set({ policy: { ttl: 5000 } });
   * ```
   * @throws BAD_ARGUMENT for a value that the optimizer does not take, for every other rate of FTRL, and for
   * a schedule where rows have no step count, or to be rid of one where they have it only for that: with the
   * old and the new value; for a policy of a table that was created without one; UNKNOWN_TABLE, LIMIT,
   * ABORTED (it may be set all the same), CLOSED
   */
  set(changes: TableChanges, options?: RequestOptions): Promise<void>;
  /**
   * Drops the table with all its rows, for everybody and durably: it cannot be undone. When this has
   * resolved, every owner of a shard has freed its rows, parities do within moments, and the name is free. A
   * table that is created under it later begins empty, and this object, like every other of the dropped
   * table, throws UNKNOWN_TABLE. A push of anyone that is under way is applied before the drop. Pulls and
   * scans that are under way fail with UNKNOWN_TABLE. Checkpoints and exports that were made before keep the
   * table, and a job that is restored from one has it again. Two callers may drop one table.
   *
   * @example
   * ```ts
   * await client.table('items-of-last-year').drop();
   * ```
   * @throws UNKNOWN_TABLE when this client knows that it is gone; NOT_READY while the job loads shards from a
   * checkpoint; LIMIT, ABORTED (it may be dropped all the same), CLOSED
   */
  drop(options?: RequestOptions): Promise<void>;
}

/** Rows of one table, by their keys. */
export interface PullRequest {
  /** A table or its name. */
  table: Table | string;
  /** Any keys but 2^64-1, in any order, repeated ones too. */
  keys: BigUint64Array;
}

export const PULL_REQUEST = { table: true, keys: true } satisfies OptionKeys<PullRequest>;

/** Rows of one table, and where they go. */
export interface PullInto extends PullRequest {
  /**
   * Where the rows go, keys.length x dim; not to be read before the pull resolves. Default: a new array. Who
   * pulls again and again should give the same arrays: fresh ones of a megabyte cost page faults and full
   * garbage collections.
   */
  into?: Float32Array | undefined;
}

export const PULL_INTO = { ...PULL_REQUEST, into: true } satisfies OptionKeys<PullInto>;

/** Options of {@link Client.scan}. */
export interface ScanOptions {
  /**
   * The contents of a batch for each row: `values`, dim floats; `rows`, whole rows of `rowWidth` floats
   * (values, then optimizer state); or its key alone. Default: `values`.
   */
  select?: 'values' | 'rows' | 'keys' | undefined;
  /** Most rows in a batch. A batch has never more than 65,536. Default: 4 MiB of keys and rows. */
  batchRows?: number | undefined;
  /** Ends the scan with ABORTED. */
  signal?: AbortSignal | undefined;
}

/** Some rows of a table, as {@link Client.scan} gives them. */
export interface ScanBatch {
  /** At least one, in no particular order. */
  keys: BigUint64Array;
  /** keys.length x what was selected, row-major, in the order of `keys`. */
  rows: Float32Array;
}

/** Options of {@link Client.evictions}. */
export interface EvictionsOptions {
  /** Where to go on, as a batch had it. Default: what is evicted from now on. */
  from?: EvictionPosition | undefined;
  /** Pause after which a shard that had nothing to tell is asked again, in milliseconds. Default: 1000. */
  pollMs?: number | undefined;
  /** Ends the stream with ABORTED. */
  signal?: AbortSignal | undefined;
}

/** A place in the evictions of a table; plain JSON, which a program may keep. */
export interface EvictionPosition {
  job: string;
  /** Id of the table. */
  table: number;
  /** For each shard its ownership, and the number of its next eviction there. */
  shards: [gen: number, number: number][];
}

/** Some evictions of a table, as {@link Client.evictions} gives them. */
export interface EvictionBatch {
  /** Keys of one shard whose rows left, in that order. Empty in the first batch and in some gaps. */
  keys: BigUint64Array;
  /** Why each of them left. */
  reasons: EvictionReason[];
  /** True: others may have left before these, after the batches so far, and nobody tells them any more. */
  gap: boolean;
  /** Where to go on after this batch. */
  position: EvictionPosition;
}

/** Gradients for rows of one table. */
export interface PushRequest extends PullRequest {
  /**
   * keys.length x dim, row-major; gradients of repeated keys are summed. For {@link Client.assign} whole
   * rows: keys.length x `rowWidth`.
   */
  gradients: Float32Array;
  /**
   * The learning rate of this push in place of the table's, 0 or more, rounded to float32: for a program
   * with a schedule of its own. A schedule of the table multiplies it, and clipping is as ever. Not for FTRL,
   * and not for {@link Client.assign}. Default: that of the table.
   */
  lr?: number | undefined;
  /**
   * How often each key was seen, keys.length integers from 1 to 2^32-1: for a program that sums gradients of
   * repeated keys itself. Counts of a repeated key are summed. They are the sightings that the policy of the
   * table goes by; where a table has no policy they say nothing, and are not sent. Not for
   * {@link Client.assign}. Default: each key was seen once.
   */
  counts?: Uint32Array | undefined;
  /**
   * The score of each key, keys.length finite numbers, for a table whose policy has `score`; others refuse
   * them. Rows of the lowest score go first where new rows need room. A row keeps its score until a push
   * brings another one, and begins with 0. Of a repeated key the highest score counts. Not for
   * {@link Client.assign}, whose rows have their scores. Default: rows keep those that they have.
   */
  scores?: Float32Array | undefined;
}

export const PUSH_REQUEST = {
  ...PULL_REQUEST,
  gradients: true,
  lr: true,
  counts: true,
  scores: true,
} satisfies OptionKeys<PushRequest>;

/** Counts of one (client, shard), for audits: what this client numbered and saw acknowledged. */
export interface PushCounts {
  /** Name of the pool. */
  pool: string;
  /** Number of the shard in its pool. */
  shard: number;
  /** Pushes that were given a number. */
  sent: number;
  /** Pushes that are durable. */
  acknowledged: number;
  /** Pushes that failed with a code. */
  refused: number;
}

/** A checkpoint that is complete. */
export interface CheckpointResult {
  /** Number of the checkpoint in its place. */
  number: number;
  /** Rows in the files that are new in it: what has changed since the one before. */
  rows: number;
  /** Bytes of these files. */
  bytes: number;
  /** From its beginning to its manifest, in milliseconds. */
  tookMs: number;
}

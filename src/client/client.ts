/** The library: connect to a job, create tables, pull rows, push gradients. */
import { DEFAULT_CLIENT_POLICY } from '../core/client/client.js';
import { onlyKnown, tableProblem } from '../core/scheduler/tables.js';
import { KintsugiError } from '../errors.js';
import { DEFAULT_OPTIMIZER, NO_EXTRAS } from '../optimizers.js';
import {
  checkArray,
  checkFields,
  checkInteger,
  checkOptions,
  checkPolicy,
  checkTimeout,
} from '../options.js';
import type { EventFields, JobEvent, ToldKind } from '../protocol/events.js';
import { type ClusterMap, type TableSpec, tableByName } from '../protocol/map.js';
import type { JobStatus } from '../protocol/messages.js';
import { CHECKPOINT_PLAN } from '../protocol/saving.js';
import { CLIENT_TLS } from '../transport/index.js';
import { auditTable, isAuditTable } from './audit.js';
import { type EventsOptions, eventsOf, tellEvent } from './events.js';
import { internalsOf, keepInternals } from './internals.js';
import { type JobSnapshot, OBSERVE_OPTIONS, type ObserveOptions, observe } from './observe.js';
import {
  type CheckpointResult,
  CONNECT_OPTIONS,
  type ConnectOptions,
  type PullInto,
  type PullOptions,
  type PullRequest,
  type PushCounts,
  type PushRequest,
  REPLICA_OPTIONS,
  type ReplicaOptions,
  type RequestOptions,
  type ScanBatch,
  type ScanOptions,
  TABLE_OPTIONS,
  type Table,
  type TableOptions,
} from './options.js';
import { type ReplicaHost, ReplicaReads } from './replica-reads.js';
import { Requests } from './requests.js';
import { type RestoredLost, type RestoreLostOptions, restoreLost } from './restore.js';
import { scan } from './scan.js';
import { Session } from './session.js';
import { checkShape, JobTable, newTableProblem } from './tables.js';

export type { EventsOptions } from './events.js';
export type { JobSnapshot, ObservedNode, ObserveOptions } from './observe.js';
export type {
  CheckpointResult,
  ConnectOptions,
  PullInto,
  PullOptions,
  PullRequest,
  PushCounts,
  PushOptions,
  PushRequest,
  ReplicaAnswer,
  ReplicaOptions,
  RequestOptions,
  ScanBatch,
  ScanOptions,
  Table,
  TableOptions,
} from './options.js';
export type { RestoredLost, RestoreLostOptions } from './restore.js';

let create: (session: Session, audit: boolean, replicas: ReplicaReads | undefined) => Client;

/**
 * A connection to a running job; {@link connect} makes one. Requests wait while shards that they need are
 * being recovered, and survive the loss of nodes and of the scheduler.
 */
export class Client {
  readonly #session: Session;
  readonly #requests: Requests;
  readonly #replicas: ReplicaReads | undefined;

  static {
    create = (session, audit, replicas) => new Client(session, audit, replicas);
  }

  private constructor(session: Session, audit: boolean, replicas: ReplicaReads | undefined) {
    this.#session = session;
    this.#replicas = replicas;
    this.#requests = new Requests(session, audit, replicas);
    keepInternals(this, { session, requests: this.#requests });
  }

  /** This client's id; unique in the job for ever. */
  get id(): number {
    return this.#session.id;
  }

  /** The newest map of the cluster that this client knows: nodes, pools, tables, and where each shard is. */
  get clusterMap(): ClusterMap {
    return this.#session.map;
  }

  /** Pushes to shards that are not durable yet. */
  get unacknowledged(): number {
    return this.#session.core.unacknowledged;
  }

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
  async createTable(options: TableOptions): Promise<Table> {
    const [table] = await this.createTables([options]);
    return table!;
  }

  /**
   * Creates several tables at once, or finds them: all, or none when one of them cannot be.
   * @returns the tables in the order of `options`
   * @throws TABLE_EXISTS, BAD_ARGUMENT, LIMIT, CLOSED
   */
  async createTables(options: readonly TableOptions[]): Promise<Table[]> {
    checkArray('createTables: tables', options);
    const specs = options.map((table) => this.#specFor(table));
    const session = this.#session;
    const reply = await session.ask((id) => ({ t: 'createTables', id, specs }));
    if (reply.t !== 'tablesCreated') throw new KintsugiError('INTERNAL', `unexpected answer "${reply.t}"`);
    if (reply.code) throw new KintsugiError(reply.code, reply.message ?? reply.code);
    await session.until(() => reply.tables.every((table) => tableByName(session.map, table.name)));
    return reply.tables.map((spec) => new JobTable(this, spec));
  }

  /** @throws BAD_ARGUMENT */
  #specFor(table: TableOptions): Omit<TableSpec, 'id'> {
    checkFields('createTable', table, TABLE_OPTIONS);
    const spec = {
      name: table.name,
      pool: table.pool ?? 'embedding',
      dim: table.dim,
      optimizer: table.optimizer ?? DEFAULT_OPTIMIZER,
      initializer: table.initializer ?? { kind: 'uniform' as const, low: -0.05, high: 0.05 },
      seed: table.seed ?? 0,
    };
    // Validate here too: the scheduler treats a malformed specification as a broken peer and closes the
    // connection.
    const problem = tableProblem(spec, this.clusterMap.pools) ?? newTableProblem(spec);
    if (problem) throw new KintsugiError('BAD_ARGUMENT', problem);
    const known = onlyKnown(spec);
    const { optimizer, initializer } = known;
    checkOptions(`table "${spec.name}": ${optimizer.kind}`, spec.optimizer, { ...NO_EXTRAS, ...optimizer });
    checkOptions(`table "${spec.name}": ${initializer.kind}`, spec.initializer, initializer);
    return known;
  }

  /**
   * A table that exists.
   * @throws UNKNOWN_TABLE
   */
  table(name: string): Table {
    return new JobTable(this, this.#requests.specOf(name));
  }

  /** Specifications of the tables of the job, without the ones that audits use. */
  tables(): TableSpec[] {
    return this.clusterMap.tables.filter((table) => !isAuditTable(table.name));
  }

  /**
   * float32 values of a whole row of a table: `dim` values, then the state of its optimizer.
   * @throws BAD_ARGUMENT
   */
  rowWidth(spec: TableSpec): number {
    checkShape('rowWidth', spec);
    return this.#requests.rowWidth(spec);
  }

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
   * @throws KEY_TYPE, LENGTH_MISMATCH, UNKNOWN_TABLE, UNRECOVERABLE, BAD_ARGUMENT, ABORTED, CLOSED;
   * STALE_REPLICA when replicas are asked and none has what is new enough
   */
  async pull(requests: readonly PullInto[], options: PullOptions = {}): Promise<Float32Array[]> {
    return this.#requests.pull(requests, 'values', options);
  }

  /**
   * Whole rows: values, then optimizer state, without padding.
   * @returns per request keys.length x `rowWidth`, row-major
   * @throws what {@link pull} throws
   */
  async pullFull(requests: readonly PullRequest[], options: RequestOptions = {}): Promise<Float32Array[]> {
    return this.#requests.pull(requests, 'rows', options);
  }

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
  async push(requests: readonly PushRequest[], options: RequestOptions = {}): Promise<void> {
    await this.#requests.push(requests, 'values', options);
  }

  /**
   * Sets whole rows (values, then optimizer state, without padding) instead of applying gradients: for
   * loading what was saved. `gradients` of each request are the rows, keys.length x `rowWidth`.
   * @throws what {@link push} throws; BAD_ARGUMENT for a client that connected with `audit`
   */
  async assign(requests: readonly PushRequest[], options: RequestOptions = {}): Promise<void> {
    await this.#requests.push(requests, 'rows', options);
  }

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
  scan(table: PullRequest['table'], options: ScanOptions = {}): AsyncGenerator<ScanBatch, void> {
    return scan(internalsOf(this), this.#requests.specOf(table), options);
  }

  // ---- the job

  /**
   * Nodes, pools, tables, redundancy, recoveries and changes, as the scheduler knows them now.
   * @throws CLOSED
   */
  status(): Promise<JobStatus> {
    return this.#session.status();
  }

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
  async observe(options: ObserveOptions = {}): Promise<JobSnapshot> {
    checkOptions('observe', options, OBSERVE_OPTIONS);
    if (options.timeoutMs !== undefined) checkTimeout('observe: timeoutMs', options.timeoutMs);
    return observe(this.#session, options);
  }

  /**
   * What happened to the job: the newest 1,000 events that its scheduler keeps, oldest first, and with
   * `follow` those that come. All are durable; an iteration survives the loss of the scheduler.
   *
   * @example
   * ```ts
   * for await (const { kind, subject } of client.events({ follow: true })) console.log(kind, subject);
   * ```
   * @throws BAD_ARGUMENT at the call; the iterator throws ABORTED, CLOSED
   */
  events(options: EventsOptions = {}): AsyncGenerator<JobEvent, void> {
    return eventsOf(this.#session, options);
  }

  /**
   * Adds an event of the caller's: what an autoscaler has decided, and why.
   * @param fields those that docs/events.md lists for the kind
   * @returns its number, when it is durable
   * @throws BAD_ARGUMENT, LIMIT when there are too many of this kind; CLOSED
   */
  tellEvent(kind: ToldKind, fields: EventFields): Promise<number> {
    return tellEvent(this.#session, kind, fields);
  }

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
  async checkpoint(): Promise<CheckpointResult> {
    const reply = await this.#session.ask((id) => ({ t: 'saveNow', id, name: CHECKPOINT_PLAN }));
    if (reply.t !== 'saveDone') throw new KintsugiError('INTERNAL', `unexpected answer "${reply.t}"`);
    const { code, message, number, rows, bytes, tookMs } = reply;
    if (code) throw new KintsugiError(code, message ?? code);
    return { number, rows, bytes, tookMs };
  }

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
  restore(place: string, options: RestoreLostOptions): Promise<RestoredLost> {
    return restoreLost(this.#session, place, options);
  }

  /** What this client numbered and saw acknowledged, per shard that it pushed to. */
  pushCounts(): PushCounts[] {
    return this.#requests.counts();
  }

  /**
   * Ends this client; what still waits is rejected with CLOSED. Await pushes first: those that are under way
   * may or may not be applied.
   */
  close(): Promise<void> {
    this.#replicas?.close();
    return this.#session.close();
  }
}

/**
 * Connects to a running job.
 *
 * @example
 * ```ts
 * const client = await connect('scheduler-host:7077', { token: process.env.KINTSUGI_TOKEN });
 * ```
 * @param scheduler address of the scheduler, host:port; of several, a list or one text with commas between
 * @throws UNREACHABLE, UNAUTHORIZED, NOT_ENOUGH_NODES (the job has not started), BAD_ARGUMENT,
 * ADDON_NOT_LOADED, ABORTED
 */
export async function connect(
  scheduler: string | readonly string[],
  options: ConnectOptions = {},
): Promise<Client> {
  checkFields('connect', options, CONNECT_OPTIONS);
  const { connectTimeoutMs, maxInFlightBytes } = options;
  if (connectTimeoutMs !== undefined) checkTimeout('connect: connectTimeoutMs', connectTimeoutMs);
  if (maxInFlightBytes !== undefined) checkInteger('connect: maxInFlightBytes', maxInFlightBytes, 1);
  checkOptions('connect: tls', options.tls, CLIENT_TLS);
  checkPolicy('connect: policy', options.policy, DEFAULT_CLIENT_POLICY);
  const reads = replicaOptions(options.replica);
  const session = await Session.open([scheduler].flat().join(','), options);
  const replicas = reads && new ReplicaReads(hostOf(session, options), reads);
  const client = create(session, options.audit ?? false, replicas);
  try {
    if (options.audit) await client.createTables(session.map.pools.map(auditTable));
  } catch (error) {
    await client.close();
    throw error;
  }
  return client;
}

/** @throws BAD_ARGUMENT */
function replicaOptions(given: ConnectOptions['replica']): ReplicaOptions | undefined {
  if (given === undefined || typeof given === 'boolean') return given ? {} : undefined;
  checkFields('connect: replica', given, REPLICA_OPTIONS);
  if (given.maxLagMs !== undefined) checkInteger('connect: replica: maxLagMs', given.maxLagMs, 0);
  if (given.missing !== undefined && typeof given.missing !== 'number')
    throw new KintsugiError('BAD_ARGUMENT', 'connect: replica: missing must be a number');
  return given;
}

/** A client that looks for replicas waits so long for the scheduler. */
const LOOK_LIMIT_MS = 2000;

function hostOf(session: Session, { token, tls }: ConnectOptions): ReplicaHost {
  return {
    get map() {
      return session.map;
    },
    access: () => ({ peer: session.id, job: session.map.job, token, tls }),
    replicas: async () => (await session.status(LOOK_LIMIT_MS)).replicas ?? [],
  };
}

/**
 * The class behind `Client`. Users get the interface; tools, workers and benchmarks of this project get the
 * session and the requests by `internalsOf`.
 */
import { aborted, KintsugiError } from '../../common/errors.js';
import { frozen } from '../../common/frozen.js';
import { checkArray, checkFields, checkOptions, checkTimeout } from '../../common/options.js';
import { DEFAULT_OPTIMIZER, NO_EXTRAS, roundedProblem } from '../../engine/optimizers.js';
import type { EventFields, JobEvent, ToldKind } from '../../protocol/events.js';
import { type FrozenMap, lastTableOf, type TableSpec, tableByName } from '../../protocol/map.js';
import type { JobStatus, MessageOf } from '../../protocol/messages.js';
import { CHECKPOINT_PLAN } from '../../protocol/saving.js';
import { changeProblem, onlyChanges } from '../../protocol/settings.js';
import { onlyKnownTable, tableProblem } from '../../protocol/table-rules.js';
import type { AskedTable } from '../../protocol/tables.js';
import type { Client } from './api.js';
import { auditTable, isAuditTable, reservedNameProblem } from './audit.js';
import { ClientRequests } from './calls.js';
import { type EventsOptions, eventsOf, tellEvent } from './events.js';
import { evictions } from './evictions.js';
import type { ClientInternals } from './internals.js';
import { type JobSnapshot, OBSERVE_OPTIONS, type ObserveOptions, observe } from './observe.js';
import {
  type CheckpointResult,
  type EvictionBatch,
  type EvictionsOptions,
  type PullInto,
  type PullOptions,
  type PullRequest,
  type PushCounts,
  type PushRequest,
  type RequestOptions,
  type ScanBatch,
  type ScanOptions,
  TABLE_OPTIONS,
  type Table,
  type TableChanges,
  type TableOptions,
} from './options.js';
import type { ReplicaReads } from './replica-reads.js';
import { type RestoredLost, type RestoreLostOptions, restoreLost } from './restore.js';
import { scan } from './scan.js';
import type { Session } from './session.js';
import { checkShape, JobTable, newTableProblem } from './tables.js';

const NO_CLIENT = () => new KintsugiError('BAD_ARGUMENT', 'client must be what connect has given');

/** A table of a worker that may resume a job; `set` as in `AskedTable`. */
export type ResumedTable = TableOptions & Required<Pick<AskedTable, 'set'>>;

export class ConnectedClient implements Client {
  readonly #session: Session;
  readonly #requests: ClientRequests;
  readonly #replicas: ReplicaReads | undefined;
  readonly #map = () => this.#session.map;

  constructor(session: Session, audit: boolean, replicas: ReplicaReads | undefined) {
    this.#session = session;
    this.#replicas = replicas;
    this.#requests = new ClientRequests(session, audit, replicas);
  }

  /** @throws BAD_ARGUMENT for anything that is no client of this library */
  static internalsOf(client: object): ClientInternals {
    if (!(client instanceof ConnectedClient)) throw NO_CLIENT();
    return { session: client.#session, requests: client.#requests };
  }

  get id(): number {
    return this.#session.id;
  }

  get clusterMap(): FrozenMap {
    return frozen(this.#map());
  }

  get unacknowledged(): number {
    return this.#session.core.unacknowledged;
  }

  // ---- tables

  async createTable(options: TableOptions): Promise<Table> {
    const [table] = await this.createTables([options]);
    return table!;
  }

  async createTables(options: readonly TableOptions[]): Promise<Table[]> {
    checkArray('createTables: tables', options);
    return this.#ask(options.map((table) => this.#specFor(table)));
  }

  /** Creates the tables that pushes with an audit change, or these; finds those that are there. */
  async createAuditTables(given?: readonly TableOptions[]): Promise<void> {
    const tables = given ?? this.#map().pools.map(auditTable);
    await this.#ask(tables.map((table) => this.#specFor(table, 'audit')));
  }

  /** See `resumeTables`. */
  static async resume(client: object, asked: readonly ResumedTable[]): Promise<Table[]> {
    if (!(client instanceof ConnectedClient)) throw NO_CLIENT();
    return client.#ask(asked.map(({ set, ...table }) => ({ ...client.#specFor(table, 'worker'), set })));
  }

  async #ask(specs: AskedTable[]): Promise<Table[]> {
    const session = this.#session;
    const reply = await session.ask((id) => ({ t: 'createTables', id, specs }));
    if (reply.t !== 'tablesCreated') throw new KintsugiError('INTERNAL', `unexpected answer "${reply.t}"`);
    if (reply.code) throw new KintsugiError(reply.code, reply.message ?? reply.code);
    // An earlier table of the name may be in the map, and these may be dropped before it comes.
    await session.until(() => reply.tables.every(({ id }) => lastTableOf(session.map) >= id));
    return reply.tables.map((spec) => new JobTable(this, this.#map, spec));
  }

  /** @param from a worker or a file may have it from before a rule of today. @throws BAD_ARGUMENT */
  #specFor(table: TableOptions, from: 'caller' | 'worker' | 'audit' = 'caller'): Omit<TableSpec, 'id'> {
    checkFields('createTable', table, TABLE_OPTIONS);
    const spec = {
      name: table.name,
      pool: table.pool ?? 'embedding',
      dim: table.dim,
      optimizer: table.optimizer ?? DEFAULT_OPTIMIZER,
      initializer: table.initializer ?? { kind: 'uniform' as const, low: -0.05, high: 0.05 },
      seed: table.seed ?? 0,
      ...(table.policy !== undefined && { policy: table.policy }),
    };
    // Validate here too: the scheduler treats a malformed specification as a broken peer and closes the
    // connection.
    const isNew = !tableByName(this.#map(), spec.name);
    const problem =
      tableProblem(spec, this.#map().pools) ??
      newTableProblem(spec) ??
      (isNew && from === 'caller' ? roundedProblem(spec.optimizer) : undefined) ??
      (isNew && from !== 'audit' ? reservedNameProblem(spec.name) : undefined);
    if (problem) throw new KintsugiError('BAD_ARGUMENT', problem);
    const known = onlyKnownTable(spec);
    const { optimizer, initializer } = known;
    checkOptions(`table "${spec.name}": ${optimizer.kind}`, spec.optimizer, { ...NO_EXTRAS, ...optimizer });
    checkOptions(`table "${spec.name}": ${initializer.kind}`, spec.initializer, initializer);
    return known;
  }

  async setTable(table: Table, changes: TableChanges, signal: AbortSignal | undefined): Promise<void> {
    const { id: which, name, ...spec } = this.#requests.specOf(table);
    const problem = changeProblem(spec, changes);
    if (problem) throw new KintsugiError('BAD_ARGUMENT', `table "${name}": ${problem}`);
    const known = onlyChanges(changes);
    await this.#askAndFollow((id) => ({ t: 'setTable', id, table: which, name, ...known }), signal);
  }

  async dropTable(given: Table, signal: AbortSignal | undefined): Promise<void> {
    const { id: table } = this.#requests.specOf(given);
    await this.#askAndFollow((id) => ({ t: 'dropTable', id, table }), signal);
  }

  /** Asks for a change of a table, until this client has the map with it. */
  async #askAndFollow(
    question: (id: number) => MessageOf<'setTable'> | MessageOf<'dropTable'>,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const session = this.#session;
    const stop = signal && { signal, error: aborted() };
    if (signal?.aborted) throw aborted();
    const reply = await session.ask(question, undefined, signal);
    if (reply.t !== 'tableSet' && reply.t !== 'tableDropped')
      throw new KintsugiError('INTERNAL', `unexpected answer "${reply.t}"`);
    if (reply.code) throw new KintsugiError(reply.code, reply.message ?? reply.code);
    await session.until(() => session.map.epoch >= reply.epoch, stop && [stop]);
  }

  table(name: string): Table {
    return new JobTable(this, this.#map, this.#requests.specOf(name));
  }

  tables(): TableSpec[] {
    return this.#map()
      .tables.filter((table) => !isAuditTable(table.name))
      .map(frozen);
  }

  rowWidth(spec: TableSpec): number {
    checkShape('rowWidth', spec);
    return this.#requests.rowWidth(spec);
  }

  // ---- rows

  async pull(requests: readonly PullInto[], options: PullOptions = {}): Promise<Float32Array[]> {
    return this.#requests.pull(requests, 'values', options);
  }

  async pullFull(requests: readonly PullRequest[], options: RequestOptions = {}): Promise<Float32Array[]> {
    return this.#requests.pull(requests, 'rows', options);
  }

  async push(requests: readonly PushRequest[], options: RequestOptions = {}): Promise<void> {
    await this.#requests.push(requests, 'values', options);
  }

  async assign(requests: readonly PushRequest[], options: RequestOptions = {}): Promise<void> {
    await this.#requests.push(requests, 'rows', options);
  }

  async delete(requests: readonly PullRequest[], options: RequestOptions = {}): Promise<void> {
    await this.#requests.delete(requests, options);
  }

  scan(table: PullRequest['table'], options: ScanOptions = {}): AsyncGenerator<ScanBatch, void> {
    return scan(ConnectedClient.internalsOf(this), this.#requests.specOf(table), options);
  }

  evictions(
    table: PullRequest['table'],
    options: EvictionsOptions = {},
  ): AsyncGenerator<EvictionBatch, void> {
    return evictions(this.#session, this.#requests.specOf(table), options);
  }

  // ---- the job

  status(): Promise<JobStatus> {
    return this.#session.status();
  }

  async observe(options: ObserveOptions = {}): Promise<JobSnapshot> {
    checkOptions('observe', options, OBSERVE_OPTIONS);
    if (options.timeoutMs !== undefined) checkTimeout('observe: timeoutMs', options.timeoutMs);
    return observe(this.#session, options);
  }

  events(options: EventsOptions = {}): AsyncGenerator<JobEvent, void> {
    return eventsOf(this.#session, options);
  }

  tellEvent(kind: ToldKind, fields: EventFields): Promise<number> {
    return tellEvent(this.#session, kind, fields);
  }

  async checkpoint(): Promise<CheckpointResult> {
    const reply = await this.#session.ask((id) => ({ t: 'saveNow', id, name: CHECKPOINT_PLAN }));
    if (reply.t !== 'saveDone') throw new KintsugiError('INTERNAL', `unexpected answer "${reply.t}"`);
    const { code, message, number, rows, bytes, tookMs } = reply;
    if (code) throw new KintsugiError(code, message ?? code);
    return { number, rows, bytes, tookMs };
  }

  restore(place: string, options: RestoreLostOptions): Promise<RestoredLost> {
    return restoreLost(this.#session, place, options);
  }

  pushCounts(): PushCounts[] {
    return this.#requests.counts();
  }

  close(): Promise<void> {
    this.#replicas?.close();
    return this.#session.close();
  }
}

/** The session and the requests behind a client. @throws BAD_ARGUMENT for anything else */
export function internalsOf(client: object): ClientInternals {
  return ConnectedClient.internalsOf(client);
}

/**
 * Creates the tables of a worker, or finds them: as `createTables`, but a table that exists may have other
 * settings. See `AskedTable` for what becomes of that.
 * @throws what `createTables` throws
 */
export function resumeTables(client: object, tables: readonly ResumedTable[]): Promise<Table[]> {
  return ConnectedClient.resume(client, tables);
}

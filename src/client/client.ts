/**
 * The library: connect to a job, create tables, pull rows, push gradients. A push resolves when it is
 * durable: every live parity of its shards has it. Pulls may see values that are not durable yet.
 */

import type { Query } from '../core/client/client.js';
import { tableProblem } from '../core/scheduler/tables.js';
import { KintsugiError } from '../errors.js';
import { type InitializerSpec, loadNative, type OptimizerSpec, type SectionPart } from '../native.js';
import { DEFAULT_OPTIMIZER } from '../optimizers.js';
import { type ClusterMap, locate, type Pool, type TableSpec, tableByName } from '../protocol/map.js';
import type { JobStatus, Message, MessageOf } from '../protocol/messages.js';
import { PartMemory } from '../transport/index.js';
import { auditKeys, auditTable, isAuditTable } from './audit.js';
import {
  cut,
  encodeRounds,
  type Plan,
  piecesByShard,
  type Round,
  rowBytes,
  SECTION_BYTES,
  type TableCall,
} from './sections.js';
import { type ConnectOptions, type RequestOptions, Session, type Waiting } from './session.js';

export type { ConnectOptions, RequestOptions } from './session.js';

export interface TableOptions {
  name: string;
  /** float32 values per row, 1 to 65,536 */
  dim: number;
  /** Default: Adagrad, lr 0.05. */
  optimizer?: OptimizerSpec | undefined;
  /** Default: uniform in +-0.05. A row's initial value depends on (seed, key) only. */
  initializer?: InitializerSpec | undefined;
  /** Integer from 0 to 2^53-1; default 0. */
  seed?: number | undefined;
  /** `embedding` (default), with the code of the job, or `mirrored`, with r copies. */
  pool?: string | undefined;
}

export interface PullRequest {
  table: Table | string;
  keys: BigUint64Array;
}

export interface PullInto extends PullRequest {
  /**
   * Where the rows go, keys.length x dim; default: a new array. Who pulls again and again gives the same
   * arrays: fresh ones of a megabyte cost page faults and full garbage collections. Not to be read before the
   * pull resolves.
   */
  into?: Float32Array | undefined;
}

export interface PushRequest extends PullRequest {
  /** keys.length x dim, row-major; gradients of repeated keys are summed */
  gradients: Float32Array;
}

/** Counts of one (client, shard), for audits: what this client numbered and saw acknowledged. */
export interface PushCounts {
  pool: string;
  shard: number;
  sent: number;
  acknowledged: number;
  refused: number;
}

/** A push of a sequence: waits until those before it have their numbers. */
export interface Turn {
  client: number;
  begins: Promise<void>;
  /** Throws when there are no numbers any more. */
  check(): void;
  /** It has all its numbers. */
  end(): void;
}

export class Client {
  private readonly native = loadNative();
  private readonly memory = new PartMemory();

  private constructor(
    private readonly session: Session,
    private readonly options: ConnectOptions,
  ) {}

  /** @internal Use `connect`. */
  static async open(scheduler: string, options: ConnectOptions): Promise<Client> {
    const session = await Session.open(scheduler, options);
    const client = new Client(session, options);
    try {
      if (options.audit) await client.createTables(client.map.pools.map(auditTable));
    } catch (error) {
      await client.close();
      throw error;
    }
    return client;
  }

  /** This client's id; unique in the job for ever. */
  get id(): number {
    return this.session.id;
  }

  /** The newest map of the cluster that this client knows. */
  get clusterMap(): ClusterMap {
    return this.map;
  }

  private get map(): ClusterMap {
    return this.session.map;
  }

  /** Pushes to shards that are not durable yet. */
  get unacknowledged(): number {
    return this.session.core.unacknowledged;
  }

  // ---- tables

  /**
   * Creates a table, or finds it when it exists with the same specification. @throws TABLE_EXISTS,
   * BAD_ARGUMENT
   */
  async createTable(options: TableOptions): Promise<Table> {
    const [table] = await this.createTables([options]);
    return table!;
  }

  async createTables(options: TableOptions[]): Promise<Table[]> {
    const specs = options.map((table) => ({
      name: table.name,
      pool: table.pool ?? 'embedding',
      dim: table.dim,
      optimizer: table.optimizer ?? DEFAULT_OPTIMIZER,
      initializer: table.initializer ?? { kind: 'uniform' as const, low: -0.05, high: 0.05 },
      seed: table.seed ?? 0,
    }));
    // Here as well as at the scheduler, which takes what no message can carry for a broken peer and hangs up.
    for (const spec of specs) {
      const problem = tableProblem(spec, this.map.pools);
      if (problem) throw new KintsugiError('BAD_ARGUMENT', problem);
    }
    const reply = await this.session.ask((id) => ({ t: 'createTables', id, specs }));
    if (reply.t !== 'tablesCreated') throw new KintsugiError('INTERNAL', `unexpected answer "${reply.t}"`);
    if (reply.code) throw new KintsugiError(reply.code, reply.message ?? reply.code);
    await this.session.until(() => reply.tables.every((table) => tableByName(this.map, table.name)));
    return reply.tables.map((spec) => new Table(this, spec));
  }

  /** @throws UNKNOWN_TABLE */
  table(name: string): Table {
    return new Table(this, this.specOf(name));
  }

  /** Tables of the job, without the ones that audits use. */
  tables(): TableSpec[] {
    return this.map.tables.filter((table) => !isAuditTable(table.name));
  }

  private specOf(table: Table | string): TableSpec {
    if (typeof table !== 'string') return table.spec;
    const spec = tableByName(this.map, table);
    if (!spec) throw new KintsugiError('UNKNOWN_TABLE', `no table "${table}" exists in this job`);
    return spec;
  }

  // ---- pull

  /**
   * Rows of several tables in one request per node. Answers one Float32Array per request, keys.length x dim;
   * the initial value for keys that were never pushed.
   * @throws KEY_TYPE, LENGTH_MISMATCH, UNKNOWN_TABLE, UNRECOVERABLE, ABORTED, CLOSED
   */
  async pull(requests: readonly PullInto[], options: RequestOptions = {}): Promise<Float32Array[]> {
    const calls = requests.map(({ table, keys }): TableCall => {
      const spec = this.specOf(table);
      return { spec, keys: checkKeys(keys), width: spec.dim };
    });
    const results = calls.map((call, i) => target(call, requests[i]?.into));
    return this.pullCalls(calls, results, 0, options);
  }

  /** Whole rows: values, then optimizer state, without padding. */
  async pullFull(requests: readonly PullRequest[], options: RequestOptions = {}): Promise<Float32Array[]> {
    const calls = requests.map(({ table, keys }): TableCall => {
      const spec = this.specOf(table);
      return { spec, keys: checkKeys(keys), width: this.rowWidth(spec) };
    });
    const results = calls.map((call) => target(call));
    return this.pullCalls(calls, results, 1, options);
  }

  /** Floats of a whole row: values and optimizer state. */
  rowWidth(spec: TableSpec): number {
    return this.native.rowWidth(spec.dim, spec.optimizer);
  }

  private async pullCalls(
    calls: TableCall[],
    results: Float32Array[],
    mode: 0 | 1,
    options: RequestOptions,
  ): Promise<Float32Array[]> {
    for (const { items, pieces, done } of this.rounds(calls, mode)) {
      const onRows = (item: number, rows: Uint8Array) => {
        let offset = 0;
        for (const { call, part } of pieces[item] ?? []) {
          const { width, order, start, end } = part;
          // The caller's own memory: it may have been transferred to somewhere else by now.
          if (results[call]!.length === 0)
            throw new KintsugiError('BAD_ARGUMENT', '`into` was taken away before its pull was done');
          offset = this.native.scatterRows(results[call]!, width, order, start, end, rows, offset);
        }
      };
      try {
        await this.session.request((ticket) => ({ kind: 'pull', ticket, items }), options, { onRows });
      } finally {
        done();
      }
    }
    return results;
  }

  // ---- push

  /**
   * Gradients for several tables in one request per node. Resolves when durable; atomic per shard, not across
   * shards, and what goes to one shard beyond 4 MiB of keys and rows is several pushes.
   * @throws LENGTH_MISMATCH, KEY_TYPE, KEY_RESERVED, MEMORY_LIMIT, UNKNOWN_TABLE, UNRECOVERABLE, ABORTED,
   * CLOSED
   */
  async push(requests: readonly PushRequest[], options: RequestOptions = {}): Promise<void> {
    await this.pushCalls(
      requests.map((request) => this.pushCall(request, false)),
      0,
      options,
    );
  }

  /**
   * Sets whole rows (values and optimizer state) instead of applying gradients: for loading what was saved.
   */
  async assign(requests: readonly PushRequest[], options: RequestOptions = {}): Promise<void> {
    await this.pushCalls(
      requests.map((request) => this.pushCall(request, true)),
      1,
      options,
    );
  }

  private pushCall(request: PushRequest, whole: boolean): TableCall {
    const spec = this.specOf(request.table);
    const keys = checkKeys(request.keys);
    const width = whole ? this.rowWidth(spec) : spec.dim;
    if (!(request.gradients instanceof Float32Array)) {
      throw new KintsugiError('BAD_ARGUMENT', 'gradients must be a Float32Array');
    }
    if (request.gradients.length !== keys.length * width) {
      const text = `table "${spec.name}": ${keys.length} keys x ${width} values need ${keys.length * width} floats, not ${request.gradients.length}`;
      throw new KintsugiError(
        request.gradients.length % width === 0 ? 'LENGTH_MISMATCH' : 'DIM_MISMATCH',
        text,
      );
    }
    return { spec, keys, width, rows: request.gradients };
  }

  private async pushCalls(
    calls: TableCall[],
    mode: 0 | 1,
    options: RequestOptions,
    turn?: Turn,
  ): Promise<void> {
    const rounds = this.rounds(mode === 0 ? this.distinct(calls) : calls, mode, turn?.client);
    await turn?.begins;
    for (const [index, round] of rounds.entries()) {
      const last = index === rounds.length - 1;
      // With the numbers of the last section given, the next push may have the numbers behind them.
      const whose = turn && { ...turn, numbered: () => last && turn.end() };
      await this.session.push(round, options, whose);
    }
  }

  /**
   * A gradient is summed over the whole call before its optimizer sees it, also when the call is cut into
   * sections.
   */
  private distinct(calls: TableCall[]): TableCall[] {
    let bytes = 0;
    for (const call of calls) bytes += call.keys.length * rowBytes(call.width);
    if (bytes <= SECTION_BYTES) return calls;
    return calls.map((call) => {
      const { keys, inverse } = this.native.unique(call.keys);
      if (keys.length === call.keys.length || !call.rows) return call;
      const rows = new Float32Array(keys.length * call.width);
      this.native.sumRows(rows, call.width, call.rows, inverse);
      return { ...call, keys, rows };
    });
  }

  /**
   * Splits calls by shard: a section per shard with all its tables, or several where that would be too large.
   */
  private rounds(calls: TableCall[], mode: 0 | 1, client = this.session.id): Round[] {
    const plans: Plan[] = [];
    for (const pool of this.map.pools) {
      for (const [shard, list] of piecesByShard(this.native, calls, pool)) {
        for (const pieces of cut(list)) {
          const parts = pieces.map((piece) => piece.part);
          if (this.options.audit && parts.some((part) => part.rows))
            parts.push(this.auditPart(pool, shard, mode, client));
          plans.push({ pool, shard, pieces, parts });
        }
      }
    }
    return encodeRounds(this.native, this.memory, this.map, mode, plans);
  }

  // ---- pushes under other numbers than this client's own

  /** @internal See sequence.ts. */
  async pushInTurn(requests: readonly PushRequest[], options: RequestOptions, turn: Turn): Promise<void> {
    await this.pushCalls(
      requests.map((request) => this.pushCall(request, false)),
      0,
      options,
      turn,
    );
  }

  /** @internal Takes the numbers that a push with these (unique) keys has taken. */
  skip(requests: readonly PullRequest[], client: number): void {
    const calls = requests.map(({ table, keys }): TableCall => {
      const spec = this.specOf(table);
      return { spec, keys: checkKeys(keys), width: spec.dim };
    });
    const items = this.map.pools.flatMap((pool) =>
      [...piecesByShard(this.native, calls, pool)].map(([shard, list]) => {
        const { group, member } = locate(pool, shard);
        return { g: group, m: member, count: cut(list).length };
      }),
    );
    this.session.step({ kind: 'skip', client, items });
  }

  /** @internal */
  get wire(): Session {
    return this.session;
  }

  // ---- audit

  private auditPart(pool: Pool, shard: number, mode: 0 | 1, client: number): SectionPart {
    if (mode === 1) throw new KintsugiError('BAD_ARGUMENT', 'a client with an audit cannot assign rows');
    const spec = this.specOf(auditTable(pool).name);
    const keys = auditKeys(this.native, pool, client);
    const order = Uint32Array.of(shard);
    const rows = new Float32Array(keys.length).fill(1);
    return { table: spec.id, width: 1, keys, rows, order, start: 0, end: 1 };
  }

  /**
   * What this client numbered and saw acknowledged, per shard; `client`: what it did under the numbers of
   * another.
   */
  pushCounts(client?: number): PushCounts[] {
    return this.session.core.counts(client).map(({ g, m, sent, acknowledged, refused }) => {
      const pool = this.map.pools.find((p) => g >= p.firstGroup && g < p.firstGroup + p.groups)!;
      return { pool: pool.name, shard: (g - pool.firstGroup) * pool.k + m, sent, acknowledged, refused };
    });
  }

  // ---- status and queries

  status(): Promise<JobStatus> {
    return this.session.status();
  }

  /**
   * Has a parity dropped and built anew, because its bytes are wrong. False when the map does not list it
   * (any more).
   */
  async replaceSink(g: number, sid: number): Promise<boolean> {
    const reply = await this.session.ask((id) => ({ t: 'replaceSink', id, g, sid }));
    return reply.t === 'sinkReplaced' && reply.done;
  }

  /**
   * @internal Asks the scheduler to change what serves; see tools/scaling.ts. @throws the code of a refusal
   */
  async change(
    build: (id: number) => MessageOf<'scale'> | MessageOf<'drain'> | MessageOf<'rebalance'>,
  ): Promise<MessageOf<'changeReply'>> {
    const reply = await this.session.ask(build);
    if (reply.t !== 'changeReply') throw new KintsugiError('INTERNAL', `unexpected answer "${reply.t}"`);
    if (reply.code) throw new KintsugiError(reply.code, reply.message ?? reply.code);
    return reply;
  }

  /** @internal Asks a shard's owner or a node; `read` runs while payload views are valid. */
  async query<T>(query: Query, read: (message: Message, parts: readonly Uint8Array[]) => T): Promise<T> {
    const waiting: Partial<Waiting> = { onAnswer: read };
    await this.session.request((ticket) => ({ kind: 'query', ticket, query }), {}, waiting);
    return waiting.answer as T;
  }

  close(): Promise<void> {
    return this.session.close();
  }
}

/** A table of the job. */
export class Table {
  constructor(
    private readonly client: Client,
    readonly spec: TableSpec,
  ) {}

  get name(): string {
    return this.spec.name;
  }

  get dim(): number {
    return this.spec.dim;
  }

  /** Rows of `keys`, keys.length x dim, in the order of `keys`. */
  async pull(keys: BigUint64Array, options?: RequestOptions): Promise<Float32Array> {
    const [rows] = await this.client.pull([{ table: this, keys }], options);
    return rows!;
  }

  /** Applies gradients (keys.length x dim) with the table's optimizer; resolves when durable. */
  async push(keys: BigUint64Array, gradients: Float32Array, options?: RequestOptions): Promise<void> {
    await this.client.push([{ table: this, keys, gradients }], options);
  }
}

/** What the caller gives for the rows of a call, or a new array. */
function target(call: TableCall, into?: Float32Array): Float32Array {
  const length = call.keys.length * call.width;
  if (into === undefined) return new Float32Array(length);
  if (!(into instanceof Float32Array))
    throw new KintsugiError('BAD_ARGUMENT', '"into" must be a Float32Array');
  if (into.length === length) return into;
  const text = `table "${call.spec.name}": rows of ${length} floats do not fit "into", which has ${into.length}`;
  throw new KintsugiError('LENGTH_MISMATCH', text);
}

function checkKeys(keys: BigUint64Array): BigUint64Array {
  if (!(keys instanceof BigUint64Array)) throw new KintsugiError('KEY_TYPE', 'keys must be a BigUint64Array');
  return keys;
}

/**
 * Connects to the scheduler of a job ("host:port").
 * @throws UNREACHABLE, UNAUTHORIZED, NOT_ENOUGH_NODES, BAD_ARGUMENT, ADDON_NOT_LOADED, ABORTED
 */
export function connect(scheduler: string, options: ConnectOptions = {}): Promise<Client> {
  return Client.open(scheduler, options);
}

/**
 * The library: connect to a job, create tables, pull rows, push gradients. A push resolves when it is durable: every live
 * parity of its shards has it. Pulls may see values that are not durable yet.
 */
import { auditKeys, auditTable, isAuditTable } from './audit.js';
import {
  type ClientEffect,
  type ClientPolicy,
  DEFAULT_CLIENT_POLICY,
  PsClientCore,
  type Query,
  type ShardSection,
} from './core/client.js';
import { type ErrorCode, KintsugiError } from './errors.js';
import { type InitializerSpec, loadNative, type OptimizerSpec, type SectionPart } from './native.js';
import {
  type ClusterMap,
  EMPTY_MAP,
  locate,
  type PeerId,
  type Pool,
  SCHEDULER,
  shardCount,
  type TableSpec,
  tableByName,
} from './protocol/map.js';
import type { JobStatus, Message } from './protocol/messages.js';
import { parseAddress } from './runtime/address.js';
import { createLogger, type Logger, monotonicMs } from './runtime/log.js';
import { Peers } from './runtime/peers.js';
import { Uplink } from './runtime/uplink.js';

export interface ConnectOptions {
  token?: string | undefined;
  /** Wait at most so long for the scheduler and for the job's groups to be formed; default 10 s. */
  timeoutMs?: number | undefined;
  signal?: AbortSignal | undefined;
  /** false: do not wait for the groups; only `status` is useful before they are formed. Default true. */
  waitForJob?: boolean | undefined;
  /** Pushes that are not durable yet hold at most so many bytes; further ones wait. Default 256 MiB. */
  maxInFlightBytes?: number | undefined;
  /** Every push also adds 1 to an audit row of its (client, shard), to prove afterwards that none was lost or repeated. */
  audit?: boolean | undefined;
  policy?: Partial<ClientPolicy> | undefined;
  log?: Logger | undefined;
}

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
  /** `embedding` (default) or `dense`. */
  pool?: string | undefined;
}

export interface RequestOptions {
  /** Aborting stops the waiting; a push that has begun is still delivered. */
  signal?: AbortSignal | undefined;
}

export interface PullRequest {
  table: Table | string;
  keys: BigUint64Array;
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

const TICK_MS = 20;
const DEFAULT_TIMEOUT_MS = 10_000;
const DEFAULT_IN_FLIGHT_BYTES = 256 << 20;

interface Waiting {
  resolve(answer?: Message): void;
  reject(error: Error): void;
  onRows?: (item: number, rows: Uint8Array) => void;
  onAnswer?: (message: Message, parts: readonly Uint8Array[]) => unknown;
  answer?: unknown;
}

interface TableCall {
  spec: TableSpec;
  keys: BigUint64Array;
  width: number;
  rows?: Float32Array;
}

/** Where the rows of one item of a pull go. */
interface Piece {
  call: number;
  part: SectionPart;
}

export class Client {
  private readonly native = loadNative();
  private readonly core: PsClientCore;
  private readonly peers: Peers;
  private readonly log: Logger;
  private uplink: Uplink | undefined;
  private clientId: PeerId = -1;
  private map: ClusterMap = EMPTY_MAP;
  private nextTicket = 1;
  private readonly waiting = new Map<number, Waiting>();
  private readonly replies = new Map<number, (message: Message) => void>();
  private readonly mapWaiters = new Set<() => void>();
  private timer: NodeJS.Timeout | undefined;
  private inFlightBytes = 0;
  private readonly room: (() => void)[] = [];
  private closed = false;

  private constructor(
    private readonly scheduler: string,
    private readonly options: ConnectOptions,
  ) {
    this.core = new PsClientCore({ ...DEFAULT_CLIENT_POLICY, ...options.policy });
    this.log = options.log ?? createLogger('none', {});
    this.peers = new Peers({
      self: () => ({ peer: this.clientId, inc: 0, job: this.map.job }),
      token: options.token,
      resolve: (peer) => {
        const entry = this.map.nodes.find((node) => node.id === peer);
        return entry && { ...parseAddress(entry.address), inc: entry.inc };
      },
      onMessage: (from, message, parts) =>
        this.run(this.core.step({ kind: 'message', from, message, parts })),
      onUp: (peer) => this.run(this.core.step({ kind: 'peerUp', peer })),
      log: this.log,
    });
  }

  /** @internal Use `connect`. */
  static async open(scheduler: string, options: ConnectOptions): Promise<Client> {
    parseAddress(scheduler);
    const client = new Client(scheduler, options);
    const timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    const deadline = monotonicMs() + timeoutMs;
    try {
      await client.attach(timeoutMs);
      if (options.waitForJob ?? true) await client.formed(deadline);
      if (options.audit) await client.createTables(client.map.pools.map(auditTable));
    } catch (error) {
      await client.close();
      throw error;
    }
    return client;
  }

  /** This client's id; unique in the job for ever. */
  get id(): number {
    return this.clientId;
  }

  /** The newest map of the cluster that this client knows. */
  get clusterMap(): ClusterMap {
    return this.map;
  }

  /** Pushes to shards that are not durable yet. */
  get unacknowledged(): number {
    return this.core.unacknowledged;
  }

  // ---- tables

  /** Creates a table, or finds it when it exists with the same specification. @throws TABLE_EXISTS, BAD_ARGUMENT */
  async createTable(options: TableOptions): Promise<Table> {
    const [table] = await this.createTables([options]);
    return table!;
  }

  async createTables(options: TableOptions[]): Promise<Table[]> {
    const specs = options.map((table) => ({
      name: table.name,
      pool: table.pool ?? 'embedding',
      dim: table.dim,
      optimizer: table.optimizer ?? { kind: 'adagrad' as const, lr: 0.05, eps: 1e-10, initialAccumulator: 0 },
      initializer: table.initializer ?? { kind: 'uniform' as const, low: -0.05, high: 0.05 },
      seed: table.seed ?? 0,
    }));
    const reply = await this.ask((id) => ({ t: 'createTables', id, specs }));
    if (reply.t !== 'tablesCreated') throw new KintsugiError('INTERNAL', `unexpected answer "${reply.t}"`);
    if (reply.code) throw new KintsugiError(reply.code, reply.message ?? reply.code);
    await this.until(() => reply.tables.every((table) => tableByName(this.map, table.name)));
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
   * Rows of several tables in one request per node. Answers one Float32Array per request, keys.length x dim; the initial
   * value for keys that were never pushed. @throws KEY_TYPE, UNKNOWN_TABLE, UNRECOVERABLE, ABORTED, CLOSED
   */
  async pull(requests: readonly PullRequest[], options: RequestOptions = {}): Promise<Float32Array[]> {
    const calls = requests.map(({ table, keys }): TableCall => {
      const spec = this.specOf(table);
      return { spec, keys: checkKeys(keys), width: spec.dim };
    });
    return this.pullCalls(calls, 0, options);
  }

  /** Whole rows: values, then optimizer state, without padding. */
  async pullFull(requests: readonly PullRequest[], options: RequestOptions = {}): Promise<Float32Array[]> {
    const calls = requests.map(({ table, keys }): TableCall => {
      const spec = this.specOf(table);
      return { spec, keys: checkKeys(keys), width: this.rowWidth(spec) };
    });
    return this.pullCalls(calls, 1, options);
  }

  /** Floats of a whole row: values and optimizer state. */
  rowWidth(spec: TableSpec): number {
    return this.native.rowWidth(spec.dim, spec.optimizer);
  }

  private async pullCalls(calls: TableCall[], mode: 0 | 1, options: RequestOptions): Promise<Float32Array[]> {
    const results = calls.map((call) => new Float32Array(call.keys.length * call.width));
    const { items, pieces } = this.sections(calls, mode);
    if (items.length === 0) return results;
    const onRows = (item: number, rows: Uint8Array) => {
      let offset = 0;
      for (const { call, part } of pieces[item] ?? []) {
        const { width, order, start, end } = part;
        offset = this.native.scatterRows(results[call]!, width, order, start, end, rows, offset);
      }
    };
    await this.request((ticket) => ({ kind: 'pull', ticket, items }), options, { onRows });
    return results;
  }

  // ---- push

  /**
   * Gradients for several tables in one request per node. Resolves when durable; atomic per shard, not across shards.
   * @throws LENGTH_MISMATCH, KEY_TYPE, KEY_RESERVED, MEMORY_LIMIT, UNKNOWN_TABLE, UNRECOVERABLE, ABORTED, CLOSED
   */
  async push(requests: readonly PushRequest[], options: RequestOptions = {}): Promise<void> {
    await this.pushCalls(
      requests.map((request) => this.pushCall(request, false)),
      0,
      options,
    );
  }

  /** Sets whole rows (values and optimizer state) instead of applying gradients: for loading what was saved. */
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

  private async pushCalls(calls: TableCall[], mode: 0 | 1, options: RequestOptions): Promise<void> {
    const { items } = this.sections(calls, mode);
    if (items.length === 0) return;
    let bytes = 0;
    for (const item of items) bytes += item.section.byteLength;
    await this.makeRoom(bytes, options.signal);
    this.inFlightBytes += bytes;
    try {
      await this.request((ticket) => ({ kind: 'push', ticket, items }), options, {});
    } finally {
      this.inFlightBytes -= bytes;
      for (const waiter of this.room.splice(0)) waiter();
    }
  }

  private async makeRoom(bytes: number, signal: AbortSignal | undefined): Promise<void> {
    const limit = this.options.maxInFlightBytes ?? DEFAULT_IN_FLIGHT_BYTES;
    while (this.inFlightBytes > 0 && this.inFlightBytes + bytes > limit) {
      await new Promise<void>((resolve) => this.room.push(resolve));
      if (this.closed) throw new KintsugiError('CLOSED', 'the client is closed');
      if (signal?.aborted) throw aborted();
    }
  }

  /** Splits calls by shard: one section per shard, with all its tables; constant work in JavaScript per shard and table. */
  private sections(calls: TableCall[], mode: 0 | 1): { items: ShardSection[]; pieces: Piece[][] } {
    const items: ShardSection[] = [];
    const pieces: Piece[][] = [];
    for (const pool of this.map.pools) {
      const shards = shardCount(pool);
      const byShard = new Map<number, Piece[]>();
      for (const [index, call] of calls.entries()) {
        if (call.spec.pool !== pool.name || call.keys.length === 0) continue;
        const { order, starts } = this.native.partition(call.keys, shards);
        for (let shard = 0; shard < shards; shard++) {
          const [start, end] = [starts[shard]!, starts[shard + 1]!];
          if (start === end) continue;
          const part: SectionPart = {
            table: call.spec.id,
            width: call.width,
            keys: call.keys,
            order,
            start,
            end,
          };
          if (call.rows) part.rows = call.rows;
          const known = byShard.get(shard);
          if (known) known.push({ call: index, part });
          else byShard.set(shard, [{ call: index, part }]);
        }
      }
      for (const [shard, list] of byShard) {
        const parts = list.map((piece) => piece.part);
        if (this.options.audit && list.some((piece) => piece.part.rows))
          parts.push(this.auditPart(pool, shard, mode));
        const { group, member } = locate(pool, shard);
        items.push({ g: group, m: member, section: this.native.encodeRequest(mode, parts) });
        pieces.push(list);
      }
    }
    return { items, pieces };
  }

  // ---- audit

  private auditPart(pool: Pool, shard: number, mode: 0 | 1): SectionPart {
    if (mode === 1) throw new KintsugiError('BAD_ARGUMENT', 'a client with an audit cannot assign rows');
    const spec = this.specOf(auditTable(pool).name);
    const keys = auditKeys(this.native, pool, this.clientId);
    const order = Uint32Array.of(shard);
    const rows = new Float32Array(keys.length).fill(1);
    return { table: spec.id, width: 1, keys, rows, order, start: 0, end: 1 };
  }

  /** What this client numbered and saw acknowledged, per shard. */
  pushCounts(): PushCounts[] {
    return this.core.counts().map(({ g, m, sent, acknowledged, refused }) => {
      const pool = this.map.pools.find((p) => g >= p.firstGroup && g < p.firstGroup + p.groups)!;
      return { pool: pool.name, shard: (g - pool.firstGroup) * pool.k + m, sent, acknowledged, refused };
    });
  }

  // ---- status and queries

  async status(): Promise<JobStatus> {
    const reply = await this.ask((id) => ({ t: 'status', id }));
    if (reply.t !== 'statusReply') throw new KintsugiError('INTERNAL', `unexpected answer "${reply.t}"`);
    return reply.status;
  }

  /** @internal Asks a shard's owner or a node; `read` runs while payload views are valid. */
  async query<T>(query: Query, read: (message: Message, parts: readonly Uint8Array[]) => T): Promise<T> {
    const waiting: Partial<Waiting> = { onAnswer: read };
    await this.request((ticket) => ({ kind: 'query', ticket, query }), {}, waiting);
    return waiting.answer as T;
  }

  async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    clearInterval(this.timer);
    this.uplink?.close();
    this.peers.close();
    const error = new KintsugiError('CLOSED', 'the client is closed');
    for (const waiting of this.waiting.values()) waiting.reject(error);
    this.waiting.clear();
    for (const waiter of this.room.splice(0)) waiter();
    for (const waiter of this.mapWaiters) waiter();
    for (const reply of this.replies.values()) reply({ t: 'stale', code: 'SESSION_EXPIRED' });
    this.replies.clear();
  }

  // ---- wiring

  private async attach(connectTimeoutMs: number): Promise<void> {
    this.uplink = await Uplink.open({
      scheduler: this.scheduler,
      token: this.options.token,
      introduce: (identity) => (identity ? { t: 'attach', id: identity.id } : { t: 'attach' }),
      onWelcome: ({ id, map }) => {
        this.clientId = id;
        this.onMap(map);
      },
      onMessage: (message) => this.onSchedulerMessage(message),
      onStale: () => void this.close(),
      log: this.log,
      connectTimeoutMs,
      signal: this.options.signal,
    });
    this.timer = setInterval(() => this.run(this.core.step({ kind: 'tick', now: monotonicMs() })), TICK_MS);
  }

  private async formed(deadline: number): Promise<void> {
    const late = new KintsugiError('TIMEOUT', 'late');
    const left = Math.max(1, Math.ceil(deadline - monotonicMs()));
    await this.until(() => this.map.groups.length > 0, AbortSignal.timeout(left), late).catch(
      async (error: unknown) => {
        if (error !== late) throw error;
        const { reasons } = await this.status();
        throw new KintsugiError('NOT_ENOUGH_NODES', `the job has not started: ${reasons.join('; ')}`);
      },
    );
  }

  /** Resolves when `condition` holds of a map that has arrived. */
  private async until(condition: () => boolean, signal?: AbortSignal, late?: Error): Promise<void> {
    while (!condition()) {
      if (this.closed) throw new KintsugiError('CLOSED', 'the client is closed');
      if (signal?.aborted) throw late ?? aborted();
      if (this.options.signal?.aborted) throw aborted();
      await new Promise<void>((resolve) => {
        const done = () => {
          this.mapWaiters.delete(done);
          signal?.removeEventListener('abort', done);
          this.options.signal?.removeEventListener('abort', done);
          resolve();
        };
        this.mapWaiters.add(done);
        signal?.addEventListener('abort', done);
        this.options.signal?.addEventListener('abort', done);
      });
    }
  }

  private onMap(map: ClusterMap): void {
    if (map.epoch <= this.map.epoch) return;
    this.map = map;
    this.run(this.core.step({ kind: 'message', from: SCHEDULER, message: { t: 'map', map }, parts: [] }));
    for (const waiter of [...this.mapWaiters]) waiter();
  }

  private onSchedulerMessage(message: Message): void {
    if (message.t === 'map') this.onMap(message.map);
    else if (message.t === 'tablesCreated' || message.t === 'statusReply') {
      this.replies.get(message.id)?.(message);
      this.replies.delete(message.id);
    }
  }

  /** A question to the scheduler; asked again when the connection to it comes back. */
  private async ask(build: (id: number) => Message): Promise<Message> {
    if (this.closed) throw new KintsugiError('CLOSED', 'the client is closed');
    const id = this.nextTicket++;
    const message = build(id);
    let timer: NodeJS.Timeout | undefined;
    try {
      return await new Promise<Message>((resolve, reject) => {
        this.replies.set(id, (reply) =>
          reply.t === 'stale' ? reject(new KintsugiError('CLOSED', 'the client is closed')) : resolve(reply),
        );
        this.uplink?.send(message);
        timer = setInterval(() => this.uplink?.send(message), DEFAULT_CLIENT_POLICY.retryMs);
      });
    } finally {
      clearInterval(timer);
      this.replies.delete(id);
    }
  }

  private request(
    input: (ticket: number) => Parameters<PsClientCore['step']>[0],
    options: RequestOptions,
    waiting: Partial<Waiting>,
  ): Promise<void> {
    if (this.closed) throw new KintsugiError('CLOSED', 'the client is closed');
    if (options.signal?.aborted) throw aborted();
    const ticket = this.nextTicket++;
    return new Promise<void>((resolve, reject) => {
      const onAbort = () => {
        this.waiting.delete(ticket);
        this.run(this.core.step({ kind: 'forget', ticket }));
        reject(aborted());
      };
      options.signal?.addEventListener('abort', onAbort, { once: true });
      waiting.resolve = () => {
        options.signal?.removeEventListener('abort', onAbort);
        resolve();
      };
      waiting.reject = (error) => {
        options.signal?.removeEventListener('abort', onAbort);
        reject(error);
      };
      this.waiting.set(ticket, waiting as Waiting);
      this.run(this.core.step(input(ticket)));
    });
  }

  private run(effects: ClientEffect[]): void {
    for (const effect of effects) {
      switch (effect.kind) {
        case 'send':
          this.peers.send(effect.to, effect.message, effect.parts);
          break;
        case 'event':
          this.log.info(effect.name, effect.fields);
          break;
        case 'rows':
          this.waiting.get(effect.ticket)?.onRows?.(effect.item, effect.rows);
          break;
        case 'answer': {
          const waiting = this.waiting.get(effect.ticket);
          if (waiting) waiting.answer = waiting.onAnswer?.(effect.message, effect.parts);
          break;
        }
        case 'done':
          this.settle(effect.ticket, effect.error);
          break;
      }
    }
  }

  private settle(ticket: number, error: { code: ErrorCode; message: string } | undefined): void {
    const waiting = this.waiting.get(ticket);
    this.waiting.delete(ticket);
    if (error) waiting?.reject(new KintsugiError(error.code, error.message));
    else waiting?.resolve();
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

function checkKeys(keys: BigUint64Array): BigUint64Array {
  if (!(keys instanceof BigUint64Array)) throw new KintsugiError('KEY_TYPE', 'keys must be a BigUint64Array');
  return keys;
}

function aborted(): KintsugiError {
  return new KintsugiError('ABORTED', 'the operation was aborted');
}

/**
 * Connects to the scheduler of a job ("host:port").
 * @throws UNREACHABLE, UNAUTHORIZED, NOT_ENOUGH_NODES, BAD_ARGUMENT, ADDON_NOT_LOADED, ABORTED
 */
export function connect(scheduler: string, options: ConnectOptions = {}): Promise<Client> {
  return Client.open(scheduler, options);
}

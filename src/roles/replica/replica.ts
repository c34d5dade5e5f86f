/**
 * The role of a replica: a client of the job whose machine (core/replica) follows shards, and a server that
 * answers pulls from what it has: over links to the library, and over HTTP to everybody else.
 */

import { KintsugiError } from '../../common/errors.js';
import { DEFAULT_REPLICA_POLICY, ReplicaCore, type ReplicaPolicy } from '../../core/replica/replica.js';
import type { Effect } from '../../core/shared/outbox.js';
import { loadNative, type NativeMemory } from '../../engine/native.js';
import { MOST_LIFE } from '../../engine/policies.js';
import { advertisedAddress, parseAddress, parseAddresses } from '../../net/address.js';
import { AddressBook } from '../../net/address-book.js';
import { each } from '../../net/effects.js';
import { type Logger, monotonicMs } from '../../net/log.js';
import { Peers } from '../../net/peers.js';
import { type Listener, listen, type RoleTls } from '../../net/transport/index.js';
import { attachAs, Uplink } from '../../net/uplink.js';
import { locate, type PeerId, poolOf, SCHEDULER, shardCount, tableByName } from '../../protocol/map.js';
import type { Message } from '../../protocol/messages.js';
import { MAX_REPORTED_TABLES } from '../../protocol/replicas.js';
import { type ServedRows, servedProblem } from '../../protocol/saving.js';
import type { ReplicaStatus } from '../../protocol/status.js';
import { createEndpoints } from '../endpoints.js';
import type { Readings } from '../metrics/registry.js';
import { answerPull, type HttpPull, type HttpRows, MAX_PULL_BODY_BYTES } from './replica-http.js';
import { ReplicaReaders } from './replica-readers.js';

const TICK_MS = 5;
/** Least time between two lines of the log that say that answers became too old, or are new enough again. */
const LOOK_MS = 500;

export interface ReplicaRoleOptions {
  /** host:port of the scheduler; of several, with commas between. */
  scheduler: string;
  name: string;
  /** Address to listen on; port 0 takes a free one. */
  listen?: string | undefined;
  /** host or host:port that others dial, when it differs from `listen`. */
  advertise?: string | undefined;
  /** Token of clients: a replica has no more rights than one. Readers over a link show it, too. */
  token?: string | undefined;
  /** Opens `POST /pull`, as a bearer; without it that is open on loopback and refused beyond it. */
  pullToken?: string | undefined;
  /** Opens /metrics, likewise. */
  metricsToken?: string | undefined;
  tls?: RoleTls | undefined;
  /** Share of the shards that this replica holds: every `of`-th, from the `part`-th on. Default: all. */
  share?: readonly [part: number, of: number] | undefined;
  /** Names of the tables that it serves. Default: all. */
  tables?: readonly string[] | undefined;
  /** Rows of tables with a policy that it serves. Default: all that are admitted. */
  served?: ServedRows | undefined;
  /** A pull is refused when what it needs is older. Default: any age that is known. */
  maxLagMs?: number | undefined;
  policy?: Partial<ReplicaPolicy> | undefined;
  connectTimeoutMs?: number | undefined;
  log: Logger;
  /** This process must stop. */
  onStale?(error: KintsugiError): void;
}

/** A replica that runs in this process. */
export interface RunningReplica {
  /** Id of the replica in the job, as a client. */
  readonly id: PeerId;
  /** host:port where it answers. */
  readonly address: string;
  /** Status of the replica, as that of the job has it. */
  readonly status: ReplicaStatus;
  /** Why it does not serve now; undefined: it does. */
  readonly notReady: string | undefined;
  close(): Promise<void>;
}

class Replica implements RunningReplica {
  private readonly native = loadNative();
  private readonly memory: NativeMemory = this.native.createMemory(0);
  private readonly maxLagMs: number;
  private core: ReplicaCore | undefined;
  private readonly readers: ReplicaReaders;
  private readonly peers: Peers;
  private readonly addresses = new AddressBook(() => this.core?.map);
  private uplink: Uplink | undefined;
  private listener: Listener | undefined;
  private timers: NodeJS.Timeout[] = [];
  private proof: Uint8Array | undefined;
  private wasReady = false;
  private saidUnfit: string | undefined;
  private tickedAt = Number.NEGATIVE_INFINITY;
  id: PeerId = -1;
  address = '';

  constructor(private readonly options: ReplicaRoleOptions) {
    const { token, tls, log } = options;
    this.maxLagMs = options.maxLagMs ?? Number.MAX_VALUE;
    this.readers = new ReplicaReaders(() => this.core, this.maxLagMs, log);
    this.peers = new Peers({
      self: () => ({ peer: this.id, inc: 0, job: this.core?.map.job ?? '', proof: this.proof }),
      ...{ token, tls, log },
      resolve: (peer) => this.addresses.resolve(peer),
      keepsUp: (peer) => this.addresses.holds(peer),
      onMessage: (from, _, message, parts) => this.receive(from, message, parts),
      onUp: (peer) => this.step({ kind: 'peerUp', peer }),
    });
  }

  async start(): Promise<void> {
    const { options } = this;
    const { scheduler, name, token, tls, log, share, tables, served } = options;
    await this.listen();
    const policy = { ...DEFAULT_REPLICA_POLICY, ...options.policy };
    const part = { share, tables, served, address: this.address };
    this.core = new ReplicaCore(this.native, this.memory, policy, part);
    this.core.now = monotonicMs();
    this.uplink = await Uplink.open({
      ...{ scheduler, role: 'client', token, tls, log },
      introduce: attachAs,
      onWelcome: ({ id, map, proof }) => {
        this.id = id;
        this.proof = proof;
        this.receive(SCHEDULER, { t: 'map', map }, []);
      },
      onMessage: (message) => this.receive(SCHEDULER, message, []),
      onStale: (error) => {
        log.error('replica.stale', { name, message: error.message });
        options.onStale?.(error);
      },
      connectTimeoutMs: options.connectTimeoutMs ?? 10_000,
    }).catch(async (error: unknown) => {
      await this.close();
      throw error;
    });
    const { misfit } = this;
    if (misfit !== undefined) {
      await this.close();
      throw new KintsugiError('BAD_ARGUMENT', misfit);
    }
    this.timers = [setInterval(() => this.tick(), TICK_MS), setInterval(() => this.look(), LOOK_MS)];
    log.info('replica.following', { replica: this.id, address: this.address });
  }

  private async listen(): Promise<void> {
    const { options, readers } = this;
    const { token, pullToken, metricsToken, tls } = options;
    const { host, port } = parseAddress(options.listen ?? '127.0.0.1:0');
    const lags = () => this.core?.lags() ?? new Map();
    const http = createEndpoints({
      role: 'replica',
      name: options.name,
      notReady: () => this.notReady,
      metrics: () => {
        const { shards = 0, complete = 0 } = this.core?.status() ?? {};
        const known = (ms: number) => (Number.isFinite(ms) ? ms : -1);
        return {
          kintsugi_followed_shards: shards,
          kintsugi_complete_shards: complete,
          kintsugi_lag_ms: new Map([...lags()].map(([pool, { lagMs }]) => [pool, known(lagMs)])),
          kintsugi_lag_positions: new Map([...lags()].map(([pool, { behind }]) => [pool, behind])),
          kintsugi_pulls_total: readers.counts.pulls,
          kintsugi_refused_pulls_total: readers.counts.refused,
          kintsugi_engine_bytes: this.memory.usedBytes,
          kintsugi_epoch: this.core?.map.epoch ?? 0,
          kintsugi_scheduler_connected: Number(this.uplink?.connected ?? false),
        } satisfies Readings<'replica'>;
      },
    });
    this.listener = await listen({
      ...{ host, port, token, metricsToken, tls, http, handlers: readers.handlers },
      post: {
        ...{ path: '/pull', maxBytes: MAX_PULL_BODY_BYTES, token: pullToken, tokenFlag: '--pull-token-file' },
        answer: (body, type) => answerPull(body, type, (request) => this.pull(request)),
      },
    });
    this.address = advertisedAddress(options.advertise, { host, port: this.listener.port });
    options.log.info('replica.listening', { port: this.listener.port });
  }

  get status(): ReplicaStatus {
    const { share = [1, 1], tables, served } = this.options;
    const { shards = 0, complete = 0, lagMs = 0, behind = 0 } = this.core?.status() ?? {};
    const part: [number, number] = [share[0], share[1]];
    const which = { ...(tables && { tables: [...tables] }), ...(served && { served }) };
    return { id: this.id, address: this.address, share: part, ...which, shards, complete, lagMs, behind };
  }

  get notReady(): string | undefined {
    const { core } = this;
    if (core) core.now = monotonicMs();
    if (!core || this.id < 0) return 'this replica is not connected to its job yet';
    if (core.map.groups.length === 0) return 'the job is not formed';
    const { unfit } = this;
    if (unfit !== undefined) return unfit;
    const { shards, complete, lagMs } = core.status();
    if (complete < shards) return `${shards - complete} of ${shards} shards are not here yet`;
    if (lagMs <= this.maxLagMs) return undefined;
    if (!Number.isFinite(lagMs)) return 'nobody has said yet how old a shard is';
    return `a shard is ${Math.round(lagMs)} ms old, at most ${this.maxLagMs} are allowed`;
  }

  /** Why thresholds fit none of the tables that are served, which may come later. */
  private get misfit(): string | undefined {
    const { tables, served = {} } = this.options;
    return servedProblem(served, this.core?.map.tables ?? [], tables);
  }

  /** Why its flags fit no table of the job as it is now. */
  private get unfit(): string | undefined {
    if (!this.core?.map.groups.length) return undefined;
    const [missing] = this.core.missingTables;
    return missing === undefined ? this.misfit : `the job has no table "${missing}"`;
  }

  private look(): void {
    const why = this.notReady;
    const isReady = why === undefined;
    const { unfit } = this;
    if (isReady === this.wasReady && unfit === this.saidUnfit) return;
    this.wasReady = isReady;
    this.saidUnfit = unfit;
    if (isReady) this.options.log.info('replica.ready', { address: this.address });
    else this.options.log.warn('replica.unready', { reason: why });
  }

  private tick(now = monotonicMs()): void {
    this.tickedAt = now;
    this.step({ kind: 'tick', now });
  }

  private receive(from: PeerId, message: Message, parts: readonly Uint8Array[]): void {
    const { core } = this;
    const now = monotonicMs();
    // Timers wait until everything is handled that has arrived. Owners are asked between two deltas.
    if (now - this.tickedAt >= TICK_MS) this.tick(now);
    const before = core?.map;
    this.step({ kind: 'message', from, message, parts });
    if (core && before && core.map !== before) this.peers.dialNew(before, core.map);
  }

  private step(input: Parameters<ReplicaCore['step']>[0]): void {
    if (this.core) this.run(this.core.step(input));
  }

  private run(effects: Effect[]): void {
    each(effects, this.options.log, (effect) => {
      if (effect.kind === 'event') this.options.log.info(effect.name, effect.fields);
      else if (effect.kind !== 'send') return;
      else if (effect.to === SCHEDULER) this.uplink?.send(effect.message);
      else this.peers.send(effect.to, effect.message, effect.parts);
    });
  }

  /** @throws UNKNOWN_TABLE, KEY_RESERVED, STALE_REPLICA, LIMIT */
  private pull({ table, keys, maxLagMs, missing }: HttpPull): HttpRows {
    const { native } = this;
    const map = this.core?.map;
    const spec = map && tableByName(map, table);
    const pool = spec && poolOf(map, spec.pool);
    if (!spec || !pool) {
      const error = new KintsugiError('UNKNOWN_TABLE', `there is no table "${table}"`);
      this.readers.refused(error);
      throw error;
    }
    const { order, starts } = native.partition(keys, shardCount(pool));
    const places: [start: number, end: number][] = [];
    const asked = Array.from({ length: starts.length - 1 }, (_, shard) => {
      const [start, end] = [starts[shard]!, starts[shard + 1]!];
      if (start === end) return [];
      const { group: g, member: m } = locate(pool, shard);
      places.push([start, end]);
      const part = { table: spec.id, width: spec.dim, keys, order, start, end };
      return [{ g, m, section: native.encodeRequest(0, [part]) }];
    }).flat();
    const limits = { maxLagMs: maxLagMs ?? Number.POSITIVE_INFINITY, missing };
    const answer = this.readers.read(asked, limits);
    const rows = new Float32Array(keys.length * spec.dim);
    for (const [i, section] of answer.rows.entries())
      native.scatterRows(rows, spec.dim, order, ...places[i]!, section, 0);
    return { dim: spec.dim, rows, lagMs: answer.lagMs };
  }

  async close(): Promise<void> {
    for (const timer of this.timers) clearInterval(timer);
    // Links send what is given to them before they close.
    if (this.core && this.uplink) this.run(this.core.leave());
    this.uplink?.close();
    this.peers.close();
    await this.listener?.close();
    this.core?.close();
    this.core = undefined;
  }
}

/**
 * Starts a replica in this process.
 * @throws UNREACHABLE, UNAUTHORIZED, PORT_IN_USE, TOKEN_REQUIRED, BAD_ARGUMENT
 */
export async function startReplica(options: ReplicaRoleOptions): Promise<RunningReplica> {
  const { share: [part, of] = [1, 1], tables = [] } = options;
  if (!Number.isInteger(part) || !Number.isInteger(of) || part < 1 || part > of)
    throw new KintsugiError('BAD_ARGUMENT', `a share is i/n with i from 1 to n, not ${part}/${of}`);
  if (tables.length > MAX_REPORTED_TABLES)
    throw new KintsugiError('BAD_ARGUMENT', `at most ${MAX_REPORTED_TABLES} tables can be named`);
  for (const [name, value] of Object.entries(options.served ?? {}))
    if (!Number.isInteger(value) || value < 0 || value > MOST_LIFE)
      throw new KintsugiError(
        'BAD_ARGUMENT',
        `${name} must be an integer from 0 to ${MOST_LIFE}, not ${value}`,
      );
  parseAddresses(options.scheduler);
  const replica = new Replica(options);
  await replica.start();
  return replica;
}

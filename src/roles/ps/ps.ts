/**
 * The PS role: a PsNode of the core, wired to sockets and a clock. Messages of one turn of the event loop
 * share a batch: the flush comes when the turn's messages have been handled. What they have us send to one
 * peer shares a frame.
 */

import { KintsugiError } from '../../common/errors.js';
import { checkTimeout } from '../../common/options.js';
import type { Surroundings } from '../../core/node/hooks.js';
import { type NodeInput, PsNode } from '../../core/node/node.js';
import { copied } from '../../core/shared/bytes.js';
import { policyWithin } from '../../core/shared/memory-classes.js';
import type { Effect } from '../../core/shared/outbox.js';
import { DEFAULT_POLICY, type Policy } from '../../core/shared/policy.js';
import { ReceivedBytes } from '../../core/shared/received-bytes.js';
import { loadNative, type NativeMemory } from '../../engine/native.js';
import { advertisedAddress, NODE_NAME, parseAddress, parseAddresses } from '../../net/address.js';
import { AddressBook } from '../../net/address-book.js';
import { each } from '../../net/effects.js';
import type { Logger } from '../../net/log.js';
import { monotonicMs } from '../../net/log.js';
import { Peers } from '../../net/peers.js';
import { bytesOf } from '../../net/postbox.js';
import { ownToken, SessionProofs } from '../../net/session-proofs.js';
import { type Listener, listen, type PartBuffer, type RoleTls, release } from '../../net/transport/index.js';
import { Uplink } from '../../net/uplink.js';
import { type PeerId, SCHEDULER } from '../../protocol/map.js';
import type { Message } from '../../protocol/messages.js';
import type { Role } from '../../protocol/senders.js';
import { createEndpoints } from '../endpoints.js';
import { FailStop } from '../fail-stop.js';
import { psReadings } from '../metrics/ps.js';
import type { Readings } from '../metrics/registry.js';
import { processTelemetry } from '../process-telemetry.js';
import { Answers } from './answers.js';
import { type Departed, Departure } from './departure.js';
import { PlaceFiles } from './place-files.js';
import { PulseThread } from './pulse-thread.js';
import { Trimming } from './trimming.js';

const TICK_MS = 20;
/** Messages whose payload was made for them alone. Its memory is free once they are sent. */
const GATHERED: ReadonlySet<Message['t']> = new Set(['rows', 'content', 'equation', 'install']);

export interface PsOptions {
  /** host:port of the scheduler */
  scheduler: string;
  name: string;
  /** Address to listen on; port 0 takes a free one. */
  listen?: string | undefined;
  /** host or host:port that others dial, when it differs from `listen`. */
  advertise?: string | undefined;
  /** Failure domain; default: the machine's name. */
  hostLabel?: string | undefined;
  /** Nodes of one machine share it (see machine.ts); undefined: unknown. */
  machine?: string | undefined;
  standby?: boolean | undefined;
  token?: string | undefined;
  /** Shared by the scheduler and the PS only; default: `token` serves them, too. */
  nodeToken?: string | undefined;
  /** Opens /metrics; without it they are open on loopback and refused beyond it. */
  metricsToken?: string | undefined;
  /** /metrics tells of each data shard, too. */
  metricsPerShard?: boolean | undefined;
  /**
   * Certificate of this node, and how to verify the scheduler and other nodes. Default: nothing is encrypted.
   */
  tls?: RoleTls | undefined;
  /** 0 = no limit */
  memoryBytes?: number | undefined;
  policy?: Partial<Policy> | undefined;
  connectTimeoutMs?: number | undefined;
  /**
   * A thread proves to the scheduler that this process lives while its event loop is busy. Default: false,
   * because all roles of a process that has several share the event loop.
   */
  pulses?: boolean | undefined;
  log: Logger;
  /** Called when this process must stop: a newer one took its name, or the scheduler serves another job. */
  onStale?: ((error: KintsugiError) => void) | undefined;
  /** As the hook of a node. */
  onDisturbed?: (() => void) | undefined;
  /** Called when this node has ended (INTERNAL, or MEMORY_LIMIT of the system); it is closed already. */
  onFailed?: ((error: KintsugiError) => void) | undefined;
}

/** A PS that runs in this process. */
export interface RunningPs {
  /** Id of the node in the job. */
  readonly id: PeerId;
  /** host:port that others dial. */
  readonly address: string;
  /** Resolves when the scheduler has told this node to leave: it holds nothing any more. */
  readonly left: Promise<Departed>;
  /**
   * Asks to be emptied, and resolves as `left` does.
   * @throws NOT_ENOUGH_NODES when the job cannot do without this node, UNREACHABLE, TIMEOUT, BAD_ARGUMENT
   */
  drain(timeoutMs: number): Promise<void>;
  /** Stops at once, as a crash would. */
  close(): Promise<void>;
}

class PsRuntime {
  private node: PsNode | undefined;
  private readonly addresses = new AddressBook(() => this.node?.map);
  private readonly peers: Peers;
  private uplink: Uplink | undefined;
  private listener: Listener | undefined;
  private readonly memory: NativeMemory;
  private readonly native = loadNative();
  private readonly answers = new Answers();
  private readonly policy: Policy;
  private readonly received: ReceivedBytes;
  private timer: NodeJS.Timeout | undefined;
  private endScheduled = false;
  private turnScheduled = false;
  /** Clients with requests that wait for a turn. */
  private readonly behind = new Set<PeerId>();
  /** Payload to be freed once what is posted has been sent. */
  private garbage: Uint8Array[] = [];
  private loopback: [message: Message, parts: readonly Uint8Array[]][] = [];
  private closed = false;
  /** Resident memory of the process when it joined, before it held anything. */
  private startRssBytes = 0;
  private readonly trimming: Trimming;
  private readonly departure: Departure;
  private readonly proofs: SessionProofs;
  private readonly failStop: FailStop;
  private readonly pulses: PulseThread | undefined;
  private readonly files = new PlaceFiles((answer) => this.run(this.step(answer)));
  address = '';

  constructor(private readonly options: PsOptions) {
    this.memory = this.native.createMemory(options.memoryBytes ?? 0);
    this.policy = policyWithin(DEFAULT_POLICY, options.memoryBytes ?? 0, options.policy);
    this.received = new ReceivedBytes(this.policy.maxReceivedBytes);
    this.failStop = new FailStop({
      role: 'ps',
      report: (fields) => options.log.error('ps.failed', fields),
      state: () => this.node?.state(),
      stop: () => this.close(),
      onFailed: options.onFailed,
    });
    this.proofs = new SessionProofs(options);
    const { scheduler, tls, log } = options;
    this.pulses = options.pulses
      ? new PulseThread({ scheduler, token: ownToken(options), tls }, log)
      : undefined;
    this.departure = new Departure((message) => this.uplink?.send(message), options.name);
    this.peers = new Peers({
      self: () => ({ peer: this.node?.id ?? -1, inc: this.node?.inc ?? 0, job: this.node?.map.job ?? '' }),
      token: ownToken(options),
      holds: (client, proof) => this.holds(client, proof),
      tls: options.tls,
      received: this.received,
      resolve: (peer) => this.addresses.resolve(peer),
      keepsUp: (peer) => this.addresses.holds(peer),
      onMessage: (from, role, message, parts) => this.receive(from, role, message, parts),
      onUp: (peer) => this.run(this.step({ kind: 'peerUp', peer })),
      onDown: (peer) => this.gone(peer),
      onDrain: (client) => {
        if (this.node && this.node.answers.heldBy(client) > 0) this.report([client]);
      },
      log: options.log,
    });
    this.trimming = new Trimming(options.memoryBytes ?? 0, {
      rss: () => process.memoryUsage.rss(),
      held: () => this.startRssBytes + this.node!.heldBytes(this.received.held, this.peers.readerBytes),
      trim: () => this.native.trimMemory(),
    });
  }

  get id(): PeerId {
    return this.node?.id ?? -1;
  }

  async start(): Promise<void> {
    const { options } = this;
    const { host, port } = parseAddress(options.listen ?? '127.0.0.1:0');
    const http = createEndpoints({
      role: 'ps',
      name: options.name,
      notReady: () => this.notReady(),
      metrics: () => this.metrics(),
    });
    const { token, nodeToken, metricsToken, tls } = options;
    this.listener = await listen({
      ...{ host, port, token, nodeToken, metricsToken, tls, http, received: this.received },
      handlers: this.peers.incoming,
    });
    this.address = advertisedAddress(options.advertise, { host, port: this.listener.port });
    // Logged before joining: a proxy in front of this port must know it when the first peer calls.
    options.log.info('ps.listening', { port: this.listener.port });
    const { machine } = options;
    this.uplink = await Uplink.open({
      scheduler: options.scheduler,
      role: 'node',
      token: ownToken(options),
      tls,
      introduce: (identity) => ({
        t: 'join',
        name: options.name,
        host: options.hostLabel ?? '',
        address: this.address,
        ...(machine !== undefined && { machine }),
        standby: options.standby ?? false,
        ...(identity && { id: identity.id, inc: identity.inc, job: identity.job }),
      }),
      onWelcome: ({ id, inc, map }, scheduler) => {
        this.pulses?.tell({ node: id, inc, job: map.job, scheduler });
        if (!this.node) this.startRssBytes = process.memoryUsage.rss();
        this.node ??= new PsNode(id, inc, this.native, this.memory, this.policy, {
          discard: (bytes) => this.garbage.push(bytes),
          answerMemory: (bytes) => this.answers.open(bytes),
          contentMemory: (bytes) => this.answers.openContent(bytes),
          holds: (session, proof) => this.holds(session, proof),
          unacknowledgedMs: (peer, inc) => this.peers.unacknowledgedMs(peer, inc),
          disturbed: () => options.onDisturbed?.(),
          surroundings: () => this.surroundings(),
        });
        // Before the first tick: a message that comes earlier would look as old as the machine, and time out.
        this.node.now ||= monotonicMs();
        this.receive(SCHEDULER, 'scheduler', { t: 'map', map }, []);
      },
      onMessage: (message) => {
        if (!this.departure.take(message, this.node?.inc)) this.receive(SCHEDULER, 'scheduler', message, []);
      },
      onStale: ({ code, message }) => {
        options.log.error('ps.stale', { name: options.name, message });
        options.onStale?.(new KintsugiError(code, `node "${options.name}": ${message}`));
      },
      log: options.log,
      connectTimeoutMs: options.connectTimeoutMs ?? 10_000,
    }).catch(async (error: unknown) => {
      await this.close();
      throw this.failStop.error ?? error;
    });
    if (this.failStop.error) {
      this.uplink.close();
      throw this.failStop.error;
    }
    this.tick();
    options.log.info('ps.ready', { node: this.id, address: this.address, transport: this.listener.kind });
  }

  private surroundings(): Surroundings {
    const { sent, readerBytes } = this.peers;
    const { startRssBytes, received } = this;
    const bytes = { startRssBytes, receivedBytes: received.held, readerBytes };
    return { ...processTelemetry(), sentBytes: sent.bytes, ...bytes };
  }

  /** Before it has joined it tells nothing of its own. */
  private metrics(): Partial<Readings<'ps'>> {
    const { node, peers, files } = this;
    if (!node) return {};
    return psReadings(node.telemetry(this.options.metricsPerShard ?? false), {
      map: node.map,
      engineBytes: this.memory.usedBytes,
      schedulerConnected: this.uplink?.connected ?? false,
      sentMessages: peers.sentMessages,
      sentFrames: peers.sentFrames,
      refusedMessages: peers.refusals.counts,
      authFailures: this.listener?.authFailures ?? 0,
      checkpointFiles: files.storedFiles,
      checkpointFileBytes: files.storedBytes,
      checkpointFailedFiles: files.failedFiles,
    });
  }

  /** A node that has lost its scheduler still serves, so the connection does not count. */
  private notReady(): string | undefined {
    if (!this.node) return 'this node has not joined the job';
    return this.node.map.groups.length > 0 ? undefined : 'the job is not formed';
  }

  get left(): Promise<Departed> {
    return this.departure.left;
  }

  async drain(timeoutMs: number): Promise<void> {
    checkTimeout('drain: timeoutMs', timeoutMs);
    return this.departure.ask(timeoutMs);
  }

  private holds(session: PeerId, proof: Uint8Array | undefined): boolean {
    return this.proofs.holds(this.node?.map.job ?? '', session, proof);
  }

  private receive(from: PeerId, role: Role, message: Message, parts: readonly Uint8Array[]): void {
    if (this.closed || !this.node) return;
    const { node } = this;
    const before = node.map;
    const step = (buffer?: PartBuffer) => this.step({ kind: 'message', from, role, message, parts, buffer });
    const isServedNow = message.t === 'pull' && !node.isBehind;
    this.run(isServedNow ? this.answers.step(bytesOf(parts), step) : step());
    if (role === 'client') this.keep(from);
    if (!this.closed && node.map !== before) this.peers.dialNew(before, node.map);
  }

  private step(input: NodeInput): Effect[] | undefined {
    const { node } = this;
    if (!node || this.closed) return undefined;
    node.meter.begin(performance.now());
    const effects = this.failStop.run(() => node.step(input), input.kind === 'message');
    node.meter.end(performance.now());
    return effects;
  }

  private run(effects: Effect[] | undefined): void {
    each(effects ?? [], this.options.log, (effect) => {
      if (effect.kind === 'event') this.options.log.info(effect.name, effect.fields);
      else if (effect.kind === 'store') this.files.store(effect, this.node!.map);
      else if (effect.kind === 'fetch') this.files.fetch(effect, this.node!.map);
      else if (effect.kind === 'hangUp') this.peers.hangUp(effect.peer);
      else if (effect.to === SCHEDULER) this.uplink?.send(effect.message);
      else if (effect.to === this.node?.id) this.sendToSelf(effect.message, effect.parts);
      else this.peers.post(effect.to, effect.message, effect.parts);
      if (effect.kind === 'send' && GATHERED.has(effect.message.t)) this.garbage.push(...effect.parts);
    });
    if (!this.peers.anyPosted) this.collect();
    this.takeTurns();
    const { anyPosted } = this.peers;
    const { needsFlush = false, needsReport = false } = this.node ?? {};
    if (this.endScheduled || !(anyPosted || needsFlush || needsReport)) return;
    this.endScheduled = true;
    setImmediate(() => this.endTurn());
  }

  /** Requests that wait, and work that has no message: a bounded part in each turn of the event loop. */
  private takeTurns(): void {
    if (this.turnScheduled || this.closed || !this.node?.needsTurn) return;
    this.turnScheduled = true;
    setImmediate(() => {
      this.turnScheduled = false;
      // Messages that other nodes wait for leave before the work of this turn, which may take milliseconds.
      this.endTurn();
      this.run(this.step({ kind: 'turn', buffers: this.answers }));
      for (const client of this.behind) this.keep(client);
      this.endTurn();
    });
  }

  /** Requests of a client that wait for a turn keep their credit. */
  private keep(client: PeerId): void {
    const bytes = this.node?.queuedBytes(client) ?? 0;
    if (bytes === 0 && !this.behind.delete(client)) return;
    if (bytes > 0) this.behind.add(client);
    this.peers.keep(client, bytes);
  }

  /** The messages of this turn of the event loop have been handled. */
  private endTurn(): void {
    if (this.closed || !this.endScheduled) return;
    if (this.node?.needsFlush) this.run(this.step({ kind: 'flush' }));
    this.endScheduled = false;
    this.peers.flush();
    this.collect();
    if (this.node?.contentBytes.needsReport) this.reportOutgoing();
    this.report(this.node?.answers.charged() ?? []);
  }

  /** A link has ended, and what it held is free. */
  private gone(peer: PeerId): void {
    this.reportOutgoing();
    this.run(this.step({ kind: 'gone', client: peer }));
  }

  /** Tells the node what other nodes have not taken. */
  private reportOutgoing(): void {
    this.node?.reportOutgoing(this.peers.outgoingBytes());
  }

  /** Tells the node what these clients have not taken. */
  private report(clients: readonly PeerId[]): void {
    if (clients.length === 0) return;
    const links = clients.map((client) => [client, this.peers.bytesFor(client)] as const);
    this.run(this.step({ kind: 'taken', links }));
  }

  private collect(): void {
    this.answers.sent();
    if (this.garbage.length === 0) return;
    release(this.garbage);
    this.garbage = [];
  }

  /**
   * Messages between an owner and a sink on this node go through the event loop, so that a recovery leaves
   * time for others.
   */
  private sendToSelf(message: Message, parts: readonly Uint8Array[]): void {
    // The parts are copied, as a socket would: their memory may be freed before they arrive.
    this.loopback.push([message, parts.map(copied)]);
    if (this.loopback.length > 1) return;
    setImmediate(() => {
      const waiting = this.loopback;
      this.loopback = [];
      each(waiting, this.options.log, ([own, payload]) => this.receive(this.id, 'node', own, payload));
    });
  }

  private tick(): void {
    this.timer = setInterval(() => {
      this.pulses?.turned();
      this.reportOutgoing();
      this.report(this.node?.answers.clients() ?? []);
      this.received.tick(monotonicMs());
      if (this.node) this.trimming.tick(monotonicMs());
      this.run(this.step({ kind: 'tick', now: monotonicMs() }));
    }, TICK_MS);
  }

  async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    clearInterval(this.timer);
    const ended = this.pulses?.close();
    this.uplink?.close();
    this.peers.close();
    await this.listener?.close();
    this.node?.close();
    await this.files.close();
    await ended;
  }
}

/**
 * Starts a PS in this process. @throws UNREACHABLE, UNAUTHORIZED, PORT_IN_USE, TOKEN_REQUIRED, BAD_ARGUMENT
 */
export async function startPs(options: PsOptions): Promise<RunningPs> {
  if (!NODE_NAME.test(options.name)) {
    throw new KintsugiError(
      'BAD_ARGUMENT',
      `"${options.name}" is not a node name: a letter or digit, then also "-", "_", "." and ":"`,
    );
  }
  // An error in the command line shows before anything is started.
  parseAddresses(options.scheduler);
  const runtime = new PsRuntime(options);
  await runtime.start();
  return {
    id: runtime.id,
    address: runtime.address,
    left: runtime.left,
    drain: (timeoutMs) => runtime.drain(timeoutMs),
    close: () => runtime.close(),
  };
}

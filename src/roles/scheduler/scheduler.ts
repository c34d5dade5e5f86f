/** The scheduler role: the Scheduler of the core, wired to sockets, a clock and a durable store. */

import { describe, KintsugiError, traceOf } from '../../common/errors.js';
import {
  DEFAULT_SCHEDULER_POLICY,
  Scheduler,
  type SchedulerEffect,
  type SchedulerInput,
} from '../../core/scheduler/scheduler.js';
import type { Silence } from '../../core/scheduler/vanishing.js';
import { formatAddress, parseAddress } from '../../net/address.js';
import { each } from '../../net/effects.js';
import { tellHungUp } from '../../net/hung-up.js';
import { monotonicMs } from '../../net/log.js';
import { hostOf } from '../../net/probe.js';
import { checkJoin, checkProved, Refusals } from '../../net/refusals.js';
import { SessionProofs } from '../../net/session-proofs.js';
import { type Link, type Listener, listen } from '../../net/transport/index.js';
import { encodeFrame } from '../../protocol/frame.js';
import { type PeerId, SCHEDULER } from '../../protocol/map.js';
import type { Message, MessageOf } from '../../protocol/messages.js';
import { checkSender, maySend, type Role } from '../../protocol/senders.js';
import { toMessage } from '../../protocol/validate.js';
import { createEndpoints } from '../endpoints.js';
import { FailStop } from '../fail-stop.js';
import { SchedulerMetrics } from '../metrics/scheduler.js';
import { observedOf } from '../process-telemetry.js';
import { Candidate, type Tenure } from './candidate.js';
import { Checkpoints } from './checkpoints.js';
import { EventFeed } from './event-feed.js';
import { firstState } from './first-state.js';
import { Probing } from './probing.js';
import type { RunningScheduler, SchedulerOptions } from './scheduler-options.js';
import { pageOf } from './scheduler-pages.js';
import { StatusAnswers } from './status-answers.js';

export type { RunningScheduler, SchedulerOptions } from './scheduler-options.js';

const TICK_MS = 50;
/** A link without traffic is pinged so often. */
const NODE_PING_MS = 200;
const CLIENT_PING_MS = 500;
/** A client's machine is gone when it has acknowledged nothing for so long. */
const CLIENT_GONE_MS = 1000;

/**
 * `role`: what the link has introduced itself as; `peer`: who it is, when it has been let in. `pulses`: the
 * link of a thread that sends pulses; it is let in nowhere, and carries nothing else.
 */
interface KnownLink {
  link: Link;
  role?: Role;
  peer?: PeerId;
  inc?: number;
  pulses?: true;
}

class SchedulerRuntime {
  private listener: Listener | undefined;
  private readonly links = new Map<number, KnownLink>();
  private readonly refusals: Refusals;
  private readonly proofs: SessionProofs;
  private readonly byPeer = new Map<PeerId, Link>();
  private readonly probing: Probing;
  private timer: NodeJS.Timeout | undefined;
  private closing: Promise<void> | undefined;
  private closed = false;
  /** The store has something of the job. */
  private isDurable = false;
  private storeProblem: string | undefined;
  /** Another scheduler may lead. */
  private doubtful = false;
  private readonly failStop: FailStop;
  private readonly metrics: SchedulerMetrics;
  private readonly checkpoints: Checkpoints;
  private readonly answers: StatusAnswers;
  private readonly feed: EventFeed;
  /** Nodes that were silent at the last tick. */
  private silent = 0;
  address = '';

  private constructor(
    private readonly options: SchedulerOptions,
    private readonly core: Scheduler,
  ) {
    this.metrics = new SchedulerMetrics(core);
    this.refusals = new Refusals(options.log);
    this.proofs = new SessionProofs(options);
    this.checkpoints = new Checkpoints({
      log: options.log,
      step: (input) => this.step(input),
      send: (to, message) => this.byPeer.get(to)?.send(message),
      plans: () => core.plans(),
    });
    this.answers = new StatusAnswers({
      make: () => core.status(),
      version: () => this.version(),
      clock: () => performance.now(),
    });
    this.feed = new EventFeed(core.events, () => performance.now());
    this.probing = new Probing({
      reconnectMs: options.policy?.reconnectMs ?? DEFAULT_SCHEDULER_POLICY.reconnectMs,
      nodes: () => core.map.nodes,
      isConnected: (node) => this.byPeer.has(node),
      step: (input) => this.step(input),
    });
    this.failStop = new FailStop({
      role: 'scheduler',
      report: (fields) => options.log.error('scheduler.failed', fields),
      state: () => ({ epoch: core.map.epoch, status: core.status() }),
      stop: () => this.close(),
      onFailed: options.onFailed,
    });
  }

  /** `tenure`: where several use the store. @throws what `firstState` throws */
  static async start(options: SchedulerOptions, tenure?: Tenure): Promise<SchedulerRuntime> {
    const { state, resumed, unwritten } = await firstState(options, tenure);
    const policy = { ...DEFAULT_SCHEDULER_POLICY, ...options.policy };
    const core = new Scheduler(state, policy, resumed, unwritten);
    const runtime = new SchedulerRuntime(options, core);
    runtime.isDurable = resumed || !unwritten;
    await runtime.open(resumed);
    return runtime;
  }

  private async open(resumed: boolean): Promise<void> {
    const { options } = this;
    const { host, port } = parseAddress(options.listen ?? '127.0.0.1:0');
    const http = createEndpoints({
      role: 'scheduler',
      name: 'scheduler',
      notReady: () => this.notReady(),
      metrics: () =>
        this.metrics.read({
          storeReachable: this.storeProblem === undefined,
          refusedMessages: this.refusals.counts,
          authFailures: this.listener?.authFailures ?? 0,
          transport: this.listener?.kind ?? '',
          plans: (of) => this.checkpoints.metric(of),
        }),
    });
    const pages = { status: () => this.answers.now(), feed: this.feed };
    this.listener = await listen({
      host,
      port,
      token: options.token,
      nodeToken: options.nodeToken,
      metricsToken: options.metricsToken,
      tls: options.tls,
      http: (path, details) => pageOf(pages, path, details) ?? http(path),
      handlers: {
        onOpen: (link) => this.links.set(link.id, { link }),
        onMessage: (link, header) => this.receive(link, toMessage(header)),
        onClose: (link) => this.onClose(link),
        onHungUp: (link, reason) => tellHungUp(options.log, link, reason),
        onError: (link, error) =>
          options.log.error('scheduler.error', { remote: link.remote, message: traceOf(error) }),
      },
    });
    this.address = formatAddress({ host, port: this.listener.port });
    this.step({ kind: 'tick', now: monotonicMs(), wall: Date.now() });
    this.timer = setInterval(() => this.tick(), TICK_MS);
    options.log.info('scheduler.ready', { address: this.address, resumed, transport: this.listener.kind });
    if (options.checkpoint) void this.checkpoints.begin(options.checkpoint);
  }

  private tick(): void {
    const links: Silence[] = [];
    for (const [node, { id, unacknowledgedMs: ms }] of this.byPeer) {
      const inc = this.links.get(id)?.inc;
      if (inc && ms) links.push({ node, inc, ms });
    }
    // An empty list takes back what the last one said.
    if (links.length + this.silent > 0) this.step({ kind: 'silent', links });
    this.silent = links.length;
    this.step({ kind: 'tick', now: monotonicMs(), wall: Date.now() });
    this.answers.tick();
    this.metrics.tick();
    this.feed.tick();
  }

  /** Changes when the status has news that its readers must get at once. */
  private version(): string {
    const { redundancy, nodesAlive, reasons } = this.core.summary();
    return `${this.core.map.epoch} ${redundancy} ${nodesAlive} ${reasons.length}`;
  }

  private notReady(): string | undefined {
    if (this.core.map.groups.length > 0) return undefined;
    return `the job is not formed: ${this.core.summary().reasons.join('; ')}`;
  }

  private receive(link: Link, message: Message): void {
    const known = this.links.get(link.id);
    if (!known) return;
    this.refusals.during(link, known.peer, message, () => {
      if (message.t === 'release' && known.role === 'client') this.checkRange(message);
      if (message.t === 'join' || message.t === 'attach') this.introduce(known, message);
      else if (message.t === 'pulse') this.pulse(known, message);
      else if ((message.t === 'status' || message.t === 'events') && known.role !== 'node') {
        // Needs no session: an observer can ask while the store is away, when no session can be opened.
        checkProved(link, 'client');
        if (message.t === 'status') this.answers.ask(link, message.id);
        else this.feed.ask(link, message);
      } else if (message.t === 'observe' && known.role === 'client')
        link.send(observedOf(this.core, message.id));
      else if (known.role && known.peer !== undefined) {
        const { peer: from, role } = known;
        if (!this.checkpoints.intercept(from, role, message))
          this.step({ kind: 'message', from, role, message });
      } else throw new KintsugiError('BAD_FRAME', 'the first message must be a join or an attach');
    });
  }

  /** @throws FORBIDDEN on a link that is more than that of a thread for pulses */
  private pulse(known: KnownLink, message: MessageOf<'pulse'>): void {
    checkSender(known.role ?? 'node', 'scheduler', message.t);
    checkProved(known.link, 'node');
    if (known.role && !known.pulses)
      throw new KintsugiError('FORBIDDEN', 'a pulse on the connection of a node that has joined');
    known.role = 'node';
    known.pulses = true;
    this.step({ kind: 'message', from: message.node, role: 'node', message });
  }

  /** The first message of a link says what it is, for good. */
  private introduce(
    known: { link: Link; role?: Role },
    message: MessageOf<'join'> | MessageOf<'attach'>,
  ): void {
    const role = message.t === 'join' ? 'node' : 'client';
    if (known.role)
      throw new KintsugiError('FORBIDDEN', `this connection is that of a ${known.role} already`);
    checkProved(known.link, role);
    // This peer was told to look for another scheduler, and has come back to this one by another of its
    // addresses.
    if (this.doubtful && message.id !== undefined && this.byPeer.has(message.id))
      return void known.link.send({ t: 'redirect', to: '' });
    const link = known.link.id;
    if (message.t === 'attach') {
      this.checkSession(message);
      known.role = role;
      this.step({ kind: 'attach', link, message });
    } else {
      checkJoin(message);
      known.role = role;
      this.step({ kind: 'join', link, message });
    }
  }

  /**
   * A client that comes back under a session must show that the session is its own. Another job's session is
   * left to the core.
   */
  private checkSession({ id, job, proof }: MessageOf<'attach'>): void {
    const own = this.core.map.job;
    if (id === undefined || (job ?? own) !== own || this.proofs.holds(own, id, proof)) return;
    throw new KintsugiError('FORBIDDEN', `a client says that it is client ${id}`);
  }

  /** A client that releases a range under its session must show that it had the lease. */
  private checkRange({ session, proof }: MessageOf<'release'>): void {
    if (session === undefined || this.proofs.holds(this.core.map.job, session, proof)) return;
    throw new KintsugiError('FORBIDDEN', 'a range is released by a client that never had it');
  }

  /** Adds the proof of a session to the message that gives the session. */
  private proven(message: Message): Message {
    const session = message.t === 'acquired' ? message.session : message.t === 'welcome' ? message.id : 0;
    if (session === 0 || (message.t === 'welcome' && message.inc > 0)) return message;
    const proof = this.proofs.of(this.core.map.job, session);
    return proof ? ({ ...message, proof } as Message) : message;
  }

  private onClose(link: Link): void {
    const known = this.links.get(link.id);
    this.links.delete(link.id);
    this.answers.closed(link);
    this.feed.closed(link);
    if (known?.peer === undefined || this.byPeer.get(known.peer) !== link) return;
    this.byPeer.delete(known.peer);
    this.step({ kind: 'closed', peer: known.peer, inc: known.inc ?? 0, link: link.id });
  }

  private step(input: SchedulerInput): void {
    if (this.closed) return;
    const refusable = 'message' in input;
    if (input.kind !== 'tick' && input.kind !== 'silent' && !('role' in input && input.role === 'node'))
      this.answers.outdated();
    const effects = this.failStop.run(() => this.core.step(input), refusable) ?? [];
    each(effects, this.options.log, (effect) => this.execute(effect));
    this.feed.look();
  }

  private execute(effect: SchedulerEffect): void {
    switch (effect.kind) {
      case 'send':
        if (effect.to === SCHEDULER) this.checkpoints.receive(effect.message);
        else this.byPeer.get(effect.to)?.send(this.proven(effect.message));
        return;
      case 'reply':
        this.reply(effect);
        return;
      case 'broadcast':
        this.broadcast(effect.message);
        return;
      case 'event':
        this.metrics.event(effect.name, effect.fields);
        this.options.log[effect.name.endsWith('.warning') ? 'warn' : 'info'](effect.name, effect.fields);
        this.checkpoints.heard(effect.name, effect.fields);
        return;
      case 'probe':
        void this.probing.probe(effect.node, effect.inc, effect.address);
        return;
      case 'abandon':
        return this.abandon(effect.node, effect.inc);
      case 'publish':
        return this.checkpoints.publish(effect);
      case 'persist':
        this.persist(effect);
    }
  }

  private persist({ changes, version }: SchedulerEffect & { kind: 'persist' }): void {
    const begun = performance.now();
    this.options.store.write(changes).then(
      () => {
        this.isDurable = true;
        this.metrics.storeWrites.add(performance.now() - begun);
        this.step({ kind: 'persisted', version });
      },
      (error: unknown) => this.fail(error),
    );
  }

  /** Encoded once, for all whose role takes it. */
  private broadcast(message: Message): void {
    const frame = encodeFrame(message);
    for (const link of this.byPeer.values()) {
      const role = this.links.get(link.id)?.role;
      if (role && maySend('scheduler', role, message.t)) link.sendEncoded(frame);
    }
  }

  private abandon(node: PeerId, inc: number): void {
    const link = this.byPeer.get(node);
    if (link && this.links.get(link.id)?.inc === inc) link.abandon('its machine has vanished');
  }

  /**
   * Without a durable state nothing may be decided any more. The scheduler ends; the next one finds out what
   * is on disk.
   */
  fail(cause: unknown): void {
    if (this.closed) return;
    const known = cause instanceof KintsugiError;
    const error = known ? cause : new KintsugiError('STORE_FAILED', describe(cause), { cause });
    // A scheduler that stands by again (candidate.ts) says so itself.
    if (error.code !== 'DEPOSED' || !this.options.store.election)
      this.options.log.error('scheduler.store', { message: error.message });
    void this.close();
    this.options.onFailed?.(error);
  }

  /**
   * Another scheduler may lead by now. Peers look for it and keep their connections to this one until they
   * have found it, because the store may be away for all.
   */
  doubt(): void {
    this.doubtful = true;
    this.broadcast({ t: 'redirect', to: '' });
  }

  /** Decisions wait while the store cannot be reached. */
  storeReached(problem: string | undefined): void {
    this.storeProblem = problem;
    this.doubtful &&= problem !== undefined;
    this.step({ kind: 'store', problem });
  }

  private reply(effect: SchedulerEffect & { kind: 'reply' }): void {
    const known = this.links.get(effect.link);
    if (!known) {
      const { admit, link } = effect;
      // The connection closed before it was admitted, so its end has not been reported to the core.
      if (admit) setImmediate(() => this.step({ kind: 'closed', ...admit, link }));
      return;
    }
    if (effect.admit) {
      // A newer process has taken the name. The older one is still connected and must stop.
      const before = this.byPeer.get(effect.admit.peer);
      if (before && this.links.get(before.id)?.inc !== effect.admit.inc)
        before.send({ t: 'stale', code: 'STALE_NODE' });
      known.peer = effect.admit.peer;
      known.inc = effect.admit.inc;
      this.byPeer.set(effect.admit.peer, known.link);
      // Nodes have incarnations; clients are not probed.
      if (effect.admit.inc === 0) known.link.watch(CLIENT_PING_MS, CLIENT_GONE_MS);
      else {
        known.link.watch(NODE_PING_MS);
        this.probing.remember(effect.admit.peer, hostOf(known.link.remote));
      }
    }
    known.link.send(this.proven(effect.message));
  }

  /** The job, when the store has it. */
  get job(): string | undefined {
    return this.isDurable ? this.core.map.job : undefined;
  }

  async finish(): Promise<void> {
    if (!this.closed && this.core.map.groups.length > 0) await this.checkpoints.last();
  }

  close(): Promise<void> {
    this.closing ??= this.shut();
    return this.closing;
  }

  private async shut(): Promise<void> {
    this.closed = true;
    clearInterval(this.timer);
    this.probing.close();
    await Promise.all([this.listener?.close(), this.checkpoints.close()]);
    await this.options.store.close();
  }
}

/**
 * Starts a scheduler in this process; resumes the job that its store holds. Where several use the store, it
 * stands by until it leads. @throws PORT_IN_USE, TOKEN_REQUIRED, FOREIGN_STATE, and with `restore`
 * CHECKPOINT_MISSING, BAD_CHECKPOINT, PLACE_FAILED, BAD_ARGUMENT
 */
export async function startScheduler(options: SchedulerOptions): Promise<RunningScheduler> {
  const running = options.store.election
    ? await Candidate.start(options, (own, tenure) => SchedulerRuntime.start(own, tenure))
    : await SchedulerRuntime.start(options);
  const { address } = running;
  return { address, finish: () => running.finish(), close: () => running.close() };
}

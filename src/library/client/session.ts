/**
 * The connections of a client: to the scheduler and to the nodes, the protocol machine, and everyone who
 * waits for an answer. The library on top of it works with tables and keys. A session works with tickets,
 * which are numbers of requests.
 */

import { onAbort } from '../../common/aborts.js';
import { aborted, causedBy, type ErrorCode, KintsugiError } from '../../common/errors.js';
import { MAX_TIMER_MS } from '../../common/options.js';
import {
  type ClientEffect,
  DEFAULT_CLIENT_POLICY,
  PsClientCore,
  type Query,
  type SectionList,
} from '../../core/client/client.js';
import { parseAddresses } from '../../net/address.js';
import { AddressBook } from '../../net/address-book.js';
import { each } from '../../net/effects.js';
import { createLogger, type Logger, monotonicMs } from '../../net/log.js';
import { Peers } from '../../net/peers.js';
import { attachAs, Uplink } from '../../net/uplink.js';
import { type ClusterMap, type PeerId, SCHEDULER } from '../../protocol/map.js';
import type { JobStatus, Message, MessageOf } from '../../protocol/messages.js';
import { PushHold } from './holding.js';
import type { ConnectOptions, RequestOptions } from './options.js';
import { DEFAULT_IN_FLIGHT_BYTES, InFlightRoom } from './room.js';
import { checkQuestion } from './well-formed.js';

const TICK_MS = 20;
const DEFAULT_CONNECT_TIMEOUT_MS = 10_000;
/** A connect that has timed out may ask the scheduler for the reasons for so long. */
const REASONS_MS = 1000;
/** Ranges whose proofs a client keeps; it works on a few at a time. */
const MAX_LEASED = 1024;

/** The sections that a push sends; `done` is called when no section is kept any more. */
export interface SectionCalls {
  lists: readonly SectionList[];
  bytes: number;
  done(): void;
}

export interface WaitingAnswer {
  resolve(answer?: Message): void;
  reject(error: Error): void;
  /** `items`: (section, bytes) of each, as `ClientEffect` has them. */
  onRows?: (items: Uint32Array, rows: Uint8Array) => void;
  onAnswer?: (message: Message, parts: readonly Uint8Array[]) => unknown;
  answer?: unknown;
}

export class Session {
  readonly core: PsClientCore;
  id: PeerId = -1;
  /** A range of samples that this worker has lost. */
  onRangeLost: ((message: MessageOf<'rangeLost'>) => void) | undefined;
  /** The proof that session `id` is this client's own. */
  private proof: Uint8Array | undefined;
  /** Proofs that sessions of ranges were leased to this client, for the newest `MAX_LEASED` of them. */
  private readonly leased = new Map<PeerId, Uint8Array>();
  private readonly addresses = new AddressBook(() => this.map);
  private readonly peers: Peers;
  private readonly log: Logger;
  private uplink: Uplink | undefined;
  private nextTicket = 1;
  private readonly waiting = new Map<number, WaitingAnswer>();
  readonly holding = new PushHold({
    tell: (message) => this.tell(message),
    unacknowledged: () => this.core.unacknowledged,
  });
  private readonly replies = new Map<number, (message: Message) => void>();
  private readonly mapWaiters = new Set<() => void>();
  private timer: NodeJS.Timeout | undefined;
  private readonly room: InFlightRoom;
  /** Room for rows that pulls have asked for: as much again, so that pulls do not wait for pushes. */
  readonly answers: InFlightRoom;
  /** Sections that count against `maxInFlightBytes`, by ticket, whether somebody waits for them or not. */
  private readonly held = new Map<number, SectionCalls>();
  /** Set when the session has ended: the error of everything that is asked later. */
  closed: KintsugiError | undefined;

  private constructor(
    private readonly scheduler: string,
    private readonly options: ConnectOptions,
  ) {
    const { maxInFlightBytes = DEFAULT_IN_FLIGHT_BYTES } = options;
    this.room = new InFlightRoom(maxInFlightBytes);
    this.answers = new InFlightRoom(maxInFlightBytes);
    this.core = new PsClientCore({ ...DEFAULT_CLIENT_POLICY, ...options.policy });
    this.log = options.log ?? createLogger('none', {});
    this.peers = new Peers({
      self: () => ({ peer: this.id, inc: 0, job: this.map.job, proof: this.proof }),
      token: options.token,
      tls: options.tls,
      resolve: (peer) => this.addresses.resolve(peer),
      keepsUp: (peer) => this.addresses.holds(peer),
      onMessage: (from, _, message, parts) =>
        this.run(this.core.step({ kind: 'message', from, message, parts })),
      onUp: (peer) => this.run(this.core.step({ kind: 'peerUp', peer })),
      log: this.log,
    });
  }

  static async open(scheduler: string, options: ConnectOptions): Promise<Session> {
    parseAddresses(scheduler);
    const session = new Session(scheduler, options);
    const connectTimeoutMs = options.connectTimeoutMs ?? DEFAULT_CONNECT_TIMEOUT_MS;
    const deadline = monotonicMs() + connectTimeoutMs;
    try {
      await session.attach(connectTimeoutMs);
      if (options.waitForJob ?? true) await session.formed(deadline);
    } catch (error) {
      await session.close();
      throw error;
    }
    return session;
  }

  async status(limitMs?: number): Promise<JobStatus> {
    const reply = await this.ask((id) => ({ t: 'status', id }), limitMs);
    if (reply.t !== 'statusReply') throw new KintsugiError('INTERNAL', `unexpected answer "${reply.t}"`);
    return reply.status;
  }

  /**
   * Pushes sections when `maxInFlightBytes` allows. Their bytes are free again when no section is kept any
   * more, which may be after this settles: a push that was aborted is still delivered, and one that failed at
   * a shard may be under way to another.
   */
  async push(
    sections: SectionCalls,
    options: RequestOptions,
    whose?: { client: PeerId; check(): void; numbered(): void },
  ): Promise<void> {
    await this.room.take(sections.bytes, options.signal);
    let begun = false;
    try {
      whose?.check();
      const pushed = this.request(
        (ticket) => {
          begun = true;
          this.held.set(ticket, sections);
          const client = whose && { client: whose.client };
          return { kind: 'push', ticket, lists: sections.lists, ...client };
        },
        options,
        {},
      );
      whose?.numbered();
      await pushed;
    } finally {
      if (!begun) this.letGo(sections);
    }
  }

  private released(ticket: number): void {
    const held = this.held.get(ticket);
    if (!held) return;
    this.held.delete(ticket);
    this.letGo(held);
  }

  /** No section of it will be sent (again). */
  private letGo({ bytes, done }: SectionCalls): void {
    this.room.free(bytes);
    done();
  }

  /** Tells the scheduler that this client is done. */
  close(): Promise<void> {
    if (!this.closed) this.uplink?.send({ t: 'detach' });
    return this.end(new KintsugiError('CLOSED', 'the client is closed'));
  }

  private async end(error: KintsugiError): Promise<void> {
    if (this.closed) return;
    this.closed = error;
    clearInterval(this.timer);
    this.uplink?.close();
    this.peers.close();
    for (const waiting of this.waiting.values()) waiting.reject(error);
    this.waiting.clear();
    this.held.clear();
    for (const room of [this.room, this.answers]) room.end(error);
    this.holding.end();
    for (const waiter of this.mapWaiters) waiter();
    for (const reply of this.replies.values()) reply({ t: 'stale', code: 'SESSION_EXPIRED' });
    this.replies.clear();
  }

  private async attach(connectTimeoutMs: number): Promise<void> {
    this.uplink = await Uplink.open({
      scheduler: this.scheduler,
      role: 'client',
      token: this.options.token,
      tls: this.options.tls,
      introduce: attachAs,
      onWelcome: ({ id, map, proof }) => {
        this.id = id;
        this.proof = proof;
        this.onMap({ t: 'map', map });
      },
      onMessage: (message) => this.onSchedulerMessage(message),
      onStale: (error) => void this.end(error),
      log: this.log,
      connectTimeoutMs,
      signal: this.options.signal,
    });
    // Before any request: one that was asked at the time 0 would be overdue at the first tick.
    this.tick();
    this.timer = setInterval(() => this.tick(), TICK_MS);
  }

  private tick(): void {
    this.run(this.core.step({ kind: 'tick', now: monotonicMs(), busy: this.peers.busy() }));
    this.holding.look();
  }

  private async formed(deadline: number): Promise<void> {
    const late = new KintsugiError('TIMEOUT', 'late');
    const left = Math.max(1, Math.ceil(deadline - monotonicMs()));
    const stops = [{ signal: AbortSignal.timeout(left), error: late }];
    if (this.options.signal) stops.push({ signal: this.options.signal, error: aborted() });
    await this.until(() => this.map.groups.length > 0, stops).catch(async (error: unknown) => {
      if (error !== late) throw error;
      const { reasons } = await this.status(REASONS_MS);
      throw new KintsugiError('NOT_ENOUGH_NODES', `the job has not started: ${reasons.join('; ')}`);
    });
  }

  /** Resolves when `condition` holds; it is tested again with every new map. */
  async until(
    condition: () => boolean,
    stops: readonly { signal: AbortSignal; error: Error }[] = [],
  ): Promise<void> {
    while (!condition()) {
      if (this.closed) throw this.closed;
      for (const { signal, error } of stops) if (signal.aborted) throw error;
      await new Promise<void>((resolve) => {
        const done = () => {
          this.mapWaiters.delete(done);
          for (const forget of forgets) forget();
          resolve();
        };
        this.mapWaiters.add(done);
        const forgets = stops.map(({ signal }) => onAbort(signal, done));
      });
    }
  }

  get map(): ClusterMap {
    return this.core.map;
  }

  private onMap(message: MessageOf<'map'> | MessageOf<'mapDiff'>): void {
    const before = this.map;
    this.run(this.core.step({ kind: 'message', from: SCHEDULER, message, parts: [] }));
    if (this.map === before) return;
    this.peers.dialNew(before, this.map);
    for (const waiter of [...this.mapWaiters]) waiter();
  }

  private onSchedulerMessage(message: Message): void {
    if (message.t === 'map' || message.t === 'mapDiff') this.onMap(message);
    else if (message.t === 'rangeLost') this.onRangeLost?.(message);
    else if (message.t === 'hold') this.holding.onHold(message);
    else if (message.t === 'resume') this.holding.onResume(message);
    else if (message.t === 'acquired') this.onAcquired(message);
    else this.onReply(message);
  }

  private onReply(message: Message): void {
    if (!('id' in message) || message.id === undefined) return;
    this.replies.get(message.id)?.(message);
    this.replies.delete(message.id);
  }

  private onAcquired(message: MessageOf<'acquired'>): void {
    const { session, proof } = message;
    if (proof) {
      this.leased.delete(session);
      this.leased.set(session, proof);
      if (this.leased.size > MAX_LEASED) this.leased.delete(this.leased.keys().next().value!);
    }
    this.onReply(message);
  }

  /**
   * Adds to a push or release under the session of a range the proof that the range was leased to this
   * client.
   */
  private proven(message: Message): Message {
    const { t } = message;
    const pushes = t === 'push' || t === 'skipTo';
    const range = pushes ? message.client : t === 'release' ? message.session : undefined;
    const proof = range !== undefined && this.leased.get(range);
    return proof ? ({ ...message, proof } as Message) : message;
  }

  /** Sends a message that has no answer to the scheduler. It is lost when there is no connection. */
  tell(message: Message): void {
    this.uplink?.send(message);
  }

  step(input: Parameters<PsClientCore['step']>[0]): void {
    this.run(this.core.step(input));
  }

  /**
   * Asks the scheduler, and repeats the question until there is an answer. Rejects with UNREACHABLE after
   * `limitMs`, with ABORTED by the signal, with BAD_ARGUMENT when the receiver would not understand it.
   */
  async ask(build: (id: number) => Message, limitMs?: number, signal?: AbortSignal): Promise<Message> {
    if (this.closed) throw this.closed;
    const id = this.nextTicket++;
    const message = this.proven(build(id));
    checkQuestion(message);
    let timer: NodeJS.Timeout | undefined;
    let limit: NodeJS.Timeout | undefined;
    let forget: (() => void) | undefined;
    try {
      return await new Promise<Message>((resolve, reject) => {
        const late = new KintsugiError('UNREACHABLE', `the scheduler at ${this.scheduler} does not answer`);
        if (limitMs !== undefined) limit = setTimeout(() => reject(late), Math.min(limitMs, MAX_TIMER_MS));
        forget = onAbort(signal, () => reject(aborted()));
        this.replies.set(id, (reply) => (this.closed ? reject(this.closed) : resolve(reply)));
        // A question that no frame can hold is found out by the first send that has a connection.
        const send = () => {
          try {
            this.uplink?.send(message);
          } catch (error) {
            reject(error);
          }
        };
        send();
        timer = setInterval(send, DEFAULT_CLIENT_POLICY.retryMs);
      });
    } finally {
      clearInterval(timer);
      clearTimeout(limit);
      forget?.();
      this.replies.delete(id);
    }
  }

  /** Asks a shard's owner or a node; `read` runs while payload views are valid. */
  async query<T>(
    query: Query,
    read: (message: Message, parts: readonly Uint8Array[]) => T,
    options: RequestOptions = {},
  ): Promise<T> {
    checkQuestion(query.message);
    const waiting: Partial<WaitingAnswer> = { onAnswer: read };
    await this.request((ticket) => ({ kind: 'query', ticket, query }), options, waiting);
    return waiting.answer as T;
  }

  request(
    input: (ticket: number) => Parameters<PsClientCore['step']>[0],
    options: RequestOptions,
    waiting: Partial<WaitingAnswer>,
  ): Promise<void> {
    if (this.closed) throw this.closed;
    if (options.signal?.aborted) throw aborted();
    const ticket = this.nextTicket++;
    return new Promise<void>((resolve, reject) => {
      const forget = onAbort(options.signal, () => {
        forget();
        this.waiting.delete(ticket);
        this.run(this.core.step({ kind: 'forget', ticket }));
        reject(aborted());
      });
      waiting.resolve = () => {
        forget();
        resolve();
      };
      waiting.reject = (error) => {
        forget();
        reject(error);
      };
      this.waiting.set(ticket, waiting as WaitingAnswer);
      this.run(this.core.step(input(ticket)));
    });
  }

  private run(effects: ClientEffect[]): void {
    let unreadable: Error | undefined;
    const released: number[] = [];
    each(effects, this.log, (effect) => {
      switch (effect.kind) {
        case 'send':
          if (effect.to === SCHEDULER) this.uplink?.send(effect.message);
          else this.send(effect.to, this.proven(effect.message), effect.parts);
          break;
        case 'event':
          this.log.info(effect.name, effect.fields);
          break;
        case 'rows':
        case 'answer':
          unreadable ??= this.read(effect);
          break;
        case 'released':
          released.push(effect.ticket);
          break;
        case 'done':
          this.settle(effect.ticket, effect.error);
          break;
      }
    });
    // Released last: another effect of the same step may still send one of these sections.
    for (const ticket of released) this.released(ticket);
    // The caller closes the connection that the message came on.
    if (unreadable) throw unreadable;
  }

  /** Questions are small and have no parts. Those that are asked at once go to a node in one frame. */
  private send(to: PeerId, message: Message, parts: readonly Uint8Array[]): void {
    if (parts.length > 0) return this.peers.send(to, message, parts);
    if (!this.peers.anyPosted) process.nextTick(() => this.peers.flush());
    this.peers.post(to, message, []);
  }

  /** Hands an answer to who waits for it. Returns what is wrong with it, after rejecting the request. */
  private read(effect: ClientEffect & { kind: 'rows' | 'answer' }): Error | undefined {
    const waiting = this.waiting.get(effect.ticket);
    try {
      if (effect.kind === 'rows') waiting?.onRows?.(effect.items, effect.rows);
      else if (waiting) waiting.answer = waiting.onAnswer?.(effect.message, effect.parts);
      return undefined;
    } catch (error) {
      const unreadable = causedBy(error, 'BAD_FRAME', 'an answer cannot be read');
      this.waiting.delete(effect.ticket);
      waiting?.reject(error instanceof KintsugiError ? error : unreadable);
      this.run(this.core.step({ kind: 'forget', ticket: effect.ticket }));
      // The memory that the caller gave could not be used, so neither the answer nor its sender is at fault.
      return error instanceof KintsugiError && error.code === 'BAD_ARGUMENT' ? undefined : unreadable;
    }
  }

  private settle(ticket: number, refusal: { code: ErrorCode; message: string } | undefined): void {
    const waiting = this.waiting.get(ticket);
    this.waiting.delete(ticket);
    if (refusal) waiting?.reject(new KintsugiError(refusal.code, refusal.message));
    else waiting?.resolve();
  }
}

/**
 * A scheduler that waits to lead, where several use one store. It answers whoever comes with the address of
 * the leader, and begins its role when it leads. A scheduler that does not lead any more ends its term
 * (candidate.ts). Its decisions that were not written have no effect, because no peer was told of them.
 */
import { hostname } from 'node:os';
import { describe, KintsugiError } from '../../common/errors.js';
import { advertisedAddress, formatAddress, parseAddress } from '../../net/address.js';
import { tellHungUp } from '../../net/hung-up.js';
import { type Logger, monotonicMs } from '../../net/log.js';
import { Repeats } from '../../net/repeats.js';
import {
  coded,
  type HttpAnswer,
  type HttpDetails,
  type Link,
  type Listener,
  type ListenOptions,
  listen,
} from '../../net/transport/index.js';
import { toMessage } from '../../protocol/validate.js';
import type { Election } from '../../stores/decisions/index.js';
import { createEndpoints } from '../endpoints.js';

/** Only a leader has these. */
const PAGES: ReadonlySet<string> = new Set(['/status', '/events']);
/** A leader takes these as the first message of a link. */
const FIRST_MESSAGES: ReadonlySet<string> = new Set(['join', 'attach', 'status', 'events', 'pulse']);
const EVERYWHERE: ReadonlySet<string> = new Set(['0.0.0.0', '::']);

export interface StandbyOptions {
  listen?: string | undefined;
  /** host or host:port at which others reach this scheduler; default: the address that it listens on. */
  advertise?: string | undefined;
  /** Tokens and certificates that let peers in. */
  secrets: Pick<ListenOptions, 'token' | 'nodeToken' | 'metricsToken' | 'tls'>;
  log: Logger;
  onFailed?: ((error: KintsugiError) => void) | undefined;
}

/** A scheduler that leads, as the one that stands by uses it. */
export interface Leading {
  readonly address: string;
  /** The job, when the store has it; undefined: nothing of it is durable yet. */
  readonly job: string | undefined;
  /** Why the store cannot be reached; undefined: it can be. */
  storeReached(problem: string | undefined): void;
  /** Another scheduler may lead by now: peers that know other addresses are told to look for it. */
  doubt(): void;
  /** Ends by itself. */
  fail(error: KintsugiError): void;
  /** Before an orderly end. */
  finish(): Promise<void>;
  close(): Promise<void>;
}

export class Standby {
  private leader: string | undefined;
  private leading: Leading | undefined;
  private listener: Listener | undefined;
  /** Settled when no role is being begun. */
  private beginning: Promise<void> = Promise.resolve();
  private readonly over = new AbortController();
  private problem: string | undefined;
  /** Reasons why the store could not be reached, for the log. */
  private unreachable = new Repeats<string>(monotonicMs);
  private closed = false;
  private closing: Promise<void> | undefined;
  address = '';

  private constructor(
    private readonly options: StandbyOptions,
    private readonly election: Election,
    private readonly begin: (address: string, over: AbortSignal) => Promise<Leading>,
  ) {}

  /**
   * Resolves when this scheduler listens. `begin` starts its role at an address when it leads, and gives up
   * when the signal says that the term is over.
   * @throws PORT_IN_USE, TOKEN_REQUIRED, BAD_ARGUMENT
   */
  static async start(
    options: StandbyOptions,
    election: Election,
    begin: (address: string, over: AbortSignal) => Promise<Leading>,
  ): Promise<Standby> {
    const standby = new Standby(options, election, begin);
    await standby.open();
    return standby;
  }

  private async open(): Promise<void> {
    const { options } = this;
    const { host, port } = parseAddress(options.listen ?? '127.0.0.1:0');
    const endpoints = createEndpoints({
      role: 'scheduler',
      name: 'scheduler',
      notReady: () => `this scheduler stands by; ${this.whoLeads()}`,
      metrics: () => ({ kintsugi_leads: 0 }),
    });
    this.listener = await listen({
      host,
      port,
      ...options.secrets,
      http: (path, details) => this.elsewhere(path, details) ?? endpoints(path),
      handlers: {
        onOpen: () => {},
        onMessage: (link, header) => this.redirect(link, header),
        onClose: () => {},
        onHungUp: (link, reason) => tellHungUp(options.log, link, reason),
        onError: (link, error) =>
          options.log.error('scheduler.error', { remote: link.remote, message: describe(error) }),
      },
    });
    this.address = formatAddress({ host, port: this.listener.port });
    options.log.info('scheduler.standby', { address: this.address });
    void this.lead().catch((error: unknown) => this.fail(error));
  }

  private whoLeads(): string {
    if (this.problem !== undefined) return `who leads is unknown: ${this.problem}`;
    return this.leader ? `${this.leader} leads` : 'nobody leads';
  }

  /** Answers the first message of any peer with the address of the leader. */
  private redirect(link: Link, header: Record<string, unknown>): void {
    const { t } = toMessage(header);
    if (!FIRST_MESSAGES.has(t))
      throw new KintsugiError('BAD_FRAME', 'the first message must be a join or an attach');
    link.send({ t: 'redirect', to: this.leader ?? '' });
    link.close('another scheduler leads');
  }

  /** Pages of the job are the leader's. */
  private elsewhere(path: string, { query }: HttpDetails): Promise<HttpAnswer> | undefined {
    if (!PAGES.has(path)) return undefined;
    const { leader } = this;
    if (!leader)
      return Promise.resolve(coded(503, 'UNREACHABLE', 'this scheduler stands by, and nobody leads'));
    const url = new URL(path, `${this.options.secrets.tls ? 'https' : 'http'}://${leader}`);
    url.search = query;
    const body = JSON.stringify({ leader });
    return Promise.resolve({ status: 307, type: 'application/json', body, location: url.href });
  }

  private async lead(): Promise<void> {
    const { election, options } = this;
    const listened = parseAddress(this.address);
    // A scheduler that listens on all addresses is advertised by the name of its machine.
    const name = EVERYWHERE.has(listened.host) ? hostname() : undefined;
    await election.lead(advertisedAddress(options.advertise ?? name, listened), {
      onLeader: (address) => {
        if (this.leader !== address && address !== undefined)
          options.log.info('scheduler.follows', { address });
        this.leader = address;
      },
      onReach: (problem) => this.reached(problem),
      onDoubt: () => this.leading?.doubt(),
      onDeposed: (error) => this.fail(error),
    });
    if (this.closed) return;
    await this.listener?.close();
    this.listener = undefined;
    if (this.closed) return;
    const beginning = this.takeOver();
    this.beginning = beginning.catch(() => {});
    await beginning;
  }

  private async takeOver(): Promise<void> {
    const leading = await this.begin(this.address, this.over.signal);
    this.leading = leading;
    if (this.closed) return leading.close();
    leading.storeReached(this.problem);
  }

  /** Called at each attempt that fails. */
  private reached(problem: string | undefined): void {
    const { log } = this.options;
    const isChange = (problem === undefined) !== (this.problem === undefined);
    this.problem = problem;
    if (problem === undefined) {
      this.unreachable = new Repeats(monotonicMs);
      log.info('store.reached', {});
    } else
      this.unreachable.note(problem, (repeated) =>
        log.warn('store.unreachable', { message: problem, repeated }),
      );
    if (isChange) this.leading?.storeReached(problem);
  }

  /** The store refuses, or this scheduler does not lead any more. */
  private fail(cause: unknown): void {
    if (this.closed) return;
    const known = cause instanceof KintsugiError;
    const error = known ? cause : new KintsugiError('STORE_FAILED', describe(cause), { cause });
    if (this.leading) return this.leading.fail(error);
    // A scheduler that stands by again (candidate.ts) says so itself.
    if (error.code !== 'DEPOSED') this.options.log.error('scheduler.store', { message: error.message });
    void this.close();
    this.options.onFailed?.(error);
  }

  /** A scheduler that stands by has nothing to finish. */
  async finish(): Promise<void> {
    await this.leading?.finish();
  }

  /** The job that it leads, or led; undefined: none that is durable. */
  get job(): string | undefined {
    return this.leading?.job;
  }

  /** Resolves when nobody listens at its address any more, also where its role was being begun. */
  close(): Promise<void> {
    this.closing ??= this.shut();
    return this.closing;
  }

  private async shut(): Promise<void> {
    this.closed = true;
    this.over.abort();
    await this.listener?.close();
    await this.beginning;
    await this.leading?.close();
  }
}

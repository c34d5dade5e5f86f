/**
 * A role's connection to the scheduler. It joins or attaches, keeps the identity that it was given, and
 * reconnects by itself after the scheduler was restarted.
 */

import { onAbort } from '../common/aborts.js';
import { describe, KintsugiError } from '../common/errors.js';
import { Retry } from '../core/shared/retry.js';
import { limitText } from '../protocol/limits.js';
import type { PeerId } from '../protocol/map.js';
import type { Message, MessageOf } from '../protocol/messages.js';
import { checkSender, type Role } from '../protocol/senders.js';
import { toMessage } from '../protocol/validate.js';
import { type Address, formatAddress, parseAddress, parseAddresses } from './address.js';
import { type Logger, monotonicMs } from './log.js';
import { type ClientTls, dial, GONE_MS, type Link } from './transport/index.js';

const REDIAL_MS = 50;
const MAX_REDIAL_MS = 500;
/** The same where several schedulers may lead: another one may lead by now. */
const MAX_REDIAL_ELSEWHERE_MS = 250;
/** A ping goes out on a link on which nothing was sent for this time. */
const QUIET_MS = 500;
const CONNECT_MS = 1000;
/**
 * Limit of the first attempts where several schedulers may lead: then the next one is tried. The machine of
 * the last leader may have vanished, and acknowledges nothing.
 */
const FIRST_CONNECT_MS = 300;
/** So many attempts have that limit. A network may be slower. */
const FIRST_ATTEMPTS = 30;
/** A scheduler whose machine took no connection in this time is not the leader that others name. */
const SILENT_MS = 2000;
/** Limit of the welcome after the connection is open: the scheduler writes to its disk before it. */
const WELCOME_MS = 5000;
/** Where several schedulers may lead, a scheduler that is silent for twice this time is left for another. */
const PING_MS = 1500;
/** Most redirects that are followed without a pause. */
const MAX_HOPS = 3;

export interface UplinkOptions {
  /** Address of the scheduler, host:port; addresses of several, with commas between. */
  scheduler: string;
  /** Role of this side. */
  role: Exclude<Role, 'scheduler'>;
  token?: string | undefined;
  tls?: ClientTls | undefined;
  /** The first message on every connection, given the identity we have so far. */
  introduce(
    identity: UplinkIdentity | undefined,
  ): MessageOf<'join'> | MessageOf<'attach'> | MessageOf<'status'>;
  /** `scheduler`: address of the scheduler that says it. */
  onWelcome(message: MessageOf<'welcome'>, scheduler: string): void;
  onMessage(message: Message): void;
  /**
   * This process must stop: a newer one took its name, its session has ended, the scheduler serves another
   * job, or the scheduler refused a message of it.
   */
  onStale(error: KintsugiError): void;
  log: Logger;
  /** Give up the first connection after this time; later ones are tried for ever. */
  connectTimeoutMs: number;
  /** Ends the first connecting, nothing else. */
  signal?: AbortSignal | undefined;
}

/** The identity that the scheduler gave. It is valid in its job only. */
interface UplinkIdentity {
  id: PeerId;
  inc: number;
  job: string;
  /** Proof of a client's session. */
  proof: Uint8Array | undefined;
}

/** The first message of a client: the identity that it has, if it has one. */
export function attachAs(identity: UplinkIdentity | undefined): MessageOf<'attach'> {
  if (!identity) return { t: 'attach' };
  const { id, job, proof } = identity;
  return { t: 'attach', id, job, ...(proof && { proof }) };
}

const STALE: Record<MessageOf<'stale'>['code'], string> = {
  STALE_NODE: 'a newer process has taken its name, or the scheduler serves another job now',
  SESSION_EXPIRED: 'the session of this client has ended, or the scheduler serves another job now',
  LIMIT: `${limitText('too many sessions are open', 'maxSessions')}, or ${limitText(
    'too much waits for the store of the scheduler',
    'maxHeldEffects',
  )}`,
};

function staleness(code: MessageOf<'stale'>['code']): KintsugiError {
  return new KintsugiError(code, STALE[code]);
}

export class Uplink {
  /** The link that messages are sent on: the welcomed one, or the first one before its welcome. */
  private link: Link | undefined;
  /**
   * The link that was welcomed last. When it closes, `onClose` makes another one. A link that fails before
   * its welcome is handled by the function that made it.
   */
  private established: Link | undefined;
  /** Identity from the newest welcome. Its job never changes. */
  private identity: UplinkIdentity | undefined;
  private closed = false;
  private timer: NodeJS.Timeout | undefined;
  private readonly redials: Retry;
  /** This process looks for another scheduler that leads. */
  private looking = false;
  /** Address of the scheduler at the other end of the established link. */
  private at = '';
  /** Reason why this process must stop; undefined: it need not. */
  private stale: KintsugiError | undefined;

  private readonly schedulers: Address[];
  /** Number of the next attempt: the schedulers are tried in turn. */
  private turn = 0;
  /** Address of the leader in the newest redirect, for the next attempt only. */
  private redirected: Address | undefined;
  /** Attempts since the last welcome. */
  private attempts = 0;
  /** When a machine took no connection, by address. At most one for each scheduler, and those they named. */
  private readonly silent = new Map<string, number>();

  private constructor(private readonly options: UplinkOptions) {
    this.schedulers = parseAddresses(options.scheduler);
    const maxWaitMs = this.several ? MAX_REDIAL_ELSEWHERE_MS : MAX_REDIAL_MS;
    this.redials = new Retry({ waitMs: REDIAL_MS, maxWaitMs });
  }

  private get several(): boolean {
    return this.schedulers.length > 1;
  }

  /** Resolves after the first welcome. @throws UNREACHABLE, UNAUTHORIZED, FORBIDDEN, TIMEOUT, ABORTED */
  static async open(options: UplinkOptions): Promise<Uplink> {
    const uplink = new Uplink(options);
    // Not the time of day: a clock that is set would end the wait, or lengthen it.
    const deadline = monotonicMs() + options.connectTimeoutMs;
    for (;;) {
      try {
        await uplink.connect(Math.max(1, deadline - monotonicMs()), options.signal);
        return uplink;
      } catch (error) {
        const retry =
          error instanceof KintsugiError && (error.code === 'UNREACHABLE' || error.code === 'TIMEOUT');
        // With no time left for another attempt, report this failure: a last one would end in TIMEOUT and
        // hide it.
        if (!retry || monotonicMs() + 2 * REDIAL_MS >= deadline || options.signal?.aborted) {
          uplink.close();
          throw error;
        }
        await new Promise((resolve) => setTimeout(resolve, REDIAL_MS));
      }
    }
  }

  get connected(): boolean {
    return this.link !== undefined;
  }

  send(message: Message): void {
    this.link?.send(message);
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    this.link?.close('closing');
    this.link = undefined;
  }

  private async connect(limitMs: number, signal?: AbortSignal): Promise<void> {
    for (let hops = 1; ; hops++) {
      const to = this.redirected ?? this.schedulers[this.turn % this.schedulers.length]!;
      this.redirected = undefined;
      try {
        return await this.connectTo(to, limitMs, signal);
      } catch (error) {
        if (this.redirected && hops < MAX_HOPS && !this.closed) continue;
        this.turn++;
        throw error;
      }
    }
  }

  private async connectTo(to: Address, limitMs: number, signal?: AbortSignal): Promise<void> {
    const { token, tls } = this.options;
    const { host, port } = to;
    const scheduler = formatAddress(to);
    const { several } = this;
    const connectMs = several && this.attempts < FIRST_ATTEMPTS ? FIRST_CONNECT_MS : CONNECT_MS;
    this.attempts++;
    const began = monotonicMs();
    let taken = false;
    let arrive: () => void = () => {};
    const welcomed = new Promise<void>((resolve) => {
      arrive = resolve;
    });
    let fail: (error: Error) => void = () => {};
    const failed = new Promise<never>((_, reject) => {
      fail = reject;
    });
    failed.catch(() => {});
    const timeoutMs = Math.min(limitMs, WELCOME_MS);
    const link = await dial({
      host,
      port,
      token,
      tls,
      signal,
      timeoutMs,
      ...(several && { limits: { pingMs: PING_MS } }),
      connectMs,
      onTaken: () => {
        taken = true;
      },
      handlers: {
        onOpen: () => {},
        onMessage: (from, header) => {
          const message = toMessage(header);
          if (this.closed) return from.close('closing');
          if (message.t !== 'redirect') {
            if (this.receive(from, message, scheduler)) arrive();
            return;
          }
          checkSender('scheduler', this.options.role, message.t);
          if (from === this.established) return void this.look();
          if (message.to !== '' && !this.isSilent(message.to)) this.redirected = parseAddress(message.to);
          const leader = message.to === '' ? 'none leads yet' : `${message.to} leads`;
          fail(new KintsugiError('UNREACHABLE', `the scheduler at ${scheduler} stands by: ${leader}`));
        },
        onClose: (closing, reason, code) => {
          const text = `the scheduler at ${scheduler} closed the connection: ${reason}`;
          const refused = code === 'FORBIDDEN';
          fail(this.stale ?? new KintsugiError(refused ? code : 'UNREACHABLE', text));
          if (refused && this.link === closing && this.identity) this.stop(new KintsugiError(code, text));
          else this.onClose(closing);
        },
        onError: (_, error) => this.options.log.error('uplink.error', { message: describe(error) }),
      },
    }).catch((error: unknown) => {
      // A machine that refuses is there.
      if (several && !taken && monotonicMs() - began >= connectMs) this.silent.set(scheduler, monotonicMs());
      throw error;
    });
    if (this.closed) {
      link.close('closing');
      throw new KintsugiError('CLOSED', 'closed while connecting');
    }
    // While this process looks for another scheduler it keeps its link: a new link replaces the old one only
    // after a welcome.
    this.link ??= link;
    link.watch(QUIET_MS, GONE_MS);
    link.send(this.options.introduce(this.identity));
    const aborted = () => fail(new KintsugiError('ABORTED', `connecting to ${scheduler} was aborted`));
    const forget = onAbort(signal, aborted);
    const timer = setTimeout(
      () => fail(new KintsugiError('UNREACHABLE', `the scheduler at ${scheduler} does not answer`)),
      timeoutMs,
    );
    try {
      await Promise.race([welcomed, failed]);
    } catch (error) {
      link.close('no welcome');
      throw error;
    } finally {
      clearTimeout(timer);
      forget();
    }
    this.redials.reset();
    this.silent.clear();
    this.attempts = 0;
    this.at = scheduler;
  }

  private isSilent(address: string): boolean {
    return monotonicMs() - (this.silent.get(address) ?? Number.NEGATIVE_INFINITY) < SILENT_MS;
  }

  /**
   * Looks for another scheduler, because the connected one may not lead any more and cannot find out. The
   * link to it stays until another scheduler has welcomed this process, because perhaps no other one leads.
   */
  private async look(): Promise<void> {
    const here = this.link;
    if (this.looking || this.closed || !here) return;
    this.looking = true;
    for (const to of this.schedulers) {
      if (this.link !== here) break;
      if (formatAddress(to) === this.at) continue;
      const found = await this.connectTo(to, WELCOME_MS).then(
        () => true,
        () => false,
      );
      if (found) this.options.log.info('scheduler.reconnected', {});
    }
    this.looking = false;
    this.redirected = undefined;
    if (!this.link) this.redial();
  }

  /** True if this process is let in. */
  private receive(link: Link, message: Message, scheduler: string): boolean {
    checkSender('scheduler', this.options.role, message.t);
    if (message.t === 'statusReply' && !this.identity) {
      this.options.onMessage(message);
      return true;
    }
    if (message.t === 'welcome') {
      const { job } = message.map;
      // Ids and maps of another job look like those of this one.
      if (this.identity && this.identity.job !== job) {
        const { t } = this.options.introduce(this.identity);
        this.stop(staleness(t === 'join' ? 'STALE_NODE' : 'SESSION_EXPIRED'));
        return false;
      }
      this.identity = { id: message.id, inc: message.inc, job, proof: message.proof };
      this.established = link;
      const before = this.link;
      this.link = link;
      if (before !== link) before?.close('another scheduler leads');
      this.options.onWelcome(message, scheduler);
      return true;
    }
    if (message.t === 'stale') this.stop(staleness(message.code));
    else this.options.onMessage(message);
    return false;
  }

  private stop(why: KintsugiError): void {
    this.stale = why;
    this.close();
    this.options.onStale(this.stale);
  }

  private onClose(link: Link): void {
    if (this.link !== link) return;
    this.link = undefined;
    if (this.closed || this.established !== link) return;
    this.options.log.warn('scheduler.disconnected', { scheduler: this.options.scheduler });
    if (!this.looking) this.redial();
  }

  private redial(): void {
    if (this.closed) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.connect(WELCOME_MS).then(
        () => this.options.log.info('scheduler.reconnected', {}),
        () => this.redial(),
      );
    }, this.redials.waitMs);
    this.redials.lengthen();
  }
}

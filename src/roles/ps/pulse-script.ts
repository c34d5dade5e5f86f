/** The script of the thread for pulses (pulse-thread.ts). It has an event loop and connections of its own. */
import { setTimeout as pause } from 'node:timers/promises';
import { parentPort, workerData } from 'node:worker_threads';
import { Retry } from '../../core/shared/retry.js';
import { type Address, parseAddress, parseAddresses } from '../../net/address.js';
import { dial, GONE_MS, type Link } from '../../net/transport/index.js';
import type { PulseMessage } from '../../protocol/liveness.js';
import { toMessage } from '../../protocol/validate.js';
import type { PulseIdentity, PulseThreadData } from './pulse-thread.js';

/** A pulse goes out at this interval. */
const PULSE_MS = 250;
const REDIAL_MS = 50;
const MAX_REDIAL_MS = 500;
/** The limit of a TCP connection. A machine that does not take it in this time is not there. */
const CONNECT_MS = 1000;
/** The limit of the rest. A scheduler that is busy answers late, and a new attempt is more work for it. */
const DIAL_MS = 5000;
/** The same for the first attempt where several schedulers may lead; it grows. This one may be stopped. */
const FIRST_DIAL_MS = 1000;

const { scheduler, token, tls, turns, first } = workerData as PulseThreadData;

/** How long ago the event loop of the process turned, as far as this thread has seen. */
class TurnWatch {
  private turns = 0;
  private ageMs = 0;
  private lookedAt = performance.now();

  look(): number {
    const now = performance.now();
    // In time in which this thread did not run either, the process was stopped, and not its event loop.
    const passedMs = Math.min(now - this.lookedAt, 2 * PULSE_MS);
    this.lookedAt = now;
    const seen = Atomics.load(turns, 0);
    this.ageMs = seen === this.turns ? this.ageMs + passedMs : 0;
    this.turns = seen;
    return Math.round(this.ageMs);
  }
}

/** A connection to the scheduler that leads: it is made again whenever it ends. */
class PulseLink {
  private identity = first;
  private link: Link | undefined;
  private dialing = new AbortController();
  /** Where the next attempt goes. */
  private next: Address | undefined = parseAddress(first.scheduler);
  private readonly schedulers = parseAddresses(scheduler);
  /** Number of the next attempt at an address of the list. */
  private turn = 0;
  private readonly redials = new Retry({ waitMs: REDIAL_MS, maxWaitMs: MAX_REDIAL_MS });
  private readonly limits = new Retry({
    waitMs: this.schedulers.length > 1 ? FIRST_DIAL_MS : DIAL_MS,
    maxWaitMs: DIAL_MS,
  });
  private readonly watch = new TurnWatch();

  async keepUp(): Promise<void> {
    for (;;) {
      const to = this.next ?? this.schedulers[this.turn++ % this.schedulers.length]!;
      this.next = undefined;
      await this.use(to).catch(() => {});
      await pause(this.redials.waitMs);
      this.redials.lengthen();
    }
  }

  /** Another scheduler may lead, or the same one may have started again. */
  follow(identity: PulseIdentity): void {
    this.identity = identity;
    this.next = parseAddress(identity.scheduler);
    this.redials.reset();
    this.limits.reset();
    this.dialing.abort();
    this.link?.abandon('the process was let in anew');
  }

  /** Called in a steady interval. */
  send(): void {
    const ageMs = this.watch.look();
    const gapMs = Atomics.exchange(turns, 1, 0);
    const { node, inc, job } = this.identity;
    const message: PulseMessage = { t: 'pulse', node, inc, job, ageMs, gapMs };
    this.link?.send(message);
  }

  /** Resolves when the connection has ended. @throws UNREACHABLE, UNAUTHORIZED, ABORTED by `follow` */
  private async use({ host, port }: Address): Promise<void> {
    const asked = this.identity;
    this.dialing = new AbortController();
    let end: () => void = () => {};
    const ended = new Promise<void>((resolve) => {
      end = resolve;
    });
    const timeoutMs = this.limits.waitMs;
    this.limits.lengthen();
    const link = await dial({
      ...{ host, port, token, tls, timeoutMs },
      ...{ connectMs: CONNECT_MS, signal: this.dialing.signal },
      handlers: {
        onOpen: () => {},
        onMessage: (_, header) => {
          const message = toMessage(header);
          if (message.t === 'redirect' && message.to !== '') this.next = parseAddress(message.to);
        },
        onClose: () => end(),
      },
    });
    if (this.identity !== asked) return link.abandon('the process was let in anew');
    this.link = link;
    this.limits.reset();
    link.watch(PULSE_MS, GONE_MS);
    this.send();
    const opened = performance.now();
    await ended;
    this.link = undefined;
    if (performance.now() - opened > MAX_REDIAL_MS) this.redials.reset();
  }
}

const pulses = new PulseLink();
parentPort!.on('message', (identity: PulseIdentity) => pulses.follow(identity));
setInterval(() => pulses.send(), PULSE_MS);
void pulses.keepUp();

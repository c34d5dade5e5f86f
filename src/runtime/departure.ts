/**
 * How a PS leaves a running job in order: it asks to be emptied, and ends when it is told that nothing is
 * left on it.
 */
import { KintsugiError } from '../errors.js';
import type { Message } from '../protocol/messages.js';

/** The request is repeated until there is an answer, because the scheduler may be restarting. */
const ASK_MS = 250;
/** Without any answer in this time the drain fails with UNREACHABLE. */
const ANSWER_MS = 5000;

export class Departure {
  readonly left: Promise<void>;
  private leave: () => void = () => {};
  private answered: (message: Message & { t: 'changeReply' }) => void = () => {};

  constructor(
    private readonly send: (message: Message) => void,
    private readonly name: string,
  ) {
    this.left = new Promise((resolve) => {
      this.leave = resolve;
    });
  }

  /**
   * True if the message was about leaving. `inc` is this process; a message that names an older one is
   * ignored.
   */
  take(message: Message, inc: number | undefined): boolean {
    if (message.t === 'changeReply') this.answered(message);
    else if (message.t === 'leave') {
      if (message.inc === inc) this.leave();
    } else return false;
    return true;
  }

  /** @throws NOT_ENOUGH_NODES, UNREACHABLE, TIMEOUT */
  async ask(timeoutMs: number): Promise<void> {
    const limit = Math.max(1, Math.ceil(timeoutMs));
    const timers: NodeJS.Timeout[] = [];
    try {
      await new Promise<void>((resolve, reject) => {
        let rest = 'what it held is recovered from parity';
        const fail = (code: 'UNREACHABLE' | 'TIMEOUT', message: () => string, ms: number) =>
          setTimeout(() => reject(new KintsugiError(code, message())), ms);
        const silent = fail(
          'UNREACHABLE',
          () => `${this.name} was not drained: no scheduler answers`,
          ANSWER_MS,
        );
        const late = () => `${this.name} was not drained in ${timeoutMs / 1000} s; ${rest}`;
        const ask = () => this.send({ t: 'drain', id: 0, node: '', timeoutMs: limit });
        const asking = setInterval(ask, ASK_MS);
        timers.push(silent, asking, fail('TIMEOUT', late, limit));
        this.answered = ({ code, message }) => {
          clearTimeout(silent);
          // Its groups lack other members now. It stays, and asks again until they are complete.
          if (code === 'UNRECOVERABLE') {
            rest = message ?? code;
            return;
          }
          clearInterval(asking);
          if (code !== undefined) reject(new KintsugiError(code, message ?? code));
        };
        ask();
        void this.left.then(resolve);
      });
    } finally {
      for (const timer of timers) clearTimeout(timer);
    }
  }
}

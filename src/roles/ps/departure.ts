/**
 * How a PS leaves a running job in order: it asks to be emptied, and ends when it is told that nothing is
 * left on it.
 */
import { type ErrorCode, KintsugiError } from '../../common/errors.js';
import type { Message } from '../../protocol/messages.js';

/** The request is repeated until there is an answer, because the scheduler may be restarting. */
const ASK_MS = 250;
/** Then it is repeated so often, to know whether the change still runs; more often if it is to be short. */
const WATCH_MS = 1000;
const WATCHES = 4;

/** Exit code of a PS that its supervisor is to start again. */
export const RESTART_EXIT = 75;

/** How a PS was told to leave. */
export interface Departed {
  /** True: the process is to be started again. */
  restart: boolean;
}

export class Departure {
  readonly left: Promise<Departed>;
  private leave: (how: Departed) => void = () => {};
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
      if (message.inc === inc) this.leave({ restart: message.restart === true });
    } else return false;
    return true;
  }

  /**
   * Resolves when this process was told to leave. The scheduler takes the drain back when it makes no
   * progress for `timeoutMs`; this side gives up when it has not heard for so long that the drain still runs.
   * A scheduler that restarts on another machine has the same time to answer, because the machine that goes
   * away often runs the scheduler, too.
   * @throws NOT_ENOUGH_NODES, UNREACHABLE, TIMEOUT
   */
  async ask(timeoutMs: number): Promise<void> {
    const limit = Math.max(1, Math.ceil(timeoutMs));
    let rest = 'what it held is recovered from parity';
    let change: number | undefined;
    const timers: NodeJS.Timeout[] = [];
    try {
      await new Promise<void>((resolve, reject) => {
        const fail = (code: ErrorCode, why: string) =>
          reject(new KintsugiError(code, `${this.name} was not drained${why}`));
        const ask = () => {
          const known = change === undefined ? {} : { change };
          this.send({ t: 'drain', id: 0, node: '', timeoutMs: limit, ...known });
        };
        const inTime = ` in ${timeoutMs / 1000} s`;
        let heard = false;
        const late = setTimeout(() => {
          if (heard) fail('TIMEOUT', `${inTime}; ${rest}`);
          else fail('UNREACHABLE', `: no scheduler answers${inTime}`);
        }, limit);
        const asking = setInterval(ask, ASK_MS);
        timers.push(late, asking);
        this.answered = (answer) => {
          heard = true;
          // The groups of this node lack other members now. It stays, and asks again until they are complete.
          if (answer.code === 'UNRECOVERABLE') rest = answer.message ?? answer.code;
          else if (answer.code === 'TIMEOUT') fail('TIMEOUT', `: ${answer.message}; ${rest}`);
          else if (answer.code !== undefined)
            reject(new KintsugiError(answer.code, answer.message ?? answer.code));
          else {
            late.refresh();
            if (change !== undefined) return;
            change = answer.change;
            clearInterval(asking);
            timers.push(setInterval(ask, Math.min(WATCH_MS, limit / WATCHES)));
          }
        };
        ask();
        void this.left.then(() => resolve());
      });
    } finally {
      for (const timer of timers) clearTimeout(timer);
    }
  }
}

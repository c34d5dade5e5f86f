/**
 * Answers to those who ask for the status. Putting it together and encoding it is work for every node and
 * group. Frequent questions must not keep the scheduler busy. So a status is used for a whole tick unless a
 * decision was made meanwhile. Each connection gets at most `AT_ONCE` answers in a tick, and all answers
 * together take at most `BUDGET_MS`. Further questions wait for the next tick, up to `MAX_WAITING` of a
 * connection. Beyond that they are dropped, and clients repeat them.
 */

import type { Link } from '../../net/transport/index.js';
import type { JobStatus } from '../../protocol/messages.js';

export interface StatusAnswersOptions {
  make(): JobStatus;
  /** Changes when the kept status must not be used any more, although its tick is not over. Must be cheap. */
  version(): string;
  /** Milliseconds. */
  clock(): number;
}

/** Answers to one connection in one tick. */
const AT_ONCE = 16;
/** Questions of one connection that wait; further ones are dropped. */
const MAX_WAITING = 64;
/** Milliseconds that all answers of a tick may take: a fifth of it. */
const BUDGET_MS = 10;

interface StatusAsker {
  readonly link: Link;
  answered: number;
  /** Numbers of questions. */
  waiting: number[];
}

export class StatusAnswers {
  private readonly askers = new Map<number, StatusAsker>();
  private told: { status: JobStatus; version: string } | undefined;
  private leftMs = BUDGET_MS;

  constructor(private readonly options: StatusAnswersOptions) {}

  ask(link: Link, id: number): void {
    let asker = this.askers.get(link.id);
    if (!asker) {
      asker = { link, answered: 0, waiting: [] };
      this.askers.set(link.id, asker);
    }
    // The question is a repeated one that still waits for its answer.
    if (asker.waiting.includes(id)) return;
    if (asker.waiting.length === 0 && asker.answered < AT_ONCE && this.leftMs > 0) this.answer(asker, id);
    else if (asker.waiting.length < MAX_WAITING) asker.waiting.push(id);
  }

  /** Forgets the kept status, because an input may have changed what it shows. */
  outdated(): void {
    this.told = undefined;
  }

  closed(link: Link): void {
    this.askers.delete(link.id);
  }

  /** Answers those who wait, in turns, also with those of the tick before. */
  tick(): void {
    this.leftMs = BUDGET_MS;
    this.told = undefined;
    for (const [id, asker] of [...this.askers]) {
      asker.answered = 0;
      this.askers.delete(id);
      if (asker.waiting.length > 0) this.askers.set(id, asker);
    }
    for (let round = 0; round < AT_ONCE; round++) {
      for (const [id, asker] of [...this.askers]) {
        const question = this.leftMs > 0 ? asker.waiting.shift() : undefined;
        if (question === undefined) continue;
        this.answer(asker, question);
        // An asker that was answered moves to the end, so that the next tick begins with the others if the
        // time of this tick runs out.
        this.askers.delete(id);
        this.askers.set(id, asker);
      }
    }
  }

  /** For whoever asks without a connection. Undefined: this tick's time is over. */
  now(): JobStatus | undefined {
    if (this.leftMs <= 0) return undefined;
    const { clock } = this.options;
    const begun = clock();
    const status = this.newest();
    this.leftMs -= clock() - begun;
    return status;
  }

  private newest(): JobStatus {
    const { make, version } = this.options;
    const now = version();
    if (this.told?.version !== now) this.told = { status: make(), version: now };
    return this.told.status;
  }

  private answer(asker: StatusAsker, id: number): void {
    const { clock } = this.options;
    const begun = clock();
    asker.answered++;
    asker.link.send({ t: 'statusReply', id, status: this.newest() });
    this.leftMs -= clock() - begun;
  }
}

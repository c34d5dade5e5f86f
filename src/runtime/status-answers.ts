/**
 * Answers to those who ask for the status. Putting it together and encoding it is work for every node and
 * group. So that nobody keeps the scheduler busy by asking, a status is told for a tick unless something was
 * decided meanwhile. A connection is answered so many times in a tick, and all of them together take a part
 * of it. What is left waits for the next tick. Beyond a limit for each connection it is not answered: clients
 * repeat what is not.
 */
import type { JobStatus } from '../protocol/messages.js';
import type { Link } from '../transport/index.js';

export interface StatusAnswersOptions {
  make(): JobStatus;
  /** Changes with what nobody may be told late. Must be cheap. */
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

interface Asker {
  readonly link: Link;
  answered: number;
  /** Numbers of questions. */
  waiting: number[];
}

export class StatusAnswers {
  private readonly askers = new Map<number, Asker>();
  private told: { status: JobStatus; version: string } | undefined;
  private leftMs = BUDGET_MS;

  constructor(private readonly options: StatusAnswersOptions) {}

  ask(link: Link, id: number): void {
    let asker = this.askers.get(link.id);
    if (!asker) {
      asker = { link, answered: 0, waiting: [] };
      this.askers.set(link.id, asker);
    }
    // Whoever repeats a question has not got its answer yet.
    if (asker.waiting.includes(id)) return;
    if (asker.waiting.length === 0 && asker.answered < AT_ONCE && this.leftMs > 0) this.answer(asker, id);
    else if (asker.waiting.length < MAX_WAITING) asker.waiting.push(id);
  }

  /** Somebody asked for something that the status tells of. */
  outdated(): void {
    this.told = undefined;
  }

  closed(link: Link): void {
    this.askers.delete(link.id);
  }

  /** Those who wait take turns, also with those of the tick before. */
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
        // Whoever was answered comes last, if the time of this tick is over before all are.
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

  private answer(asker: Asker, id: number): void {
    const { clock } = this.options;
    const begun = clock();
    asker.answered++;
    asker.link.send({ t: 'statusReply', id, status: this.newest() });
    this.leftMs -= clock() - begun;
  }
}

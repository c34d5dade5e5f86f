/**
 * A scheduler among several that use one store: it stands by, leads, and when it does not lead any more it
 * stands by again in the same process, at the same address. So an etcd that stalls for longer than the lease
 * ends no process. The fence is that of the store: a term that is over can write nothing.
 *
 * A process ends by itself only for a reason of its own: a broken invariant, a state or a place of its flags
 * that it cannot use, or a job that the store has lost.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { describe, KintsugiError } from '../../common/errors.js';
import { unlessAborted } from '../../common/waiting.js';
import { monotonicMs } from '../../net/log.js';
import { Repeats } from '../../net/repeats.js';
import type { Election, StateStore } from '../../stores/decisions/index.js';
import type { SchedulerOptions } from './scheduler-options.js';
import { type Leading, Standby } from './standby.js';

/** While a scheduler cannot listen at its address it tries again so often. */
const LISTEN_AGAIN_MS = 100;
/** A term ends with these, and the process stands by again. */
const ENDS_A_TERM: ReadonlySet<string> = new Set(['DEPOSED', 'PORT_IN_USE']);

/** A term begins with these. */
export interface Tenure {
  /** The job that an earlier term led; undefined: none did. No other job is led. */
  readonly job: string | undefined;
  /** The term is over. A role that begins gives up, and its port is free when `BeginTerm` rejects. */
  readonly over: AbortSignal;
}

/** Begins the role of a leader at an address, on the store of its term. */
export type BeginTerm = (options: SchedulerOptions, tenure: Tenure) => Promise<Leading>;

/** The time from standing by to the end of a lead. Each term has a store of its own. */
interface Term {
  readonly store: StateStore;
  readonly standing: Promise<Standby>;
}

export class Candidate {
  /** Undefined between two terms. */
  private term: Term | undefined;
  private readonly closing = new AbortController();
  /** The change from one term to the next, which `close` waits for. */
  private changing: Promise<void> = Promise.resolve();
  private job: string | undefined;
  address = '';

  private constructor(
    private readonly options: SchedulerOptions,
    private readonly begin: BeginTerm,
  ) {}

  /** Resolves when this scheduler stands by. @throws PORT_IN_USE, TOKEN_REQUIRED, BAD_ARGUMENT */
  static async start(options: SchedulerOptions, begin: BeginTerm): Promise<Candidate> {
    const candidate = new Candidate(options, begin);
    await candidate.stand(options.store, options.listen);
    return candidate;
  }

  private get closed(): boolean {
    return this.closing.signal.aborted;
  }

  private async stand(store: StateStore, listen: string | undefined): Promise<void> {
    const { options, job } = this;
    const { token, nodeToken, metricsToken, tls } = options;
    const own = { ...options, store, listen, onFailed: (error: KintsugiError) => this.ended(store, error) };
    const standing = Standby.start(
      { ...own, secrets: { token, nodeToken, metricsToken, tls } },
      store.election!,
      (address, over) => this.begin({ ...own, listen: address }, { job, over }),
    );
    this.term = { store, standing };
    try {
      this.address = (await standing).address;
    } catch (error) {
      this.term = undefined;
      throw error;
    }
  }

  /** A term is over: this scheduler stands by again when it only does not lead any more. */
  private ended(store: StateStore, error: KintsugiError): void {
    const { options, term } = this;
    // A write that is refused and the election both say that the term is over.
    if (this.closed || term?.store !== store) return;
    this.term = undefined;
    if (!ENDS_A_TERM.has(error.code)) return void this.end(store, error);
    options.log.warn('scheduler.deposed', { message: error.message });
    this.changing = this.standAgain(term).catch((cause: unknown) => {
      if (!this.closed) options.onFailed?.(cause as KintsugiError);
    });
  }

  /** Ends by itself. Another scheduler may be able to lead, so the lease is given back. */
  private async end(store: StateStore, error: KintsugiError): Promise<void> {
    await store.close().catch(() => {});
    this.options.onFailed?.(error);
  }

  private async standAgain({ store, standing }: Term): Promise<void> {
    const standby = await standing;
    await standby.close();
    this.job = standby.job ?? this.job;
    await store.close().catch(() => {});
    if (this.closed) return;
    const next = store.election!.again();
    const waits = new Repeats<string>(monotonicMs);
    const { address } = this;
    while (!this.closed) {
      try {
        return await this.stand(next, address);
      } catch (error) {
        // Another process has taken the port, or the address has left the machine.
        const message = describe(error);
        waits.note(message, (repeated) =>
          this.options.log.warn('scheduler.waits', { address, message, repeated }),
        );
        await pause(LISTEN_AGAIN_MS, undefined, { signal: this.closing.signal }).catch(() => {});
      }
    }
  }

  async finish(): Promise<void> {
    await (await this.term?.standing)?.finish();
  }

  async close(): Promise<void> {
    this.closing.abort();
    await this.changing;
    const { term } = this;
    this.term = undefined;
    await (await term?.standing)?.close();
    await term?.store.close();
  }
}

/**
 * A term leads the job that the store has. `found`: that one; undefined: there is none, and a new job would
 * begin. @throws STORE_FAILED when the store had a job and has none, or has another than this process has led
 */
export function checkJob(found: string | undefined, led: string | undefined, election?: Election): void {
  if (found === undefined ? !led && !election?.hadEntries : !led || led === found) return;
  const lost =
    found === undefined
      ? 'the store has no job any more, and this scheduler has seen one there: its data are lost'
      : `the store has job ${found}, and this scheduler has led job ${led}: its data were replaced`;
  const advice =
    'end all schedulers, bring the data of the store back from a snapshot, and start them again; without a ' +
    'snapshot, end the PS, too, and begin the job anew with "kintsugi scheduler --restore PLACE"';
  throw new KintsugiError('STORE_FAILED', `${lost}. What to do: ${advice}`);
}

/**
 * The value of work that only reads. When the term is over the work is left to itself. @throws CLOSED then
 */
export const duringTerm = async <T>(work: T | Promise<T>, over: AbortSignal | undefined): Promise<T> =>
  unlessAborted(Promise.resolve(work), over, () => new KintsugiError('CLOSED', 'the term is over'));

/**
 * A logger that does not repeat itself: a warning or an error whose cause goes on is logged as repeats.ts
 * says, with the number of times that it was not. So a dead node, a full disk or a lost API costs a process a
 * few lines an hour, whoever tries it again and how often.
 */
import { type LogFields, type Logger, monotonicMs } from './log.js';
import { Repeats } from './repeats.js';

/** A cause that was silent for so long is over: its next occurrence is a change. */
const QUIET_MS = 10 * 60_000;
/** Changes of a process, each of which is logged. Whoever logs them sees to it that they are rare. */
const CHANGES: ReadonlySet<string> = new Set([
  ...['process.ended', 'process.failing', 'process.said'],
  ...['scheduler.deposed', 'operator.deposed', 'replica.unready'],
]);
/** Other events that go on for as long as their cause does, with the fields that say which cause it is. */
const RECURRING: ReadonlyMap<string, readonly string[]> = new Map([
  ['sink.stalled', ['node']],
  ['message.refused', ['from', 'kind']],
  // One cause for all clients: each of them may come again under another number.
  ['client.hungUp', []],
]);
/**
 * Attempts of save plans. A plan that fails is one cause until an attempt does not: the failures by their
 * codes, and the beginnings of the attempts after the first failure.
 */
const ATTEMPTS: ReadonlyMap<string, 'begins' | 'fails' | 'ends'> = new Map([
  ['checkpoint.begun', 'begins'],
  ['checkpoint.failed', 'fails'],
  ['checkpoint.done', 'ends'],
  ['checkpoint.unchanged', 'ends'],
]);
/** Plans that are remembered to fail: more than a job has. */
const MAX_PLANS = 64;
/** Fields with words for people: numbers in them are no part of the cause. */
const WORDS: ReadonlySet<string> = new Set(['message', 'stack']);

export function sparing(log: Logger, clock: () => number = monotonicMs): Logger {
  const repeats = new Repeats<string>(clock, QUIET_MS);
  const plans = new FailingPlans(clock);
  const spare =
    (level: keyof Logger) =>
    (event: string, fields: LogFields = {}): void => {
      if (plans.note(event, fields, (told) => log[level](event, told))) return;
      const by = RECURRING.get(event);
      // A field `repeated`: whoever logs it spares already.
      if ((level === 'info' && !by) || CHANGES.has(event) || 'repeated' in fields)
        return log[level](event, fields);
      const telling = by ? Object.fromEntries(by.map((name) => [name, fields[name]])) : fields;
      repeats.note(causeOf(event, telling), (repeated) =>
        log[level](event, repeated === undefined ? fields : { ...fields, repeated }),
      );
    };
  return { info: spare('info'), warn: spare('warn'), error: spare('error') };
}

class FailingPlans {
  private readonly repeats: Repeats<string>;
  /** Plan that fails -> its causes in `repeats`. */
  private readonly causes = new Map<string, Set<string>>();

  constructor(clock: () => number) {
    this.repeats = new Repeats(clock);
  }

  /** True: the event is part of a failure that goes on, and was written here if a line is due. */
  note(event: string, fields: LogFields, write: (fields: LogFields) => void): boolean {
    const part = ATTEMPTS.get(event);
    const plan = String(fields.plan);
    const known = this.causes.get(plan);
    if (part === 'ends') this.over(plan);
    if (part === undefined || part === 'ends' || (part === 'begins' && !known)) return false;
    const cause = `${event} ${plan} ${part === 'fails' ? fields.code : ''}`;
    this.causes.set(plan, (known ?? new Set()).add(cause));
    if (this.causes.size > MAX_PLANS) this.over(this.causes.keys().next().value!);
    this.repeats.note(cause, (repeated) => write(repeated === undefined ? fields : { ...fields, repeated }));
    return true;
  }

  private over(plan: string): void {
    for (const cause of this.causes.get(plan) ?? []) this.repeats.over(cause);
    this.causes.delete(plan);
  }
}

function causeOf(event: string, fields: LogFields): string {
  // Where it comes from is no part of the cause: whoever repeats it may have many addresses.
  const { remote: _, ...telling } = fields;
  const text = JSON.stringify(telling, (name, value: unknown) =>
    WORDS.has(name) ? String(value).replaceAll(/[0-9a-f]*\d[0-9a-f]*/gi, '#') : value,
  );
  return `${event} ${text}`;
}

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
]);
/** Fields with words for people: numbers in them are no part of the cause. */
const WORDS: ReadonlySet<string> = new Set(['message', 'stack', 'remote']);

export function sparing(log: Logger, clock: () => number = monotonicMs): Logger {
  const repeats = new Repeats<string>(clock, QUIET_MS);
  const spare =
    (level: keyof Logger) =>
    (event: string, fields: LogFields = {}): void => {
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

function causeOf(event: string, fields: LogFields): string {
  const text = JSON.stringify(fields, (name, value: unknown) =>
    WORDS.has(name) ? String(value).replaceAll(/[0-9a-f]*\d[0-9a-f]*/gi, '#') : value,
  );
  return `${event} ${text}`;
}

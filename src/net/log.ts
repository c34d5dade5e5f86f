/**
 * Structured logs: one JSON object per line on standard error, or one readable line. `mono` is
 * CLOCK_MONOTONIC in milliseconds, which all processes of one machine share, so that a launcher can put their
 * events on one axis.
 */

export type LogFormat = 'json' | 'text' | 'none';
/** Fields of an event, by name: anything that JSON can hold. */
export type LogFields = Record<string, unknown>;

/** Takes events by name, such as `ps.ready`. */
export interface Logger {
  /** An event of normal operation. */
  info(event: string, fields?: LogFields): void;
  /** An event that somebody may want to look at. */
  warn(event: string, fields?: LogFields): void;
  /** A failure. */
  error(event: string, fields?: LogFields): void;
}

/** Milliseconds of CLOCK_MONOTONIC. */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint() / 1000n) / 1000;
}

export function createLogger(
  format: LogFormat,
  base: LogFields,
  write: (line: string) => void = (line) => process.stderr.write(line),
): Logger {
  const log = (level: string, event: string, fields: LogFields = {}) => {
    if (format === 'none') return;
    if (format === 'json') {
      const record = {
        time: new Date().toISOString(),
        mono: monotonicMs(),
        level,
        ...base,
        event,
        ...fields,
      };
      write(`${JSON.stringify(record)}\n`);
      return;
    }
    write(textOf({ time: new Date().toISOString(), level, event, ...base, ...fields }));
  };
  return {
    info: (event, fields) => log('info', event, fields),
    warn: (event, fields) => log('warn', event, fields),
    error: (event, fields) => log('error', event, fields),
  };
}

/** A record as one readable line. */
export function textOf({ time, mono: _, level, event, ...fields }: LogFields): string {
  const known = Object.entries(fields).filter(([, value]) => value !== undefined);
  const details = known.map(([key, value]) => `${key}=${format_(value)}`);
  return `${time} ${level} ${event} ${details.join(' ')}\n`;
}

function format_(value: unknown): string {
  return typeof value === 'string' && !/[\s"=]/.test(value) ? value : JSON.stringify(value);
}

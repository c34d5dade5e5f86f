/**
 * Values of flags: each function takes the name of a flag and returns its parser, which throws BAD_ARGUMENT
 * with that name.
 */
import { KintsugiError } from '../common/errors.js';
import { MAX_TIMER_MS } from '../common/options.js';
import { MOST_LIFE, secondsOf } from '../engine/policies.js';
import type { ServedRows } from '../protocol/saving.js';

/** A flag whose value makes no sense. */
export function bad(message: string): KintsugiError {
  return new KintsugiError('BAD_ARGUMENT', message);
}

/** An integer from `least` to `most`. */
export function integer(flag: string, least: number, most = Number.MAX_SAFE_INTEGER) {
  return (text: string): number => {
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    if (Number.isSafeInteger(value) && value >= least && value <= most) return value;
    const range = most === Number.MAX_SAFE_INTEGER ? `of at least ${least}` : `from ${least} to ${most}`;
    throw bad(`${flag} must be an integer ${range}, not "${text}"`);
  };
}

/** A finite decimal number, such as "0.01", ".5" or "1e-3"; NaN: it is none. Flags take no others. */
export function decimal(text: string): number {
  const value = /^\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*$/i.test(text) ? Number(text) : Number.NaN;
  return Number.isFinite(value) ? value : Number.NaN;
}

/** A finite number above zero. */
export function positive(flag: string) {
  return (text: string): number => {
    const value = decimal(text);
    if (value > 0) return value;
    throw bad(`${flag} must be a number above 0, not "${text}"`);
  };
}

/** A part of a whole: a number above 0 and below 1. */
export function part(flag: string) {
  return (text: string): number => {
    const value = decimal(text);
    if (value > 0 && value < 1) return value;
    throw bad(`${flag} must be a number above 0 and below 1, not "${text}"`);
  };
}

const UNIT_BYTES: Record<string, number> = { '': 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30, t: 2 ** 40 };

/** Not 0, and whole it would be: flags have a meaning of its own for 0. */
const vanishes = (value: number, whole: number): boolean => value > 0 && whole === 0;

/** Bytes: "2GiB", "512M", "1000000"; units are powers of 1024. */
export function size(flag: string) {
  return (text: string): number => {
    const match = /^(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?$/i.exec(text);
    const value = Number(match?.[1]) * UNIT_BYTES[match?.[2]?.toLowerCase() ?? '']!;
    const bytes = Math.floor(value);
    if (match && Number.isSafeInteger(bytes) && !vanishes(value, bytes)) return bytes;
    throw bad(`${flag} must be a size like 2GiB, 512MiB or 0, not "${text}"`);
  };
}

/** Whole milliseconds: "500ms", "1s", "2m"; no more than a timer can wait for. */
export function duration(flag: string) {
  return (text: string): number => {
    const match = /^(\d+(?:\.\d+)?)(ms|s|m)$/.exec(text);
    if (!match) throw bad(`${flag} must be a time like 500ms or 1s, not "${text}"`);
    const value = Number(match[1]) * { ms: 1, s: 1000, m: 60_000 }[match[2] as 'ms' | 's' | 'm'];
    const ms = Math.round(value);
    if (vanishes(value, ms)) throw bad(`${flag} must be 0s or at least 1ms, not "${text}"`);
    if (ms > MAX_TIMER_MS)
      throw bad(`${flag} must be at most ${Math.floor(MAX_TIMER_MS / 60_000)}m, not "${text}"`);
    return ms;
  };
}

/** Seconds of rows in a table: "90s", "30m", "24h", "7d". */
export function seconds(flag: string) {
  return (text: string): number => {
    const value = secondsOf(text);
    if (value !== undefined && value <= MOST_LIFE) return value;
    throw bad(`${flag} must be a time like 30m, 24h or 7d, of at most ${MOST_LIFE}s, not "${text}"`);
  };
}

/** Ages of rows: "2000" steps, a time like "24h", or both with a comma; 0 of what the text leaves out. */
export function ages(flag: string) {
  return (text: string): Required<Pick<ServedRows, 'maxAge' | 'maxAgeSeconds'>> => {
    const parts = text.split(',');
    const times = parts.map(secondsOf);
    const steps = parts.filter((_, i) => times[i] === undefined);
    const given = times.filter((time) => time !== undefined);
    const values = [
      ...steps.map((part) => (/^\d+$/.test(part.trim()) ? Number(part) : Number.NaN)),
      ...given,
    ];
    if (steps.length <= 1 && given.length <= 1 && values.every((value) => value <= MOST_LIFE))
      return { maxAge: steps.length > 0 ? values[0]! : 0, maxAgeSeconds: given[0] ?? 0 };
    const range = `0 to ${MOST_LIFE} steps or seconds`;
    throw bad(`${flag} must be steps like 2000, a time like 24h, or 2000,24h, from ${range}, not "${text}"`);
  };
}

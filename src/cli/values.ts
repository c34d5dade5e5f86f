/**
 * Values of flags: each function takes the name of a flag and returns its parser, which throws BAD_ARGUMENT
 * with that name.
 */
import { KintsugiError } from '../common/errors.js';
import { MAX_TIMER_MS } from '../common/options.js';

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

/** A finite number above zero. */
export function positive(flag: string) {
  return (text: string): number => {
    const value = text.trim() === '' ? Number.NaN : Number(text);
    if (Number.isFinite(value) && value > 0) return value;
    throw bad(`${flag} must be a number above 0, not "${text}"`);
  };
}

/** A part of a whole: a number above 0 and below 1. */
export function part(flag: string) {
  return (text: string): number => {
    const value = text.trim() === '' ? Number.NaN : Number(text);
    if (value > 0 && value < 1) return value;
    throw bad(`${flag} must be a number above 0 and below 1, not "${text}"`);
  };
}

const UNIT_BYTES: Record<string, number> = { '': 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30, t: 2 ** 40 };

/** Bytes: "2GiB", "512M", "1000000"; units are powers of 1024. */
export function size(flag: string) {
  return (text: string): number => {
    const match = /^(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?$/i.exec(text);
    const bytes = Math.floor(Number(match?.[1]) * UNIT_BYTES[match?.[2]?.toLowerCase() ?? '']!);
    if (match && Number.isSafeInteger(bytes)) return bytes;
    throw bad(`${flag} must be a size like 2GiB, 512MiB or 0, not "${text}"`);
  };
}

/** Whole milliseconds: "500ms", "1s", "2m"; no more than a timer can wait for. */
export function duration(flag: string) {
  return (text: string): number => {
    const match = /^(\d+(?:\.\d+)?)(ms|s|m)$/.exec(text);
    if (!match) throw bad(`${flag} must be a time like 500ms or 1s, not "${text}"`);
    const ms = Math.round(Number(match[1]) * { ms: 1, s: 1000, m: 60_000 }[match[2] as 'ms' | 's' | 'm']);
    if (ms > MAX_TIMER_MS)
      throw bad(`${flag} must be at most ${Math.floor(MAX_TIMER_MS / 60_000)}m, not "${text}"`);
    return ms;
  };
}

/** Checks of arguments, where the library takes them: plain JavaScript has no types to do it. */
import { KintsugiError } from './errors.js';

/** Says what an option must be. */
type OptionCheck = (where: string, given: never) => void;

/**
 * Every key of an options type, each once: a key that is forgotten or unknown is a type error. A function
 * checks the value of its option, if that is not undefined. Null is no value of an option without a function.
 */
export type OptionKeys<T> = { readonly [K in keyof T]-?: true | OptionCheck };

type KnownOptions<T> = { readonly [K in keyof T]-?: unknown };

/** Characters of a text in a message (src/protocol/checks.ts): receivers take no longer one. */
export const MAX_TEXT = 4096;

const refuse = (text: string) => new KintsugiError('BAD_ARGUMENT', text);

/**
 * Refuses options that there are not. No options at all are fine.
 * @throws BAD_ARGUMENT
 */
export function checkOptions<T extends object>(
  where: string,
  given: T | undefined,
  known: KnownOptions<T>,
): void {
  if (given !== undefined) checkFields(where, given, known);
}

/** True: an object with named fields, of any class and realm. A Map or a Date has none. */
export function isRecord(given: unknown): given is object {
  return Object.prototype.toString.call(given) === '[object Object]';
}

/**
 * Refuses anything but an object whose fields are all known, and are what they must be.
 * @throws BAD_ARGUMENT
 */
export function checkFields<T extends object>(where: string, given: T, known: KnownOptions<T>): void {
  if (!isRecord(given)) throw refuse(`${where}: options must be an object`);
  for (const name in given) {
    if (!Object.hasOwn(known, name))
      throw refuse(`${where} has no option "${name}"; it has ${Object.keys(known).join(', ')}`);
    const check: unknown = known[name];
    if (typeof check === 'function') {
      if (given[name] !== undefined) check(`${where}: ${name}`, given[name]);
    } else if (given[name] === null) throw refuse(`${where}: ${name} must not be null`);
  }
}

/** @throws BAD_ARGUMENT */
export function checkArray(where: string, given: readonly unknown[]): void {
  if (!Array.isArray(given)) throw refuse(`${where} must be an array`);
}

/**
 * Checks a text. Default of `most`: the longest text that a message may have.
 * @throws BAD_ARGUMENT for anything but a string of 1 to `most` characters
 */
export function checkText(where: string, given: string, most = MAX_TEXT): void {
  if (typeof given !== 'string' || given === '') throw refuse(`${where} must be a string that is not empty`);
  if (given.length > most) throw refuse(`${where} must have at most ${most} characters, not ${given.length}`);
}

/** @throws BAD_ARGUMENT for anything but true and false */
export function checkSwitch(where: string, given: boolean): void {
  if (typeof given !== 'boolean') throw refuse(`${where} must be true or false`);
}

/** @throws BAD_ARGUMENT for anything but a function */
export function checkFunction(where: string, given: unknown): void {
  if (typeof given !== 'function') throw refuse(`${where} must be a function`);
}

/** @throws BAD_ARGUMENT for anything but an object with the functions of a logger */
export function checkLogger(where: string, given: unknown): void {
  const log = given as Record<string, unknown> | null;
  if (['info', 'warn', 'error'].every((name) => typeof log?.[name] === 'function')) return;
  throw refuse(`${where} must have the functions info, warn and error`);
}

/**
 * A signal is whatever works like one: some programs have an implementation of their own.
 * @throws BAD_ARGUMENT for anything else
 */
export function checkSignal(where: string, given: unknown): void {
  const { aborted, addEventListener, removeEventListener } = (given ?? {}) as Partial<AbortSignal>;
  const works = [addEventListener, removeEventListener].every((method) => typeof method === 'function');
  if (!works || typeof aborted !== 'boolean') throw refuse(`${where} must be an AbortSignal`);
}

/** @throws BAD_ARGUMENT for anything but a safe integer of at least `least` */
export function checkInteger(where: string, given: number, least: number): void {
  if (Number.isSafeInteger(given) && given >= least) return;
  throw refuse(`${where} must be an integer of at least ${least}, not ${String(given)}`);
}

/** @throws BAD_ARGUMENT for anything but a number that single precision holds; it holds NaN and infinities */
export function checkFloat(where: string, given: number): void {
  if (typeof given !== 'number') throw refuse(`${where} must be a number`);
  if (Number.isFinite(given) && !Number.isFinite(Math.fround(given)))
    throw refuse(`${where} must be a number that single precision holds, not ${given}`);
}

/** The longest timer of Node, in milliseconds: some 24 days. A longer one ends at once. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/** @throws BAD_ARGUMENT for anything but whole milliseconds that a timer can wait for, at least `least` */
export function checkTimeout(where: string, givenMs: number, least = 0): void {
  checkInteger(where, givenMs, least);
  if (givenMs > MAX_TIMER_MS) throw refuse(`${where} must be at most ${MAX_TIMER_MS}, not ${givenMs}`);
}

/**
 * The values that a limit or a time may have, by its default: whole numbers from 1; also 0 where that is the
 * default; parts of 1 where that is one. Undefined: `given` is such a value.
 */
export function limitProblem(usual: number, given: unknown): string | undefined {
  const value = typeof given === 'number' ? given : Number.NaN;
  if (usual > 0 && usual < 1) return value > 0 && value < 1 ? undefined : 'a number above 0 and below 1';
  const least = usual === 0 ? 0 : 1;
  return Number.isSafeInteger(value) && value >= least ? undefined : `a whole number from ${least}`;
}

/**
 * Checks some limits and times: switches, and numbers by `limitProblem`. An undefined one would take the
 * place of its default.
 * @throws BAD_ARGUMENT
 */
export function checkPolicy<T extends object>(where: string, given: Partial<T> | undefined, usual: T): void {
  checkOptions(where, given as T | undefined, usual as KnownOptions<T>);
  for (const [name, value] of Object.entries(given ?? {})) {
    const known = usual[name as keyof T];
    if (typeof known === 'boolean') checkSwitch(`${where}: ${name}`, value as boolean);
    const problem = typeof known === 'number' && limitProblem(known, value);
    if (problem) throw refuse(`${where}: ${name} must be ${problem}, not ${String(value)}`);
  }
}

/**
 * An empty text counts as none, because an environment variable may be empty.
 * @throws BAD_ARGUMENT for anything but a string
 */
export function checkSecret(where: string, given: string): void {
  if (typeof given !== 'string') throw refuse(`${where} must be a string`);
}

/** @throws KEY_TYPE, BAD_ARGUMENT for keys that were transferred */
export function checkKeys(keys: BigUint64Array): BigUint64Array {
  if (!(keys instanceof BigUint64Array)) throw new KintsugiError('KEY_TYPE', 'keys must be a BigUint64Array');
  if (keys.length === 0) checkAttached('keys', keys);
  return keys;
}

/** An array that was transferred looks like an empty one. @throws BAD_ARGUMENT */
export function checkAttached(name: string, { buffer }: BigUint64Array | Float32Array): void {
  try {
    new Uint8Array(buffer);
  } catch {
    throw new KintsugiError('BAD_ARGUMENT', `${name} were detached (transferred) before the call`);
  }
}

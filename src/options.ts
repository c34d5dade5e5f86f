/** Checks of arguments, where the library takes them: plain JavaScript has no types to do it. */
import { KintsugiError } from './errors.js';
import { MAX_TEXT } from './protocol/checks.js';

/** Every key of an options type, each once: one that is forgotten or unknown is a type error. */
export type OptionKeys<T> = { readonly [K in keyof T]-?: true };

type Known<T> = { readonly [K in keyof T]-?: unknown };

const refuse = (text: string) => new KintsugiError('BAD_ARGUMENT', text);

/**
 * Refuses options that there are not. No options at all are fine.
 * @throws BAD_ARGUMENT
 */
export function checkOptions<T extends object>(where: string, given: T | undefined, known: Known<T>): void {
  if (given !== undefined) checkFields(where, given, known);
}

/**
 * Refuses anything but an object whose fields are all known.
 * @throws BAD_ARGUMENT
 */
export function checkFields<T extends object>(where: string, given: T, known: Known<T>): void {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    throw refuse(`${where}: options must be an object`);
  }
  for (const name in given) {
    if (Object.hasOwn(known, name)) continue;
    throw refuse(`${where} has no option "${name}"; it has ${Object.keys(known).join(', ')}`);
  }
}

/** @throws BAD_ARGUMENT */
export function checkArray(where: string, given: readonly unknown[]): void {
  if (!Array.isArray(given)) throw refuse(`${where} must be an array`);
}

/**
 * Default of `most`: what a message holds.
 * @throws BAD_ARGUMENT for anything but a string of 1 to `most` characters
 */
export function checkText(where: string, given: string, most = MAX_TEXT): void {
  if (typeof given !== 'string' || given === '') throw refuse(`${where} must be a string that is not empty`);
  if (given.length > most) throw refuse(`${where} must have at most ${most} characters, not ${given.length}`);
}

/** @throws BAD_ARGUMENT for anything but true, false and undefined */
export function checkSwitch(where: string, given: boolean | undefined): void {
  if (given !== undefined && typeof given !== 'boolean') throw refuse(`${where} must be true or false`);
}

/**
 * A signal is whatever works like one: some programs have an implementation of their own.
 * @throws BAD_ARGUMENT for anything else but undefined
 */
export function checkSignal(where: string, given: unknown): void {
  const signal = given as AbortSignal | null | undefined;
  if (signal === undefined) return;
  if (typeof signal?.aborted === 'boolean' && typeof signal.addEventListener === 'function') return;
  throw refuse(`${where} must be an AbortSignal`);
}

/** @throws BAD_ARGUMENT for anything but a safe integer of at least `least` */
export function checkInteger(where: string, given: number, least: number): void {
  if (Number.isSafeInteger(given) && given >= least) return;
  throw refuse(`${where} must be an integer of at least ${least}, not ${given}`);
}

/** The longest timer of Node, in milliseconds: some 24 days. A longer one ends at once. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/** @throws BAD_ARGUMENT for anything but whole milliseconds that a timer can wait for */
export function checkTimeout(where: string, givenMs: number): void {
  checkInteger(where, givenMs, 0);
  if (givenMs > MAX_TIMER_MS) throw refuse(`${where} must be at most ${MAX_TIMER_MS}, not ${givenMs}`);
}

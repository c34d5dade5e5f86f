/** Options that callers give by name, checked by name: plain JavaScript has no types to do it. */
import { KintsugiError } from './errors.js';

/** Every key of an options type, each once: one that is forgotten or unknown is a type error. */
export type OptionKeys<T> = { readonly [K in keyof T]-?: true };

/**
 * Refuses options that there are not.
 * @throws BAD_ARGUMENT
 */
export function checkOptions<T extends object>(
  where: string,
  given: T | undefined,
  known: { readonly [K in keyof T]-?: unknown },
): void {
  if (given === undefined) return;
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    throw new KintsugiError('BAD_ARGUMENT', `${where}: options must be an object`);
  for (const name in given) {
    if (Object.hasOwn(known, name)) continue;
    const there = Object.keys(known).join(', ');
    throw new KintsugiError('BAD_ARGUMENT', `${where} has no option "${name}"; it has ${there}`);
  }
}

/** `--memory` of a PS, also as the limit of its container says it. */
import { totalmem } from 'node:os';
import { memoryBeside } from '../fleet/operator/reconcile/memory.js';
import { size } from './values.js';

const AUTO = 'auto';

/**
 * Bytes that a PS may hold, of those that the system grants its processes; 0 where they have no limit.
 * @param granted as Node tells it: undefined or 0 where it does not know, more than the machine has for none
 */
export function ownBudget(granted: number | undefined = process.constrainedMemory(), machine = totalmem()) {
  return granted && granted < machine ? memoryBeside(granted) : 0;
}

/** A size, or `auto`. @throws BAD_ARGUMENT */
export const sizeOrAuto =
  (flag: string) =>
  (text: string): number =>
    text === AUTO ? ownBudget() : size(flag)(text);

/** The limit where no flag says it. @throws BAD_ARGUMENT */
export function usualMemory(): number {
  const name = 'KINTSUGI_MEMORY';
  return sizeOrAuto(name)(process.env[name] || '0');
}

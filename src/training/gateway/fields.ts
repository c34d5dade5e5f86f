/** Fields of messages of programs. */
import { KintsugiError } from '../../common/errors.js';

export const bad = (text: string) => new KintsugiError('BAD_ARGUMENT', text);

export function integer(message: Record<string, unknown>, name: string, least = 0): number {
  const value = message[name];
  if (Number.isSafeInteger(value) && (value as number) >= least) return value as number;
  throw bad(`${name} must be an integer of at least ${least}`);
}

export function text(message: Record<string, unknown>, name: string): string {
  const value = message[name];
  if (typeof value === 'string' && value !== '') return value;
  throw bad(`${name} must be a text`);
}

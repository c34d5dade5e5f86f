/** Carries out effects one by one. An effect that fails is logged, and the rest are still carried out. */
import { describe } from '../common/errors.js';
import type { Logger } from './log.js';

export function each<T>(effects: Iterable<T>, log: Logger, run: (effect: T) => void): void {
  for (const effect of effects) {
    try {
      run(effect);
    } catch (error) {
      log.error('effect.failed', { message: describe(error), stack: (error as Error).stack });
    }
  }
}

/** Calls of the engine with bytes that came in a message. */
import { describe, type ErrorCode, KintsugiError } from '../../errors.js';

/** The engine checks its arguments before it changes anything, and throws errors with these codes. */
const OF_THE_MESSAGE: ReadonlySet<unknown> = new Set([
  'BAD_ARGUMENT',
  'BAD_FRAME',
  'DIM_MISMATCH',
  'LIMIT',
  'UNKNOWN_TABLE',
] satisfies ErrorCode[]);

/**
 * What the engine refuses is wrong with the message.
 * @throws BAD_FRAME; MEMORY_LIMIT when the message is right and there is no memory for it
 */
export function takingForeign<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    const code = (error as { code?: unknown } | undefined)?.code;
    if (OF_THE_MESSAGE.has(code)) throw new KintsugiError('BAD_FRAME', describe(error), { cause: error });
    if (code === 'MEMORY_LIMIT') throw new KintsugiError(code, describe(error), { cause: error });
    throw error;
  }
}

/** Calls of the engine with bytes from a message. */
import { describe, type ErrorCode, KintsugiError } from '../../common/errors.js';

/** Codes of errors that the engine throws for its arguments. It checks them before it changes anything. */
const OF_THE_MESSAGE: ReadonlySet<unknown> = new Set([
  'BAD_ARGUMENT',
  'BAD_FRAME',
  'DIM_MISMATCH',
  'LIMIT',
  'UNKNOWN_TABLE',
] satisfies ErrorCode[]);

/**
 * Calls the engine with bytes of a message. Arguments that the engine refuses are a fault of the message.
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

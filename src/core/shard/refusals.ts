/**
 * Why a request is refused: a status of the engine, or one that never reaches the engine, as an error code.
 */
import { PushStatus } from '../../engine/native.js';
import type { Refusal } from '../../protocol/messages.js';

/** The section is over its limit; the engine does not see it. */
export const TOO_LARGE = -1;
/** The client withdrew the push: it sends an empty section, which only uses up the number. */
export const WITHDRAWN = -2;

export const REFUSALS: Record<number, Refusal> = {
  [TOO_LARGE]: 'LIMIT',
  [WITHDRAWN]: 'ABORTED',
  [PushStatus.UNKNOWN_TABLE]: 'UNKNOWN_TABLE',
  [PushStatus.DIM_MISMATCH]: 'DIM_MISMATCH',
  [PushStatus.KEY_RESERVED]: 'KEY_RESERVED',
  [PushStatus.MEMORY_LIMIT]: 'MEMORY_LIMIT',
  [PushStatus.BAD_FRAME]: 'BAD_FRAME',
  [PushStatus.BAD_ARGUMENT]: 'BAD_ARGUMENT',
  [PushStatus.DELTA_LIMIT]: 'LIMIT',
};

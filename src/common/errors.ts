/**
 * One error class for the whole project. Callers branch on `code`, never on the message; messages are one
 * line and say what to do where there is something to do.
 */

import { systemAdvice, systemLimit } from './system-errors.js';

/** Every code that can reach a user, with what it means. Codes are stable; new ones may be added. */
export const ERROR_CODES = {
  ADDON_NOT_LOADED: 'the native addon could not be loaded',
  BAD_ARGUMENT: 'an argument or option has a wrong type, form or range',
  BAD_DATA: 'a data file is missing or malformed',
  BAD_CHECKPOINT: 'a file of a checkpoint is missing, truncated or altered, or of a version that is not read',
  CHECKPOINT_MISSING: 'there is no such checkpoint',
  CHECKPOINT_TAKEN: 'another writer has written the checkpoint of this number',
  KEYS_FOUND: 'files, or the job, have keys that were looked for',
  PLACE_FAILED: 'the place of checkpoints cannot be reached, read or written',
  BAD_FRAME: 'a message is truncated, oversized or of an unknown kind',
  UNKNOWN_TABLE: 'no table of that name exists',
  TABLE_EXISTS: 'a table of that name exists with another specification',
  DIM_MISMATCH: 'an array does not fit the dimension of the table',
  KEY_TYPE: 'keys must be a BigUint64Array',
  KEY_RESERVED: 'the key 2^64-1 is reserved',
  LENGTH_MISMATCH: 'two arrays that belong together differ in length',
  MEMORY_LIMIT: 'the node has reached its memory limit; nothing was changed',
  LIMIT: 'a named limit was reached',
  PORT_IN_USE: 'the port is in use',
  UNREACHABLE: 'the other side does not answer',
  NOT_ENOUGH_NODES: 'more nodes are needed than have joined',
  UNAUTHORIZED: 'the token is missing or wrong',
  FORBIDDEN: 'the sender has no right to send this',
  TOKEN_REQUIRED: 'listening beyond loopback needs a shared token',
  STALE_NODE: 'a newer process has taken this node name',
  SESSION_EXPIRED: 'the client session is not known any more',
  UNRECOVERABLE: 'more members of a group are lost than its code can restore',
  STALE_REPLICA: 'the replica is further behind than is allowed, or does not have the rows',
  NOT_READY: 'something has to end first; ask again later',
  ABORTED: 'the caller aborted the operation',
  CLOSED: 'the client or node is closed',
  TIMEOUT: 'the operation did not finish in time',
  DEPENDENCY_MISSING: 'an optional package that this needs is not installed',
  MODEL: 'a model file is missing or does not follow the trainer interface',
  STORE_FAILED:
    'the store of a scheduler fails, refuses it, or has lost the job; it resumes from what is there',
  FOREIGN_STATE: 'the place of a scheduler has the state of another job',
  STATE_LOST: 'the place of a scheduler has no state of its job, which has begun',
  DEPOSED: 'this scheduler does not lead the job any more; another one may',
  SYSTEM_LIMIT: 'the operating system gives no more of something: open files, disk space, memory, processes',
  INTERNAL: 'a broken invariant; please report it',
} as const;

/** A stable code; {@link ERROR_CODES} says what each means. */
export type ErrorCode = keyof typeof ERROR_CODES;

/** Every error of this library that callers may want to tell apart. */
export class KintsugiError extends Error {
  override readonly name = 'KintsugiError';
  /** Callers branch on the code: messages may change. */
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
  }
}

/** Throws INTERNAL at once, with the values, when an invariant is broken. */
export function invariant(condition: unknown, message: string, values?: unknown): asserts condition {
  if (condition) return;
  const detail = values === undefined ? '' : ` ${JSON.stringify(values)}`;
  throw new KintsugiError('INTERNAL', `invariant broken: ${message}${detail}`);
}

const REFUSALS: ReadonlySet<ErrorCode> = new Set(['BAD_FRAME', 'FORBIDDEN', 'MEMORY_LIMIT']);

/**
 * Something is wrong with a message or its sender, or there is no memory for it, and nothing was changed.
 * Anything else that the core throws means that an invariant is broken.
 */
export function isRefusal(error: unknown): error is KintsugiError {
  return error instanceof KintsugiError && REFUSALS.has(error.code);
}

/**
 * The message of anything thrown, on one line. Refusals of the operating system get a sentence about their
 * limit; a KintsugiError has it already, by the cause that it describes.
 */
export function describe(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  const line = text.replace(/\s*\n\s*/g, ' ');
  const advice = error instanceof KintsugiError ? undefined : systemAdvice(error);
  return advice === undefined || line.includes(advice) ? line : `${line}: ${advice}`;
}

/** As `describe`, behind the code of a KintsugiError. */
export const describeWithCode = (error: unknown): string =>
  `${error instanceof KintsugiError ? `${error.code}: ` : ''}${describe(error)}`;

/** The stack of anything thrown, for a bug in a log; without one its message. */
export const traceOf = (error: unknown): string =>
  error instanceof Error ? (error.stack ?? error.message) : String(error);

/**
 * The code of a failure: its own, SYSTEM_LIMIT for a limit of the operating system, which is not the fault of
 * what was asked for, and else `otherwise`.
 */
export function codeOf(error: unknown, otherwise: ErrorCode): ErrorCode {
  if (error instanceof KintsugiError) return error.code;
  return systemLimit(error) === undefined ? otherwise : 'SYSTEM_LIMIT';
}

/**
 * The error of something that failed: `text` says what, and `error` why, as its code (`codeOf`), in the
 * message and as its cause.
 */
export function causedBy(error: unknown, otherwise: ErrorCode, text: string): KintsugiError {
  return new KintsugiError(codeOf(error, otherwise), `${text}: ${describe(error)}`, { cause: error });
}

/** A value of a user in a message: one line, at most `most` characters and "...". Takes every value. */
export function valueText(value: unknown, most = 40): string {
  const text = wholeText(value, most);
  return text.length > most ? `${text.slice(0, most)}...` : text;
}

function wholeText(value: unknown, most: number): string {
  if (typeof value === 'bigint' || typeof value === 'number') return String(value);
  if (typeof value === 'string') return JSON.stringify(value.slice(0, most + 1));
  if (value === null || value === undefined) return String(value);
  if (value instanceof Uint8Array) return `the bytes ${Buffer.from(value.subarray(0, most)).toString('hex')}`;
  try {
    const exact = (_: string, each: unknown) => (typeof each === 'bigint' ? `${each}` : each);
    return JSON.stringify(value, exact) ?? typeof value;
  } catch {
    return typeof value;
  }
}

/** The error of a request whose signal has fired. */
export function aborted(): KintsugiError {
  return new KintsugiError('ABORTED', 'the operation was aborted');
}

/**
 * `POST /pull` of a replica: rows of one table by their keys, as JSON or binary (docs/serving.md). What is
 * refused is answered with an HTTP status and JSON, `{ "code", "message" }`.
 */
import { codeOf, describe, type ErrorCode, KintsugiError } from '../../common/errors.js';
import { checkFloat, checkInteger } from '../../common/options.js';
import type { HttpAnswer } from '../../net/transport/index.js';

/** A longer body is refused. */
export const MAX_PULL_BODY_BYTES = 16 << 20;

/** A request for rows over HTTP. */
export interface HttpPull {
  table: string;
  keys: BigUint64Array;
  maxLagMs: number | undefined;
  missing: number | undefined;
}

/** The answer to a request for rows. */
export interface HttpRows {
  dim: number;
  /** keys.length x dim */
  rows: Float32Array;
  lagMs: number;
}

const JSON_TYPE = 'application/json';
const BINARY_TYPE = 'application/octet-stream';
/** "KPL1" */
const MAGIC = 0x314c504b;
const HEAD_BYTES = 24;
const ANSWER_HEAD_BYTES = 16;
const ANY_LAG = 0xffff_ffff;
/** Flags of a binary request: `missing` counts. */
const HAS_MISSING = 1;

const STATUS: Partial<Record<ErrorCode, number>> = {
  STALE_REPLICA: 503,
  UNKNOWN_TABLE: 404,
  LIMIT: 413,
  MEMORY_LIMIT: 503,
  BAD_ARGUMENT: 400,
  KEY_TYPE: 400,
  KEY_RESERVED: 400,
};

export function answerPull(
  body: Uint8Array,
  type: string,
  pull: (request: HttpPull) => HttpRows,
): HttpAnswer {
  const isBinary = type.split(';', 1)[0]!.trim().toLowerCase() === BINARY_TYPE;
  try {
    const request = isBinary ? ofBinary(body) : ofJson(body);
    const answer = pull(request);
    return isBinary ? toBinary(answer) : toJson(answer);
  } catch (error) {
    const code = codeOf(error, 'INTERNAL');
    const content = JSON.stringify({ code, message: describe(error) });
    return { status: STATUS[code] ?? 500, type: JSON_TYPE, body: content };
  }
}

const bad = (message: string): KintsugiError => new KintsugiError('BAD_ARGUMENT', message);

// ---- JSON

function ofJson(body: Uint8Array): HttpPull {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString());
  } catch (error) {
    throw bad(`the body is no JSON: ${describe(error)}`);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw bad('the body is no object');
  const { table, keys, maxLagMs, missing, ...others } = value as Record<string, unknown>;
  const [other] = Object.keys(others);
  if (other !== undefined) throw bad(`there is no field "${other.slice(0, 40)}"`);
  if (typeof table !== 'string') throw bad('"table" must be the name of a table');
  if (!Array.isArray(keys)) throw bad('"keys" must be a list');
  if (maxLagMs !== undefined) checkInteger('"maxLagMs"', maxLagMs as number, 0);
  if (missing !== undefined) checkFloat('"missing"', missing as number);
  const parsed = new BigUint64Array(keys.length);
  for (const [i, key] of keys.entries()) parsed[i] = keyOf(key, i);
  return {
    table,
    keys: parsed,
    maxLagMs: maxLagMs as number | undefined,
    missing: missing as number | undefined,
  };
}

/** Numbers beyond 2^53 are not exact in JSON, so they come as text. */
function keyOf(key: unknown, index: number): bigint {
  if (typeof key === 'number' && Number.isSafeInteger(key) && key >= 0) return BigInt(key);
  if (typeof key === 'string' && /^\d{1,20}$/.test(key)) {
    const value = BigInt(key);
    if (value < 1n << 64n) return value;
  }
  const text = `"keys"[${index}] must be an integer from 0 to 2^53-1, or text with one below 2^64`;
  throw new KintsugiError('KEY_TYPE', text);
}

function toJson({ dim, rows, lagMs }: HttpRows): HttpAnswer {
  const list: number[][] = [];
  for (let at = 0; at < rows.length; at += dim) list.push(Array.from(rows.subarray(at, at + dim)));
  return { status: 200, type: JSON_TYPE, body: JSON.stringify({ dim, lagMs: Math.ceil(lagMs), rows: list }) };
}

// ---- binary

function ofBinary(body: Uint8Array): HttpPull {
  const view = new DataView(body.buffer, body.byteOffset, body.byteLength);
  const word = (index: number): number => view.getUint32(index * 4, true);
  if (body.byteLength < HEAD_BYTES || word(0) !== MAGIC) throw bad('the body does not begin as a pull');
  const [nameBytes, count, maxLagMs, flags] = [word(1), word(2), word(3), word(4)];
  const keysAt = HEAD_BYTES + Math.ceil(nameBytes / 8) * 8;
  const length = keysAt + count * 8;
  if (body.byteLength !== length) throw bad(`a body of ${body.byteLength} bytes, it says ${length}`);
  if ((flags & ~HAS_MISSING) !== 0) throw bad(`flags ${flags} are not known`);
  const name = Buffer.from(body.buffer, body.byteOffset + HEAD_BYTES, nameBytes).toString();
  return {
    table: name,
    // A copy: they may begin at any address.
    keys: new BigUint64Array(new Uint8Array(body.subarray(keysAt)).buffer),
    maxLagMs: maxLagMs === ANY_LAG ? undefined : maxLagMs,
    missing: flags & HAS_MISSING ? view.getFloat32(20, true) : undefined,
  };
}

function toBinary({ dim, rows, lagMs }: HttpRows): HttpAnswer {
  const body = new Uint8Array(ANSWER_HEAD_BYTES + rows.byteLength);
  const lag = Math.min(Math.ceil(lagMs), ANY_LAG);
  const head = Uint32Array.of(MAGIC, dim, rows.length / dim, lag);
  body.set(new Uint8Array(head.buffer));
  body.set(new Uint8Array(rows.buffer, rows.byteOffset, rows.byteLength), ANSWER_HEAD_BYTES);
  return { status: 200, type: BINARY_TYPE, body };
}

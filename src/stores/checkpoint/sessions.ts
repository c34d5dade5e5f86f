/**
 * The de-duplication state of a shard as tensors of its segment: `sessions.ended` U64[e, 2] are ranges of
 * sessions that have ended, `sessions.last` U64[c, 2] clients and the numbers of their last pushes, and
 * `sessions.refused` U64[x, 3] clients, numbers of refused pushes, and indexes into the list of codes in the
 * metadata. Numbers are written as two halves each, because a BigInt for each would take too long.
 */
import { ERROR_CODES, type ErrorCode } from '../../common/errors.js';
import type { DedupEntry } from '../../protocol/messages.js';
import { bad } from './safetensors.js';

/** Numbers one after the other, as many for each entry as its tensor has columns. */
export interface SessionNumbers {
  ended: Uint32Array;
  last: Uint32Array;
  refused: Uint32Array;
  codes: readonly string[];
}

/** Columns of the tensors. */
export const SESSION_COLUMNS = { ended: 2, last: 2, refused: 3 } as const;

const HALF = 2 ** 32;

class Numbers {
  private readonly halves: Uint32Array;
  private at = 0;

  constructor(count: number) {
    this.halves = new Uint32Array(2 * count);
  }

  add(...numbers: number[]): void {
    for (const number of numbers) {
      this.halves[this.at++] = number % HALF;
      this.halves[this.at++] = Math.floor(number / HALF);
    }
  }

  get all(): Uint32Array {
    return this.halves;
  }
}

export function encodeSessions(entries: readonly DedupEntry[]): SessionNumbers {
  const counts = { ended: 0, last: 0, refused: 0 };
  for (const entry of entries) {
    if (entry[2] === 'ENDED') counts.ended++;
    else {
      counts.last++;
      counts.refused += entry[2].length;
    }
  }
  const ended = new Numbers(counts.ended * SESSION_COLUMNS.ended);
  const last = new Numbers(counts.last * SESSION_COLUMNS.last);
  const refused = new Numbers(counts.refused * SESSION_COLUMNS.refused);
  const codes = new Map<ErrorCode, number>();
  for (const [client, number, refusals] of entries) {
    if (refusals === 'ENDED') {
      ended.add(client, number);
      continue;
    }
    last.add(client, number);
    for (const [push, code] of refusals) {
      if (!codes.has(code)) codes.set(code, codes.size);
      refused.add(client, push, codes.get(code)!);
    }
  }
  return { ended: ended.all, last: last.all, refused: refused.all, codes: [...codes.keys()] };
}

/** @throws BAD_CHECKPOINT for numbers that no shard can have */
export function decodeSessions(numbers: SessionNumbers, file: string): DedupEntry[] {
  const { codes } = numbers;
  for (const code of codes) {
    if (!Object.hasOwn(ERROR_CODES, code)) throw bad(file, `"${code.slice(0, 40)}" is not an error code`);
  }
  const entries: DedupEntry[] = [];
  for (const [first, end] of rowsOf(numbers.ended, SESSION_COLUMNS.ended, file)) {
    if (first! > end!) throw bad(file, `sessions ${first} to ${end} have ended`);
    entries.push([first!, end!, 'ENDED']);
  }
  const byClient = new Map<number, [number, ErrorCode][]>();
  for (const [client, number] of rowsOf(numbers.last, SESSION_COLUMNS.last, file)) {
    if (byClient.has(client!)) throw bad(file, `client ${client} occurs twice`);
    const refusals: [number, ErrorCode][] = [];
    byClient.set(client!, refusals);
    entries.push([client!, number!, refusals]);
  }
  for (const [client, push, index] of rowsOf(numbers.refused, SESSION_COLUMNS.refused, file)) {
    const refusals = byClient.get(client!);
    const code = codes[index!];
    if (!refusals || code === undefined) throw bad(file, `a refusal of client ${client} that is unknown`);
    refusals.push([push!, code as ErrorCode]);
  }
  return entries;
}

function* rowsOf(halves: Uint32Array, columns: number, file: string): Generator<number[]> {
  for (let at = 0; at < halves.length; at += 2 * columns) {
    const row: number[] = [];
    for (let column = 0; column < columns; column++) {
      const number = halves[at + 2 * column]! + halves[at + 2 * column + 1]! * HALF;
      if (!Number.isSafeInteger(number)) throw bad(file, 'a session number beyond 2^53');
      row.push(number);
    }
    yield row;
  }
}

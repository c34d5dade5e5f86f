/** Keys in a text file, one in a line, as decimal numbers. */
import { createReadStream } from 'node:fs';
import { causedBy, KintsugiError } from '../common/errors.js';

/** Keys of one list. */
const MOST_KEYS = 65_536;
/** A key has at most 20 digits. */
const MOST_LINE_BYTES = 64;
const LARGEST = 2n ** 64n - 2n;

/** @throws BAD_DATA */
function keyOf(line: string, number: number, path: string): bigint {
  const key = /^\d{1,20}$/.test(line) ? BigInt(line) : undefined;
  if (key !== undefined && key <= LARGEST) return key;
  const shown = JSON.stringify(line.slice(0, MOST_LINE_BYTES));
  throw new KintsugiError('BAD_DATA', `${path}:${number}: ${shown} is no key: 0 to 2^64-2, one in a line`);
}

/**
 * Keys of a file in order, in lists of up to 65,536. Empty lines and spaces around a key mean nothing.
 * @throws BAD_ARGUMENT when the file cannot be read, BAD_DATA for a line that is no key, SYSTEM_LIMIT
 */
export async function* keysOfFile(path: string): AsyncGenerator<BigUint64Array> {
  let [rest, number] = ['', 0];
  let keys: bigint[] = [];
  const take = (line: string): void => {
    number++;
    // A line without an end is refused before it takes memory.
    const text = line.length > MOST_LINE_BYTES ? line : line.trim();
    if (text !== '') keys.push(keyOf(text, number, path));
  };
  const pieces = createReadStream(path, { encoding: 'utf8' });
  try {
    for await (const piece of pieces as AsyncIterable<string>) {
      const lines = (rest + piece).split('\n');
      rest = lines.pop()!;
      for (const line of lines) {
        take(line);
        if (keys.length < MOST_KEYS) continue;
        yield BigUint64Array.from(keys);
        keys = [];
      }
      if (rest.length > MOST_LINE_BYTES) take(rest);
    }
  } catch (error) {
    throw error instanceof KintsugiError ? error : causedBy(error, 'BAD_ARGUMENT', `${path} cannot be read`);
  }
  if (rest !== '') take(rest);
  if (keys.length > 0) yield BigUint64Array.from(keys);
}

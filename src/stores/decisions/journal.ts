/**
 * The lines of a journal: one for each transaction, in JSON, behind a check of it.
 *
 *   check, space, { "kintsugi": 1, "entries": [[key, value], ...] }     the first line: everything
 *   check, space, { "number": N, "changes": [[key, value] or [key], ...] }     N = 1, 2, ...; [key]: deleted
 *
 * The check is the first 16 digits of the SHA-256 of the JSON. A line is written when the one before it is
 * durable. So a crash leaves at most one broken line, the last one, and nobody was told that it is durable.
 * A broken line with a whole one behind it is damage.
 */
import { createHash } from 'node:crypto';
import { KintsugiError } from '../../common/errors.js';

const VERSION = 1;
const CHECK_DIGITS = 16;
const NEWLINE = 10;

/** A key and the JSON of its value; undefined: the key is deleted. */
export type Text = readonly [key: string, text: string | undefined];

const checkOf = (text: string | Uint8Array): string =>
  createHash('sha256').update(text).digest('hex').slice(0, CHECK_DIGITS);

const line = (text: string): Buffer => Buffer.from(`${checkOf(text)} ${text}\n`);

const pairs = (texts: Iterable<Text>): string =>
  Array.from(texts, ([key, text]) => `[${JSON.stringify(key)}${text === undefined ? '' : `,${text}`}]`).join(
    ',',
  );

export const firstLine = (entries: ReadonlyMap<string, string>): Buffer =>
  line(`{"kintsugi":${VERSION},"entries":[${pairs(entries)}]}`);

export const changeLine = (number: number, changes: readonly Text[]): Buffer =>
  line(`{"number":${number},"changes":[${pairs(changes)}]}`);

/** Content of a line without its end; undefined: the line is broken. */
function contentOf(bytes: Buffer): Record<string, unknown> | undefined {
  const text = bytes.subarray(CHECK_DIGITS + 1);
  if (bytes.toString('latin1', 0, CHECK_DIGITS + 1) !== `${checkOf(text)} `) return undefined;
  return JSON.parse(text.toString()) as Record<string, unknown>;
}

function apply(entries: Map<string, string>, changes: unknown): void {
  for (const [key, ...value] of changes as [string, unknown?][]) {
    if (value.length === 0) entries.delete(key);
    else entries.set(key, JSON.stringify(value[0]));
  }
}

/**
 * The JSON of values by key, after all transactions of a journal that are whole.
 * @throws STORE_FAILED when it is damaged, BAD_ARGUMENT when a newer version has written it
 */
export function readJournal(path: string, bytes: Buffer): Map<string, string> {
  const damaged = (at: number) =>
    new KintsugiError('STORE_FAILED', `"${path}" is damaged at byte ${at}, before its end`);
  const entries = new Map<string, string>();
  let broken: number | undefined;
  let number = 0;
  for (let at = 0, end: number; at < bytes.length; at = end + 1, number++) {
    end = bytes.indexOf(NEWLINE, at);
    if (end < 0) end = bytes.length;
    const content = end < bytes.length ? contentOf(bytes.subarray(at, end)) : undefined;
    if (number === 0) {
      // A journal gets its name when its first line is durable.
      if (!content) throw damaged(0);
      if (content.kintsugi !== VERSION)
        throw new KintsugiError('BAD_ARGUMENT', `"${path}" was written by a newer version`);
      apply(entries, content.entries);
    } else if (!content) broken ??= at;
    else if (broken !== undefined || content.number !== number) throw damaged(broken ?? at);
    else apply(entries, content.changes);
  }
  if (number === 0) throw damaged(0);
  return entries;
}

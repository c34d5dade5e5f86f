/**
 * JSON lines: a line is an object with a field per column. A field that is not there is a missing value.
 *
 * Integers that a double does not hold are read from the text, digit by digit. Text that is not UTF-8 is read
 * as its bytes, as in every other format.
 */
import { isUtf8 } from 'node:buffer';
import { valueText } from '../common/errors.js';
import { bad } from './bytes.js';
import { isWellFormed } from './keys.js';
import type { LineParser } from './lines.js';
import { problemText, type SchemaRows } from './rows.js';
import { columnsOf, type Schema } from './schema.js';

/** Digits that a double may not hold */
const MANY_DIGITS = /\d{16}/;
/** A text or a number of JSON */
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g;
const INTEGER = /^-?\d{16,}$/;
/** Begins a text that stands for an integer. Nothing else of a line that is parsed begins with it. */
const EXACT = '\0exact integer ';
const QUOTED_EXACT = JSON.stringify(EXACT).slice(1, -1);

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A line whose long integers are texts that begin with EXACT. */
function marked(text: string): string {
  return text.replace(TOKENS, (token) => (INTEGER.test(token) ? `"${QUOTED_EXACT}${token}"` : token));
}

/** A cell of a marked line. */
function exact(cell: unknown): unknown {
  if (Array.isArray(cell)) return cell.map(exact);
  if (typeof cell !== 'string' || !cell.startsWith(EXACT)) return cell;
  const digits = cell.slice(EXACT.length);
  return INTEGER.test(digits) ? BigInt(digits) : cell;
}

/** A value of JSON, in which long integers have all their digits. @throws if the text is none */
export function exactJson(text: string): unknown {
  const isMarked = MANY_DIGITS.test(text) && !text.includes(QUOTED_EXACT);
  const value: unknown = JSON.parse(text);
  return isMarked && (typeof value !== 'object' || Array.isArray(value))
    ? exact(parsed(marked(text)))
    : value;
}

/** Any escape, a pair of surrogates as one */
const ESCAPES = /\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|\\u[\da-fA-F]{4}|\\./g;

/** A line that is no UTF-8, as Latin-1: escapes of characters beyond ASCII become their bytes in UTF-8. */
function latinOf(line: Buffer): string {
  return line.toString('latin1').replace(ESCAPES, (coded) => {
    const character = String(parsed(`"${coded}"`) ?? '');
    const isOther = character > '\x7f' && isWellFormed(character);
    return isOther ? Buffer.from(character).toString('latin1') : coded;
  });
}

/** Only an escape for half of a pair of surrogates is left. It is no text. */
const BEYOND_LATIN = /[^\0-\xff]/;

/** A cell of a line that was read as Latin-1: text that is UTF-8 again, other text as its bytes. */
function bytesOf(cell: unknown): unknown {
  if (Array.isArray(cell)) return cell.map(bytesOf);
  if (typeof cell !== 'string' || BEYOND_LATIN.test(cell)) return cell;
  const bytes = Buffer.from(cell, 'latin1');
  return isUtf8(bytes) ? bytes.toString('utf8') : bytes;
}

/** A text of JSON, or a sign between values */
const SIGNS = /"(?:[^"\\]|\\.)*"|[{}[\]:]/g;

/** Names of the fields of an object, as often as they are there. */
function namesOf(text: string): unknown[] {
  const names: unknown[] = [];
  let [depth, last] = [0, ''];
  for (const [token] of text.matchAll(SIGNS)) {
    if (token === '{' || token === '[') depth += 1;
    else if (token === '}' || token === ']') depth -= 1;
    else if (token === ':' && depth === 1) names.push(parsed(last));
    last = token;
  }
  return names;
}

/** The end of a name, or text that looks like one */
const NAME_ENDS = /"\s*:/g;

/** Index of a name that an object of this text has more than once; -1: none. */
function twiceIn(text: string, object: Record<string, unknown>, names: readonly string[]): number {
  // Most objects have as many ends of names as fields, and then no name is there twice.
  if ((text.match(NAME_ENDS)?.length ?? 0) <= Object.keys(object).length) return -1;
  const all = namesOf(text);
  return names.findIndex((name) => all.indexOf(name) !== all.lastIndexOf(name));
}

export function jsonParser(file: string, schema: Schema): LineParser<SchemaRows> {
  const columns = columnsOf(schema);
  const latin = columns.map((column) => Buffer.from(column).toString('latin1'));
  const cells: unknown[] = [];
  let wrong = '';
  return {
    header: false,
    add(rows, data, start, end) {
      const line = data.subarray(start, end);
      const isText = isUtf8(line);
      const text = isText ? line.toString('utf8') : latinOf(line);
      const isMarked = MANY_DIGITS.test(text) && !text.includes(QUOTED_EXACT);
      const value = parsed(isMarked ? marked(text) : text);
      if (typeof value !== 'object' || value === null || Array.isArray(value)) {
        wrong = `must be an object of JSON, not ${valueText(text)}`;
        return false;
      }
      const object = value as Record<string, unknown>;
      const names = isText ? columns : latin;
      const twice = twiceIn(text, object, names);
      if (twice >= 0) {
        wrong = `the object has the field ${JSON.stringify(columns[twice])} more than once`;
        return false;
      }
      for (const [index, column] of names.entries()) {
        const cell = Object.hasOwn(object, column) ? object[column] : undefined;
        const found = isMarked ? exact(cell) : cell;
        cells[index] = isText ? found : bytesOf(found);
      }
      const problem = rows.add(cells);
      if (!problem) return true;
      wrong = problemText(problem);
      return false;
    },
    explain: (line) => bad(`${file}:${line}: ${wrong}`),
  };
}

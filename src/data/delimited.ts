/**
 * CSV and TSV: a line is a sample, and its fields are in the order of the header. A field may be quoted: then
 * it may hold the delimiter, and two quotes stand for one. It holds no newline, because then nobody could
 * tell in the middle of a file where a sample begins.
 */
import { isUtf8 } from 'node:buffer';
import type { KintsugiError } from '../common/errors.js';
import { bad, chunks } from './bytes.js';
import { createParser } from './line-plan.js';
import { endOfLine, type LineParser, longLine, MAX_LINE_BYTES } from './lines.js';
import { problemText, type SchemaRows } from './rows.js';
import { columnsOf, type Schema } from './schema.js';

const NEWLINE = 10;
const QUOTE = '"';

/** Fields of a line, or what is wrong with it. */
function fieldsOf(line: string, delimiter: string): string[] | string {
  if (!line.includes(QUOTE)) return line.split(delimiter);
  const fields: string[] = [];
  for (let at = 0; ; at += 1) {
    if (line[at] === QUOTE) {
      const column = `column ${fields.length + 1}`;
      let text = '';
      for (;;) {
        const end = line.indexOf(QUOTE, at + 1);
        if (end < 0) return `${column} must end with a quote, on the same line`;
        text += line.slice(at + 1, end);
        at = end + 1;
        if (line[at] !== QUOTE) break;
        text += QUOTE;
      }
      if (at < line.length && line[at] !== delimiter)
        return `${column} must end after its quote, not go on with ${JSON.stringify(line[at])}`;
      fields.push(text);
    } else {
      const end = line.indexOf(delimiter, at);
      const text = line.slice(at, end < 0 ? line.length : end);
      fields.push(text);
      at += text.length;
    }
    if (at >= line.length) return fields;
  }
}

/** Fields of a line, or what is wrong with it. A field that is no UTF-8 is its bytes. */
export function cellsOf(line: Buffer, delimiter: string): (string | Uint8Array)[] | string {
  if (isUtf8(line)) return fieldsOf(line.toString('utf8'), delimiter);
  // Delimiters and quotes are ASCII, so the fields of other bytes are found as those of Latin-1.
  const fields = fieldsOf(line.toString('latin1'), delimiter);
  if (typeof fields === 'string') return fields;
  return fields.map((field) => {
    const bytes = Buffer.from(field, 'latin1');
    return isUtf8(bytes) ? bytes.toString('utf8') : bytes;
  });
}

/** Names of the columns in the first line of a file. @throws BAD_DATA for two of one name */
export function headerNames(file: string, line: string, delimiter: string): string[] {
  const fields = fieldsOf(line.replace(/^\uFEFF/, ''), delimiter);
  if (typeof fields === 'string') throw bad(`${file}:1: ${fields}`);
  const twice = fields.find((name, index) => fields.indexOf(name) !== index);
  if (twice !== undefined) throw bad(`${file}:1: the header has the column "${twice}" more than once`);
  return fields;
}

/** Positions of the columns in the first line of a file, as names. */
function positionsOf(file: string, line: string, delimiter: string): string[] {
  const fields = fieldsOf(line.replace(/^\uFEFF/, ''), delimiter);
  if (typeof fields === 'string') throw bad(`${file}:1: ${fields}`);
  return fields.map((_, index) => String(index));
}

async function firstLine(file: string): Promise<string> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const chunk of chunks(file)) {
    const newline = chunk.indexOf(NEWLINE);
    parts.push(Buffer.from(newline < 0 ? chunk : chunk.subarray(0, newline)));
    size += chunk.length;
    if (newline >= 0 || size > MAX_LINE_BYTES) break;
  }
  const line = Buffer.concat(parts);
  if (line.length > MAX_LINE_BYTES) throw longLine(file, 1);
  return line.toString('utf8', 0, endOfLine(line, 0, line.length));
}

/** Places of the columns that a schema needs. @throws BAD_DATA for one that is not there */
function placesOf(file: string, schema: Schema, header: readonly string[]): number[] {
  return columnsOf(schema).map((column) => {
    const at = header.indexOf(column);
    if (at >= 0) return at;
    const names = header.join(', ');
    const there = names.length > 200 ? `${names.slice(0, 200)}...` : names;
    if (schema.header === 'positions')
      throw bad(`${file}:1: there must be a column ${column}, and the line has 0 to ${header.length - 1}`);
    throw bad(`${file}:1: there must be a column "${column}", and the header has ${there}`);
  });
}

/** Parsers of files with a header, which is read once, or of files whose columns the schema names. */
export function delimitedParser(schema: Schema, delimiter: string) {
  const headers = new Map<string, Promise<readonly string[]>>();
  return async (file: string): Promise<LineParser<SchemaRows>> => {
    if (schema.header && schema.header !== 'positions')
      return parserOf(file, schema, schema.header, delimiter);
    const namesOf = schema.header === 'positions' ? positionsOf : headerNames;
    const header = headers.get(file) ?? firstLine(file).then((line) => namesOf(file, line, delimiter));
    headers.set(file, header);
    header.catch(() => headers.delete(file));
    return parserOf(file, schema, await header, delimiter);
  };
}

/**
 * The parser of a file. The addon parses most lines; `add` parses lines with a quote, and wrong ones.
 * @throws BAD_DATA
 */
function parserOf(
  file: string,
  schema: Schema,
  header: readonly string[],
  delimiter: string,
): LineParser<SchemaRows> {
  const places = placesOf(file, schema, header);
  const native = createParser(schema, header, delimiter);
  const cells: unknown[] = [];
  let wrong = '';
  return {
    header: schema.header === undefined,
    ...(native && { addAll: (rows, data, from, until) => rows.addAll(native, data, from, until) }),
    add(rows, data, start, end) {
      const fields = cellsOf(data.subarray(start, end), delimiter);
      if (typeof fields === 'string') wrong = fields;
      else if (fields.length !== header.length)
        wrong = `${fields.length} columns instead of ${header.length}`;
      else {
        for (const [index, place] of places.entries()) cells[index] = fields[place];
        const problem = rows.add(cells);
        if (!problem) return true;
        wrong = problemText(problem);
      }
      return false;
    },
    explain: (line): KintsugiError => bad(`${file}:${line}: ${wrong}`),
  };
}

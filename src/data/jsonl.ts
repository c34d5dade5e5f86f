/** JSON lines: a line is an object with a field per column. A field that is not there is a missing value. */
import { bad } from './bytes.js';
import type { LineParser } from './lines.js';
import { problemText, type SchemaRows } from './rows.js';
import { columnsOf, type Schema } from './schema.js';

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export function jsonParser(file: string, schema: Schema): LineParser<SchemaRows> {
  const columns = columnsOf(schema);
  const cells: unknown[] = [];
  let wrong = '';
  return {
    header: false,
    add(rows, data, start, end) {
      const text = data.toString('utf8', start, end);
      const value = parsed(text);
      if (typeof value !== 'object' || value === null || Array.isArray(value)) {
        wrong = `must be an object of JSON, not ${JSON.stringify(text.slice(0, 40))}`;
        return false;
      }
      const object = value as Record<string, unknown>;
      for (const [index, column] of columns.entries())
        cells[index] = Object.hasOwn(object, column) ? object[column] : undefined;
      const problem = rows.add(cells);
      if (!problem) return true;
      wrong = problemText(problem);
      return false;
    },
    explain: (line) => bad(`${file}:${line}: ${wrong}`),
  };
}

/** Types of parquet columns. The metadata say them, so a column is taken or refused as a whole. */
import type { FileMetaData, SchemaTree } from 'hyparquet';

/** Days, moments, times of a day and spans */
const TIMES = /^(DATE|TIME|TIMESTAMP|INTERVAL)/;

/** The name of a type that stands for a time. Its numbers are in one unit of several. */
function timeOf({ type, converted_type, logical_type }: SchemaTree['element']): string | undefined {
  if (type === 'INT96') return 'INT96, a timestamp,';
  return [logical_type?.type, converted_type].find((name) => name !== undefined && TIMES.test(name));
}

function timeIn({ element, children }: SchemaTree): string | undefined {
  for (const child of children) {
    const found = timeIn(child);
    if (found !== undefined) return found;
  }
  return children.length === 0 ? timeOf(element) : undefined;
}

/** Why a column cannot be read, in one line; undefined: its type is one of values. */
export function typeProblem(tree: SchemaTree, column: string): string | undefined {
  const time = timeIn(tree.children.find(({ element }) => element.name === column)!);
  if (time === undefined) return undefined;
  return `must be numbers, text or bytes, and ${time} is none of them: store times as numbers or as text`;
}

/** Whether a column is encrypted, in a file whose metadata are not. */
export function isEncrypted({ row_groups }: FileMetaData, column: string): boolean {
  return row_groups.some(({ columns }) =>
    columns.some(
      ({ crypto_metadata, meta_data }) =>
        crypto_metadata !== undefined && (meta_data?.path_in_schema[0] ?? column) === column,
    ),
  );
}

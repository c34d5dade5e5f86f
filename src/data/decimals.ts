/**
 * Decimals of parquet, digit by digit. hyparquet makes doubles of them, by a factor that is none of 10, so
 * that two ids could be one and 0.3 another number than in text.
 */
import type { FileMetaData, SchemaElement, SchemaTree } from 'hyparquet';

/** Most digits of a decimal that are in use, in other programs, too */
const MAX_SCALE = 76;
/** A double holds so many decimal digits. */
const DOUBLE_DIGITS = 15;

const isDecimal = ({ converted_type, logical_type }: SchemaElement) =>
  converted_type === 'DECIMAL' || logical_type?.type === 'DECIMAL';

/** The same metadata, by which decimals are decoded to the integers or bytes that the file has. */
export function withRawDecimals(metadata: FileMetaData): FileMetaData {
  const raw = (element: SchemaElement): SchemaElement => {
    const { converted_type, logical_type, ...rest } = element;
    return isDecimal(element) ? rest : element;
  };
  return { ...metadata, schema: metadata.schema.map(raw) };
}

/** Digits behind the point of a column of decimals, or of lists of them. @throws if none has so many */
export function scaleOf(tree: SchemaTree, column: string): number | undefined {
  let node = tree.children.find(({ element }) => element.name === column)!;
  while (node.children.length === 1) node = node.children[0]!;
  if (!isDecimal(node.element)) return undefined;
  const logical = node.element.logical_type as { scale?: number } | undefined;
  const scale = node.element.scale ?? logical?.scale ?? 0;
  if (Number.isInteger(scale) && scale >= 0 && scale <= MAX_SCALE) return scale;
  throw new Error(
    `column "${column}" must have from 0 to ${MAX_SCALE} digits behind the point, not ${scale}`,
  );
}

/** Two's complement, the highest byte first. */
function integerOf(bytes: Uint8Array): bigint {
  if (bytes.length === 0) return 0n;
  return BigInt.asIntN(8 * bytes.length, BigInt(`0x${Buffer.from(bytes).toString('hex')}`));
}

/** A number where a double has all its digits, else an integer, or text. */
function decimalOf(whole: bigint, scale: number): number | bigint | string {
  const digits = String(whole < 0n ? -whole : whole).padStart(scale + 1, '0');
  const point = digits.length - scale;
  const fraction = digits.slice(point).replace(/0+$/, '');
  const text = `${whole < 0n ? '-' : ''}${digits.slice(0, point)}${fraction && `.${fraction}`}`;
  if (text.replace(/^-?[0.]*/, '').length <= DOUBLE_DIGITS) return Number(text);
  return fraction === '' ? BigInt(text) : text;
}

/** A cell, or a list of them, as `withRawDecimals` has them decoded. */
export function decimalCell(cell: unknown, scale: number): unknown {
  if (typeof cell === 'number' || typeof cell === 'bigint') return decimalOf(BigInt(cell), scale);
  if (cell instanceof Uint8Array) return decimalOf(integerOf(cell), scale);
  return Array.isArray(cell) || ArrayBuffer.isView(cell)
    ? Array.from(cell as ArrayLike<unknown>, (each) => decimalCell(each, scale))
    : cell;
}

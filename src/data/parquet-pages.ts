/**
 * Looks through the pages of a parquet column before hyparquet decodes them. hyparquet believes the counts in
 * a page: one damaged byte has it repeat a value 2^31 times, which ends the process or never ends. So here
 * every count is compared with what the page can hold.
 */
import type { ColumnMetaData, Compressors, DataPageHeader, PageHeader } from 'hyparquet';
import { loadNative } from '../engine/native.js';

type DictionaryPageHeader = NonNullable<PageHeader['dictionary_page_header']>;
type DataPageHeaderV2 = NonNullable<PageHeader['data_page_header_v2']>;

/** The functions of hyparquet that the checks use. */
export interface PageLibrary {
  parquetHeader(reader: { view: DataView; offset: number }): PageHeader;
  deltaBinaryUnpack(
    reader: { view: DataView; offset: number },
    count: number,
    output: Int32Array | BigInt64Array,
  ): void;
  snappyUncompress(input: Uint8Array, output: Uint8Array): void;
}

/** The pages of one column of one row group. */
export interface ColumnChunk {
  bytes: Uint8Array;
  meta: ColumnMetaData;
  /** Rows of the row group */
  rows: number;
  /** Levels of repetition and of definition that its values can have */
  maxRepetition: number;
  maxDefinition: number;
  /** Least level of definition by level of repetition: a value that goes on with a list is in one. */
  leastDefinition: readonly number[];
  /** Bytes of a value, where the column says that all have so many */
  typeLength: number | undefined;
}

/** Writers make pages of some 20,000 values, or of a whole row group. */
const MAX_PAGE_VALUES = 2 ** 24;
/** Most bytes of a page when it is decompressed. Writers make pages of 1 MiB, and a few of 100 MB. */
export const MAX_PAGE_BYTES = 2 ** 27;
/** Most bytes of the metadata at the end of a file in an object store. */
export const MAX_METADATA_BYTES = 2 ** 27;
/** Most bytes of a text: in a file of lines it could not be longer, either. */
export const MAX_CELL_BYTES = 2 ** 16;
/** Most values of a list. */
export const MAX_LIST_VALUES = 2 ** 16;
/** Bytes of levels, and of a length, that a value has beside its text */
const VALUE_BYTES = 16;
/** Bytes of a page that are of no value, such as the rest of its last block */
const SPARE_BYTES = 2 ** 20;
/** The last run of a page is filled up, to a group of 8 values or to a block of the writer's. */
const MAX_FILL = 2 ** 16;

/** Throws an error that says what must be in the page. */
function must(holds: boolean, what: string): asserts holds {
  if (!holds) throw new Error(what);
}

function within(value: number, most: number, what: string): number {
  must(Number.isSafeInteger(value) && value >= 0 && value <= most, `${what} must be from 0 to ${most}`);
  return value;
}

/** Whether a page is what its writer has put there; most writers leave the checksum out. */
function hasChecksum({ crc }: PageHeader, page: Uint8Array): boolean {
  return crc === undefined || crc >>> 0 === loadNative().crc32(page);
}

const widthOf = (level: number) => 32 - Math.clz32(level);

/** A number of up to 35 bits, seven in a byte, and where it ends. */
function numberAt(bytes: Uint8Array, from: number): [number, number] {
  let [at, number, shift] = [from, 0, 0];
  for (let byte = 0x80; byte & 0x80; shift += 7) {
    must(at < bytes.length && shift < 35, `a number must end within the ${bytes.length} bytes of its part`);
    byte = bytes[at++]!;
    number += (byte & 0x7f) * 2 ** shift;
  }
  return [number, at];
}

/** Blocks of differences: values in one, and parts of one. */
function checkDelta(bytes: Uint8Array): void {
  const [values, at] = numberAt(bytes, 0);
  const [parts] = numberAt(bytes, at);
  must(values > 0 && values <= MAX_FILL && parts > 0 && values % parts === 0, 'blocks must have equal parts');
}

/** Takes `length` values of a page that are equal and follow each other. */
type TakeRun = (value: number, length: number) => void;

/**
 * Runs of a page: a header, then a value that repeats, or groups of eight values of `width` bits. `take` gets
 * the first `count` values; without it only their number is checked.
 */
function checkRuns(bytes: Uint8Array, width: number, count: number, take?: TakeRun): void {
  let [at, seen] = [0, 0];
  while (seen < count) {
    let [header, shift] = [0, 0];
    for (let byte = 0x80; byte & 0x80; shift += 7) {
      must(
        at < bytes.length && shift < 35,
        `a page must have runs of ${count} values in ${bytes.length} bytes`,
      );
      byte = bytes[at++]!;
      header += (byte & 0x7f) * 2 ** shift;
    }
    const length = Math.floor(header / 2);
    if (header % 2 === 0) {
      must(seen + length <= count, `a page of ${count} values must have runs of so many`);
      let value = 0;
      for (let shift = 0; shift < width; shift += 8) value += (bytes[at++] ?? 0) * 2 ** shift;
      take?.(value, length);
      seen += length;
      continue;
    }
    must(8 * length <= count - seen + MAX_FILL, `a page of ${count} values must have runs of so many`);
    const values = Math.min(8 * length, count - seen);
    for (let index = 0; take && index < values; index++)
      take(bitsAt(bytes, 8 * at + index * width, width), 1);
    at += length * width;
    seen += values;
  }
}

/** Checks lengths of texts that follow each other, each with its length before it. */
function checkTexts(bytes: Uint8Array, count: number): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  for (let index = 0; index < count; index++) {
    must(at + 4 <= bytes.length, `a page of ${count} texts must have the length of each`);
    at += 4 + checkLength(view.getUint32(at, true));
  }
  must(at <= bytes.length, 'the last text of a page must end in it');
}

const checkLength = (length: number) => within(length, MAX_CELL_BYTES, 'the bytes of a text');

function bitsAt(bytes: Uint8Array, from: number, width: number): number {
  let value = 0;
  for (let bit = 0; bit < width; bit++) {
    const at = from + bit;
    if (((bytes[at >> 3] ?? 0) >> (at & 7)) & 1) value += 2 ** bit;
  }
  return value;
}

/** Checks lengths of literals and copies. A length of more than 31 bits would count backwards. */
export function checkSnappy(input: Uint8Array): void {
  let at = 0;
  while (at < input.length && input[at++]! >= 0x80);
  while (at < input.length) {
    const tag = input[at++]!;
    const kind = tag & 3;
    if (kind !== 0) {
      at += kind === 3 ? 4 : kind;
      continue;
    }
    const extra = Math.max(0, (tag >> 2) - 59);
    let length = tag >> 2;
    if (extra > 0) length = 0;
    for (let byte = 0; byte < extra; byte++) length += (input[at + byte] ?? 0) * 2 ** (8 * byte);
    at += extra + length + 1;
  }
  must(at === input.length, 'a page compressed with snappy must end with its last piece');
}

/** Most bytes of a page of so many values. */
const mostBytes = (count: number) =>
  Math.min(MAX_PAGE_BYTES, count * (MAX_CELL_BYTES + VALUE_BYTES) + SPARE_BYTES);

class PageWalk {
  /** Values since the last one that begins a row. A list may go on in the next page. */
  private listed = 0;
  /** Rows that have begun */
  private rows = 0;
  /** Levels of repetition of a page, and how many there are so far */
  private repetition = new Uint8Array(0);
  private repeated = 0;
  /** Level of definition of the last value */
  private defined = Number.POSITIVE_INFINITY;
  private isSkippable = true;

  constructor(
    private readonly library: PageLibrary,
    private readonly compressors: Compressors,
    private readonly chunk: ColumnChunk,
  ) {}

  /** @param count values of the page, which have to be so many bytes together */
  private unpacked(input: Uint8Array, size: number, count: number): Uint8Array {
    const { codec } = this.chunk.meta;
    within(size, mostBytes(count), `the size of a page of ${count}`);
    if (codec === 'UNCOMPRESSED') return input;
    const given = this.compressors[codec];
    must(given !== undefined, `the compression must be one that can be read, not ${codec}`);
    const page = given(input, size);
    must(page.length === size, `a page must have ${size} bytes, as its header says`);
    return page;
  }

  /** Values of a page from the end of its levels on. */
  private checkValues(page: Uint8Array, encoding: string, count: number, version: 1 | 2): void {
    if (count === 0) return;
    if (encoding.startsWith('DELTA_')) checkDelta(page);
    if (encoding === 'DELTA_BYTE_ARRAY') this.checkPrefixes(page, count);
    if (encoding === 'DELTA_LENGTH_BYTE_ARRAY') this.lengths({ page, at: 0 }, count).forEach(checkLength);
    if (encoding === 'PLAIN' && this.chunk.meta.type === 'BYTE_ARRAY') checkTexts(page, count);
    const dictionary = encoding === 'PLAIN_DICTIONARY' || encoding === 'RLE_DICTIONARY';
    if (!dictionary && encoding !== 'RLE') return;
    const bits = this.chunk.meta.type === 'BOOLEAN' || (version === 2 && !dictionary);
    if (bits) {
      checkRuns(page.subarray(4), 1, count);
      return;
    }
    const width = within(page[0] ?? -1, 32, 'the width of a page in bits');
    if (width > 0 || version === 2) checkRuns(page.subarray(1), width, count);
  }

  /** Lengths from a place of a page on; the place is the one behind them afterwards. */
  private lengths(from: { page: Uint8Array; at: number }, count: number): Int32Array {
    const { page, at } = from;
    const reader = { view: new DataView(page.buffer, page.byteOffset, page.byteLength), offset: at };
    const lengths = new Int32Array(count);
    checkDelta(page.subarray(at));
    this.library.deltaBinaryUnpack(reader, count, lengths);
    from.at = reader.offset;
    return lengths;
  }

  /** Values that are a prefix of the value before, and a suffix of their own. */
  private checkPrefixes(page: Uint8Array, count: number): void {
    const place = { page, at: 0 };
    const [prefixes, suffixes] = [this.lengths(place, count), this.lengths(place, count)];
    let [before, all] = [0, 0];
    for (const [index, prefix] of prefixes.entries()) {
      within(prefix, before, 'the bytes that a value shares with the one before it');
      before = checkLength(prefix + within(suffixes[index]!, page.length, 'the length of a value'));
      all += before;
    }
    within(all, MAX_PAGE_BYTES, 'the bytes of the texts of a page');
  }

  /** Takes levels of repetition: 0 begins a row, and any other one goes on with a list of it. */
  private takeRepetition: TakeRun = (level, length) => {
    must(level <= this.chunk.maxRepetition, 'a level of repetition must be one of the column');
    if (length > 0) this.listed = level === 0 ? 1 : this.listed + length;
    if (level === 0) this.rows += length;
    this.repetition.fill(level, this.repeated, this.repeated + length);
    this.repeated += length;
    must(this.rows > 0 || length === 0, 'the first value of a column must begin a row');
    must(this.listed <= MAX_LIST_VALUES, `a list must have at most ${MAX_LIST_VALUES} values`);
  };

  private beginPage(count: number): void {
    this.repetition = new Uint8Array(this.chunk.maxRepetition > 0 ? count : 0);
    this.repeated = 0;
  }

  /** Checks levels of definition against those of repetition. Returns a function that counts values. */
  private definitions(): { take: TakeRun; full: () => number } {
    const { maxRepetition, maxDefinition, leastDefinition } = this.chunk;
    let [at, full] = [0, 0];
    const take: TakeRun = (level, length) => {
      must(level <= maxDefinition, `a level of definition must be at most ${maxDefinition}`);
      if (level === maxDefinition) full += length;
      // A value after an empty list, or none, begins another one.
      if (maxRepetition > 0 && length > 0 && this.defined < leastDefinition.at(-1)!)
        must(this.defined >= leastDefinition[this.repetition[at]!]!, 'a list that goes on must have begun');
      if (length > 0) this.defined = level;
      if (maxRepetition > 0 && level < leastDefinition.at(-1)!)
        for (const repetition of this.repetition.subarray(at, at + length))
          must(level >= leastDefinition[repetition]!, 'a value that goes on with a list must be in one');
      at += length;
    };
    return { take, full: () => full };
  }

  /** Checks levels with their length before them. Returns the bytes after them. */
  private levels(page: Uint8Array, max: number, count: number, take: TakeRun): Uint8Array {
    must(page.length >= 4, 'a page must have the length of its levels');
    const length = new DataView(page.buffer, page.byteOffset).getUint32(0, true);
    within(length, page.length - 4, 'the length of the levels of a page');
    checkRuns(page.subarray(4, 4 + length), widthOf(max), count, take);
    return page.subarray(4 + length);
  }

  private checkFirst(input: Uint8Array, size: number, { num_values, encoding }: DataPageHeader): void {
    const { maxRepetition, maxDefinition } = this.chunk;
    const count = within(num_values, MAX_PAGE_VALUES, 'the values of a page');
    let page = this.unpacked(input, size, count);
    this.beginPage(count);
    if (maxRepetition > 0) page = this.levels(page, maxRepetition, count, this.takeRepetition);
    else this.rows += count;
    const { take, full } = this.definitions();
    if (maxDefinition > 0) page = this.levels(page, maxDefinition, count, take);
    this.checkValues(page, encoding, maxDefinition > 0 ? full() : count, 1);
  }

  private checkSecond(input: Uint8Array, size: number, header: DataPageHeaderV2): void {
    const { maxRepetition, maxDefinition } = this.chunk;
    const count = within(header.num_values, MAX_PAGE_VALUES, 'the values of a page');
    const nulls = within(header.num_nulls, count, 'the values of a page that are nothing');
    const rows = within(header.num_rows, count, 'the rows of a page');
    const before = this.rows;
    this.beginPage(count);
    const repetition = within(header.repetition_levels_byte_length, input.length, 'the length of levels');
    const definition = within(
      header.definition_levels_byte_length,
      input.length - repetition,
      'the length of levels',
    );
    if (maxRepetition > 0)
      checkRuns(input.subarray(0, repetition), widthOf(maxRepetition), count, this.takeRepetition);
    else this.rows += count;
    const found = this.rows - before;
    const isList = maxRepetition > 0;
    // pyarrow before version 12 gives the number of values as that of rows, and may cut a list in two.
    must(found === rows || (isList && rows === count), `a page must have ${rows} rows, as its header says`);
    if (isList && (found !== rows || (count > 0 && this.repetition[0] !== 0))) this.isSkippable = false;
    const levels = repetition + definition;
    const { take, full } = this.definitions();
    const isDefined = maxDefinition > 0 && count > 0;
    if (isDefined) checkRuns(input.subarray(repetition, levels), widthOf(maxDefinition), count, take);
    const there = isDefined ? full() : count;
    must(there === count - nulls, `a page of ${count} values must have ${nulls} that are nothing`);
    const packed = input.subarray(levels);
    const values = header.is_compressed === false ? packed : this.unpacked(packed, size - levels, count);
    this.checkValues(values, header.encoding, count - nulls, 2);
  }

  /** A dictionary; numbers in it are as large as their type. */
  private checkWords(input: Uint8Array, size: number, words: DictionaryPageHeader): void {
    const count = within(words.num_values, MAX_PAGE_VALUES, 'the values of a page');
    if (this.chunk.meta.type === 'BYTE_ARRAY') checkTexts(this.unpacked(input, size, count), count);
  }

  check(): boolean {
    const { bytes, rows, typeLength } = this.chunk;
    if (typeLength !== undefined) checkLength(typeLength);
    const reader = { view: new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), offset: 0 };
    while (reader.offset < bytes.length - 1) {
      const header = this.library.parquetHeader(reader);
      const left = bytes.length - reader.offset;
      const length = within(header.compressed_page_size, left, 'the length of a page');
      const size = within(Number(header.uncompressed_page_size), MAX_PAGE_BYTES, 'the size of a page');
      const input = bytes.subarray(reader.offset, reader.offset + length);
      reader.offset += length;
      must(hasChecksum(header, input), 'a page must have its checksum, and has another one');
      const { data_page_header: first, data_page_header_v2: second, dictionary_page_header: words } = header;
      if (header.type === 'DATA_PAGE' && first) this.checkFirst(input, size, first);
      else if (header.type === 'DATA_PAGE_V2' && second) this.checkSecond(input, size, second);
      else if (header.type === 'DICTIONARY_PAGE' && words) this.checkWords(input, size, words);
      else throw new Error(`a page must be of data or a dictionary, not ${String(header.type)}`);
    }
    must(this.rows === rows, `a column must have ${rows} rows, as its row group, and not ${this.rows}`);
    return this.isSkippable;
  }
}

/**
 * Throws an error that says what must be in a page and is not. Returns whether hyparquet may pass over pages:
 * it believes how many rows their headers give them.
 */
export function checkPages(library: PageLibrary, compressors: Compressors, chunk: ColumnChunk): boolean {
  return new PageWalk(library, compressors, chunk).check();
}

/** Bytes [from, to) of the file that a column has in a row group. */
export function chunkRange(meta: ColumnMetaData): { from: number; to: number } {
  const from = Number(meta.dictionary_page_offset || meta.data_page_offset);
  return { from, to: from + Number(meta.total_compressed_size) };
}

/** Bytes in which the header of a page ends; a header has statistics, whose values may be long. */
const HEADER_BYTES = 2 ** 12;

/**
 * Whether the headers of the pages of a column say that none is larger than a reader takes, decompressed or
 * decoded. `read` gives up to so many bytes of the file from a place on. Of the pages themselves only those
 * with a checksum are looked at: false, if one has another one.
 */
export function arePagesSound(
  library: PageLibrary,
  meta: ColumnMetaData,
  read: (from: number, bytes: number) => Uint8Array,
): boolean {
  try {
    let { from: at, to: end } = chunkRange(meta);
    while (at < end - 1) {
      const bytes = read(at, Math.min(HEADER_BYTES, end - at));
      const reader = { view: new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), offset: 0 };
      const header = library.parquetHeader(reader);
      const data = header.data_page_header ?? header.data_page_header_v2;
      const count = (data ?? header.dictionary_page_header)?.num_values ?? -1;
      // Prefixes of the value before make many bytes of few.
      if (data?.encoding === 'DELTA_BYTE_ARRAY') return false;
      within(count, MAX_PAGE_VALUES, 'the values of a page');
      within(Number(header.uncompressed_page_size), mostBytes(count), 'the size of a page');
      at += reader.offset;
      const length = within(header.compressed_page_size, end - at, 'a page');
      if (header.crc !== undefined && !hasChecksum(header, read(at, length))) return false;
      at += length;
    }
    return true;
  } catch {
    return false;
  }
}

/**
 * Looks for keys in every file below a place. Segments are read by their structure: the rows and the removed
 * keys of the table. The manifest of a checkpoint has no keys. Any other file, a damaged one included, is
 * searched for the eight bytes of each key at every position, decompressed where it is compressed.
 */
import { type Duplex, Readable } from 'node:stream';
import { describe, KintsugiError } from '../../common/errors.js';
import { type Packing, packingOf, takenBy } from '../../data/packing.js';
import { checkpointOfManifest, MAX_SEGMENT_BYTES } from '../../protocol/checkpoints.js';
import { turn } from '../../stores/checkpoint/bytes.js';
import { type AnyFile, type EveryFile, openEveryFile } from '../../stores/checkpoint/every-file.js';
import { KeySet } from '../../stores/checkpoint/key-set.js';
import { decodeManifest, MAX_MANIFEST_BYTES } from '../../stores/checkpoint/manifest.js';
import { decodeSegment, type Segment } from '../../stores/checkpoint/segment.js';

/** Keys of a table. */
export interface KeysOfTable {
  table: string;
  keys: KeySet;
}

/** A file with keys that are looked for, by how they are in it. */
export interface FileWithKeys {
  name: string;
  /** Rows of these keys. */
  rows: number;
  /** Keys that are listed as removed. */
  removed: number;
  /** Different keys whose eight bytes are in a file that is no segment; small keys may be there by chance. */
  bytes: number;
}

/** The result of a search of a place. */
export interface SearchedPlace {
  url: string;
  /** Files and bytes that were searched. */
  files: number;
  bytes: number;
  found: FileWithKeys[];
  /** Files that could not be searched, and why. */
  unsearched: { name: string; problem: string }[];
  /** True: the bucket keeps versions of removed files, which were not searched. `unknown`: it may. */
  versions: boolean | 'unknown';
}

const CHUNK_BYTES = 1024 * 1024;
/** Bytes of the beginning of a file that tell what it is. */
const HEAD_BYTES = 16;

/** Compressions whose content is not searched, by their first bytes. */
const OTHER_PACKINGS: readonly [name: string, magic: string][] = [
  ['zip', '504b0304'],
  ['xz', 'fd377a585a00'],
  ['bzip2', '425a68'],
  ['7-Zip', '377abcaf271c'],
  ['lz4', '04224d18'],
  ['lz4', '02214c18'],
  ['snappy', 'ff060000734e61507059'],
  ['parquet', '50415231'],
  ['zip', '504b0506'],
  ['zip', '504b0708'],
  ['RAR', '526172211a07'],
  ['compress', '1f9d'],
  ['lzip', '4c5a4950'],
  ['lzop', '894c5a4f'],
  ['ORC', '4f5243'],
  ['Avro', '4f626a01'],
  ['HDF5', '894844460d0a1a0a'],
];

/** Frames of zstd that are skipped; 0x50 to 0x5f comes before. */
const ZSTD_SKIPPED = /^5.2a4d18/;

/** The name of a compression whose content is not searched. */
function otherPacking(head: Uint8Array): string | undefined {
  const hex = Buffer.from(head.subarray(0, HEAD_BYTES)).toString('hex');
  if (ZSTD_SKIPPED.test(hex)) return 'zstd that begins with a skipped frame';
  return OTHER_PACKINGS.find(([, magic]) => hex.startsWith(magic))?.[0];
}

export interface SearchOptions {
  /** The place is one of a job that has the table: it may be empty, and need not have the table. */
  ofJob?: boolean | undefined;
  /** The place has this checkpoint, or a newer one, unless it is another one of the same name. */
  holds?: number | undefined;
  /** A place without the table is refused whatever was found. */
  mustHaveTable?: boolean | undefined;
  signal?: AbortSignal | undefined;
}

/**
 * Files that are removed meanwhile are left out, and so are files that come.
 * @throws CHECKPOINT_MISSING for a place without files, UNKNOWN_TABLE when no checkpoint there has the table
 * and nothing was found, so that a wrong name is no proof; CHECKPOINT_MISSING for a place without the
 * checkpoint that it `holds`; PLACE_FAILED, ABORTED
 */
export async function searchPlace(
  url: string,
  wanted: KeysOfTable,
  options: SearchOptions = {},
): Promise<SearchedPlace> {
  const files = await openEveryFile(url);
  try {
    return await new PlaceSearch(files, wanted, options).search();
  } finally {
    await files.close();
  }
}

class PlaceSearch {
  private readonly result: SearchedPlace;
  /** Tables that manifests and segments name. */
  private readonly tables = new Set<string>();
  /** Number of the newest manifest. */
  private newest = 0;
  /** Files that were listed, and that could not be found. */
  private readonly gone = new Set<string>();

  constructor(
    private readonly files: EveryFile,
    private readonly wanted: KeysOfTable,
    private readonly options: SearchOptions,
  ) {
    this.result = { url: files.url, files: 0, bytes: 0, found: [], unsearched: [], versions: false };
  }

  async search(): Promise<SearchedPlace> {
    const { result, files, wanted } = this;
    result.versions = await files.keepsRemoved();
    for await (const file of files.list()) {
      if (this.options.signal?.aborted) throw new KintsugiError('ABORTED', 'the operation was aborted');
      // A manifest may be removed before it is read, when there are newer ones.
      this.newest = Math.max(this.newest, checkpointOfManifest(file.name) ?? 0);
      if (file.problem === undefined) await this.searchFile(file);
      else result.unsearched.push({ name: file.name, problem: file.problem });
    }
    await this.nameUnreadable();
    const { ofJob = false, holds = 0, mustHaveTable = false } = this.options;
    if (this.newest < holds) {
      const text = `the job has made checkpoint ${holds} at ${files.url}, which is not here`;
      throw new KintsugiError('CHECKPOINT_MISSING', `${text}: is the place on another machine?`);
    }
    if (!ofJob && result.files + result.unsearched.length === 0)
      throw new KintsugiError('CHECKPOINT_MISSING', `${files.url} has no files`);
    const { found, unsearched } = result;
    const isNothing = mustHaveTable || found.length + unsearched.length === 0;
    if (!ofJob && isNothing && !this.tables.has(wanted.table))
      throw new KintsugiError('UNKNOWN_TABLE', `no checkpoint of ${files.url} has a table "${wanted.table}"`);
    const byName = (a: { name: string }, b: { name: string }) => (a.name < b.name ? -1 : 1);
    found.sort(byName);
    unsearched.sort(byName);
    return result;
  }

  /** A file that is there again or still is one whose name cannot be used; others were removed meanwhile. */
  private async nameUnreadable(): Promise<void> {
    if (this.gone.size === 0) return;
    for await (const { name } of this.files.list())
      if (this.gone.has(name)) this.result.unsearched.push({ name, problem: 'it is listed, but not found' });
  }

  private async read(name: string, from: number, to: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const bytes = await this.files.read(name, from, to);
    if (!bytes) this.gone.add(name);
    return bytes;
  }

  private async searchFile(file: AnyFile): Promise<void> {
    const { name, bytes } = file;
    const head = await this.read(name, 0, HEAD_BYTES);
    if (!head) return;
    const found = (await this.known(file, head)) ?? (await this.searchBytes(name, head));
    if (!found) return;
    this.result.files++;
    this.result.bytes += bytes;
    if (found.rows + found.removed + found.bytes > 0) this.result.found.push(found);
  }

  /** A segment or a manifest; undefined: it is something else, or damaged. */
  private async known({ name, bytes }: AnyFile, head: Uint8Array): Promise<FileWithKeys | undefined> {
    const number = checkpointOfManifest(name);
    const isManifest = number !== undefined && bytes <= MAX_MANIFEST_BYTES;
    // A segment begins with the length of its header, and the header with a brace.
    if (!isManifest && !(head[8] === 0x7b && bytes <= MAX_SEGMENT_BYTES)) return undefined;
    const file = await this.read(name, 0, bytes);
    if (!file) return undefined;
    try {
      if (!isManifest) return this.inSegment(name, decodeSegment(file, name));
      for (const table of decodeManifest(file, number).tables) this.tables.add(table.name);
      return { name, rows: 0, removed: 0, bytes: 0 };
    } catch (error) {
      if (!(error instanceof KintsugiError) || error.code !== 'BAD_CHECKPOINT') throw error;
      return undefined;
    }
  }

  private inSegment(name: string, { tables }: Segment): FileWithKeys {
    const { table: wanted, keys } = this.wanted;
    for (const table of tables) this.tables.add(table.name);
    const table = tables.find((each) => each.name === wanted);
    const [rows, removed] = table ? [keys.countOf(table.keys), keys.countOf(table.removed)] : [0, 0];
    return { name, rows, removed, bytes: 0 };
  }

  /** Undefined: the file is gone, or was named as one that cannot be searched. */
  private async searchBytes(name: string, head: Uint8Array): Promise<FileWithKeys | undefined> {
    const unsearched = (problem: string): undefined => {
      this.result.unsearched.push({ name, problem });
    };
    const other = otherPacking(head);
    if (other) return unsearched(`its content is compressed (${other})`);
    const { keys } = this.wanted;
    const different = new KeySet();
    // Also beside what is compressed, as in a header or behind the end.
    const raw = new ByteSearch(keys, different);
    for await (const chunk of this.chunks(name)) raw.add(chunk);
    const packing = packingOf(head);
    const content = new ByteSearch(keys, different);
    const problem = packing && (await this.searchPacked(name, packing, raw.bytes, content));
    if (problem !== undefined) unsearched(problem);
    if (problem !== undefined && different.size === 0) return undefined;
    return { name, rows: 0, removed: 0, bytes: different.size };
  }

  /** Why not all of a file of so many bytes was searched; undefined: it was. */
  private async searchPacked(
    name: string,
    packing: Packing,
    bytes: number,
    content: ByteSearch,
  ): Promise<string | undefined> {
    const packed = Readable.from(this.chunks(name), { objectMode: false });
    let unpack: Duplex | undefined;
    let head = Buffer.alloc(0);
    try {
      unpack = await packing.unpack(CHUNK_BYTES);
      const stream = unpack;
      packed.on('error', (error) => stream.destroy(error));
      packed.pipe(stream);
      for await (const chunk of stream as AsyncIterable<Buffer>) {
        if (head.length < HEAD_BYTES) head = Buffer.concat([head, chunk.subarray(0, HEAD_BYTES)]);
        content.add(chunk);
      }
    } catch (error) {
      // The place cannot be read.
      if (error instanceof KintsugiError && error.code !== 'DEPENDENCY_MISSING') throw error;
      return `it cannot be decompressed: ${describe(error)}`;
    } finally {
      packed.destroy();
      unpack?.destroy();
    }
    if ((takenBy(unpack) ?? bytes) < bytes) return 'something is behind the end of what is compressed';
    return otherPacking(head) || packingOf(head) ? 'its content is compressed twice' : undefined;
  }

  private async *chunks(name: string): AsyncGenerator<Buffer> {
    for (let at = 0; ; at += CHUNK_BYTES) {
      const chunk = await this.read(name, at, at + CHUNK_BYTES);
      if (chunk && chunk.length > 0) yield Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length);
      if (!chunk || chunk.length < CHUNK_BYTES) return;
      await turn();
    }
  }
}

/** Keys in a stream of bytes at every position, in both orders of their bytes. */
class ByteSearch {
  private low = 0;
  private high = 0;
  /** So far. */
  bytes = 0;

  /** @param different gets the keys that are found */
  constructor(
    private readonly keys: KeySet,
    private readonly different: KeySet,
  ) {}

  add(chunk: Uint8Array): void {
    const { keys, different } = this;
    let { low, high } = this;
    for (let i = 0; i < chunk.length; i++) {
      const byte = chunk[i]!;
      low = ((low >>> 8) | (high << 24)) >>> 0;
      high = ((high >>> 8) | (byte << 24)) >>> 0;
      if (++this.bytes < 8) continue;
      if (keys.has(low, high)) different.add(low, high);
      const [swappedLow, swappedHigh] = [swapped(high), swapped(low)];
      if (keys.has(swappedLow, swappedHigh)) different.add(swappedLow, swappedHigh);
    }
    this.low = low;
    this.high = high;
  }
}

/** The bytes of a word in the other order. */
function swapped(word: number): number {
  return ((word << 24) | ((word & 0xff00) << 8) | ((word >>> 8) & 0xff00) | (word >>> 24)) >>> 0;
}

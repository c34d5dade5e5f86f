/**
 * Looks for keys in every file below a place. Segments are read by their structure: the rows and the removed
 * keys of the table. The manifest of a checkpoint has no keys. Any other file, a damaged one included, is
 * searched for the eight bytes of each key at every position, decompressed where it is compressed.
 */
import { Readable } from 'node:stream';
import { describe, KintsugiError } from '../../common/errors.js';
import { packingOf } from '../../data/packing.js';
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
  /** True: the bucket keeps versions of removed files, which were not searched. */
  versions: boolean;
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
  ['snappy', 'ff060000734e61507059'],
  ['parquet', '50415231'],
];

export interface SearchOptions {
  /** The place is one of a job that has the table: it may be empty, and need not have the table. */
  ofJob?: boolean | undefined;
  signal?: AbortSignal | undefined;
}

/**
 * Files that are removed meanwhile are left out, and so are files that come.
 * @throws CHECKPOINT_MISSING for a place without files, UNKNOWN_TABLE when no checkpoint there has the table
 * and nothing was found, so that a wrong name is no proof; PLACE_FAILED, ABORTED
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
      if (file.problem === undefined) await this.searchFile(file);
      else result.unsearched.push({ name: file.name, problem: file.problem });
    }
    const { ofJob = false } = this.options;
    if (!ofJob && result.files + result.unsearched.length === 0)
      throw new KintsugiError('CHECKPOINT_MISSING', `${files.url} has no files`);
    const { found, unsearched } = result;
    if (!ofJob && found.length + unsearched.length === 0 && !this.tables.has(wanted.table))
      throw new KintsugiError('UNKNOWN_TABLE', `no checkpoint of ${files.url} has a table "${wanted.table}"`);
    const byName = (a: { name: string }, b: { name: string }) => (a.name < b.name ? -1 : 1);
    found.sort(byName);
    unsearched.sort(byName);
    return result;
  }

  private async searchFile(file: AnyFile): Promise<void> {
    const { name, bytes } = file;
    const head = await this.files.read(name, 0, HEAD_BYTES);
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
    const file = await this.files.read(name, 0, bytes);
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
    const hex = Buffer.from(head).toString('hex');
    const other = OTHER_PACKINGS.find(([, magic]) => hex.startsWith(magic));
    const unsearched = (problem: string): undefined => {
      this.result.unsearched.push({ name, problem });
    };
    if (other) return unsearched(`its content is compressed (${other[0]})`);
    const search = new ByteSearch(this.wanted.keys);
    const unpack = await packingOf(head)?.unpack(CHUNK_BYTES);
    if (!unpack) {
      for await (const chunk of this.chunks(name)) search.add(chunk);
      return { name, rows: 0, removed: 0, bytes: search.found };
    }
    const raw = Readable.from(this.chunks(name), { objectMode: false });
    raw.on('error', (error) => unpack.destroy(error));
    raw.pipe(unpack);
    try {
      for await (const chunk of unpack) search.add(chunk as Buffer);
    } catch (error) {
      if (error instanceof KintsugiError) throw error;
      return unsearched(`it cannot be decompressed: ${describe(error)}`);
    } finally {
      raw.destroy();
      unpack.destroy();
    }
    return { name, rows: 0, removed: 0, bytes: search.found };
  }

  private async *chunks(name: string): AsyncGenerator<Buffer> {
    for (let at = 0; ; at += CHUNK_BYTES) {
      const chunk = await this.files.read(name, at, at + CHUNK_BYTES);
      if (chunk && chunk.length > 0) yield Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length);
      if (!chunk || chunk.length < CHUNK_BYTES) return;
      await turn();
    }
  }
}

/** Keys in a stream of bytes, little-endian, at every position. */
class ByteSearch {
  private low = 0;
  private high = 0;
  private seen = 0;
  private readonly different = new KeySet();

  constructor(private readonly keys: KeySet) {}

  /** Different keys that were found. */
  get found(): number {
    return this.different.size;
  }

  add(bytes: Uint8Array): void {
    const { keys, different } = this;
    let { low, high } = this;
    for (let i = 0; i < bytes.length; i++) {
      low = ((low >>> 8) | (high << 24)) >>> 0;
      high = ((high >>> 8) | (bytes[i]! << 24)) >>> 0;
      if (++this.seen >= 8 && keys.has(low, high)) different.add(low, high);
    }
    this.low = low;
    this.high = high;
  }
}

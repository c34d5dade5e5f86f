/**
 * The parts of a checkpoint: segments, which are files with rows of one shard, and the manifest, which names
 * them. src/stores/checkpoint reads and writes these files.
 */
import {
  bool,
  dataset,
  type FieldCheck,
  integer,
  list,
  natural,
  object,
  optional,
  record,
  text,
  wrongField,
} from './checks.js';
import { locate, type PeerId, type Pool, shardCount, type TableSpec } from './map.js';
import type { DatasetSpec, SetAside } from './samples.js';

/** Usual bytes of a segment: it is written in one request, and a few of them are in memory at a time. */
export const SEGMENT_BYTES = 16 * 1024 * 1024;
/**
 * Most bytes of a segment that is read. Memory for a segment is limited to this, whatever a manifest says. A
 * segment may exceed SEGMENT_BYTES by a row of every table and the state of sessions.
 */
export const MAX_SEGMENT_BYTES = 256 * 1024 * 1024;

export const CHECKPOINT_FORMAT = 'kintsugi-checkpoint';
export const CHECKPOINT_VERSION = 1;

/** A file of a checkpoint. */
export interface SegmentRef {
  /** From the root of the place: `000012/1f0c33aa-g3-m1-0.safetensors`. */
  name: string;
  bytes: number;
  /** Digest of the whole file, hexadecimal. */
  sha256: string;
  /** Rows of all tables in it. */
  rows: number;
}

/** A shard in a checkpoint. */
export interface SavedShard {
  pool: string;
  /** Number in its pool. */
  shard: number;
  /** Group and member of the shard: `locate` of its number. */
  group: number;
  member: number;
  /** Stream position of its newest segments. */
  position: number;
  /** The newest segments have the rows that changed after this stamp of the owner's engine; 0: all rows. */
  since: number;
  /** All segments that are to be loaded, oldest first, with those of earlier checkpoints. */
  segments: SegmentRef[];
}

/** A table without its id, which is its place in the list. */
export type SavedTable = Omit<TableSpec, 'id'>;

/** A range of samples that was neither finished nor set aside. */
export interface SavedRange {
  number: number;
  piece?: { file: number; begin: number; end: number };
  session: PeerId;
  worker: PeerId;
  lease: number;
  done: number;
  begun: number;
  failures: number;
  failedAt: number;
}

/** A data set in a checkpoint: the durable part of its state in the scheduler. */
export interface SavedDataset {
  name: string;
  spec: DatasetSpec;
  next: number;
  open: SavedRange[];
  finished: number;
  samples: number[];
  redone: number;
  setAside: SetAside[];
  growth?: { size: number; given: number }[];
}

/** The sample ledger of a checkpoint. */
export interface SavedSamples {
  nextPeer: PeerId;
  datasets: SavedDataset[];
  /** Sessions that are open at the cut. */
  sessions: PeerId[];
}

/** The content of a checkpoint, as its maker gives it; the other fields of the manifest follow from it. */
export interface CheckpointDraft {
  number: number;
  /** `full job`: everything that a restore needs. `export`: values only, of chosen tables. */
  kind: 'full job' | 'export';
  /** Tells writers of the same number apart: 8 hexadecimal digits. */
  attempt: string;
  job: string;
  /** When the state was taken, ISO 8601, UTC. */
  createdAt: string;
  /** All shards are of one instant. */
  barrier: boolean;
  pools: Pool[];
  tables: SavedTable[];
  /** As the map had it: tells whether a table was dropped between two checkpoints of a job. */
  lastTable?: number;
  samples?: SavedSamples;
  /** Shards of all pools but the lost ones for a full job; for an export, shards of pools with its tables. */
  shards: SavedShard[];
  /** Shards that were beyond repair. */
  lost?: { pool: string; shard: number }[];
  /** The checkpoint whose content this one has, in fewer files. */
  compactionOf?: number;
}

/** The manifest: the content of manifest.json. */
export interface Manifest extends CheckpointDraft {
  format: typeof CHECKPOINT_FORMAT;
  version: number;
  /** Ascending numbers of the other checkpoints whose files this one needs. */
  parents: number[];
  /** Sum over all segments. A row that several of them have counts several times. */
  rows: number;
  /** Sum over all segments. */
  bytes: number;
}

/** The highest number of a checkpoint: folders have up to 15 digits. */
export const MAX_CHECKPOINT = 999_999_999_999_999;

/** Folder of a checkpoint: its number with six digits or more. */
export function checkpointFolder(number: number): string {
  return String(number).padStart(6, '0');
}

export function manifestName(number: number): string {
  return `${checkpointFolder(number)}/manifest.json`;
}

/** Name of the segment number `part` of a shard. Two attempts never write the same name. */
export function segmentName(
  { number, attempt }: Pick<CheckpointDraft, 'number' | 'attempt'>,
  { group, member }: Pick<SavedShard, 'group' | 'member'>,
  part: number,
): string {
  return `${checkpointFolder(number)}/${attempt}-g${group}-m${member}-${part}.safetensors`;
}

const SEGMENT_NAME = /^(\d{6,15})\/[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.safetensors$/;
const MANIFEST_NAME = /^(\d{6,15})\/manifest\.json$/;

/** The number in a name, if the name writes it as `checkpointFolder` does. */
function numberIn(pattern: RegExp, name: string): number | undefined {
  const folder = pattern.exec(name)?.[1];
  if (folder === undefined) return undefined;
  const number = Number(folder);
  return number > 0 && checkpointFolder(number) === folder ? number : undefined;
}

/** The number of the checkpoint that wrote a segment; undefined: this is not the name of a segment. */
export function checkpointOfSegment(name: string): number | undefined {
  return numberIn(SEGMENT_NAME, name);
}

/** The number of the checkpoint whose manifest this is; undefined: this is not the name of a manifest. */
export function checkpointOfManifest(name: string): number | undefined {
  return numberIn(MANIFEST_NAME, name);
}

/** Shards of the pools of these tables, and how many of them all there should be. */
export function shardsOf(
  { pools, shards }: Pick<Manifest, 'pools' | 'shards'>,
  tables: readonly Pick<SavedTable, 'pool'>[],
): { shards: SavedShard[]; wanted: number } {
  const used = pools.filter(({ name }) => tables.some(({ pool }) => pool === name));
  return {
    shards: shards.filter(({ pool }) => used.some(({ name }) => name === pool)),
    wanted: used.reduce((sum, pool) => sum + shardCount(pool), 0),
  };
}

/** The manifest of a draft, with the fields that follow from it. */
export function manifestOf(draft: CheckpointDraft): Manifest {
  const segments = draft.shards.flatMap((shard) => shard.segments);
  const numbers = new Set(segments.map(({ name }) => checkpointOfSegment(name) ?? draft.number));
  numbers.delete(draft.number);
  return {
    format: CHECKPOINT_FORMAT,
    version: CHECKPOINT_VERSION,
    ...draft,
    parents: [...numbers].sort((a, b) => a - b),
    rows: segments.reduce((sum, { rows }) => sum + rows, 0),
    bytes: segments.reduce((sum, { bytes }) => sum + bytes, 0),
  };
}

// ---- validation

const positive: FieldCheck = (v) => natural(v) && (v as number) > 0;
const matches =
  (pattern: RegExp): FieldCheck =>
  (v) =>
    typeof v === 'string' && pattern.test(v);
const segment = record({
  name: (v) => typeof v === 'string' && checkpointOfSegment(v) !== undefined,
  bytes: (v) => natural(v) && (v as number) <= MAX_SEGMENT_BYTES,
  sha256: matches(/^[0-9a-f]{64}$/),
  rows: natural,
});
const range = record({
  number: natural,
  piece: optional(record({ file: natural, begin: natural, end: natural })),
  session: natural,
  worker: natural,
  lease: natural,
  done: natural,
  begun: natural,
  failures: natural,
  failedAt: integer,
});
const samples = record({
  nextPeer: natural,
  datasets: list(
    record({
      name: text,
      spec: dataset,
      next: natural,
      open: list(range),
      finished: natural,
      samples: list(natural),
      redone: natural,
      setAside: list(object),
      growth: optional(list(record({ size: natural, given: natural }))),
    }),
  ),
  sessions: list(natural),
});

const FIELDS: { [K in keyof Required<Manifest>]: FieldCheck } = {
  format: (v) => v === CHECKPOINT_FORMAT,
  version: (v) => v === CHECKPOINT_VERSION,
  number: (v) => positive(v) && (v as number) <= MAX_CHECKPOINT,
  kind: (v) => v === 'full job' || v === 'export',
  attempt: matches(/^[0-9a-f]{8}$/),
  job: text,
  createdAt: matches(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/),
  barrier: bool,
  pools: list(record({ name: text, k: positive, r: natural, firstGroup: natural, groups: positive })),
  tables: list(object),
  lastTable: optional(natural),
  samples: optional(samples),
  shards: list(
    record({
      pool: text,
      shard: natural,
      group: natural,
      member: natural,
      position: natural,
      since: natural,
      segments: list(segment),
    }),
  ),
  lost: optional(list(record({ pool: text, shard: natural }))),
  compactionOf: optional(positive),
  parents: list(positive),
  rows: natural,
  bytes: natural,
};
const CHECKS = Object.entries(FIELDS);

/** The problem with a manifest, in one line; undefined when it is valid. The tables are not checked. */
export function manifestProblem(value: unknown): string | undefined {
  if (!object(value)) return 'it is not an object';
  const { format, version } = value as Record<string, unknown>;
  if (format !== CHECKPOINT_FORMAT) return 'it is not the manifest of a checkpoint';
  if (version !== CHECKPOINT_VERSION)
    return `it has format version ${version}; this program reads version ${CHECKPOINT_VERSION}`;
  const wrong = wrongField(CHECKS, value as Record<string, unknown>);
  if (wrong !== undefined) return `"${wrong}" is missing or malformed`;
  const manifest = value as Manifest;
  return poolProblem(manifest) ?? shardProblem(manifest) ?? derivedProblem(manifest);
}

function poolProblem({ pools }: Manifest): string | undefined {
  if (new Set(pools.map(({ name }) => name)).size < pools.length) return 'a pool occurs twice';
  let next = 0;
  for (const { name, firstGroup, groups } of pools) {
    if (firstGroup !== next) return `the first group of pool "${name}" is ${firstGroup}, not ${next}`;
    next += groups;
  }
  return undefined;
}

function shardProblem({ kind, number, pools, shards, lost = [] }: Manifest): string | undefined {
  const seen = new Set<string>();
  for (const { pool: name, shard } of [...shards, ...lost]) {
    const pool = pools.find((each) => each.name === name);
    if (!pool || shard >= shardCount(pool)) return `there is no shard ${shard} of pool "${name}"`;
    if (seen.has(`${name}/${shard}`)) return `shard ${shard} of pool "${name}" occurs twice`;
    seen.add(`${name}/${shard}`);
  }
  const wanted = pools.reduce((sum, pool) => sum + shardCount(pool), 0);
  if (kind === 'full job' && seen.size < wanted) return `it has ${seen.size} of ${wanted} shards`;
  const files = new Set<string>();
  for (const { pool: name, shard, group, member, segments } of shards) {
    const home = locate(pools.find((each) => each.name === name)!, shard);
    if (home.group !== group || home.member !== member)
      return `shard ${shard} of pool "${name}" is not member ${member} of group ${group}`;
    if (kind === 'full job' && segments.length === 0) return `shard ${shard} of pool "${name}" has no files`;
    for (const { name: file } of segments) {
      if (checkpointOfSegment(file)! > number) return `${file} is of a later checkpoint`;
      if (files.has(file)) return `${file} occurs twice`;
      files.add(file);
    }
  }
  return undefined;
}

function derivedProblem(manifest: Manifest): string | undefined {
  const { parents, rows, bytes } = manifestOf(manifest);
  if (parents.join() !== manifest.parents.join()) return 'its parents are not those of its files';
  if (rows !== manifest.rows || bytes !== manifest.bytes) return 'its sums are not those of its files';
  return undefined;
}

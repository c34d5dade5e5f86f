/**
 * Files of checkpoints from nobody in particular: segments and manifests as they are written, then cut,
 * spliced, flipped, and retyped with lengths and hashes that fit again. Readers answer with what the file has
 * or with BAD_CHECKPOINT and its name, whatever comes; they take no memory beyond the file. What was accepted
 * reads the same when it is written again, and harms nobody who uses it. files.test.ts runs it small;
 * `npm run fuzz:files` runs a million, or KINTSUGI_FILES of them from seed KINTSUGI_SEED.
 */
import { createHash } from 'node:crypto';
import { KintsugiError } from '../../src/common/errors.js';
import { entriesOf, stateOf } from '../../src/core/scheduler/entries.js';
import { type DurableState, restoredJob } from '../../src/core/scheduler/scheduler.js';
import { loadNative, type NativeShard } from '../../src/engine/native.js';
import { choose } from '../../src/library/serving/apply.js';
import { type CheckpointDraft, type Manifest, manifestName } from '../../src/protocol/checkpoints.js';
import { toMessage } from '../../src/protocol/validate.js';
import { byteLength, bytesOf } from '../../src/stores/checkpoint/bytes.js';
import { decodeManifest, encodeManifest } from '../../src/stores/checkpoint/manifest.js';
import { type decodeSegment, encodeSegment, type Segment } from '../../src/stores/checkpoint/segment.js';
import { segmentProblem, verifyCheckpoint } from '../../src/stores/checkpoint/verify.js';
import {
  draftOf,
  filterOf,
  joined,
  random as numbers,
  rows,
  shardOf,
  TABLES,
} from '../stores/checkpoint/support.js';
import { mutate, Random, retype } from './frames.js';
import { MapPlace } from './map-place.js';

/** The code under test. */
export interface Readers {
  decodeSegment: typeof decodeSegment;
  decodeManifest: typeof decodeManifest;
}

export interface FilesReport {
  files: number;
  accepted: number;
  refused: number;
  /** Segments that were accepted and then taken by the engine. */
  loaded: number;
  /** Jobs that would begin with a manifest that was accepted. */
  begun: number;
  digest: number;
}

const FILE = '000001/0123abcd-g0-m0-0.safetensors';
const NUMBER = 1;

// ---- files

function segmentFile(random: Random): Uint8Array {
  const tables = TABLES.filter(() => random.below(4) > 0).map((table) => {
    const keys = Array.from({ length: random.below(6) }, () => BigInt(random.below(50)));
    const removed = Array.from({ length: random.below(3) }, () => BigInt(random.below(50)));
    const slots = Array.from({ length: random.below(3) }, (_, i) => 100 + i);
    const filter = random.below(6) === 0 ? filterOf(slots, 16, numbers(random.next())) : undefined;
    return { ...rows(table, keys, numbers(random.next())), removed: [BigUint64Array.from(removed)], filter };
  });
  const sessions = [
    [1, 3, 'ENDED'],
    [7, 9, [[8, 'MEMORY_LIMIT']]],
    [9, 2 ** 40, []],
  ] as const;
  const known = random.below(2) === 0 ? structuredClone(sessions) : undefined;
  return joined(encodeSegment(tables, known as never, { group: 0, member: random.below(2), position: 4 }));
}

/** Another header before the same data. */
function withHeader(file: Uint8Array, change: (header: unknown) => unknown): Uint8Array {
  const end = 8 + Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(file.subarray(8, end))) as unknown;
  const text = new TextEncoder().encode(jsonOf(change(header)));
  const length = new Uint8Array(8);
  new DataView(length.buffer).setBigUint64(0, BigInt(text.length), true);
  return joined([length, text, file.subarray(end)]);
}

/** Values that JSON does not have become others. */
function jsonOf(value: unknown): string {
  const plain = (_: string, each: unknown) =>
    typeof each === 'bigint' ? Number(each) : each instanceof Uint8Array ? [...each] : each;
  return JSON.stringify(value, plain) ?? 'null';
}

function draft(random: Random): CheckpointDraft {
  const segment = (shard: number) => ({
    name: `000001/0123abcd-g0-m${shard}-0.safetensors`,
    bytes: random.below(1000),
    sha256: '0'.repeat(64),
    rows: random.below(100),
  });
  const shards = [0, 1].map((shard) => shardOf(shard, [segment(shard)], random.below(9)));
  const follow = random.below(2) === 0 && { follow: true };
  const spec = {
    files: [{ name: 'a', size: follow ? 0 : 9, rangeBytes: 3 }],
    ...{ ...follow, batch: 2, epochs: 1, seed: 1, shuffle: false, staleness: 1 },
  };
  const piece = follow && { piece: { file: 0, begin: 0, end: 3 } };
  const range = { number: 0, session: 3, worker: 0, lease: 0, done: 0, begun: 0, failures: 0, failedAt: -1 };
  const dataset = {
    ...{ name: 'd', spec, next: 1, open: [{ ...range, ...piece }], finished: 0, samples: [0], redone: 0 },
    ...{ setAside: [], ...(follow && { growth: [{ size: 9, given: 3 }] }) },
  };
  const samples = { nextPeer: 7, datasets: [dataset], sessions: [3] };
  return { ...draftOf(NUMBER, shards), samples: samples as NonNullable<CheckpointDraft['samples']> };
}

/** A manifest with these fields, and with the hash of them. */
function manifestFile(value: unknown): Uint8Array {
  const text = jsonOf(value);
  const body = new TextEncoder().encode(text.startsWith('{"') ? `${text.slice(1)}\n` : text);
  const sha256 = createHash('sha256').update(body).digest('hex');
  return joined([new TextEncoder().encode(`{"sha256": "${sha256}",\n`), body]);
}

const fieldsOf = (file: Uint8Array) => {
  const { sha256: _, ...fields } = JSON.parse(new TextDecoder().decode(file)) as Record<string, unknown>;
  return fields;
};

function changed(random: Random, file: Uint8Array, retyped: (file: Uint8Array) => Uint8Array): Uint8Array {
  const kind = random.below(8);
  if (kind === 0) return file;
  if (kind < 3) return mutate(random, file);
  let result = retyped(file);
  if (kind === 7) result = mutate(random, result);
  return result;
}

// ---- what must hold

/** The error of a refusal; anything else is thrown on. */
function refused(error: unknown, file: string): true {
  const { code, message } = error as { code?: unknown; message?: string };
  if (code === 'BAD_CHECKPOINT' && message?.startsWith(`${file}: `)) return true;
  throw error;
}

/** Numbers of rows fit each other, views are in the file or not larger, and it reads the same again. */
function checkSegment(readers: Readers, segment: Segment, file: Uint8Array): void {
  let bytes = 0;
  for (const { dim, stateParts, keys, values, state, removed, filter } of segment.tables) {
    const width = stateParts.reduce((sum, { floats }) => sum + floats, 0);
    if (values.length !== keys.length * dim || state.length !== keys.length * width)
      throw new Error('rows of another number than keys');
    bytes += byteLength([keys, values, state, removed].map(bytesOf));
    if (!filter) continue;
    if (filter.counters.length !== filter.slots.length * filter.width)
      throw new Error('counters of another number than slots');
    bytes += byteLength([filter.slots, filter.counters].map(bytesOf));
  }
  if (bytes > file.byteLength) throw new Error(`${bytes} bytes of a file of ${file.byteLength}`);
  const again = readers.decodeSegment(
    joined(
      encodeSegment(
        segment.tables.map(({ keys, values, state, removed, filter, ...table }) => {
          const rows = { keys: [keys], values: [values], state: [state], removed: [removed] };
          const { slots, counters } = filter ?? {};
          const again = filter && { ...filter, slots: [slots!], counters: [counters!] };
          return { ...table, ...rows, filter: again };
        }),
        segment.sessions,
        segment,
      ),
    ),
    FILE,
  );
  const plain = ({ tables, sessions, ...rest }: Segment) =>
    JSON.stringify([
      rest,
      sessions && normalized(sessions),
      tables.map(({ keys, values, state, removed, filter, ...table }) => [
        table,
        filter && [filter.state, filter.width],
        ...[keys, values, state, removed, ...(filter ? [filter.slots, filter.counters] : [])].map((array) =>
          Buffer.from(bytesOf(array)).toString('hex'),
        ),
      ]),
    ]);
  if (plain(again) !== plain(segment)) throw new Error('it does not read the same again');
}

/** Ranges of ended sessions are written before the others. */
function normalized(sessions: NonNullable<Segment['sessions']>): unknown[] {
  return [
    ...sessions.filter(([, , refusals]) => refusals === 'ENDED'),
    ...sessions.filter(([, , refusals]) => refusals !== 'ENDED'),
  ];
}

/** Gives the rows to the engine, as a restore does. True: it took all. */
function taken(native: NativeShard, { tables }: Segment): boolean {
  return tables
    .map(({ name, keys, values, state }) => {
      const id = TABLES.findIndex((table) => table.name === name) + 1;
      return native.loadRows(id, keys, values, state) === 0;
    })
    .every((applied) => applied);
}

/** Uses a manifest as programs do that have read it. True: a job would begin with it. */
function use(manifest: Manifest): boolean {
  const { format: _f, version: _v, parents: _p, rows: _r, bytes: _b, ...rest } = manifest;
  const again = decodeManifest(encodeManifest(rest), manifest.number);
  if (jsonOf(sorted(again)) !== jsonOf(sorted({ ...manifest }))) throw new Error('it does not read the same');
  const outcomes = [() => choose(manifest, undefined), () => begun(manifest)].map((work) => {
    try {
      return work();
    } catch (error) {
      if (!(error instanceof KintsugiError) || error.code === 'INTERNAL') throw error;
      return undefined;
    }
  });
  return outcomes[1] !== undefined;
}

/** The state of a job can be stored and sent to its nodes. */
function begun(manifest: Manifest): DurableState {
  const pools = manifest.pools.map(({ name, k, r, groups }) => ({ name, k, r, groups }));
  const state = restoredJob('job', 3, pools, 'url', manifest);
  if (!stateOf(entriesOf(state))) throw new Error('there is no state of this job');
  toMessage({ t: 'map', map: state.map });
  return state;
}

const sorted = (value: object) => Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));

function shardOfTables(): NativeShard {
  const native = loadNative();
  const shard = native.createShard(native.createMemory(0), 0, 1, 0);
  for (const [i, { dim, initializer, seed, optimizer }] of TABLES.entries())
    shard.addTable({ id: i + 1, dim, initializer, seed, optimizer });
  return shard;
}

/**
 * Runs; throws at the first file that is answered by anything but its content or BAD_CHECKPOINT, with the
 * file in hex.
 */
export function fuzzFiles(readers: Readers, files: number, seed: number): FilesReport {
  const random = new Random(seed);
  const native = shardOfTables();
  const report: FilesReport = { files, accepted: 0, refused: 0, loaded: 0, begun: 0, digest: 0 };
  const innocent = Object.getOwnPropertyNames(Object.prototype).length;
  const segment = (file: Uint8Array) => {
    const found = readers.decodeSegment(file, FILE);
    checkSegment(readers, found, file);
    const [shard] = draftOf(NUMBER, [shardOf(0, [], 4)]).shards;
    const isMine = !segmentProblem(found, { kind: 'full job', tables: TABLES }, shard!, true);
    if (isMine && taken(native, found)) report.loaded++;
  };
  const manifest = (file: Uint8Array) => {
    if (use(readers.decodeManifest(file, NUMBER))) report.begun++;
  };
  for (let n = 0; n < files; n++) {
    const isSegment = random.below(2) === 0;
    const file = isSegment
      ? changed(random, segmentFile(random), (whole) => withHeader(whole, (header) => retype(random, header)))
      : changed(random, encodeManifest(draft(random)), (whole) =>
          manifestFile(retype(random, fieldsOf(whole))),
        );
    const before = file.slice();
    try {
      if (isSegment) segment(file);
      else manifest(file);
      report.accepted++;
    } catch (error) {
      try {
        if (refused(error, isSegment ? FILE : manifestName(NUMBER))) report.refused++;
      } catch (cause) {
        const hex = Buffer.from(before).toString('hex');
        throw new Error(`${isSegment ? 'segment' : 'manifest'} ${n} of seed ${seed}: ${hex}`, { cause });
      }
    }
    report.digest = (Math.imul(report.digest, 31) + report.accepted) >>> 0;
    if (Buffer.compare(file, before) !== 0) throw new Error(`file ${n} of seed ${seed} was changed`);
  }
  native.close();
  if (Object.getOwnPropertyNames(Object.prototype).length !== innocent || 'kind' in {})
    throw new Error('Object.prototype was changed');
  return report;
}

/**
 * Whole checkpoints, one file of which is changed: a check names that one, or finds nothing when it is what
 * it was. Returns how many were damaged.
 */
export async function fuzzPlaces(places: number, seed: number): Promise<number> {
  const random = new Random(seed);
  let damaged = 0;
  for (let n = 0; n < places; n++) {
    const place = await MapPlace.withCheckpoint(random.next());
    const names = [...place.files.keys()].sort();
    const name = random.of(names);
    const whole = place.files.get(name)!;
    const kind = random.below(6);
    const other = place.files.get(random.of(names))!;
    const bytes = kind === 0 ? other : joined([mutate(random, whole)]);
    if (kind === 1) place.files.delete(name);
    else place.files.set(name, bytes);
    const isSame = kind !== 1 && Buffer.compare(bytes, whole) === 0;
    let found: string[];
    try {
      found = (await verifyCheckpoint(place, NUMBER)).bad.map((bad) => bad.name);
    } catch (error) {
      const isMissing = (error as { code?: unknown }).code === 'CHECKPOINT_MISSING' && kind === 1;
      if (!isMissing) refused(error, manifestName(NUMBER));
      found = [manifestName(NUMBER)];
    }
    if (found.join() !== (isSame ? '' : name))
      throw new Error(`place ${n} of seed ${seed}: ${name} was changed, and ${found} is named`);
    if (!isSame) damaged++;
  }
  return damaged;
}

/**
 * Checkpoints of a schedule: the plan, and a simulated place where writes are slow, fail, fail although they
 * were done, or are torn when their process dies. A manifest is checked when it is written: every file that
 * it lists is there and whole, rows and de-duplication state are those of one position, and the samples are
 * such that a restored job trains each of them once.
 */
import type { FetchedFilter } from '../core/node/loaded-filters.js';
import type { FetchedFile } from '../core/node/loading.js';
import type { FetchEffect, StoreEffect } from '../core/shared/outbox.js';
import { checkpointFolder, checkpointOfSegment, type SegmentRef } from '../protocol/checkpoints.js';
import type { DedupEntry, Message } from '../protocol/messages.js';
import type { NodeActor } from './actors.js';
import type { SimulatedCluster } from './cluster.js';
import { type EngineContent, RememberingShard } from './engine.js';
import type { CheckpointSide, Draft, SavedContent, SimulatedAnswer, SimulatedPublish } from './saved.js';
import { Violation } from './violation.js';

const PLAN = 'checkpoint';
const URL = 'memory://place';
const KEEP = 2;

interface SegmentTable {
  dim: number;
  rows: { key: bigint; row: Float32Array }[];
  removed: bigint[];
  filter: FetchedFilter | undefined;
}

/** A file of the place. */
interface StoredSegment {
  tables: Map<string, SegmentTable>;
  sessions: DedupEntry[] | undefined;
  position: number;
  bytes: number;
  sha256: string;
  /** The writer died before the file was whole. */
  torn: boolean;
}

type FailedCode = (SimulatedAnswer & { kind: 'publishFailed' })['code'];

interface Pending {
  at: number;
  run: () => void;
}

export class Saves implements CheckpointSide {
  private readonly files = new Map<string, StoredSegment>();
  private readonly manifests = new Map<number, Draft>();
  /** First part of the names of a snapshot's files -> content of the shard when the snapshot began. */
  private readonly taken = new Map<string, EngineContent>();
  /** Work of the place that is under way. */
  private pending: Pending[] = [];
  /** Checkpoints that were made since everything healed. */
  private doneAtRest = 0;
  /** When the plan was last set or dropped. */
  private askedAt = 0;
  /** Attempts in which a client pushed on, because it was away from the scheduler for long. */
  private readonly unheld = new Set<number>();
  /** Checkpoints that were found to be of one instant. */
  private readonly instants = new Set<Draft>();

  constructor(private readonly cluster: SimulatedCluster) {}

  private get wanted(): boolean {
    return this.cluster.config.saveEvery > 0;
  }

  private get planned(): boolean {
    return this.cluster.control.disk.saving?.plans.has(PLAN) ?? false;
  }

  /** True if a checkpoint was made after the last fault, and the plan is dropped. */
  get finished(): boolean {
    return !this.wanted || (this.doneAtRest > 0 && !this.planned);
  }

  /** Called once per step. */
  step(): void {
    const { cluster } = this;
    if (this.pending.some(({ at }) => at <= cluster.now)) {
      const due = this.pending.filter(({ at }) => at <= cluster.now);
      this.pending = this.pending.filter(({ at }) => at > cluster.now);
      for (const { run } of due) run();
    }
    if (!this.wanted || cluster.phase !== 'running' || !cluster.control.running) return;
    const over = this.doneAtRest > 0;
    if (this.planned !== over || cluster.now - this.askedAt < cluster.retry) return;
    this.askedAt = cluster.now;
    const from = cluster.clients[0]?.id;
    if (from === undefined) return;
    const { saveEvery: everyMs } = cluster.config;
    const barrier = cluster.config.saveBarrier;
    const plan = { url: URL, everyMs, keep: KEEP, rate: 0, kind: 'full job' as const, barrier };
    const message: Message = {
      t: 'setPlan',
      id: 0,
      name: PLAN,
      next: this.newest + 1,
      ...(!over && { plan }),
    };
    cluster.control.step({ kind: 'message', from, role: 'client', message });
  }

  private later(run: () => void): void {
    const { cluster } = this;
    const slow = cluster.stormy && cluster.random.chance(0.1) ? cluster.retry * 10 : 30;
    this.pending.push({ at: cluster.now + cluster.random.below(slow), run });
  }

  // ---- files

  store(index: number, actor: NodeActor, effect: StoreEffect): void {
    const { cluster } = this;
    const { token, name, group, member } = effect;
    const snapshot = snapshotOf(name);
    if (!this.taken.has(snapshot)) {
      const shard = actor.node!.ownerAt(group, member)?.native;
      if (!(shard instanceof RememberingShard))
        throw new Violation(`${name}: a file of a shard without owner`);
      this.taken.set(snapshot, shard.taken!);
    }
    const segment = segmentOf(effect);
    const process = actor.node;
    const fails = cluster.stormy && cluster.random.chance(0.03);
    this.later(() => {
      const alive = actor.up && actor.node === process;
      const torn = !alive && cluster.random.chance(0.3);
      if (!(fails || !alive) || cluster.random.chance(0.5)) this.put(name, { ...segment, torn });
      if (!alive) return;
      const failed = { kind: 'storeFailed' as const, token, code: 'PLACE_FAILED' as const, message: 'no' };
      const { bytes, sha256 } = segment;
      cluster.answerNode(index, actor, fails ? failed : { kind: 'stored', token, bytes, sha256 });
    });
  }

  fetch(index: number, actor: NodeActor, { token, segment }: FetchEffect): void {
    const { cluster } = this;
    const process = actor.node;
    const fails = cluster.stormy && cluster.random.chance(0.1);
    this.later(() => {
      if (!actor.up || actor.node !== process) return;
      const failed = { kind: 'fetchFailed' as const, token, code: 'PLACE_FAILED' as const, message: 'no' };
      const file = this.files.get(segment.name);
      if (fails || !file) return cluster.answerNode(index, actor, failed);
      cluster.answerNode(index, actor, { kind: 'fetched', token, ...contentOf(file) });
    });
  }

  /** Picks a kept checkpoint for a restore of the whole job; undefined: there is none. */
  pick(): { url: string; draft: Draft; contents: Map<string, SavedContent>; reshaped: boolean } | undefined {
    const all = [...this.manifests.values()];
    if (all.length === 0) return undefined;
    const draft = this.cluster.random.pick(all);
    // Work that is under way at the place does not end any more.
    this.pending = [];
    this.doneAtRest = 0;
    const reshaped = this.cluster.config.reshape && this.instants.has(draft);
    return { url: URL, draft, contents: this.contentsOf(draft), reshaped };
  }

  /** Picks a kept checkpoint for the lost shards of a running job; undefined: there is none. */
  kept(): { url: string; draft: Draft; contents: Map<string, SavedContent> } | undefined {
    const all = [...this.manifests.values()];
    if (all.length === 0) return undefined;
    const draft = this.cluster.random.pick(all);
    return { url: URL, draft, contents: this.contentsOf(draft) };
  }

  private contentsOf({ shards }: Draft): Map<string, SavedContent> {
    return new Map(
      shards.map(({ group, member, segments, position }) => [
        `${group}/${member}`,
        this.load(segments, position),
      ]),
    );
  }

  private put(name: string, segment: StoredSegment): void {
    const known = this.files.get(name);
    if (known && !known.torn && known.sha256 !== segment.sha256)
      throw new Violation(`${name} was written twice, with another content`);
    this.files.set(name, segment);
  }

  // ---- manifests

  publish(effect: SimulatedPublish, answer: (input: SimulatedAnswer) => void): void {
    const { cluster } = this;
    const { token, draft, keep } = effect;
    const fails = cluster.stormy && cluster.random.chance(0.1);
    this.later(() => {
      const failed = (code: FailedCode, newest?: number) =>
        answer({
          kind: 'publishFailed',
          token,
          code,
          message: 'no',
          ...(newest !== undefined && { newest }),
        });
      if (this.manifests.has(draft.number)) return failed('CHECKPOINT_TAKEN', this.newest);
      if (fails && cluster.random.chance(0.5)) return failed('PLACE_FAILED');
      // The scheduler may be gone by now. The manifest is written all the same, unless a newer one is there:
      // then the files that only this one needs were removed.
      if (this.newest > draft.number) return failed('BAD_CHECKPOINT');
      this.check(draft, token);
      this.manifests.set(draft.number, draft);
      this.sweep(keep);
      cluster.count('manifest');
      if (!cluster.stormy && cluster.phase === 'running') this.doneAtRest++;
      if (fails) failed('PLACE_FAILED');
      else answer({ kind: 'published', token });
    });
  }

  private get newest(): number {
    return Math.max(0, ...this.manifests.keys());
  }

  private sweep(keep: number): void {
    const newest = [...this.manifests.keys()].sort((a, b) => b - a);
    for (const number of newest.slice(keep)) this.manifests.delete(number);
    const listed = new Set<string>();
    for (const { shards } of this.manifests.values())
      for (const { segments } of shards) for (const { name } of segments) listed.add(name);
    for (const name of this.files.keys())
      if (!listed.has(name) && checkpointOfSegment(name)! <= newest[0]!) this.files.delete(name);
  }

  /** Notes an attempt in which a client was not held, because it was away from the scheduler for long. */
  resumed(attempt: number): void {
    const { clients } = this.cluster;
    if (clients.some(({ id, hold }) => id !== undefined && !(hold?.id === attempt && hold.told)))
      this.unheld.add(attempt);
  }

  private check(draft: Draft, attempt: number): void {
    const { cluster } = this;
    const groups = cluster.control.disk.map.groups;
    const wanted = groups.flatMap(({ id, data }) => data.map((_, m) => `${id}/${m}`));
    const listed = draft.shards.map(({ group, member }) => `${group}/${member}`);
    if (wanted.join() !== listed.join()) throw new Violation(`a manifest has the shards ${listed.join()}`);
    const contents = this.contentsOf(draft);
    for (const { group, member, segments } of draft.shards) {
      const content = contents.get(`${group}/${member}`)!;
      const taken = this.taken.get(snapshotOf(segments.at(-1)!.name))!;
      compare(`shard ${group}/${member} of checkpoint ${draft.number}`, content, taken);
      if (segments.some(({ name }) => !name.startsWith(checkpointFolder(draft.number))))
        cluster.count('increment');
    }
    cluster.traffic.checkSaved(draft, contents);
    if (!draft.barrier || this.unheld.has(attempt) || cluster.overwhelmed) return;
    cluster.count('instant');
    this.instants.add(draft);
    cluster.traffic.checkInstant(draft, contents);
  }

  private load(segments: readonly SegmentRef[], position: number): SavedContent {
    const tables: SavedContent['tables'] = new Map();
    let sessions: DedupEntry[] | undefined;
    for (const { name, bytes, sha256 } of segments) {
      const file = this.files.get(name);
      if (!file || file.torn || file.bytes !== bytes || file.sha256 !== sha256)
        throw new Violation(`a manifest lists ${name}, which is not stored`);
      for (const [table, { rows, removed }] of file.tables) {
        const known = tables.get(table) ?? new Map<bigint, Float32Array>();
        tables.set(table, known);
        for (const key of removed) if (known.delete(key)) this.cluster.count('removed');
        for (const { key, row } of rows) known.set(key, row);
      }
      sessions = file.position === position ? file.sessions : undefined;
    }
    if (!sessions) throw new Violation('the last file of a shard has no sessions of its position');
    return { tables, sessions };
  }
}

/** The part of a file's name that all files of one snapshot have in common. */
function snapshotOf(name: string): string {
  return name.slice(0, name.lastIndexOf('-'));
}

function segmentOf({ tables, sessions, position }: StoreEffect): StoredSegment {
  const rows = new Map<string, SegmentTable>();
  let bytes = 0;
  let hash = 0x811c9dc5;
  const mix = (word: number) => {
    hash = Math.imul(hash ^ word, 0x01000193);
    bytes += 4;
  };
  for (const { name, keys, values, state, removed = [], filter } of tables) {
    const gone = removed.flatMap((some) => [...some]);
    for (const key of gone) mix(Number(key & 0xffff_ffffn));
    const list: { key: bigint; row: Float32Array }[] = [];
    for (const [chunk, some] of keys.entries()) {
      const [count, dim, width] = [some.length, values[chunk]!.length, state[chunk]!.length];
      for (const [i, key] of some.entries()) {
        const row = new Float32Array((dim + width) / count);
        row.set(values[chunk]!.subarray((i * dim) / count, ((i + 1) * dim) / count));
        row.set(state[chunk]!.subarray((i * width) / count, ((i + 1) * width) / count), dim / count);
        list.push({ key, row });
        mix(Number(key & 0xffff_ffffn));
        for (const word of wordsOf(row)) mix(word);
      }
    }
    rows.set(name, {
      dim: keys.length > 0 ? values[0]!.length / keys[0]!.length : 0,
      rows: list,
      removed: gone,
      filter: filter && {
        state: filter.state,
        slots: BigUint64Array.from(filter.slots.flatMap((some) => [...some])),
        counters: Uint8Array.from(filter.counters.flatMap((some) => [...some])),
      },
    });
    for (const some of filter?.counters ?? []) for (const count of some) mix(count);
  }
  if (sessions) for (const char of JSON.stringify(sessions)) mix(char.charCodeAt(0));
  const sha256 = (hash >>> 0).toString(16);
  return { tables: rows, sessions, position, bytes, sha256, torn: false };
}

/** The answer to a PS that reads a file: its arrays are views of the bytes of the file. */
function contentOf({ tables, sessions }: StoredSegment): Omit<FetchedFile, 'kind' | 'token'> {
  const floats = (rows: SegmentTable['rows'], from: number, to?: number): Float32Array => {
    const parts = rows.map(({ row }) => row.subarray(from, to));
    const all = new Float32Array(parts.reduce((sum, { length }) => sum + length, 0));
    for (const [i, part] of parts.entries()) all.set(part, i * part.length);
    return all;
  };
  const read = [...tables].map(([name, { dim, rows, removed, filter }]) => ({
    name,
    keys: BigUint64Array.from(rows, ({ key }) => key),
    values: floats(rows, 0, dim),
    state: floats(rows, dim),
    removed: BigUint64Array.from(removed),
    filter: filter && { ...filter },
  }));
  const padded = (bytes: number): number => Math.ceil(bytes / 8) * 8;
  const arrays = read.flatMap(({ keys, values, state, removed, filter }) => [
    ...[keys, values, state, removed],
    ...(filter ? [filter.slots, filter.counters] : []),
  ]);
  const content = new Uint8Array(arrays.reduce((sum, { byteLength }) => sum + padded(byteLength), 0));
  let at = 0;
  const inside = <A extends Uint8Array | Float32Array | BigUint64Array>(array: A): A => {
    const { buffer, byteOffset, byteLength, length } = array;
    content.set(new Uint8Array(buffer, byteOffset, byteLength), at);
    const Kind = array.constructor as new (buffer: ArrayBuffer, at: number, length: number) => A;
    const view = new Kind(content.buffer, at, length);
    at += padded(byteLength);
    return view;
  };
  for (const table of read) {
    for (const part of ['values', 'state'] as const) table[part] = inside(table[part]);
    for (const part of ['keys', 'removed'] as const) table[part] = inside(table[part]);
    const { filter } = table;
    if (filter) [filter.slots, filter.counters] = [inside(filter.slots), inside(filter.counters)];
  }
  return { tables: read, content, ...(sessions && { sessions }) };
}

function wordsOf(row: Float32Array): Uint32Array {
  return new Uint32Array(row.buffer, row.byteOffset, row.length);
}

/** Checks that the saved content has every row of the taken one, bit for bit, and no other row. */
function compare(what: string, { tables }: SavedContent, taken: EngineContent): void {
  for (const [table, rows] of taken) {
    const saved = tables.get(table) ?? new Map<bigint, Float32Array>();
    if (saved.size !== rows.size)
      throw new Violation(`${what}: ${saved.size} rows of ${table}, the shard had ${rows.size}`);
    for (const [key, row] of rows) {
      const other = saved.get(key);
      const words = wordsOf(row);
      if (!other || wordsOf(other).some((word, i) => word !== words[i]))
        throw new Violation(`${what}: a row of ${table} is not what it was at its position`);
    }
  }
}

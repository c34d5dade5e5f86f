/**
 * One attempt to carry out a save plan: which shards are saved, who is to be asked for the others, and the
 * manifest when it has them all.
 */
import type { CheckpointDraft, SavedShard } from '../../../protocol/checkpoints.js';
import { checkpointFolder } from '../../../protocol/checkpoints.js';
import { shardKey } from '../../../protocol/items.js';
import type { ClusterMap, PeerId } from '../../../protocol/map.js';
import type { MessageOf } from '../../../protocol/messages.js';
import type { Cut } from '../samples/cut.js';
import type { DurableState, StoredPlan } from '../state.js';
import type { Barrier } from './barrier.js';
import type { ChainSegment, Chains } from './chains.js';

/** A client's request for a checkpoint. */
export interface CheckpointRequest {
  peer: PeerId;
  id: number;
  /** True: an attempt has failed already, because its number was taken. */
  again?: boolean;
}

export class Attempt {
  /** Part of the names of its files, so that no two attempts write the same file. */
  readonly hex: string;
  /** Number of the checkpoint. */
  readonly number: number;
  /**
   * Ids of the chosen tables of an export; undefined: all. Tables that come later are in the next export:
   * shards that are saved by then do not have them.
   */
  private readonly tables: readonly number[] | undefined;
  /** Milliseconds of the last question to owners. */
  askedAt = Number.NEGATIVE_INFINITY;
  /** Milliseconds of the last progress. */
  progressAt: number;
  /** True: the manifest is at the place, or under way there. */
  publishing = false;
  /** Pools, tables and the number of shards of the draft: with others an export is another one. */
  shape: string | undefined;
  /** Samples of a full job as they were when the first shard was asked for; undefined before that. */
  cut: Cut | undefined;
  /** Milliseconds for which clients waited; undefined: without a barrier, or until all shards have begun. */
  pausedMs: number | undefined;
  /** Generations of the shards whose snapshots have begun behind the barrier, by `shardKey`. */
  private readonly begun = new Map<number, number>();
  /** Saved shards, by `shardKey`. */
  private readonly saved = new Map<number, ChainSegment>();
  /**
   * Bytes that a shard still had to save, the lowest ever reported: only fewer count as progress. By
   * `shardKey`.
   */
  private readonly left = new Map<number, number>();

  constructor(
    readonly id: number,
    readonly plan: StoredPlan,
    { job, tables }: ClusterMap,
    private readonly chains: Chains,
    readonly startedAt: number,
    readonly waiting: readonly CheckpointRequest[],
    /** The barrier that all clients are behind before a shard is saved; undefined: the cut needs none. */
    readonly barrier: Barrier | undefined,
  ) {
    this.number = plan.next;
    this.hex = hash(`${job}/${id}`).toString(16).padStart(8, '0');
    this.progressAt = startedAt;
    const { tables: chosen } = plan;
    this.tables = chosen && tables.filter(({ name }) => chosen.includes(name)).map((table) => table.id);
    chains.choose(this.tables);
  }

  /** Messages to the owners of shards that are not saved. A shard without an owner waits for one. */
  questions({ epoch, groups }: ClusterMap): Map<PeerId, MessageOf<'saveShards'>> {
    const { id, plan, chains, tables } = this;
    const { url, kind, rate, served } = plan;
    const prefix = `${checkpointFolder(this.number)}/${this.hex}`;
    const questions = new Map<PeerId, MessageOf<'saveShards'>>();
    for (const { id: g, data } of groups) {
      for (const [m, { node, gen }] of data.entries()) {
        if (node === 0 || this.saved.has(shardKey(g, m))) continue;
        let question = questions.get(node);
        if (!question) {
          const what = {
            url,
            prefix,
            kind,
            rate,
            ...(tables && { tables: [...tables] }),
            ...(served && { served }),
          };
          question = { t: 'saveShards', epoch, id, ...what, barrier: this.barrier !== undefined, shards: [] };
          questions.set(node, question);
        }
        question.shards.push([g, m, gen, chains.since(g, m, gen)]);
      }
    }
    return questions;
  }

  savedShard(saved: ChainSegment, now: number): void {
    this.saved.set(shardKey(saved.g, saved.m), saved);
    this.noteBegun(saved.g, saved.m, saved.gen);
    this.progressAt = now;
  }

  /** Notes the bytes that are left. Progress is a shard with fewer bytes left than ever before. */
  progress({ items }: MessageOf<'saveProgress'>, now: number): void {
    for (const [g, m, gen, left] of items) {
      this.noteBegun(g, m, gen);
      const least = this.left.get(shardKey(g, m));
      if (least === undefined || left < least) this.progressAt = now;
      this.left.set(shardKey(g, m), Math.min(least ?? left, left));
    }
  }

  get savedShards(): number {
    return this.saved.size;
  }

  private noteBegun(g: number, m: number, gen: number): void {
    if (this.barrier && !this.barrier.isOver) this.begun.set(shardKey(g, m), gen);
  }

  /** True: every shard has begun at its owner of the map, or was saved by an earlier owner. */
  hasBegun({ groups }: ClusterMap): boolean {
    return groups.every(({ id, data }) =>
      data.every(({ gen }, m) => {
        const key = shardKey(id, m);
        return this.saved.has(key) || this.begun.get(key) === gen;
      }),
    );
  }

  /**
   * True if clients push again and a shard has another owner than at the cut: its snapshot would be of a
   * later moment.
   */
  isLate({ groups }: ClusterMap): boolean {
    if (!this.barrier?.isOver) return false;
    return groups.some(({ id, data }) =>
      data.some(({ gen }, m) => {
        const key = shardKey(id, m);
        return !this.saved.has(key) && this.begun.get(key) !== gen;
      }),
    );
  }

  isComplete({ groups }: ClusterMap): boolean {
    return groups.every(({ id, data }) => data.every((_, m) => this.saved.has(shardKey(id, m))));
  }

  /**
   * True of an export that has what the newest one has: no shard has a new file, and each adds to the one
   * before, or has no rows, as before. A full job has samples and sessions besides, which change without
   * rows.
   */
  get isUnchanged(): boolean {
    const same = ({ g, m, since, segments }: ChainSegment) =>
      segments.length === 0 && (since > 0 || this.chains.rows(g, m) === 0);
    return this.plan.kind === 'export' && [...this.saved.values()].every(same);
  }

  draft(state: DurableState): Omit<CheckpointDraft, 'createdAt'> {
    const { pools, groups, tables, job, lastTable } = state.map;
    const { kind } = this.plan;
    const shards = groups.flatMap(({ id: g, pool: index, data }) =>
      data.map((_, m): SavedShard => {
        const saved = this.saved.get(shardKey(g, m))!;
        const { name: pool, k, firstGroup } = pools[index]!;
        const where = { pool, shard: (g - firstGroup) * k + m, group: g, member: m };
        const { position, segments } = this.chains.content(saved);
        return { ...where, position, since: saved.since, segments };
      }),
    );
    return {
      ...{ number: this.number, kind, attempt: this.hex, job, pools },
      barrier: this.barrier !== undefined,
      tables: tables
        .filter(({ id }) => !this.tables || this.tables.includes(id))
        .map(({ id: _, ...table }) => table),
      ...(lastTable !== undefined && { lastTable }),
      ...(this.cut && { samples: this.cut.result(state) }),
      shards,
    };
  }

  /** The manifest is stored: the next checkpoint adds to this one. */
  published(): void {
    this.chains.accept(this.saved.values());
  }

  /** Rows and bytes of the files that are new in it. */
  get sums(): { rows: number; bytes: number } {
    const all = [...this.saved.values()].flatMap(({ segments }) => segments);
    const sum = (of: (segment: (typeof all)[number]) => number) =>
      all.reduce((total, each) => total + of(each), 0);
    return { rows: sum(([, , , rows]) => rows), bytes: sum(([, bytes]) => bytes) };
  }
}

/** FNV-1a with a final mix, u32. */
function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193);
  value = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  return (value ^ (value >>> 13)) >>> 0;
}

/**
 * The oracle knows the right content of all rows from the pushes alone. Each writer (a client, or a range of
 * samples) owns one row per shard; its n-th push there adds 2^n, so the row is a bit mask of the pushes that
 * were applied: a lost push leaves a hole, a repeated one carries. The rows of every other table of the pool
 * follow from these pushes, bit for bit. Every push also adds to a shared row, whose final value is the sum
 * over the pushes in the masks.
 *
 * Only its bit tells whether a push was applied that failed, or whose client died.
 */
import { isTombstone } from '../core/shared/dedup.js';
import type { NativeShard } from '../engine/native.js';
import type { OptimizerKind } from '../engine/optimizers.js';
import type { PeerId } from '../protocol/map.js';
import type { DedupEntry } from '../protocol/messages.js';
import { CrowdedRows } from './crowds.js';
import type { Droppers } from './droppers.js';
import { LEARNERS, type Learner, sightingsOf } from './learners.js';
import { lifeOf, livingProblem } from './living.js';
import { RANGES, rowsOf, type SimulatedSections, type Store } from './sections.js';
import type { SetCounts, Setters } from './setters.js';
import { bit } from './tables.js';
import { Violation } from './violation.js';

/** Bound of shard numbers of all pools in the simulator; `place` has the writer's number above. */
const MAX_SHARDS = 1024;
const MAX_MEMBERS = 32;

function place(writer: number, shard: number): number {
  return writer * MAX_SHARDS + shard;
}

/** A data shard among those of all pools. */
export function shardOf(g: number, m: number): number {
  return g * MAX_MEMBERS + m;
}

interface KnownPush {
  ticket: number;
  shared: bigint;
  amount: number;
  /** Process of the writer: its gradients go to one row, in the order of their numbers. */
  process: number;
  /** Settings that were set when it began, and policies. */
  since: number;
  governed: number;
  /** Life of the table that is dropped, if the push names it. */
  life?: number | undefined;
}

/** A shard of a checkpoint. */
export interface SavedShardRows {
  g: number;
  m: number;
  sessions: readonly DedupEntry[];
  /** The bit mask of a writer's row in the main table. */
  maskOf(writer: number): number;
}

type LivingCheck = [
  ...[table: string, learner: Learner, dim: number, writer: { owner: number; process: number }],
  ...[shard: number, row: Float32Array, mask: number],
];
type RowCheck = [table: string, owner: number, shard: number, row: Float32Array, mask: number];
type LifeCheck = [...RowCheck, life: number];

function countBits(mask: number): number {
  let count = 0;
  for (let rest = mask; rest > 0; rest = Math.floor(rest / 2)) if (rest % 2 === 1) count++;
  return count;
}

export class Oracle {
  /** Place -> all pushes that were begun; the first one has number 1. */
  private readonly sent = new Map<number, KnownPush[]>();
  /** Place -> pushes that were acknowledged to the writer. */
  private readonly acked = new Map<number, number>();
  /** Place -> pushes that were acknowledged to earlier processes of a client. */
  private readonly before = new Map<number, number>();
  /** Tickets whose pushes may have been applied or not. */
  private readonly doubtful = new Set<number>();
  /** "shard/ticket" of pushes that may have been applied in this shard or not. */
  private readonly doubtfulAt = new Set<string>();
  /** Shards that may not know all numbers that were used. */
  private readonly rewound = new Set<number>();
  /** Rows that were compared with the reference of their optimizer, by its kind, and those that were gone. */
  readonly compared = new Map<OptimizerKind | 'expired' | 'displaced' | 'waiting', number>();

  constructor(
    private readonly sections: SimulatedSections,
    private readonly setters: Pick<Setters, 'settings' | 'governors'>,
    private readonly droppers: Pick<Droppers, 'isEnding'>,
  ) {}

  /** Notes the writer's next push to a shard. Returns its number, from 1. */
  begin(writer: number, shard: number, push: Omit<KnownPush, 'since' | 'governed'>): number {
    const key = place(writer, shard);
    const pushes = this.sent.get(key) ?? [];
    this.sent.set(key, pushes);
    const { settings, governors } = this.setters;
    return pushes.push({ ...push, since: settings.told, governed: governors.told });
  }

  /** The job goes on from a state in which so many are set. */
  rewindSettings({ settings, policies }: SetCounts): void {
    for (const push of [...this.sent.values()].flat()) {
      push.since = Math.min(push.since, settings);
      push.governed = Math.min(push.governed, policies);
    }
  }

  /** Notes that nobody was told whether the pushes of this ticket were applied. */
  doubt(ticket: number): void {
    this.doubtful.add(ticket);
  }

  /** Notes that the next process of a client counts acknowledgements from 0. */
  countAgain(writer: number): void {
    for (const [key, count] of this.acked)
      if (Math.floor(key / MAX_SHARDS) === writer) this.before.set(key, count);
  }

  /**
   * The job is restored from a checkpoint: pushes that are not in its rows never were, and the others are
   * durable. `maskOf`: the row of a writer in a shard. `repeats`: true for writers that push the rest again.
   */
  rewind(maskOf: (writer: number, shard: number) => number, repeats: (writer: number) => boolean): void {
    for (const [key, pushes] of this.sent) {
      const [writer, shard] = [Math.floor(key / MAX_SHARDS), key % MAX_SHARDS];
      const mask = maskOf(writer, shard);
      this.acked.set(key, countBits(mask));
      if (repeats(writer)) continue;
      this.before.set(key, countBits(mask));
      for (const [i, { ticket }] of pushes.entries())
        if ((mask & bit(i + 1)) === 0) this.doubtful.add(ticket);
    }
  }

  private isDoubtful(shard: number, ticket: number): boolean {
    return this.doubtful.has(ticket) || this.doubtfulAt.has(`${shard}/${ticket}`);
  }

  /** Notes that the shard does not know the numbers of the pushes in its rows. */
  forgetNumbers(shard: number): void {
    this.rewound.add(shard);
  }

  /**
   * A running job loads a lost shard. It has the pushes that the checkpoint has, and any part of the later
   * ones. A push that was not acknowledged may be acknowledged although it is not applied anew.
   */
  reload(shard: number, maskOf: (writer: number) => number): void {
    this.rewound.add(shard);
    for (const [key, pushes] of this.sent) {
      if (key % MAX_SHARDS !== shard) continue;
      const writer = Math.floor(key / MAX_SHARDS);
      const mask = maskOf(writer);
      const acked = this.acked.get(key) ?? 0;
      // Ranges count whole batches: a push may have been acknowledged before its batch was.
      const untold = writer >= RANGES ? pushes.length - acked : 0;
      // Below 0 where more acknowledgements may come than the rows have pushes.
      const sure = countBits(mask) - Math.max(0, pushes.length - acked);
      this.acked.set(key, Math.max(0, sure));
      this.before.set(key, (this.before.get(key) ?? 0) + sure - acked - untold);
      for (const [i, { ticket }] of pushes.entries())
        if ((mask & bit(i + 1)) === 0) this.doubtfulAt.add(`${shard}/${ticket}`);
    }
  }

  acknowledge(writer: number, shard: number, count: number): void {
    const key = place(writer, shard);
    this.acked.set(key, Math.max(0, (this.before.get(key) ?? 0) + count));
  }

  acknowledged(writer: number, shard: number): number {
    return this.acked.get(place(writer, shard)) ?? 0;
  }

  /**
   * Checks the rows of a pull of `Sections.pull`, while pushes are under way. `sliced`: the row of a table
   * may be of a later moment than those of the tables before it.
   */
  checkPulled(
    { tables }: Store,
    writer: { owner: number; process: number },
    shard: number,
    rows: Uint8Array,
    acknowledged: number,
    sliced: boolean,
  ): void {
    const found = rowsOf(
      rows,
      tables.map(({ dim }) => dim),
    );
    let mask = this.checkOwnRow(writer.owner, shard, found[0]!, acknowledged);
    for (const [i, table] of tables.entries()) {
      if (i === 0) continue;
      const check = (at: number) => this.checkTable(table, writer, shard, found[i]!, at, acknowledged);
      if (sliced) mask = this.firstThat(check, writer.owner, shard, mask);
      else check(mask);
    }
  }

  private checkTable(
    { name, learner, dim, settable, life }: Store['tables'][number],
    writer: { owner: number; process: number },
    shard: number,
    row: Float32Array,
    mask: number,
    acknowledged: number,
  ): void {
    if (settable) return this.checkSettings(name, writer.owner, shard, row, mask, acknowledged);
    if (life !== undefined) return this.checkLife(name, writer.owner, shard, row, mask, life);
    if (learner?.policy) return this.checkLiving(name, learner, dim, writer, shard, row, mask);
    const expected = learner
      ? this.learnt(learner, dim, writer, shard, mask).subarray(0, dim)
      : new Float32Array(dim).fill(mask);
    this.compare(name, shard, row, expected);
  }

  /**
   * The earliest state of a writer's row from `mask` on that passes the check. What is doubtful may come
   * after later pushes: an earlier process of the client has sent it.
   */
  private firstThat(check: (mask: number) => void, owner: number, shard: number, mask: number): number {
    let states = [mask];
    let error: unknown;
    for (const push of [undefined, ...(this.sent.get(place(owner, shard)) ?? []).entries()]) {
      if (push) {
        const [i, { ticket }] = push;
        if ((mask & bit(i + 1)) !== 0) continue;
        const next = states.map((state) => state + bit(i + 1));
        states = this.isDoubtful(shard, ticket) ? [...states, ...next] : next;
      }
      for (const state of states) {
        try {
          check(state);
          return state;
        } catch (found) {
          if (!(found instanceof Violation)) throw found;
          error ??= found;
        }
      }
    }
    throw error;
  }

  private checkSettings(...[table, owner, shard, row, mask, durable]: [...RowCheck, durable?: number]): void {
    const pushes = this.sent.get(place(owner, shard)) ?? [];
    this.setters.settings.check(`table ${table} writer ${owner} shard ${shard}`, row, mask, pushes, durable);
  }

  /** A row of the table that is dropped has the pushes that named this life of it, and no others. */
  private checkLife(...[table, owner, shard, row, mask, life]: LifeCheck): void {
    if (this.droppers.isEnding(life)) return;
    let sum = 0;
    for (const [i, push] of (this.sent.get(place(owner, shard)) ?? []).entries())
      if (push.life === life && (mask & bit(i + 1)) !== 0) sum += bit(i + 1);
    this.compare(`${table} life ${life}`, shard, row, new Float32Array(row.length).fill(sum));
  }

  private learnt(
    learner: Learner,
    dim: number,
    { owner, process }: { owner: number; process: number },
    shard: number,
    mask: number,
  ): Float32Array {
    const { kind } = learner.optimizer;
    this.compared.set(kind, (this.compared.get(kind) ?? 0) + 1);
    return learner.row(dim, this.numbersOf(owner, process, shard, mask));
  }

  /** Numbers of the pushes of a process that are in the mask. */
  private numbersOf(owner: number, process: number, shard: number, mask: number): number[] {
    const numbers: number[] = [];
    for (const [i, push] of (this.sent.get(place(owner, shard)) ?? []).entries())
      if (push.process === process && (mask & bit(i + 1)) !== 0) numbers.push(i + 1);
    return numbers;
  }

  private checkLiving(...[table, learner, dim, { owner, process }, shard, row, mask]: LivingCheck): void {
    const numbers = this.numbersOf(owner, process, shard, mask);
    const pushes = this.sent.get(place(owner, shard)) ?? [];
    const since = Math.max(0, ...numbers.map((number) => pushes[number - 1]!.governed));
    const policies = learner === LEARNERS.e ? this.setters.governors.possible(since) : [learner.policy!];
    const problem = livingProblem(learner, policies, dim, numbers, row);
    if (problem) throw new Violation(`table ${table} writer ${owner} shard ${shard}: ${problem}`);
  }

  private compare(table: string, shard: number, found: Float32Array, expected: Float32Array): void {
    for (let i = 0; i < expected.length; i++) {
      if (Object.is(found[i], expected[i])) continue;
      throw new Violation(
        `table ${table} shard ${shard}: column ${i} holds ${found[i]}, pushes give ${expected[i]}`,
      );
    }
  }

  /**
   * Checks a row of the main table: it has all pushes up to some push, and at least as many as were
   * acknowledged. `whole`: no push is under way. Returns the mask.
   */
  private checkOwnRow(
    writer: number,
    shard: number,
    row: Float32Array,
    acknowledged: number,
    whole = false,
  ): number {
    const mask = row[0]!;
    const who = `writer ${writer} shard ${shard}`;
    for (let i = 1; i < row.length; i++) if (row[i] !== mask) throw new Violation(`${who}: a torn row`);
    const pushes = this.sent.get(place(writer, shard)) ?? [];
    const possible = Number.isInteger(mask) && mask >= 0 && mask % 2 === 0 && mask < bit(pushes.length + 1);
    const upTo = whole ? pushes.length : Math.floor(Math.log2(Math.max(1, mask)));
    let applied = 0;
    let missing = !possible;
    for (const [i, { ticket }] of pushes.entries()) {
      if ((mask & bit(i + 1)) !== 0) applied++;
      else if (i < upTo && !this.isDoubtful(shard, ticket)) missing = true;
    }
    if (missing) throw new Violation(`${who}: read ${mask}, which ${pushes.length} pushes do not give`);
    if (applied < acknowledged)
      throw new Violation(`${who}: ${acknowledged} pushes acknowledged, ${applied} in the row`);
    return mask;
  }

  /**
   * Checks that de-duplication state and rows of a shard are of one position: the numbers of a session are
   * those of the pushes in the rows and of refused ones. `sessionOf`: process -> session.
   */
  checkSessions({ g, m, sessions, maskOf }: SavedShardRows, sessionOf: ReadonlyMap<number, PeerId>): void {
    const ended = sessions.filter((entry) => isTombstone(entry));
    for (const [key, pushes] of this.sent) {
      if (key % MAX_SHARDS !== shardOf(g, m)) continue;
      const mask = maskOf(Math.floor(key / MAX_SHARDS));
      for (const process of new Set(pushes.map((push) => push.process))) {
        const session = sessionOf.get(process);
        if (session === undefined || ended.some(([first, last]) => first <= session && session <= last))
          continue;
        const applied = pushes.filter(
          (push, i) => push.process === process && (mask & bit(i + 1)) !== 0,
        ).length;
        const entry = sessions.find((each) => !isTombstone(each) && each[0] === session);
        const refused = entry && !isTombstone(entry) ? entry[2].length : 0;
        if ((entry?.[1] ?? 0) === applied + refused) continue;
        if (this.rewound.has(shardOf(g, m)) && (!entry || entry[1] > applied + refused)) continue;
        throw new Violation(
          `shard ${g}/${m} of a checkpoint: ${applied} pushes of session ${session} are in the rows, ` +
            `and its last number is ${entry?.[1] ?? 0}`,
        );
      }
    }
  }

  /** Checks that every push of a client is in all of its shards or in none. */
  checkInstant(shards: readonly SavedShardRows[]): void {
    const masks = new Map(shards.map(({ g, m, maskOf }) => [shardOf(g, m), maskOf]));
    const inRows = new Map<number, boolean>();
    for (const [key, pushes] of this.sent) {
      const writer = Math.floor(key / MAX_SHARDS);
      if (writer >= RANGES) continue;
      const mask = masks.get(key % MAX_SHARDS)!(writer);
      for (const [i, { ticket }] of pushes.entries()) {
        const applied = (mask & bit(i + 1)) !== 0;
        if (!this.doubtful.has(ticket) && (inRows.get(ticket) ?? applied) !== applied)
          throw new Violation(`a checkpoint of one instant has a push of writer ${writer} in part`);
        inRows.set(ticket, applied);
      }
    }
  }

  /**
   * Checks a shard at rest: every push that was sent is there exactly once, with its optimizer state. `whole`
   * false: the job has lost other shards, and clients may still wait for those.
   */
  checkShard(store: Store, shard: NativeShard, g: number, m: number, whole: boolean): void {
    const { pool, tables } = store;
    const number = (g - pool.firstGroup) * pool.k + m;
    const here = shardOf(g, m);
    const read = (section: Uint8Array): Uint8Array => {
      const rows = shard.pull(section);
      if (typeof rows === 'number') throw new Violation(`shard ${g}/${m} cannot be read at rest: ${rows}`);
      return rows;
    };
    const sums = new Map<bigint, number>();
    const crowds = new Map(
      tables.flatMap((table) => (table.policy?.maxRows ? [[table, new CrowdedRows()]] : [])),
    );
    for (const [key, pushes] of this.sent) {
      if (key % MAX_SHARDS !== here) continue;
      const owner = Math.floor(key / MAX_SHARDS);
      const writers = [...new Set(pushes.map(({ process }) => process))].map((process) => ({
        owner,
        process,
      }));
      const floats = tables.map(({ dim, learner }) => (learner ? learner.width(dim) * writers.length : dim));
      const rows = rowsOf(read(this.sections.wholeRows(store, number, writers)), floats);
      const mask = this.checkOwnRow(owner, here, rows[0]!, this.acknowledged(owner, here), whole);
      for (const [i, { name, dim, learner, settable, life }] of tables.entries()) {
        if (i === 0) continue;
        if (life !== undefined) {
          this.checkLife(name, owner, here, rows[i]!, mask, life);
          continue;
        }
        if (settable) {
          this.checkSettings(name, owner, here, rows[i]!, mask);
          continue;
        }
        if (!learner) {
          this.compare(name, here, rows[i]!, new Float32Array(dim).fill(mask));
          continue;
        }
        const width = learner.width(dim);
        for (const [w, writer] of writers.entries()) {
          const row = rows[i]!.subarray(width * w, width * (w + 1));
          if (learner.policy) {
            this.checkLiving(name, learner, dim, writer, here, row, mask);
            const { sightings } = lifeOf(row);
            const all = sightingsOf(learner, this.numbersOf(owner, writer.process, here, mask));
            crowds.get(tables[i]!)?.add(row, all);
            if (sightings < all && learner.policy.bloom)
              this.compared.set('waiting', (this.compared.get('waiting') ?? 0) + 1);
            else if (sightings < all) this.compared.set('expired', (this.compared.get('expired') ?? 0) + 1);
            continue;
          }
          this.compare(name, here, row, this.learnt(learner, dim, writer, here, mask));
        }
      }
      for (const [i, { shared, amount }] of pushes.entries())
        sums.set(shared, (sums.get(shared) ?? 0) + ((mask & bit(i + 1)) !== 0 ? amount : 0));
    }
    for (const [{ name, policy }, crowd] of crowds) {
      const problem = crowd.problem(policy!, pool.k * pool.groups);
      if (problem) throw new Violation(`table ${name} of shard ${g}/${m}: ${problem}`);
      this.compared.set('displaced', (this.compared.get('displaced') ?? 0) + crowd.displaced);
    }
    for (const [key, sum] of sums) {
      const [row] = rowsOf(read(this.sections.sharedRow(store, key)), [tables[0]!.dim]);
      if (row![0] !== sum) throw new Violation(`shard ${g}/${m}: a shared row holds ${row![0]}, not ${sum}`);
    }
  }
}

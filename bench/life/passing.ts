/**
 * The end of rows by seconds: two tables get rows for a while that nobody pushes again. One has pushes to
 * other rows all the time, nobody pushes to the other one. Each row is late by the time from the end of its
 * ttl, counted from its last push, to the moment at which it reads as initial, or at which its slot is free.
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { Client } from '../../src/library/client/client.js';
import type { Table } from '../../src/library/client/options.js';
import { monotonicMs } from '../../src/net/log.js';
import { Random } from '../../src/sim/random.js';
import type { BenchReport } from '../common/report.js';
import type { LifeOptions } from './options.js';

const DIM = 4;
/** Rows that come at once, and the time between. */
const COMING = 32;
const COMING_MS = 100;
/** The part of a ttl in which rows come. */
const COMING_PART = 0.2;
/** Rows of the table with pushes that stay. */
const STAYING = 20_000;
const STAYING_A_PUSH = 512;
/** A row may be late by this part of its ttl, or by a second, which is what time is counted in. */
const LATE = 0.02;
/** Seconds pass with the ticks of a scheduler: a row may be gone this part of one before its ttl. */
const TICK_MS = 100;
/** Rows that are not gone so long after their ttl are not waited for. */
const LOST_MS = 10_000;
/** The time between two looks. */
const LOOK_MS = 10;
/** Keys of rows that come: a number, and that of their cohort above. Those that stay are below all. */
const COHORT_BITS = 20n;

const SIDES = ['under load', 'idle'] as const;

/** Rows that came in one push, with the milliseconds at which it was begun and acknowledged. */
interface TimedCohort {
  keys: BigUint64Array;
  sent: number;
  acknowledged: number;
  /** Slots of it that are free. */
  freed: number;
}

/** A table, and what was seen of its rows. */
interface PassingTable {
  table: Table;
  cohorts: TimedCohort[];
  /** Milliseconds after the ttl at which whole cohorts read as gone, and at which they were told to be. */
  read: number[];
  freed: number[];
  /** Rows that read as gone, or were told to be, a tick before their ttl. */
  early: number;
  /** The most milliseconds by which a row was gone before its ttl. */
  earliest: number;
  gaps: number;
}

export class Passing {
  private readonly random = new Random(5);
  private readonly ttlMs: number;
  private over = false;

  constructor(
    private readonly options: LifeOptions,
    private readonly client: Client,
  ) {
    this.ttlMs = options.ttlSeconds * 1000;
  }

  async run(report: BenchReport): Promise<void> {
    const sides = await Promise.all(SIDES.map((name) => this.create(name)));
    const stop = new AbortController();
    const telling = sides.map((side) => this.hear(side, stop.signal));
    const pushing = this.load(sides[0]!.table);
    const until = monotonicMs() + this.ttlMs * COMING_PART;
    while (monotonicMs() < until) {
      await Promise.all(sides.map((side) => this.come(side)));
      await pause(COMING_MS);
    }
    this.options.tell(`${sides[0]!.cohorts.length} pushes with new rows to each table, and a ttl of seconds`);
    await Promise.all(sides.map((side) => this.watch(side)));
    this.over = true;
    stop.abort();
    await Promise.all([pushing, ...telling]);
    for (const [i, side] of sides.entries()) this.judge(SIDES[i]!, side, report);
  }

  private async create(name: string): Promise<PassingTable> {
    const { ttlSeconds } = this.options;
    const table = await this.client.createTable({
      ...{
        name: `seconds ${name}`,
        dim: DIM,
        initializer: { kind: 'zeros' },
        optimizer: { kind: 'sgd', lr: -1 },
      },
      policy: { ttl: ttlSeconds, clock: 'seconds' },
    });
    return { table, cohorts: [], read: [], freed: [], early: 0, earliest: 0, gaps: 0 };
  }

  private async push(table: Table, keys: BigUint64Array): Promise<void> {
    await table.push(keys, new Float32Array(keys.length * DIM).fill(1));
  }

  /** Pushes to rows that stay, until all is over. */
  private async load(table: Table): Promise<void> {
    while (!this.over) {
      const keys = BigUint64Array.from({ length: STAYING_A_PUSH }, () => BigInt(this.random.below(STAYING)));
      await this.push(table, keys);
    }
  }

  private async come({ table, cohorts }: PassingTable): Promise<void> {
    const number = BigInt(cohorts.length + 1) << COHORT_BITS;
    const keys = BigUint64Array.from({ length: COMING }, (_, i) => number + BigInt(i));
    const cohort = { keys, sent: monotonicMs(), acknowledged: Number.POSITIVE_INFINITY, freed: 0 };
    cohorts.push(cohort);
    await this.push(table, keys);
    cohort.acknowledged = monotonicMs();
  }

  /** Takes the keys that are told to have left. */
  private async hear(side: PassingTable, signal: AbortSignal): Promise<void> {
    try {
      for await (const { keys, gap } of side.table.evictions({ pollMs: LOOK_MS, signal })) {
        const now = monotonicMs();
        if (gap) side.gaps++;
        for (const key of keys) {
          const cohort = side.cohorts[Number(key >> COHORT_BITS) - 1];
          if (!cohort) continue;
          this.noteEarly(side, 1, cohort.sent + this.ttlMs - now);
          if (++cohort.freed === COMING) side.freed.push(now - cohort.acknowledged - this.ttlMs);
        }
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  /** Reads the cohorts that are due, until all are gone, or do not go. */
  private async watch(side: PassingTable): Promise<void> {
    const { table, cohorts } = side;
    const { ttlMs } = this;
    const reading = new Set(cohorts);
    const isOver = () => reading.size === 0 && side.freed.length === cohorts.length;
    const end = cohorts.at(-1)!.acknowledged + ttlMs + LOST_MS;
    while (!isOver() && monotonicMs() < end) {
      // From half a second before their time on: one that is gone too soon is seen.
      const now = monotonicMs();
      const due = [...reading].filter(({ sent }) => now > sent + ttlMs - 500);
      const found = await Promise.all(due.map(({ keys }) => table.pull(keys)));
      const answered = monotonicMs();
      for (const [i, rows] of found.entries()) {
        const cohort = due[i]!;
        let gone = 0;
        for (let row = 0; row < COMING; row++) if (rows[row * DIM] === 0) gone++;
        if (gone > 0) this.noteEarly(side, gone, cohort.sent + ttlMs - answered);
        if (gone < COMING) continue;
        side.read.push(answered - cohort.acknowledged - ttlMs);
        reading.delete(cohort);
      }
      await pause(LOOK_MS);
    }
  }

  /** `ms`: how long before its ttl, if that is not negative. */
  private noteEarly(side: PassingTable, rows: number, ms: number): void {
    side.earliest = Math.max(side.earliest, ms);
    if (ms > TICK_MS) side.early += rows;
  }

  private judge(name: string, side: PassingTable, report: BenchReport): void {
    const { cohorts, read, freed, early, earliest, gaps } = side;
    const most = Math.max(1, this.options.ttlSeconds * LATE);
    for (const [what, all] of [
      ['reads as gone', read],
      ['is freed', freed],
    ] as const) {
      const seconds = all.map((ms) => ms / 1000);
      const mean = seconds.reduce((sum, each) => sum + each, 0) / seconds.length;
      const latest = Math.max(...seconds);
      report.add({
        name: `by seconds, ${name}: a row ${what}`,
        unit: 's after its ttl',
        values: { mean, latest },
      });
      report.atMost(`by seconds, ${name}: a row ${what}, s after its ttl`, latest, most);
    }
    const values = { 'at most': earliest / 1000 };
    report.add({ name: `by seconds, ${name}: a row is gone`, unit: 's before its ttl', values });
    report.exactly(`by seconds, ${name}: pushes whose rows went`, read.length, cohorts.length);
    report.exactly(`by seconds, ${name}: pushes whose slots are free`, freed.length, cohorts.length);
    report.exactly(`by seconds, ${name}: rows that went a tick before their ttl`, early, 0);
    report.exactly(`by seconds, ${name}: gaps among keys that left`, gaps, 0);
  }
}

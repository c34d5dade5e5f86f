/**
 * The end of rows: a table gets rows in each step that nobody pushes again, beside rows that stay. Each step
 * is one push, and each shard sees every step, so the age of each row is known.
 */
import type { Client } from '../../src/library/client/client.js';
import type { Table } from '../../src/library/client/options.js';
import { saveNow, setSavePlan } from '../../src/library/tools/checkpoints.js';
import { Random } from '../../src/sim/random.js';
import { readManifest } from '../../src/stores/checkpoint/checkpoints.js';
import { liveRows } from '../../src/stores/checkpoint/live-rows.js';
import { openPlace } from '../../src/stores/checkpoint/open.js';
import type { BenchReport } from '../common/report.js';
import type { LifeOptions } from './options.js';

const DIM = 4;
/** Rows that stay, and those of them in each push: every shard has some. */
const STAYING = 20_000;
const STAYING_A_STEP = 512;
/** Rows that come in each step and are seen twice in it, and as many that are seen once. */
const COMING = 32;
/** A row may be gone later than its ttl by this part of it. */
const LATE = 0.02;
const NAME = 'aging';
const PLAN = 'life';
/** Keys of rows that come: their step, and a number. Those that stay are below all of them. */
const STEP_BITS = 20n;

type LifeReason = 'expired' | 'rare';

/** Rows of one step and one reason. */
interface Cohort {
  step: number;
  reason: LifeReason;
  keys: BigUint64Array;
}

const keyOf = (step: number, i: number): bigint => (BigInt(step) << STEP_BITS) + BigInt(i);

export class Aging {
  private readonly random = new Random(3);
  private readonly ttls: Record<LifeReason, number>;
  private readonly maxAge: number;
  private readonly staying: number;
  /** Steps of which every push was acknowledged. */
  private steps = 0;
  /** The last step with new rows. */
  private lastComing = 0;
  /** Cohorts that do not read as gone yet, the oldest first. */
  private readonly reading: Record<LifeReason, Cohort[]> = { expired: [], rare: [] };
  private early = 0;
  private late = 0;
  private gone = 0;
  private latest = 0;
  /** Rows that are gone and hold memory, of each look; those that should not any more. */
  private readonly held: number[] = [];
  private heldLate = 0;
  private heldUntil = 0;
  private exports = 0;
  private exported = 0;
  private old = 0;
  private missing = 0;

  constructor(
    private readonly options: LifeOptions,
    private readonly client: Client,
    private readonly table: Table,
    private readonly place: string,
  ) {
    const { ttl, smoke } = options;
    this.ttls = { expired: ttl, rare: Math.floor(ttl / 2) };
    this.maxAge = Math.floor(ttl / 4);
    this.staying = smoke ? STAYING / 20 : STAYING;
  }

  static async begin(options: LifeOptions, client: Client, place: string): Promise<Aging> {
    const { ttl } = options;
    const table = await client.createTable({
      ...{ name: NAME, dim: DIM, initializer: { kind: 'zeros' }, optimizer: { kind: 'sgd', lr: -1 } },
      policy: { ttl, minFrequency: { sightings: 2, ttl: Math.floor(ttl / 2) } },
    });
    return new Aging(options, client, table, place);
  }

  async run(report: BenchReport): Promise<void> {
    const { ttl, tell } = this.options;
    const served = { maxAge: this.maxAge };
    const plan = { url: this.place, everyMs: 0, keep: 2, rate: 0, kind: 'export', tables: [NAME], served };
    await this.push(Array.from({ length: this.staying }, (_, i) => BigInt(i)));
    await this.push(Array.from({ length: this.staying }, (_, i) => BigInt(i)));
    await setSavePlan(this.client, PLAN, plan as Parameters<typeof setSavePlan>[2]);
    let training = true;
    const exports = this.export(() => training);
    const steady = this.steps + Math.round(2.2 * ttl);
    while (this.steps < steady) await this.step(true);
    training = false;
    await exports;
    tell(`${this.steps} steps with new rows, ${this.exports} exports`);
    this.lastComing = this.steps;
    const end = this.steps + Math.ceil(1.3 * ttl);
    while (this.steps < end) await this.step(false);
    this.judge(report);
  }

  private async push(keys: readonly bigint[]): Promise<void> {
    await this.table.push(BigUint64Array.from(keys), new Float32Array(keys.length * DIM).fill(1));
    this.steps++;
  }

  private async step(coming: boolean): Promise<void> {
    const step = this.steps + 1;
    const keys = Array.from({ length: STAYING_A_STEP }, () => BigInt(this.random.below(this.staying)));
    if (coming) {
      const cohort = (reason: LifeReason, from: number): Cohort => ({
        ...{ step, reason },
        keys: BigUint64Array.from({ length: COMING }, (_, i) => keyOf(step, from + i)),
      });
      const [expired, rare] = [cohort('expired', 0), cohort('rare', COMING)];
      keys.push(...expired.keys, ...expired.keys, ...rare.keys);
      this.reading.expired.push(expired);
      this.reading.rare.push(rare);
    }
    await this.push(keys);
    await this.read();
    // Every tenth part of what a row may be late; each step at the end, when the last ones go.
    if (!coming || step % Math.max(1, Math.floor(this.options.ttl * LATE * 0.1)) === 0) await this.look();
  }

  /** Reads the rows that go in this step or the next, and those that did not go when they should have. */
  private async read(): Promise<void> {
    for (const reason of ['expired', 'rare'] as const) {
      const [ttl, cohorts] = [this.ttls[reason], this.reading[reason]];
      const due = cohorts.filter(({ step }) => this.steps - step >= ttl);
      if (due.length === 0) continue;
      const all = due.map(({ keys }) => this.table.pull(keys));
      for (const [i, rows] of (await Promise.all(all)).entries()) {
        const { step } = due[i]!;
        const age = this.steps - step;
        let alive = 0;
        for (let row = 0; row < COMING; row++) if (rows[row * DIM] !== 0) alive++;
        if (age <= ttl) this.early += COMING - alive;
        else if (age > ttl * (1 + LATE)) this.late += alive;
        if (alive > 0 || age <= ttl) continue;
        this.gone += COMING;
        this.latest = Math.max(this.latest, (age - ttl) / ttl);
        cohorts.splice(cohorts.indexOf(due[i]!), 1);
      }
    }
  }

  /** Rows of this age and younger that came, of one reason. */
  private upTo(age: number): number {
    const first = Math.max(3, this.steps - Math.floor(age));
    const last = this.lastComing || this.steps;
    return COMING * Math.max(0, last - first + 1);
  }

  private async look(): Promise<void> {
    const { nodes } = await this.client.observe();
    let rows = 0;
    for (const { telemetry } of nodes)
      for (const each of telemetry.tables) if (each.name === NAME) rows += each.rows;
    const { expired, rare } = this.ttls;
    const allowed = (late: number) =>
      this.staying + this.upTo(expired * (1 + late)) + this.upTo(rare * (1 + late));
    if (this.steps > expired * 1.2) this.held.push(rows - allowed(0));
    this.heldLate = Math.max(this.heldLate, rows - allowed(LATE));
    // After the last row that comes: when the last one of it is freed.
    if (this.lastComing && rows > this.staying) this.heldUntil = this.steps + 1 - this.lastComing;
  }

  /** Exports while `going`, each checked against the steps before and after it. */
  private async export(going: () => boolean): Promise<void> {
    const place = await openPlace(this.place);
    while (going()) {
      const before = this.steps;
      const { number } = await saveNow(this.client, PLAN);
      // One push is under way.
      const after = this.steps + 1;
      const manifest = await readManifest(place, number);
      const counts = new Map<number, number>();
      for (const shard of manifest.shards)
        for await (const { tables } of liveRows(place, manifest, shard))
          for (const { table, runs } of tables)
            for (const [first, end] of runs)
              for (const key of table.keys.subarray(first, end)) {
                const step = Number(key >> STEP_BITS);
                counts.set(step, (counts.get(step) ?? 0) + 1);
              }
      for (const [step, count] of counts) {
        this.exported += count;
        if (step > 0 && before - step > this.maxAge) this.old += count;
      }
      for (let step = Math.max(3, after - this.maxAge); step <= before; step++)
        this.missing += 2 * COMING - (counts.get(step) ?? 0);
      this.exports++;
    }
  }

  private judge(report: BenchReport): void {
    const { ttl } = this.options;
    const mean = this.held.reduce((sum, each) => sum + each, 0) / this.held.length;
    Object.assign(report.parameters, { steps: this.steps, exports: this.exports });
    report.add({
      name: 'a row reads as gone',
      unit: '% of its ttl after it',
      values: { 'at the latest': this.latest * 100 },
    });
    report.add({
      name: 'rows that are gone, in memory',
      unit: 'rows',
      values: { mean, most: Math.max(...this.held), 'came a step': 2 * COMING },
    });
    report.add({
      name: 'the last row is freed',
      unit: '% of the ttl after it',
      values: { after: (this.heldUntil / ttl - 1) * 100 },
    });
    report.add({ name: 'rows in exports', unit: 'rows', values: { all: this.exported } });
    report.exactly('rows that went', this.gone, 2 * COMING * (this.lastComing - 2));
    report.exactly('rows that read as gone before their ttl', this.early, 0);
    report.exactly('rows that do not read as gone 2 % after their ttl', this.late, 0);
    report.atMost('rows in memory 2 % after their ttl', this.heldLate, 0);
    report.exactly('rows in exports that are older than the threshold', this.old, 0);
    report.exactly('rows that exports should have and do not', this.missing, 0);
  }
}

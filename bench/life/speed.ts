/**
 * The price of a policy: requests for rows of tables with one, and for the same rows of a table without, in
 * turns. Then the same of policies, against one that counts steps. All have the same keys in the same order.
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { TablePolicy } from '../../src/engine/policies.js';
import { cpuSeconds } from '../../src/fleet/local/processor-time.js';
import { dataShardBytes, inShards } from '../../src/fleet/planner/memory.js';
import type { Client } from '../../src/library/client/client.js';
import type { Table } from '../../src/library/client/options.js';
import { monotonicMs } from '../../src/net/log.js';
import { Random } from '../../src/sim/random.js';
import type { BenchReport } from '../common/report.js';
import { median } from '../common/statistics.js';
import type { LifeOptions } from './options.js';

/** Requests that are under way at once, as a worker has them. */
const IN_FLIGHT = 4;
/** Batches that are made before anything is measured. */
const BATCHES = 64;
/** Part of the keys of a push that nobody has seen before, where there are such keys. */
const FRESH = 0.1;
/** Before each measurement, under its load; where rows go by seconds, until as many go as come. */
const WARM_MS = 200;
const WARM_SECONDS_MS = 2200;
const GOAL = 0.9;
/** Steps after which a row goes that comes no more: rows of the load do. */
const TTL = 2000;
const RARE_TTL = 200;
/** About as many as a table has in a second under load. */
const STEPS_A_SECOND = 1000;

const LOADS = ['pull', 'push', 'push, a tenth of new keys'] as const;
type LifeLoad = (typeof LOADS)[number];

/** Tables that take turns. */
interface LifeContest {
  /** In front of its results. */
  prefix: string;
  /** Policies by the names of their tables. The first is what the others are held against. */
  sides: Readonly<Record<string, TablePolicy | undefined>>;
  loads: readonly LifeLoad[];
  /** The least that the others do of it; undefined: that is not said. */
  goal?: number;
}

function contestsOf({ rows }: LifeOptions): readonly LifeContest[] {
  const evict = { ttl: TTL, minFrequency: { sightings: 2, ttl: RARE_TTL } };
  const rare = { sightings: 2, ttl: STEPS_A_SECOND };
  const steps = { ttl: TTL, minFrequency: rare };
  return [
    {
      prefix: '',
      sides: {
        without: undefined,
        policy: { ...evict, counter: 2 },
        filter: { ...evict, bloom: { sightings: 2 } },
      },
      loads: LOADS,
      goal: GOAL,
    },
    {
      prefix: 'policies: ',
      sides: {
        steps,
        // Rows of the load live through the turns of other tables.
        seconds: { ttl: 3600, minFrequency: { sightings: 2, ttl: 1 }, clock: 'seconds' },
        decay: { ...steps, minFrequency: { ...rare, decay: { factor: 0.99, every: TTL } } },
        keep: { ...steps, keep: rows },
      },
      loads: ['push', 'push, a tenth of new keys'],
    },
  ];
}

interface LifeRate {
  /** Keys per second. */
  rate: number;
  /** Seconds of a processor of all PS per million keys. */
  cpu: number;
}

/** Distinct random keys below `rows`. */
function distinctKeys(random: Random, count: number, rows: number): BigUint64Array {
  const keys = new Set<number>();
  while (keys.size < Math.min(count, rows)) keys.add(random.below(rows));
  return BigUint64Array.from(keys, BigInt);
}

export class LifeSpeed {
  private readonly batches: BigUint64Array[];
  private readonly gradients: Float32Array;
  /** The next key that nobody has seen, of each table that had such keys. */
  private readonly next = new Map<string, number>();

  constructor(
    private readonly options: LifeOptions,
    private readonly client: Client,
    private readonly pids: ReadonlyMap<string, number>,
  ) {
    const { batch, rows, dim } = options;
    const random = new Random(7);
    this.batches = Array.from({ length: BATCHES }, () => distinctKeys(random, batch, rows));
    this.gradients = Float32Array.from({ length: batch * dim }, (_, i) => Math.sin(i * 12.9898) * 0.1);
  }

  async run(report: BenchReport): Promise<void> {
    for (const contest of contestsOf(this.options)) await this.compete(contest, report);
  }

  private async compete(contest: LifeContest, report: BenchReport): Promise<void> {
    const { dim, rounds, tell } = this.options;
    const { prefix, loads } = contest;
    const tables = new Map<string, Table>();
    for (const [name, policy] of Object.entries(contest.sides))
      tables.set(name, await this.client.createTable({ name, dim, policy }));
    await this.weigh(tables, report, prefix);
    for (const load of loads) for (const table of tables.values()) await this.measure(load, table);
    const measured = new Map<string, LifeRate[]>();
    for (let round = 0; round < rounds; round++) {
      const first = round % tables.size;
      const all = [...tables];
      for (const load of loads) {
        for (const [side, table] of [...all.slice(first), ...all.slice(0, first)]) {
          const result = await this.measure(load, table);
          const key = `${load} ${side}`;
          measured.set(key, [...(measured.get(key) ?? []), result]);
          tell(`round ${round + 1}, ${prefix}${load}, ${side}: ${Math.round(result.rate)} keys/s`);
        }
      }
    }
    judge(contest, measured, report);
  }

  /** Fills all, and holds the bytes of each shard against those of a table as it was before policies. */
  private async weigh(tables: Map<string, Table>, report: BenchReport, prefix: string): Promise<void> {
    const { rows } = this.options;
    const { pools } = await this.client.status();
    const bytes: Record<string, number> = {};
    let unlike = 0;
    for (const [side, table] of tables) {
      const { dim, policy, pool } = table.spec;
      const { shards } = pools.find(({ name }) => name === pool)!;
      const shape = inShards({ dim, optimizer: 'adagrad', policy }, shards);
      const before = await this.shards();
      await this.fill(table, rows);
      const after = await this.shards();
      let all = 0;
      for (const [shard, now] of after) {
        const was = before.get(shard) ?? { rows: 0, bytes: 0 };
        const held = now.bytes - was.bytes;
        all += held;
        if (held !== dataShardBytes(now.rows - was.rows, shape)) unlike++;
      }
      bytes[side] = all / rows;
    }
    report.add({ name: `${prefix}bytes of a row, without parity`, unit: 'B', values: bytes });
    report.exactly(`${prefix}shards whose bytes are not those of the formula`, unlike, 0);
  }

  /** Rows and bytes of each data shard. */
  private async shards(): Promise<Map<string, { rows: number; bytes: number }>> {
    const { nodes } = await this.client.observe({ shards: true });
    const all = nodes.flatMap(({ telemetry }) => telemetry.shards ?? []);
    return new Map(all.map(({ g, m, rows, bytes }) => [`${g}.${m}`, { rows, bytes }]));
  }

  /** Each key is pushed twice, so that all are admitted, and rare to none. */
  private async fill(table: Table, rows: number): Promise<void> {
    const { batch, dim } = this.options;
    for (let first = 0; first < rows; first += batch) {
      const count = Math.min(batch, rows - first);
      const keys = BigUint64Array.from({ length: count }, (_, i) => BigInt(first + i));
      for (let time = 0; time < 2; time++) await table.push(keys, this.gradients.subarray(0, count * dim));
    }
  }

  private request(load: LifeLoad, table: Table, number: number): Promise<unknown> {
    const keys = this.batches[number % BATCHES]!;
    if (load === 'pull') return table.pull(keys);
    const gradients = this.gradients.subarray(0, keys.length * this.options.dim);
    if (load === 'push') return table.push(keys, gradients);
    const some = keys.slice();
    let next = this.next.get(table.name) ?? 2 ** 40;
    for (let i = 0; i < some.length * FRESH; i++) some[i] = BigInt(next++);
    this.next.set(table.name, next);
    return table.push(some, gradients);
  }

  private async measure(load: LifeLoad, table: Table): Promise<LifeRate> {
    const { seconds } = this.options;
    let [over, answered, number] = [false, 0, 0];
    const lane = async () => {
      while (!over) {
        const keys = this.batches[number % BATCHES]!.length;
        await this.request(load, table, number++);
        answered += keys;
      }
    };
    const lanes = Promise.all(Array.from({ length: IN_FLIGHT }, lane));
    const hasFlow = load === LOADS[2] && table.spec.policy?.clock === 'seconds';
    await Promise.race([pause(hasFlow ? WARM_SECONDS_MS : WARM_MS), lanes]);
    const [cpu, keys, from] = [this.psCpu(), answered, monotonicMs()];
    await Promise.race([pause(seconds * 1000), lanes]);
    const [used, done, took] = [this.psCpu() - cpu, answered - keys, monotonicMs() - from];
    over = true;
    await lanes;
    return { rate: done / (took / 1000), cpu: used / (done / 1e6) };
  }

  private psCpu(): number {
    let seconds = 0;
    for (const [name, pid] of this.pids) if (name.startsWith('ps-')) seconds += cpuSeconds(pid);
    return seconds;
  }
}

function judge(
  { prefix, sides, loads, goal }: LifeContest,
  measured: Map<string, LifeRate[]>,
  report: BenchReport,
) {
  const [base = '', ...compared] = Object.keys(sides);
  for (const load of loads) {
    const of = (side: string, field: keyof LifeRate) =>
      measured.get(`${load} ${side}`)!.map((each) => each[field]);
    const ratios = (side: string, field: keyof LifeRate) => {
      const first = of(base, field);
      const all = of(side, field).map((each, i) => each / first[i]!);
      return { median: median(all), least: Math.min(...all), most: Math.max(...all) };
    };
    const medians = (field: keyof LifeRate) =>
      Object.fromEntries(Object.keys(sides).map((side) => [side, median(of(side, field))]));
    const name = `${prefix}${load}`;
    report.add({ name, unit: 'keys/s', values: medians('rate') });
    report.add({ name: `${name}: CPU of PS`, unit: 's per M keys', values: medians('cpu') });
    for (const side of compared) {
      const rates = ratios(side, 'rate');
      report.add({ name: `${name}: ${side} of ${base}`, unit: '', values: rates });
      report.add({ name: `${name}: CPU, ${side} of ${base}`, unit: '', values: ratios(side, 'cpu') });
      if (goal !== undefined) report.goal(`${name}: ${side} of ${base}`, rates.median, goal);
    }
  }
}

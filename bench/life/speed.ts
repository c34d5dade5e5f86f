/**
 * The price of a policy: requests for rows of tables with one, and for the same rows of a table without, in
 * turns. All have the same keys in the same order.
 */
import { setTimeout as pause } from 'node:timers/promises';
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
/** Before each measurement, under its load. */
const WARM_MS = 200;
const GOAL = 0.9;
/** Steps after which a row goes that comes no more: rows of the load do. */
const TTL = 2000;
const RARE_TTL = 200;

/** Tables: without a policy, with words of life, and with a filter, too. */
const SIDES = ['without', 'policy', 'filter'] as const;
type LifeSide = (typeof SIDES)[number];
const COMPARED = SIDES.filter((side) => side !== 'without');
const LOADS = ['pull', 'push', 'push, a tenth of new keys'] as const;
type LifeLoad = (typeof LOADS)[number];

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
  private readonly measured = new Map<string, LifeRate[]>();
  private readonly batches: BigUint64Array[];
  private readonly gradients: Float32Array;
  /** The next key that nobody has seen, of each table. */
  private readonly next = { without: 2 ** 40, policy: 2 ** 40, filter: 2 ** 40 };

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
    const { dim, rounds, tell } = this.options;
    const evict = { ttl: TTL, minFrequency: { sightings: 2, ttl: RARE_TTL } };
    const tables = {
      without: await this.client.createTable({ name: 'without', dim }),
      policy: await this.client.createTable({ name: 'policy', dim, policy: { ...evict, counter: 2 } }),
      filter: await this.client.createTable({
        name: 'filter',
        dim,
        policy: { ...evict, bloom: { sightings: 2 } },
      }),
    };
    await this.weigh(tables, report);
    for (const load of LOADS) for (const side of SIDES) await this.measure(load, side, tables[side]);
    for (let round = 0; round < rounds; round++) {
      const first = round % SIDES.length;
      const sides = [...SIDES.slice(first), ...SIDES.slice(0, first)];
      for (const load of LOADS) {
        for (const side of sides) {
          const result = await this.measure(load, side, tables[side]);
          const key = `${load} ${side}`;
          this.measured.set(key, [...(this.measured.get(key) ?? []), result]);
          tell(`round ${round + 1}, ${load}, ${side}: ${Math.round(result.rate)} keys/s`);
        }
      }
    }
    this.judge(report);
  }

  /** Fills all, and holds the bytes of each shard against those of a table as it was before policies. */
  private async weigh(tables: Record<LifeSide, Table>, report: BenchReport): Promise<void> {
    const { rows } = this.options;
    const { pools } = await this.client.status();
    const bytes: Record<string, number> = {};
    let unlike = 0;
    for (const side of SIDES) {
      const { dim, policy, pool } = tables[side].spec;
      const { shards } = pools.find(({ name }) => name === pool)!;
      const shape = inShards({ dim, optimizer: 'adagrad', policy }, shards);
      const before = await this.shards();
      // Twice, so that all are admitted.
      for (let time = 0; time < 2; time++) await this.fill(tables[side], rows);
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
    report.add({ name: 'bytes of a row, without parity', unit: 'B', values: bytes });
    report.exactly('shards whose bytes are not those of the formula', unlike, 0);
  }

  /** Rows and bytes of each data shard. */
  private async shards(): Promise<Map<string, { rows: number; bytes: number }>> {
    const { nodes } = await this.client.observe({ shards: true });
    const all = nodes.flatMap(({ telemetry }) => telemetry.shards ?? []);
    return new Map(all.map(({ g, m, rows, bytes }) => [`${g}.${m}`, { rows, bytes }]));
  }

  private async fill(table: Table, rows: number): Promise<void> {
    const { batch, dim } = this.options;
    for (let first = 0; first < rows; first += batch) {
      const count = Math.min(batch, rows - first);
      const keys = BigUint64Array.from({ length: count }, (_, i) => BigInt(first + i));
      await table.push(keys, this.gradients.subarray(0, count * dim));
    }
  }

  private request(load: LifeLoad, side: LifeSide, table: Table, number: number): Promise<unknown> {
    const keys = this.batches[number % BATCHES]!;
    if (load === 'pull') return table.pull(keys);
    const gradients = this.gradients.subarray(0, keys.length * this.options.dim);
    if (load === 'push') return table.push(keys, gradients);
    const some = keys.slice();
    for (let i = 0; i < some.length * FRESH; i++) some[i] = BigInt(this.next[side]++);
    return table.push(some, gradients);
  }

  private async measure(load: LifeLoad, side: LifeSide, table: Table): Promise<LifeRate> {
    const { seconds } = this.options;
    let [over, answered, number] = [false, 0, 0];
    const lane = async () => {
      while (!over) {
        const keys = this.batches[number % BATCHES]!.length;
        await this.request(load, side, table, number++);
        answered += keys;
      }
    };
    const lanes = Promise.all(Array.from({ length: IN_FLIGHT }, lane));
    await Promise.race([pause(WARM_MS), lanes]);
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

  private judge(report: BenchReport): void {
    for (const load of LOADS) {
      const of = (side: LifeSide, field: keyof LifeRate) =>
        this.measured.get(`${load} ${side}`)!.map((each) => each[field]);
      const ratios = (side: LifeSide, field: keyof LifeRate) => {
        const without = of('without', field);
        const all = of(side, field).map((each, i) => each / without[i]!);
        return { median: median(all), least: Math.min(...all), most: Math.max(...all) };
      };
      const sides = (field: keyof LifeRate) =>
        Object.fromEntries(SIDES.map((side) => [side, median(of(side, field))]));
      report.add({ name: load, unit: 'keys/s', values: sides('rate') });
      report.add({ name: `${load}: CPU of PS`, unit: 's per M keys', values: sides('cpu') });
      for (const side of COMPARED) {
        const rates = ratios(side, 'rate');
        report.add({ name: `${load}: ${side} of without`, unit: '', values: rates });
        report.add({ name: `${load}: CPU, ${side} of without`, unit: '', values: ratios(side, 'cpu') });
        report.goal(`${load}: ${side} of without`, rates.median, GOAL);
      }
    }
  }
}

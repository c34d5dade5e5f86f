/**
 * `bench rows`: delta apply, fused optimizer steps, gather and index look-up against the simplest thing that
 * touches the same bytes (native/bench), then the same work through the addon, in requests as they come from
 * the wire.
 */
import { freemem } from 'node:os';
import {
  loadNative,
  type NativeAddon,
  type OptimizerSpec,
  type SectionPart,
} from '../../src/engine/native.js';
import { runNative } from '../common/native.js';
import { randomU32 } from '../common/random.js';
import { type BenchOptions, BenchReport } from '../common/report.js';
import { median } from '../common/statistics.js';
import { tableBytes } from '../common/table-memory.js';

const DIM = 64;

/** Requests of distinct random keys below `rows`. */
function requests(native: NativeAddon, count: number, rows: number, push: boolean): Uint8Array[] {
  const random = randomU32(count);
  const gradients = Float32Array.from({ length: count * DIM }, () => random() / 2 ** 32 - 0.5);
  return Array.from({ length: 64 }, () => {
    const keys = new Set<bigint>();
    while (keys.size < count) keys.add(BigInt(random() % rows));
    return native.encodeRequest(0, [partOf(BigUint64Array.from(keys), push ? gradients : undefined)]);
  });
}

function partOf(keys: BigUint64Array, rows?: Float32Array): SectionPart {
  const order = Uint32Array.from(keys, (_, i) => i);
  const part: SectionPart = { table: 0, width: DIM, keys, order, start: 0, end: keys.length };
  if (rows) part.rows = rows;
  return part;
}

/** Median of M rows/s over rounds; lets the garbage collector's callbacks run between them. */
async function measure(rounds: number, rows: number, work: (round: number) => void): Promise<number> {
  const rates: number[] = [];
  for (let round = 0; round <= rounds; round++) {
    const start = process.hrtime.bigint();
    for (let i = 0; i < 16; i++) work(round * 16 + i);
    if (round > 0) rates.push((16 * rows * 1e3) / Number(process.hrtime.bigint() - start));
    await new Promise((resolve) => setImmediate(resolve));
  }
  return median(rates);
}

async function throughAddon(report: BenchReport, kind: string, optimizer: OptimizerSpec, smoke: boolean) {
  const native = loadNative();
  const rows = smoke ? 8192 : 1 << 21;
  const rounds = smoke ? 1 : 60;
  const memory = native.createMemory(0);
  const shard = native.createShard(memory, 0, 4, 1);
  const sink = native.createSink(memory, 4, 1, 0, true);
  shard.addTable({ id: 0, dim: DIM, optimizer, initializer: { kind: 'uniform', low: -1, high: 1 }, seed: 1 });
  const zeros = new Float32Array(4096 * DIM);
  for (let from = 0; from < rows; from += 4096) {
    const keys = BigUint64Array.from({ length: 4096 }, (_, i) => BigInt(from + i));
    shard.push(native.encodeRequest(0, [partOf(keys, zeros)]));
    sink.apply(0, shard.flush());
  }
  for (const count of [4096, 256]) {
    const pushes = requests(native, count, rows, true);
    const pulls = requests(native, count, rows, false);
    const deltas = pushes.map((section) => {
      shard.push(section);
      return shard.flush();
    });
    const pushed = await measure(rounds, count, (i) => {
      shard.push(pushes[i % 64]!);
      shard.flush();
    });
    const pulled = await measure(rounds, count, (i) => shard.pull(pulls[i % 64]!));
    const applied = await measure(rounds, count, (i) => sink.apply(0, deltas[i % 64]!));
    report.add({
      name: `addon ${kind}, ${count} rows`,
      unit: 'M rows/s',
      values: { 'push + flush': pushed, pull: pulled, apply: applied },
    });
  }
  shard.close();
  sink.close();
}

/** Fifty million rows against one million, in a group of 4+1: what a row costs, and what it takes. */
function addGrowth(report: BenchReport, smoke: boolean): void {
  const [rows, dim, k, r] = [smoke ? 64_000 : 50_000_000, 16, 4, 1];
  const predicted = tableBytes(rows, dim, k, k, r);
  const needed = predicted * 1.2 + 1e9;
  if (!smoke && freemem() < needed) {
    report.skip(`${rows / 1e6} M rows: they need ${(needed / 1e9).toFixed(1)} GB of free memory`);
    return;
  }
  runNative('growth', smoke, report);
  for (const kind of ['push', 'pull']) {
    const name = `${kind} by table size`;
    report.goal(`${name}: 50 M rows / 1 M rows`, report.ratio(name, 'many rows', 'few rows'), 0.6);
  }
  const memory = report.results.find((result) => result.name === 'memory of a row');
  if (!memory) return;
  memory.values.formula = predicted / rows;
  const resident = memory.values.resident;
  if (smoke || !resident) return; // the kernel counts by pages of 2 MiB, and not on every system
  report.goal('memory: agreement with the formula', 1 - Math.abs(resident / memory.values.formula - 1), 0.98);
}

export async function run(options: BenchOptions): Promise<void> {
  const report = new BenchReport('rows', options);
  runNative('rows', options.smoke, report);
  runNative('snapshot', options.smoke, report);
  await throughAddon(report, 'sgd', { kind: 'sgd', lr: 0.01 }, options.smoke);
  const adagrad: OptimizerSpec = { kind: 'adagrad', lr: 0.01, eps: 1e-8, initialAccumulator: 0.1 };
  await throughAddon(report, 'adagrad', adagrad, options.smoke);
  addGrowth(report, options.smoke);
  for (const bytes of [64, 256, 512, 1024]) {
    const name = `delta apply ${bytes} B`;
    report.goal(`${name}: multiply / memcpy`, report.ratio(name, 'multiply', 'memcpy'), 0.8);
  }
  report.goal('sgd + delta / sgd', report.ratio('sgd', 'with delta', 'without'), 0.85);
  report.goal('adagrad + delta / adagrad', report.ratio('adagrad', 'with delta', 'without'), 0.7);
  for (const destination of ['cold', 'warm']) {
    const name = `gather 256 B, ${destination} destination`;
    report.goal(
      `${name}: gather / sequential memcpy`,
      report.ratio(name, 'gather', 'sequential memcpy'),
      0.6,
    );
  }
  report.goal('index: batched / one by one', report.ratio('index look-up', 'batched', 'one by one'), 3);
  report.finish();
}

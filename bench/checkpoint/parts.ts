/** The parts of the measurement, each with its results and goals in the report. */
import { mkdirSync, rmSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { loadNative } from '../../src/engine/native.js';
import { numberOf } from '../../src/fleet/local/events.js';
import { monotonicMs } from '../../src/net/log.js';
import { poolOf, shardCount } from '../../src/protocol/map.js';
import type { BenchReport } from '../common/report.js';
import { median } from '../common/statistics.js';
import { KeyStream, TABLE } from '../common/training/keys.js';
import { bytesOf, ddRate, dropFromMemory, hashRate, newMemorySeconds, readSeconds } from './disk.js';
import { CheckpointJob, type Made } from './job.js';
import type { CheckpointBenchOptions } from './options.js';
import { WAYS, type Watched, type Ways } from './ways.js';

export interface Bench {
  options: CheckpointBenchOptions;
  report: BenchReport;
  job: CheckpointJob;
  ways: Ways;
  /** For the files of all parts. */
  directory: string;
}

const GB = 1e9;

/** Training with a checkpoint of what changed every so often, and without, in turns. */
export async function beside({ options, report, job, ways }: Bench): Promise<Watched[]> {
  const watched: Watched[] = [];
  const ratios: number[] = [];
  const slower: number[] = [];
  const dearer: number[] = [];
  for (let round = 0; round < options.rounds; round++) {
    const pair = [await ways.watch('none'), await ways.watch('changed rows')] as const;
    const [none, ours] = pair;
    watched.push(...pair);
    ratios.push(ours.samplesPerSecond / none.samplesPerSecond);
    slower.push(ours.slowestMs / none.slowestMs);
    dearer.push(ours.cpuSeconds / none.cpuSeconds);
    options.tell(
      `round ${round + 1}: ${ratios.at(-1)!.toFixed(3)} of the samples, slowest request ` +
        `${none.slowestMs.toFixed(0)} and ${ours.slowestMs.toFixed(0)} ms, checkpoints ` +
        ours.made
          .map(({ bytes, seconds }) => `${(bytes / 1e6).toFixed(0)} MB in ${seconds.toFixed(1)} s`)
          .join(', '),
    );
  }
  const of = (way: string, what: (each: Watched) => number) =>
    median(watched.filter((each) => each.way === way).map(what));
  for (const [name, what] of [
    ['samples/s', (each: Watched) => each.samplesPerSecond],
    ['slowest request (ms)', (each: Watched) => each.slowestMs],
    ['processors (s per million)', (each: Watched) => each.cpuSeconds],
  ] as const)
    report.add({
      name: `training: ${name}`,
      unit: '',
      values: { none: of('none', what), 'with checkpoints': of('changed rows', what) },
    });
  report.add({ name: 'processor time of a sample', unit: 'of none', values: { ratio: median(dearer) } });
  report.goal('samples with checkpoints, of none', median(ratios), 0.95);
  report.atMost('slowest request with checkpoints, of none', median(slower), 3);
  sizes(
    report,
    job,
    options,
    watched.flatMap(({ made }) => made),
  );
  return watched;
}

/** How large checkpoints of changed rows are. */
function sizes(
  report: BenchReport,
  job: CheckpointJob,
  options: CheckpointBenchOptions,
  made: readonly Made[],
): void {
  const { spec } = job.client.table(TABLE);
  const rowBytes = 8 + job.client.rowWidth(spec) * 4;
  const [last, before] = [made.at(-1)!, made.at(-2)!];
  const changed = last && before ? changedRows(job, options, before.beganAt, last.beganAt) : Number.NaN;
  report.add({
    name: 'a checkpoint of changed rows',
    unit: '(MB; rows)',
    values: {
      size: median(made.map(({ bytes }) => bytes)) / 1e6,
      'with all rows': (options.rows * rowBytes) / 1e6,
      rows: median(made.map(({ rows }) => rows)),
      'rows that changed': changed,
      seconds: median(made.map(({ seconds }) => seconds)),
    },
  });
  const ratios = made.map(({ bytes, rows }) => bytes / (rows * rowBytes));
  report.atMost('bytes of a checkpoint, of its rows', median(ratios), 1.1);
}

/** Distinct keys of the steps that training did meanwhile. */
function changedRows(
  job: CheckpointJob,
  { rows, batch }: CheckpointBenchOptions,
  from: number,
  to: number,
): number {
  const stepAt = (mono: number) => {
    const point = job.progress.find((each) => each.mono >= mono) ?? job.progress.at(-1)!;
    return Math.floor(point.samples / batch);
  };
  const stream = new KeyStream(rows, batch);
  const keys = new Set<bigint>();
  const [first, last] = [stepAt(from), stepAt(to)];
  for (let step = 0; step < last; step++) {
    const own = stream.next();
    if (step >= first) for (const key of own) keys.add(key);
  }
  return keys.size;
}

/** All ways one after the other, for the picture. */
export async function compare({ options, report, ways }: Bench): Promise<Watched[]> {
  const watched: Watched[] = [];
  for (const way of WAYS) {
    options.tell(`every ${options.intervalMs / 1000} s: ${way}`);
    watched.push(await ways.watch(way));
  }
  const [steady] = watched as [Watched];
  for (const { way, samplesPerSecond, cpuSeconds, slowestMs, tookSeconds } of watched)
    report.add({
      name: `every ${options.intervalMs / 1000} s: ${way}`,
      unit: '',
      values: {
        'of none': samplesPerSecond / steady.samplesPerSecond,
        'processor time of a sample, of none': cpuSeconds / steady.cpuSeconds,
        'slowest request (ms)': slowestMs,
        checkpoints: tookSeconds.length,
        ...(tookSeconds.length > 0 && { 'each (s)': median(tookSeconds) }),
      },
    });
  return watched;
}

/** A checkpoint with all rows of a job that does nothing else. The place of the last one. */
export async function full({ options, report, job, directory }: Bench): Promise<string> {
  const rates: Record<'dd' | 'full' | 'cpu', number[]> = { dd: [], full: [], cpu: [] };
  let place = '';
  for (let round = 0; round < options.rounds; round++) {
    if (place !== '') rmSync(place, { recursive: true });
    place = join(directory, `full-${round}`);
    mkdirSync(place);
    await job.saveTo(place);
    const made = await job.save();
    const bytes = made.bytes;
    rates.full.push(bytes / made.seconds / GB);
    rates.cpu.push((bytes * availableParallelism()) / made.psCpuSeconds / GB);
    rates.dd.push(ddRate(directory, bytes));
    const [own, cpu, dd] = [rates.full, rates.cpu, rates.dd].map((each) => each.at(-1)!.toFixed(2));
    options.tell(`all rows: ${own} GB/s, dd ${dd}, the processors allow ${cpu}`);
  }
  const values = {
    'full checkpoint': median(rates.full),
    dd: median(rates.dd),
    'all processors, at its CPU time': median(rates.cpu),
    'SHA-256 on one': hashRate(),
  };
  report.add({ name: 'full checkpoint, idle job', unit: 'GB/s', values });
  report.goal('full checkpoint, of dd', values['full checkpoint'] / values.dd, 0.7);
  const limit = Math.min(values.dd, values['all processors, at its CPU time']);
  report.goal(
    'full checkpoint, of the lower of dd and the processors',
    values['full checkpoint'] / limit,
    0.7,
  );
  return place;
}

/** A new job that begins with a checkpoint: when it serves. The old one is gone. */
export async function restore({ options, report, job }: Bench, place: string): Promise<void> {
  const keys = keyOfEachShard(job);
  const wanted = await Promise.all(keys.map((key) => pullOne(job, key)));
  await job.abandon();
  const times: Record<'read' | 'memory' | 'first' | 'shards' | 'all' | 'cpu', number[]> = {
    ...{ read: [], memory: [], first: [], shards: [], all: [], cpu: [] },
  };
  let wrong = 0;
  for (let round = 0; round < options.rounds; round++) {
    dropFromMemory(place);
    times.read.push(readSeconds(place));
    times.memory.push(newMemorySeconds(bytesOf(place)));
    dropFromMemory(place);
    const next = new CheckpointJob(options, { url: place, number: 1 });
    try {
      await next.start();
      const ready = Math.max(
        ...next.events.filter(({ event }) => event === 'ps.ready').map(({ mono }) => mono),
      );
      const served = await Promise.all(
        keys.map(async (key, shard) => {
          const row = await next.race(pullOne(next, key));
          if (row.some((value, i) => value !== wanted[shard]![i])) wrong++;
          return (monotonicMs() - ready) / 1000;
        }),
      );
      const done = await next.event('restore.done');
      times.cpu.push(next.psCpu());
      times.first.push(Math.min(...served));
      times.shards.push(Math.max(...served));
      times.all.push((done.mono - ready) / 1000);
      const [read, first, shards, all] = [times.read, times.first, times.shards, times.all].map((each) =>
        each.at(-1)!.toFixed(2),
      );
      const took = numberOf(done, 'tookMs') / 1000;
      options.tell(
        `restore: first keys ${first} s, of every shard ${shards} s, all rows ${all} s (${took} s), ` +
          `reading ${read} s, PS ${times.cpu.at(-1)!.toFixed(1)} s of processors`,
      );
    } finally {
      await next.abandon();
    }
  }
  const values = {
    'reading the files': median(times.read),
    'first keys': median(times.first),
    'keys of every shard': median(times.shards),
    'all rows': median(times.all),
    'processor time of all PS': median(times.cpu),
    'processor time of new memory': median(times.memory),
  };
  report.add({ name: 'restore, since all PS are up', unit: 's', values });
  report.exactly('rows that are not what they were', wrong, 0);
  report.atMost('restore, of reading the files', values['all rows'] / values['reading the files'], 2);
  report.atMost('first keys, of all rows', values['first keys'] / values['all rows'], 0.99);
}

function keyOfEachShard(job: CheckpointJob): bigint[] {
  const pool = poolOf(job.client.clusterMap, 'embedding')!;
  const shards = shardCount(pool);
  const candidates = BigUint64Array.from({ length: shards * 100 }, (_, i) => BigInt(i));
  const { order, starts } = loadNative().partition(candidates, shards);
  return Array.from({ length: shards }, (_, shard) => candidates[order[starts[shard]!]!]!);
}

async function pullOne(job: CheckpointJob, key: bigint): Promise<Float32Array> {
  const [row] = await job.client.pull([{ table: TABLE, keys: BigUint64Array.of(key) }]);
  return row!;
}

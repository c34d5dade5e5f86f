/** Rates between two snapshots, compared with sums made by hand. */
import { describe, expect, it } from 'vitest';
import { Durations } from '../../../src/core/shared/meter.js';
import type { JobSnapshot } from '../../../src/library/client/observe.js';
import { quantile, ratesBetween } from '../../../src/library/observe/rates.js';
import { DURATION_BOUNDS_SECONDS, type NodeTelemetry } from '../../../src/protocol/telemetry.js';

const none = () => ({ counts: DURATION_BOUNDS_SECONDS.map(() => 0).concat(0), sumSeconds: 0 });
const op = (requests: number, rows: number) => ({ requests, rows, failed: {}, duration: none() });

function node(upSeconds: number, pulls: number, rows: number): NodeTelemetry {
  return {
    ...{ upSeconds, cpuSeconds: upSeconds / 2, rssBytes: 1 },
    memory: {
      ...{ limitBytes: 0, usedBytes: 0 },
      partBytes: {
        ...{ data: 0, parity: 0, snapshots: 0, files: 0, deltas: 0, sinkLogs: 0, outgoing: 0 },
        ...{ waiting: 0, answers: 0, received: 0, readers: 0, evicted: 0 },
      },
      unaccountedBytes: 0,
    },
    ops: { pull: op(pulls, 10 * pulls), push: op(0, 0) },
    commit: none(),
    tables: [{ name: 'a', rows, pulledRows: 10 * pulls, pushedRows: 0 }],
    ...{ dataShards: 1, parityShards: 0, recoveringShards: 0, uncommittedBytes: 0, sinkLagBytes: 0 },
    ...{ parkedRequests: 0, parkedBytes: 0, movedBlocks: 0 },
    recoveredBlocks: { demand: 0, background: 0 },
    sentBytes: { answers: 100 * pulls, deltas: 0, recovery: 0, replicas: 0, other: 0 },
    paceBytes: { recovery: 0, moves: 0, saves: 0 },
    shards: [{ g: 0, m: 0, requests: pulls, rows, bytes: 1 }],
  };
}

function snapshot(at: number, nodes: [id: number, telemetry: NodeTelemetry, inc?: number][]): JobSnapshot {
  const scheduler = { upSeconds: at / 1000, cpuSeconds: 0, rssBytes: 0, workers: [], runs: [] };
  return {
    ...{ at, scheduler, workers: [], missing: [], status: {} as never },
    nodes: nodes.map(([id, telemetry, inc = 1]) => ({ id, inc, name: `ps-${id}`, host: 'h', telemetry })),
  };
}

describe('ratesBetween', () => {
  it('subtracts counters, by node and in sum', () => {
    const before = snapshot(1000, [
      [1, node(10, 100, 5)],
      [2, node(10, 0, 5)],
    ]);
    const after = snapshot(3000, [
      [1, node(12, 140, 6)],
      [2, node(12, 60, 5)],
    ]);
    const { job, nodes, tables, shards } = ratesBetween(before, after);
    expect(job.pull).toMatchObject({ requestsPerSecond: 50, rowsPerSecond: 500, failedRatio: 0 });
    expect(job).toMatchObject({ sentBytesPerSecond: 5000, cpus: 1 });
    expect(nodes.map(({ pull }) => pull.requestsPerSecond)).toEqual([20, 30]);
    expect(tables).toEqual([
      { name: 'a', rows: 11, rowsPerSecond: 0.5, pulledRowsPerSecond: 500, pushedRowsPerSecond: 0 },
    ]);
    expect(shards.map(({ requestsPerSecond }) => requestsPerSecond)).toEqual([20, 30]);
  });

  it('counts a process that was started again from its start, and a new one not at all', () => {
    const before = snapshot(1000, [[1, node(100, 1000, 5)]]);
    const after = snapshot(3000, [
      [1, node(1, 40, 5)],
      [2, node(50, 7, 5)],
    ]);
    const { nodes } = ratesBetween(before, after);
    expect(nodes.map(({ id, pull }) => [id, pull.requestsPerSecond])).toEqual([[1, 20]]);
  });

  it('knows a process that was started again by its incarnation, however long ago', () => {
    const before = snapshot(0, [
      [1, node(2, 50, 5), 1],
      [2, node(2, 50, 5), 1],
    ]);
    // Started 4 s later; it has done more than the first one had.
    const after = snapshot(10_000, [
      [1, node(6, 80, 5), 2],
      [2, node(12, 150, 5), 1],
    ]);
    const { nodes, tables, shards } = ratesBetween(before, after);
    expect(nodes.map(({ pull }) => pull.requestsPerSecond)).toEqual([8, 10]);
    expect(shards.map(({ requestsPerSecond }) => requestsPerSecond)).toEqual([8, 10]);
    expect(tables).toMatchObject([{ rows: 10, pulledRowsPerSecond: 180 }]);
  });

  it('of a PS that is away in one of the looks, nothing is counted that it did before', () => {
    const two = snapshot(0, [
      [1, node(100, 1000, 50)],
      [2, node(100, 1000, 50)],
    ]);
    const one = snapshot(2000, [[1, node(102, 1010, 50)]]);
    const again = snapshot(4000, [
      [1, node(104, 1020, 50)],
      [2, node(104, 1020, 50)],
    ]);
    for (const rates of [ratesBetween(two, one), ratesBetween(one, again)]) {
      expect(rates.tables).toMatchObject([{ rowsPerSecond: 0, pulledRowsPerSecond: 50 }]);
      expect(rates.shards[0]!.requestsPerSecond).toBe(5);
      expect(rates.shards.slice(1).every(({ requestsPerSecond }) => requestsPerSecond === 0)).toBe(true);
    }
  });

  it('snapshots in the wrong order, or of two jobs, are refused', () => {
    const [earlier, later] = [snapshot(0, [[1, node(10, 0, 50)]]), snapshot(2000, [[1, node(12, 0, 50)]])];
    const refused = (word: string) =>
      expect.objectContaining({ code: 'BAD_ARGUMENT', message: expect.stringContaining(word) });
    expect(() => ratesBetween(later, earlier)).toThrow(refused('before'));
    const other = { ...later, status: { ...later.status, job: 'another' } };
    expect(() => ratesBetween(earlier, other)).toThrow(refused('two jobs'));
    expect(ratesBetween(earlier, earlier).nodes).toHaveLength(1);
  });

  it('rows that are lost and back again are not new', () => {
    const recovering = { ...node(12, 0, 2), recoveringShards: 1 };
    const [before, during, after] = [
      snapshot(0, [[1, node(10, 0, 50)]]),
      snapshot(2000, [[1, recovering]]),
      snapshot(4000, [[1, node(14, 0, 52)]]),
    ];
    expect(ratesBetween(during, after).tables[0]!.rowsPerSecond).toBe(0);
    expect(ratesBetween(before, after).tables[0]!.rowsPerSecond).toBe(0.5);
  });

  it('samples that workers tell a new scheduler of are not trained now', () => {
    const look = (at: number, samples: number, inheritedSamples: number): JobSnapshot => {
      const empty = snapshot(at, []);
      const run = { run: 'train', workers: 1, samples, inheritedSamples, batches: 0, idleSeconds: 0 };
      const phaseSeconds = { read: 0, pull: 0, compute: 0, push: 0 };
      empty.scheduler.runs = [{ ...run, phaseSeconds, productiveSeconds: 0, allocatedSeconds: 0 }];
      return empty;
    };
    const samples = (earlier: JobSnapshot, later: JobSnapshot) =>
      ratesBetween(earlier, later).job.samplesPerSecond;
    expect(samples(look(0, 1_000_000, 0), look(2000, 1_000_200, 0))).toBe(100);
    // A scheduler that knows of nothing yet, of one worker, and of another one.
    expect(samples(snapshot(0, []), look(2000, 500_000, 500_000))).toBe(0);
    expect(samples(look(0, 500_000, 500_000), look(2000, 1_000_200, 1_000_000))).toBe(100);
  });
});

describe('quantile', () => {
  it('lies within the bucket of the observation', () => {
    const durations = new Durations();
    for (let i = 0; i < 99; i++) durations.add(0.7);
    durations.add(80);
    const histogram = durations.read();
    expect(quantile(0.5, histogram)).toBeGreaterThan(0.0005);
    expect(quantile(0.5, histogram)).toBeLessThanOrEqual(0.001);
    expect(quantile(1, histogram)).toBeCloseTo(0.1);
    expect(histogram.sumSeconds).toBeCloseTo(0.1493);
  });

  it('is of what came since, and undefined without any', () => {
    const durations = new Durations();
    durations.add(5000);
    const before = durations.read();
    expect(quantile(0.99, durations.read(), before)).toBeUndefined();
    durations.add(0.01);
    expect(quantile(0.99, durations.read(), before)).toBeLessThanOrEqual(0.0001);
    durations.add(60_000, 1000);
    expect(quantile(0.99, durations.read(), before)).toBe(10);
  });
});

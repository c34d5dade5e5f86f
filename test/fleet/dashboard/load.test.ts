/** The work of a job as the page shows it, from snapshots that are made up. */
import { describe, expect, test } from 'vitest';
import { hotShards, loadOf, nodeLoads, runView } from '../../../src/fleet/dashboard/load.js';
import { outlookOf } from '../../../src/fleet/dashboard/outlook.js';
import { Series } from '../../../src/fleet/dashboard/series.js';
import { tablesOf } from '../../../src/fleet/dashboard/tables.js';
import type { JobSnapshot } from '../../../src/library/client/observe.js';
import { jobOf } from './model.js';
import { nodeTelemetry, snapshot } from './snapshots.js';

const { map, status } = jobOf(2, 2, 1, 1);
status.tables = [
  { name: 'items', pool: 'embedding', dim: 16, optimizer: 'adagrad' },
  { name: '__audit/embedding', pool: 'embedding', dim: 1, optimizer: 'sgd' },
];

/** Two nodes that have worked for `seconds`; the second one does twice as much. */
function at(seconds: number, change: (each: JobSnapshot) => void = () => {}): JobSnapshot {
  const made = snapshot(seconds * 1000, status, [
    nodeTelemetry(seconds, { pulls: 100 * seconds, rows: 500, shards: [[0, 0, 300 * seconds]] }),
    nodeTelemetry(seconds, { pulls: 200 * seconds, rows: 700, shards: [[1, 0, 100 * seconds]] }),
  ]);
  change(made);
  return made;
}

describe('load', () => {
  test('there is none before two looks', () => {
    expect(loadOf([])).toBe(undefined);
    expect(loadOf([at(1)])).toBe(undefined);
    // Numbers that are not known are neither 0 nor in an empty list.
    expect(nodeLoads([at(1)])[1]).toEqual({ usedBytes: 1 << 20, limitBytes: 0 });
    expect(hotShards([at(1)], map)).toBe(undefined);
    expect(tablesOf([])).toBe(undefined);
    expect(tablesOf([at(1)])).toEqual([
      { name: 'items', pool: 'embedding', dim: 16, optimizer: 'adagrad', rows: 1200, bytes: 1200 * 128 },
    ]);
  });

  test('is that of the last two seconds, whatever was before', () => {
    const idle = at(1);
    const history = [idle, at(10), at(11), at(12)];
    expect(loadOf(history)).toMatchObject({ pull: { requestsPerSecond: 300 }, missing: [] });
    const loads = nodeLoads(history);
    expect(loads[1]!.requestsPerSecond).toBeCloseTo(100);
    expect(loads[2]!.requestsPerSecond).toBeCloseTo(200);
    expect(loadOf(history)!.training).toBe(undefined);
  });

  test('the hottest shards come first, against the mean of all', () => {
    const hot = hotShards([at(1), at(3)], map)!;
    expect(hot.map(({ group, node }) => [group, node])).toEqual([
      [0, 'ps-0'],
      [1, 'ps-1'],
    ]);
    expect(hot[0]!.requestsPerSecond).toBeCloseTo(300);
    expect(hot[0]!.timesMean).toBeCloseTo(1.5);
  });

  test('tables have the rows of all nodes, their bytes and rates; those of audits are not shown', () => {
    const [items, ...others] = tablesOf([at(1), at(3)])!;
    expect(others).toEqual([]);
    // 16 values and one sum of squares each, of four bytes.
    expect(items).toMatchObject({ name: 'items', rows: 1200, bytes: 1200 * 128 });
  });

  test('goodput is of all workers that ever were; throughput is over several reports', () => {
    const worked = (samples: number) => (each: JobSnapshot) => {
      const phaseSeconds = { read: 1, pull: 1, compute: 6, push: 1 };
      const counted = { batches: 10, phaseSeconds, idleSeconds: 0, productiveSeconds: 6 };
      each.scheduler.runs = [{ run: 'r', workers: 1, samples, ...counted, allocatedSeconds: 12 }];
    };
    const { training } = loadOf([at(0, worked(0)), at(10, worked(500)), at(15, worked(1500))])!;
    expect(training).toMatchObject({ workers: 1, goodput: 0.5, samplesPerSecond: 100 });
  });

  test('a run says what is done, and names at most twenty ranges that were set aside', () => {
    const aside = { epoch: 0, file: 0, begin: 0, end: 9, number: 1, fileName: 'f', batch: 1, attempts: 3 };
    const view = runView({
      ...{ name: 'r', epochs: 2, ranges: 40, finished: 10, open: 2, samples: [7, 5], redone: 1 },
      setAside: Array.from({ length: 30 }, () => ({ ...aside, code: 'BAD_DATA' as const, message: 'bad' })),
      complete: false,
    });
    expect(view).toMatchObject({ samples: 12, setAside: 30 });
    expect(view.aside).toHaveLength(20);
  });
});

describe('the chart', () => {
  test('keeps 900 points, and gives a page those that it does not have', () => {
    const series = new Series();
    for (let second = 0; second <= 1000; second++) series.look(at(second), second * 1000);
    expect(series.count).toBe(1000);
    expect(series.since(0)).toHaveLength(900);
    expect(series.since(998).map((point) => point.at)).toEqual([999_000, 1_000_000]);
    expect(series.since(1000)).toEqual([]);
    expect(series.since(999)[0]).toMatchObject({ pulledRows: 3000, pullP99Ms: expect.any(Number) });
  });

  test('has no point for a time in which the job was out of reach', () => {
    const series = new Series();
    series.look(at(1), 1000);
    series.look(at(2), 2000);
    series.pause();
    series.look(at(60), 60_000);
    expect(series.count).toBe(1);
    series.look(at(61), 61_000);
    expect(series.since(1).map((point) => point.at)).toEqual([61_000]);
  });
});

describe('the planner’s view', () => {
  test('is of the job’s code, nodes and rows; a limit that a loss would break is named', () => {
    const { map: large, status: job } = jobOf(6, 12, 4, 1);
    job.tables = [{ name: 'items', pool: 'embedding', dim: 16, optimizer: 'adagrad' }];
    const telemetry = (seconds: number, limitBytes: number) =>
      snapshot(
        seconds * 1000,
        job,
        job.nodes.map(() => nodeTelemetry(seconds, { pulls: 100 * seconds, rows: 1e6, limitBytes })),
      );
    const outlook = outlookOf(telemetry(1, 0), telemetry(3, 0), large)!;
    expect(outlook).toMatchObject({
      code: '4+1',
      ps: 6,
      rows: 6e6,
      dim: 16,
      keysPerSecond: 6000,
      problems: [],
    });
    expect(outlook.memoryAfterLossBytes).toBeGreaterThan(outlook.memoryBytes);
    expect(outlook.recoverySeconds).toBeGreaterThan(0);
    const tight = outlookOf(telemetry(1, outlook.memoryBytes), telemetry(3, outlook.memoryBytes), large)!;
    expect(tight.problems).toEqual([expect.stringMatching(/^memory: after a loss a PS needs .* limit is /)]);
  });

  test('there is none without rows', () => {
    const { map: empty, status: job } = jobOf(2, 2, 1, 1);
    const looks = [1, 3].map((seconds) => snapshot(seconds * 1000, job, [nodeTelemetry(seconds, {})]));
    expect(outlookOf(looks[0]!, looks[1]!, empty)).toBe(undefined);
  });
});

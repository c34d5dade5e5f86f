/** Reports of workers: the newest of each, and sums that outlive them. */
import { expect, it } from 'vitest';
import { newJob } from '../../../src/core/scheduler/state.js';
import { Workers } from '../../../src/core/scheduler/workers.js';
import type { RunTelemetry, WorkerReport } from '../../../src/protocol/telemetry.js';

function ledger(isLeased: (id: number) => boolean = () => true, runs = new Map<string, RunTelemetry>()) {
  const state = { ...newJob('job', 1, []), runs };
  return {
    isLeased,
    state,
    touched: [] as string[],
    touch(key: string) {
      this.touched.push(key);
    },
  };
}

const report = (samples: number, upSeconds: number, run = 'train'): WorkerReport => ({
  ...{ name: 'w', run, upSeconds, cpuSeconds: 1, rssBytes: 1, samples, batches: 1 },
  phaseSeconds: { read: 1, pull: 2, compute: 3, push: 4 },
  ...{ idleSeconds: 0.5, productiveSeconds: 3, stalenessBatches: 0 },
});

it('sums of a run have all its workers once, those that are gone included', () => {
  const open = new Set([7, 8]);
  const workers = new Workers(ledger((id) => open.has(id)));
  workers.onReport(7, report(10, 5), 1000);
  workers.onReport(7, report(30, 10), 6000);
  workers.onReport(8, report(5, 2), 6000);
  workers.onReport(9, report(99, 99), 6000);
  const both = { run: 'train', workers: 2, samples: 35, batches: 2, allocatedSeconds: 12 };
  expect(workers.telemetry(7000).runs).toMatchObject([both]);
  expect(workers.telemetry(7000).workers.map(({ id, samples, agoMs }) => [id, samples, agoMs])).toEqual([
    [7, 30, 1000],
    [8, 5, 1000],
  ]);
  workers.ended(7);
  const { runs, workers: left } = workers.telemetry(8000);
  expect(runs).toMatchObject([{ ...both, workers: 1, productiveSeconds: 6 }]);
  expect(left.map(({ id }) => id)).toEqual([8]);
});

it('who is silent is not listed and still counts', () => {
  const workers = new Workers(ledger());
  workers.onReport(7, report(10, 5), 1000);
  expect(workers.telemetry(60_000)).toMatchObject({ workers: [], runs: [{ workers: 0, samples: 10 }] });
});

it('who is silent is told of, unless it had said that it ends', () => {
  const workers = new Workers(ledger());
  workers.onReport(7, report(10, 5), 1000);
  workers.onReport(8, { ...report(10, 5), over: true }, 1000);
  expect(workers.telemetry(2000).silent).toEqual([]);
  expect(workers.telemetry(61_000).silent).toEqual([{ id: 7, name: 'w', run: 'train', agoMs: 60_000 }]);
});

it('what a worker had done when it was first heard of is told apart', () => {
  const workers = new Workers(ledger());
  workers.onReport(7, report(1000, 50), 0);
  workers.onReport(8, report(0, 0), 0);
  workers.onReport(7, report(1010, 55), 5000);
  workers.onReport(8, report(20, 5), 5000);
  const sums = { samples: 1030, inheritedSamples: 1000 };
  expect(workers.telemetry(5000).runs).toMatchObject([sums]);
  workers.ended(7);
  expect(workers.telemetry(5000).runs).toMatchObject([sums]);
});

it('sums of the oldest of many runs are forgotten', () => {
  const workers = new Workers(ledger());
  for (let id = 1; id <= 300; id++) {
    workers.onReport(id, report(id, 1, `run-${id}`), 0);
    workers.ended(id);
  }
  const { runs } = workers.telemetry(0);
  expect([runs.length, runs[0]!.run, runs.at(-1)!.run]).toEqual([256, 'run-45', 'run-300']);
});

it('a scheduler that takes over has the sums of workers that were gone, as told to another one', () => {
  const before = ledger();
  const workers = new Workers(before);
  workers.onReport(7, report(1000, 50), 0);
  workers.ended(7);
  expect(before.touched).toEqual(['run/train']);
  const [run] = workers.telemetry(0).runs;
  expect(run).toMatchObject({ run: 'train', samples: 1000, allocatedSeconds: 50 });
  const later = new Workers(ledger(() => true, before.state.runs));
  expect(later.telemetry(0).runs).toEqual([{ ...run, inheritedSamples: 1000 }]);
});

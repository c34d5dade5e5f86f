/** A run without end keeps no progress without end, and its report is the same. */
import { expect, test } from 'vitest';
import type { RoleEvent } from '../../../src/fleet/local/events.js';
import { goodputReport } from '../../../src/fleet/local/goodput.js';
import { KeptEvents } from '../../../src/fleet/local/kept-events.js';
import {
  failuresOf,
  inOrder,
  progressPoints,
  summarize,
  trainingSpan,
} from '../../../src/fleet/local/report.js';
import { Throughput } from '../../../src/fleet/local/throughput.js';

const MAX = 1000;
const PROGRESS_MS = 50;
const WORKERS = ['worker-0', 'worker-1', 'worker-2', 'worker-3'];
const RESTART_MS = 70_010;

/** Workers that train evenly for so long; the last one is started again once, after a time of nothing. */
function* run(ms: number): Generator<RoleEvent> {
  for (const name of WORKERS) yield { mono: 0, source: 'launcher', event: 'process.started', name };
  for (const source of WORKERS) yield { mono: 1000, source, event: 'worker.training', client: 1 };
  let before = 0;
  for (let mono = 1000 + PROGRESS_MS; mono <= ms; mono += PROGRESS_MS) {
    if (before === 0 && mono > RESTART_MS) {
      before = mono + 2000;
      yield { mono: before - 500, source: 'launcher', event: 'process.started', name: WORKERS[3] };
      yield { mono: before, source: WORKERS[3]!, event: 'worker.training', client: 9 };
    }
    for (const [i, source] of WORKERS.entries()) {
      const since = i === 3 && before > 0 ? before : 1000;
      if (mono <= since) continue;
      const productiveSeconds = (mono - since) / 2000;
      yield {
        mono: mono + i / 10,
        source,
        event: 'worker.progress',
        samples: mono - since,
        productiveSeconds,
      };
    }
    if (mono % 10_000 === 0) yield { mono: mono + 1, source: 'worker-0', event: 'worker.range', range: mono };
  }
  for (const source of WORKERS.slice(0, 2))
    yield { mono: ms + 1, source, event: 'worker.done', samples: ms, trainLoss: 0.5, productiveSeconds: ms };
}

const isProgress = ({ event }: RoleEvent): boolean => event === 'worker.progress';

test('of a run of ordinary length everything is kept, in the order of arrival', () => {
  const events = [...run(12_000)];
  const kept = new KeptEvents(MAX);
  for (const event of events) kept.add(event);
  expect(events.filter(isProgress).length).toBeGreaterThan(0.8 * MAX);
  expect(kept.all).toEqual(events);
});

test('a run that goes on and on keeps so much progress, and everything else', () => {
  const ms = 1_000_000;
  const events = [...run(ms)];
  const kept = new KeptEvents(MAX);
  let most = 0;
  for (const event of events) {
    kept.add(event);
    if (isProgress(event)) most = Math.max(most, kept.all.length);
  }
  const others = events.filter((event) => !isProgress(event));
  expect(most).toBeLessThanOrEqual(MAX + others.length);
  expect(kept.all.filter((event) => !isProgress(event))).toEqual(others);
  expect(kept.all.filter(isProgress).length).toBeGreaterThan(MAX / 4);

  const [all, some] = [inOrder(events), inOrder(kept.all)];
  expect(trainingSpan(some)).toEqual(trainingSpan(all));
  expect(summarize(some)).toEqual(summarize(all));
  expect(goodputReport(some)).toEqual(goodputReport(all));
  const kill = { role: 'ps', name: 'ps-0', inc: 1, mono: 500_000, shards: [] } as const;
  const [failure, same] = [some, all].map((told) => failuresOf(told, [{ ...kill, shards: [] }])[0]!);
  expect(failure!.steadySamplesPerSecond).toBeCloseTo(same!.steadySamplesPerSecond!, 0);
  expect(failure!.windows).toBe(same!.windows);
  const [thin, thick] = [some, all].map((told) => new Throughput(progressPoints(told)));
  for (let mono = 0; mono <= ms; mono += 777) {
    // Where a process ended before the next one began, its points are those that it told last.
    expect(thin!.samplesAt(mono)).toBeCloseTo(thick!.samplesAt(mono), 5);
  }
});

test('workers that tell less often than the points are apart have their turn later', () => {
  const kept = new KeptEvents(MAX);
  for (let second = 1; second <= 5 * MAX; second++)
    kept.add({ mono: second * 1000, source: 'worker-0', event: 'worker.progress', samples: second });
  expect(kept.all.length).toBeLessThanOrEqual(MAX);
  expect(kept.all.at(-1)!.samples).toBe(5 * MAX);
});

/** The report's numbers on made-up events, where every answer can be worked out by hand. */
import { expect, test } from 'vitest';
import type { RoleEvent } from '../../../src/fleet/local/events.js';
import { goodputLine, goodputReport } from '../../../src/fleet/local/goodput.js';
import {
  failuresOf,
  inOrder,
  type KillRecord,
  problemOf,
  progressPoints,
  type RunReport,
  summarize,
} from '../../../src/fleet/local/report.js';
import { type SampleBooks, samplesReport } from '../../../src/fleet/local/samples.js';

const at = (
  mono: number,
  source: string,
  event: string,
  fields: Record<string, unknown> = {},
): RoleEvent => ({
  mono,
  source,
  event,
  ...fields,
});

/** 1000 samples per second from 0 on, 500 between 10 s and 15 s. */
function training(): RoleEvent[] {
  const events = [at(0, 'worker-0', 'worker.training', { client: 1 })];
  let samples = 0;
  for (let mono = 100; mono <= 20_000; mono += 100) {
    samples += mono > 10_000 && mono <= 15_000 ? 50 : 100;
    events.push(at(mono, 'worker-0', 'worker.progress', { samples, loss: 0.5 }));
  }
  events.push(at(20_000, 'worker-0', 'worker.done', { samples, seconds: 20, trainLoss: 0.5 }));
  return events;
}

const kill: KillRecord = {
  role: 'ps',
  name: 'ps-2',
  inc: 1,
  mono: 10_000,
  shards: [
    { group: 0, member: 1, gen: 1 },
    { group: 3, member: 0, gen: 1 },
  ],
};

const recovery = [
  at(9000, 'ps-0', 'shard.keysReady', { group: 0, member: 1, gen: 1 }),
  at(10_012, 'scheduler', 'map.durable', { reason: 'lost', name: 'ps-2', inc: 1, epoch: 9 }),
  at(10_060, 'ps-0', 'shard.keysReady', { group: 0, member: 1, gen: 9 }),
  at(10_065, 'worker-1', 'shard.served', { group: 0, member: 1, gen: 9 }),
  at(10_070, 'worker-0', 'shard.served', { group: 0, member: 1, gen: 9 }),
  at(10_090, 'ps-1', 'shard.keysReady', { group: 3, member: 0, gen: 9 }),
  at(12_000, 'ps-0', 'shard.complete', { group: 0, member: 1, gen: 9, blocksLost: 30, blocksOnDemand: 4 }),
  at(12_500, 'ps-1', 'shard.complete', { group: 3, member: 0, gen: 9, blocksLost: 12, blocksOnDemand: 0 }),
  at(15_000, 'scheduler', 'redundancy', { state: 'full' }),
];

test('a failure is timed from the kill', () => {
  const [failure] = failuresOf(inOrder([...training(), ...recovery]), [kill]);
  expect(failure).toEqual({
    node: 'ps-2',
    atSeconds: 10,
    detectedMs: 12,
    keysReadyMs: 90,
    firstServedMs: 65,
    redundantMs: 5000,
    blocksLost: 42,
    blocksDecodedOnDemand: 4,
    windows: 5,
    steadySamplesPerSecond: 1000,
    minThroughputRatio: 0.5,
    meanThroughputRatio: 0.5,
  });
});

test('what did not happen is null, and few windows give no ratio', () => {
  const only = recovery.filter((event) => event.event === 'map.durable');
  const [unfinished] = failuresOf(inOrder([...training().filter((event) => event.mono <= 12_000), ...only]), [
    kill,
  ]);
  expect(unfinished).toMatchObject({
    detectedMs: 12,
    keysReadyMs: null,
    firstServedMs: null,
    redundantMs: null,
  });
  expect(unfinished).toMatchObject({ windows: 2, minThroughputRatio: null, meanThroughputRatio: null });
  const [unnoticed] = failuresOf(training(), [kill]);
  expect(unnoticed).toMatchObject({ detectedMs: null, blocksLost: 0 });
});

test('keys are ready when those of the last shard are, and a parity-only node has none', () => {
  const partial = recovery.filter((event) => event.group !== 3);
  expect(failuresOf(partial, [kill])[0]).toMatchObject({
    keysReadyMs: null,
    firstServedMs: 65,
    blocksLost: 30,
  });
  expect(failuresOf(recovery, [{ ...kill, shards: [] }])[0]).toMatchObject({
    keysReadyMs: null,
    redundantMs: 5000,
  });
});

test('redundancy counts only after the failure was noticed', () => {
  const early = at(10_005, 'scheduler', 'redundancy', { state: 'full' });
  expect(failuresOf(inOrder([...recovery, early]), [kill])[0]?.redundantMs).toBe(5000);
});

test('a node that came back before it was missed is noticed by its new process', () => {
  const join = at(10_500, 'scheduler', 'map.durable', { reason: 'join', name: 'ps-2', inc: 2 });
  expect(failuresOf([join], [kill])[0]?.detectedMs).toBe(500);
  expect(failuresOf([{ ...join, inc: 1 }], [kill])[0]?.detectedMs).toBeNull();
});

test('a scheduler is back when it is ready', () => {
  const events = [
    at(11_200, 'scheduler', 'scheduler.ready'),
    at(11_900, 'scheduler', 'redundancy', { state: 'full' }),
  ];
  const [failure] = failuresOf(events, [
    { ...kill, role: 'scheduler', name: 'scheduler', inc: 0, shards: [] },
  ]);
  expect(failure).toMatchObject({
    node: 'scheduler',
    detectedMs: 1200,
    redundantMs: 1900,
    keysReadyMs: null,
  });
});

test('the steady rate of a second failure is taken after the first recovery', () => {
  const second = { ...kill, name: 'ps-1', mono: 18_000, shards: [] };
  const events = inOrder([...training(), ...recovery]);
  const steady = failuresOf(events, [kill, second]).map((failure) => failure.steadySamplesPerSecond);
  expect(steady).toEqual([1000, 1000]);
  const alone = failuresOf(events, [second])[0]!.steadySamplesPerSecond!;
  expect(alone).toBeLessThan(1000);
});

test('workers are summed up, losses by their samples', () => {
  const summary = summarize([
    at(1000, 'worker-0', 'worker.training'),
    at(1500, 'worker-1', 'worker.training'),
    at(4000, 'worker-0', 'worker.done', { samples: 300, trainLoss: 0.4 }),
    at(5000, 'worker-1', 'worker.done', { samples: 100, trainLoss: 0.8 }),
  ]);
  expect(summary).toEqual({ samples: 400, seconds: 4, samplesPerSecond: 100, trainLoss: 0.5 });
  expect(summarize([])).toEqual({ samples: 0, seconds: 0, samplesPerSecond: 0, trainLoss: null });
});

const status = {
  ...{ name: 'd', epochs: 2, ranges: 4, finished: 4, open: 0, samples: [10, 10], redone: 3 },
  ...{ setAside: [], complete: true },
};
const books = { inFiles: 10, epochs: 2, status, told: 4, pushes: { acked: 5, lost: 0, duplicated: 0 } };

test('samples were trained exactly once when all books agree', () => {
  expect(samplesReport(books)).toMatchObject({
    ...{ inFiles: 10, epochs: 2, expected: 20, trained: 20, redone: 3, setAside: 0, ranges: 4 },
    ...{ exactlyOnce: true, problems: [] },
  });
  const unaudited = { ...books, pushes: { acked: 5, lost: null, duplicated: null } };
  expect(samplesReport(unaudited)).toMatchObject({ exactlyOnce: null, problems: [] });
  const aside = {
    ...{ number: 3, epoch: 1, file: 0, begin: 50, end: 100, fileName: 'a.tsv', batch: 2, attempts: 3 },
    ...{ code: 'BAD_DATA' as const, message: 'a.tsv:7:1: no label' },
  };
  for (const [name, wrong, problem] of [
    ['fewer samples', { status: { ...status, samples: [10, 9] } }, /epoch 1 trained 9 samples of 10/],
    ['a finished range that no worker told of', { told: 3 }, /4 ranges are finished, and workers told of 3/],
    ['no data set', { status: undefined }, /0 ranges are finished/],
    ['a range set aside', { status: { ...status, setAside: [aside] } }, /batch 2 failed 3 times: a.tsv:7:1/],
    ['a batch that was not applied', { pushes: { acked: 5, lost: 1, duplicated: 0 } }, undefined],
    ['a batch that was applied twice', { pushes: { acked: 5, lost: 0, duplicated: 1 } }, undefined],
  ] satisfies [string, Partial<SampleBooks>, RegExp | undefined][]) {
    const { exactlyOnce, problems } = samplesReport({ ...books, ...wrong });
    expect(exactlyOnce, name).toBe(false);
    if (problem) expect(problems.join(), name).toMatch(problem);
  }
});

test('a worker that was started again goes on where it was', () => {
  const events = [
    at(0, 'worker-0', 'worker.training'),
    at(1000, 'worker-0', 'worker.progress', { samples: 100 }),
    at(2000, 'worker-0', 'worker.training'),
    at(3000, 'worker-0', 'worker.progress', { samples: 50 }),
    // A worker that comes when all is done.
    at(9000, 'worker-1', 'worker.done', { samples: 0, trainLoss: null }),
  ];
  expect(progressPoints(events).map((point) => point.samples)).toEqual([0, 100, 100, 150, 0]);
  expect(summarize(events)).toMatchObject({ samples: 150, seconds: 3 });
});

test('goodput: compute that counted, of all seconds that workers had a place', () => {
  const events = [
    at(0, 'launcher', 'process.started', { name: 'ps-0' }),
    at(1000, 'launcher', 'process.started', { name: 'worker-0' }),
    at(1000, 'launcher', 'process.started', { name: 'worker-1' }),
    at(2000, 'worker-0', 'worker.progress', { samples: 100, productiveSeconds: 1 }),
    at(3000, 'worker-1', 'worker.progress', { samples: 100, productiveSeconds: 0.5 }),
    // Two seconds of nothing, then the next process of that name: it counts from 0.
    at(5000, 'launcher', 'process.started', { name: 'worker-1' }),
    at(6000, 'worker-0', 'worker.done', { samples: 400, productiveSeconds: 4 }),
    at(7000, 'worker-1', 'worker.progress', { samples: 50, productiveSeconds: 1 }),
    at(9000, 'launcher', 'process.started', { name: 'evaluation' }),
  ];
  expect(goodputReport(events)).toEqual({ ratio: 0.5, productiveSeconds: 5.5, allocatedSeconds: 11 });
  expect(goodputReport([])).toEqual({ ratio: null, productiveSeconds: 0, allocatedSeconds: 0 });
  expect(goodputLine(goodputReport(events))).toBe(
    'goodput     50.0 %: batches that counted took 5.5 s of 11.0 s of workers',
  );
  expect(goodputLine(goodputReport([]))).toBe('goodput     -, there was no worker');
});

test('a worker is lost when its samples go to others', () => {
  const record: KillRecord = { role: 'worker', name: 'worker-0', inc: 4, mono: 10_000, shards: [] };
  const events = [
    at(10_500, 'scheduler', 'worker.lost', { client: 5 }),
    at(11_000, 'scheduler', 'worker.lost', { client: 4 }),
    at(12_000, 'scheduler', 'redundancy', { state: 'full' }),
  ];
  const [failure] = failuresOf(inOrder([...training(), ...events]), [record]);
  expect(failure).toMatchObject({ node: 'worker-0', detectedMs: 1000, redundantMs: null, keysReadyMs: null });
});

test('a run is clean when nothing is lost, repeated or wrong', () => {
  const parity = { blocksExpected: 9, blocksChecked: 7, blocksUnprotected: 2, mismatched: 0 };
  const pushes = { acked: 5, lost: 0, duplicated: 0 };
  const samples = samplesReport(books);
  expect(problemOf({ pushes, parity, samples })).toBeUndefined();
  expect(problemOf({ pushes: { acked: 5, lost: null, duplicated: null }, parity, samples })).toBeUndefined();
  const internal = (text: string) => ({ code: 'INTERNAL', text: expect.stringContaining(text) });
  expect(problemOf({ pushes: { ...pushes, lost: 2 }, parity, samples })).toEqual(
    internal('2 acknowledged pushes are lost'),
  );
  expect(problemOf({ pushes: { ...pushes, duplicated: 1 }, parity, samples })).toEqual(
    internal('1 pushes were applied twice'),
  );
  expect(problemOf({ pushes, parity: { ...parity, mismatched: 3 }, samples })).toEqual(internal('3 blocks'));
});

test('a run whose last checkpoint failed is not clean; one that failed in the middle is', () => {
  const clean = {
    pushes: { acked: 1, lost: 0, duplicated: 0 },
    parity: { mismatched: 0 } as RunReport['parity'],
    samples: { problems: [] as string[] } as RunReport['samples'],
  };
  const failed = [{ number: 2, code: 'PLACE_FAILED', message: 'full' }];
  const made = (number: number) => ({ number, atSeconds: 1, seconds: 1, rows: 1, bytes: 1 });
  const place = { place: '/x', everySeconds: 1, newest: 1 };
  const unclean = { ...clean, checkpoints: { ...place, made: [made(1)], failed } };
  expect(problemOf(unclean)).toEqual({
    code: 'PLACE_FAILED',
    text: 'there is no checkpoint of the end: PLACE_FAILED: full',
  });
  // A broken invariant is what matters more.
  const broken = { ...unclean, pushes: { acked: 1, lost: 1, duplicated: 0 } };
  expect(problemOf(broken)).toMatchObject({
    code: 'INTERNAL',
    text: expect.stringContaining('PLACE_FAILED'),
  });
  expect(
    problemOf({ ...clean, checkpoints: { ...place, made: [made(1), made(3)], failed } }),
  ).toBeUndefined();
});

test('a run that is not saved is not clean: it has the code of what failed, and says what to do', () => {
  const clean = {
    pushes: { acked: 1, lost: 0, duplicated: 0 },
    parity: { mismatched: 0 } as RunReport['parity'],
    samples: { problems: [] as string[] } as RunReport['samples'],
  };
  const saved = { place: 'x', code: 'PLACE_FAILED' as const, message: 'full' };
  expect(problemOf({ ...clean, saved: { place: 'x', code: null, message: null } })).toBeUndefined();
  const text = 'nothing is saved in x: PLACE_FAILED: full';
  expect(problemOf({ ...clean, saved })).toEqual({ code: 'PLACE_FAILED', text: `${text}; train again` });
  const checkpoints = { place: '/x', everySeconds: 1, newest: 1, failed: [], made: [] };
  const way = 'load the last checkpoint and save that: --restore /x --save PLACE';
  expect(problemOf({ ...clean, saved, checkpoints })?.text).toBe(`${text}; ${way}`);
});

test('of ranges that were finished before the checkpoint, nobody says what nobody has kept', () => {
  const status = { complete: true, samples: [10], finished: 3, redone: 0, setAside: [] };
  const books = { inFiles: 10, epochs: 1, status, pushes: { acked: 5, lost: 0, duplicated: 0 } };
  const of = (told: number, untold: number) =>
    samplesReport({ ...books, told, untold } as unknown as SampleBooks);
  expect(of(3, 0)).toMatchObject({ exactlyOnce: true, problems: [] });
  expect(of(1, 2)).toMatchObject({ exactlyOnce: null, problems: [] });
  expect(of(1, 2).evidence).toContain('2 ranges were begun before');
  expect(of(1, 0).problems).toHaveLength(1);
});

/** The report's numbers on made-up events, where every answer can be worked out by hand. */
import { expect, test } from 'vitest';
import type { RoleEvent } from '../../src/local/events.js';
import { failuresOf, inOrder, type KillRecord, problemOf, summarize } from '../../src/local/report.js';

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
  at(12_000, 'ps-0', 'shard.whole', { group: 0, member: 1, gen: 9, blocksLost: 30, blocksOnDemand: 4 }),
  at(12_500, 'ps-1', 'shard.whole', { group: 3, member: 0, gen: 9, blocksLost: 12, blocksOnDemand: 0 }),
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

test('a run is clean when nothing is lost, repeated or wrong', () => {
  const parity = { blocksExpected: 9, blocksChecked: 7, blocksUnprotected: 2, mismatched: 0 };
  const pushes = { acked: 5, lost: 0, duplicated: 0 };
  expect(problemOf({ pushes, parity })).toBeUndefined();
  expect(problemOf({ pushes: { acked: 5, lost: null, duplicated: null }, parity })).toBeUndefined();
  expect(problemOf({ pushes: { ...pushes, lost: 2 }, parity })).toContain('2 acknowledged pushes are lost');
  expect(problemOf({ pushes: { ...pushes, duplicated: 1 }, parity })).toContain(
    '1 pushes were applied twice',
  );
  expect(problemOf({ pushes, parity: { ...parity, mismatched: 3 } })).toContain('3 blocks');
});

/** The recovery that ended last, whatever else recovers, moves or takes over meanwhile. */
import { expect, test } from 'vitest';
import { Happened } from '../../../src/fleet/dashboard/happened.js';
import { Recovered } from '../../../src/fleet/dashboard/recovered.js';
import type { Client } from '../../../src/library/client/client.js';
import type { JobEvent } from '../../../src/protocol/events.js';
import { jobOf } from './model.js';

let number = 0;
const event = (kind: string, fields: JobEvent['fields'] = {}): JobEvent => ({
  ...{ number: ++number, at: number * 1000, kind: kind as JobEvent['kind'], subject: '', fields },
});
const ended = (recovery: number, shards: number) =>
  event('recovery.complete', { recovery, shards, tookMs: 10 * recovery });

/** Happened after all these have been read. */
async function told(...events: JobEvent[]): Promise<Happened> {
  const client = {
    events: ({ since }: { since: number }) =>
      (async function* () {
        for (const each of events) if (each.number > since) yield each;
      })(),
  } as unknown as Client;
  const happened = new Happened();
  happened.follow(client, 'job');
  await expect.poll(() => happened.isKnown).toBe(true);
  return happened;
}

/** A job whose data shards (m of group g) were recovered by the decisions of these numbers. */
function jobWith(...shards: [g: number, m: number, gen: number, blocks: number, present?: number][]) {
  const seen = jobOf(6, 6, 2, 1);
  for (const [g, m, gen] of shards) Object.assign(seen.map.groups[g]!.data[m]!, { gen, init: false });
  seen.status.recoveries = shards.map(([g, m, gen, blocksLost, blocksPresent = blocksLost]) => ({
    ...{ g, m, gen, blocksLost, blocksPresent, blocksOnDemand: 1, keysReady: true as const },
  }));
  return seen;
}

test('of recoveries that overlap the one that ended last counts, with its own blocks only', async () => {
  const happened = await told(ended(12, 1), ended(10, 2));
  const recovered = new Recovered();
  recovered.look(jobWith([0, 0, 10, 30], [1, 0, 10, 40], [2, 0, 12, 500]));
  expect(recovered.last(happened.lastRecovery!)).toEqual({
    ...{ recovery: 10, at: 2000, shards: 2, tookMs: 100, blocks: 70, onDemand: 2 },
  });
});

test('shards that are lost again, or have moved on, do not change it', async () => {
  const recovered = new Recovered();
  recovered.look(jobWith([0, 0, 20, 30], [1, 0, 20, 40, 5]));
  // The second shard was lost again before it was complete: another recovery has it.
  recovered.look(jobWith([0, 0, 20, 30], [1, 0, 21, 40]));
  const first = event('recovery.complete', { recovery: 20, shards: 1, tookMs: 5 });
  expect(recovered.last(first)).toMatchObject({ recovery: 20, blocks: 30 });
  // The first one moves: its new owner reports nothing of the recovery.
  recovered.look(jobWith([0, 0, 25, 0], [1, 0, 21, 40]));
  expect(recovered.last(first)).toMatchObject({ recovery: 20, blocks: 30 });
});

test('one of an earlier scheduler is told as it was; blocks that nobody saw are not made up', async () => {
  const happened = await told(
    event('recovery.begun', { recovery: 30, shards: 3 }),
    event('scheduler.resumed', { epoch: 30 }),
    ended(30, 3),
  );
  const recovered = new Recovered();
  // Two of its shards have moved on before the page's server looked.
  recovered.look(jobWith([0, 0, 30, 7]));
  const last = recovered.last(happened.lastRecovery!);
  expect(last).toMatchObject({ recovery: 30, shards: 3, tookMs: 300 });
  expect(last).not.toHaveProperty('blocks');
});

test('it is known also when later events have pushed it out of the list', async () => {
  const happened = await told(ended(40, 1), ...Array.from({ length: 400 }, () => event('move.done')));
  expect(happened.shown.some(({ kind }) => kind === 'recovery.complete')).toBe(false);
  expect(happened.lastRecovery?.fields).toMatchObject({ recovery: 40 });
});

test('the newest checkpoint is known of a scheduler that took over', async () => {
  const saved = { plan: 'job', number: 4, rows: 10, bytes: 100, tookMs: 7, pausedMs: 0 };
  const happened = await told(
    event('checkpoint.done', { ...saved, number: 3 }),
    event('checkpoint.done', saved),
  );
  expect(happened.lastOf('job')).toMatchObject({ number: 4, rows: 10, bytes: 100, tookMs: 7 });
  expect(happened.lastOf('other')).toBe(undefined);
});

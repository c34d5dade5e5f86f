/** Events of jobs: what goes on for long is counted in one. */
import { expect, it } from 'vitest';
import { JobEvents } from '../../../src/fleet/operator/events.js';
import type { KubeObject } from '../../../src/fleet/operator/objects.js';
import { MemoryServer, randomOf } from './server.js';
import { jobOf, START } from './support.js';

type Told = KubeObject & { message: string; count: number; lastTimestamp: string };

function begin() {
  const server = new MemoryServer(randomOf(1));
  let now = START;
  const log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} } as never;
  const events = new JobEvents({ api: server, log, now: () => now });
  const again = (message: string, same = message) =>
    events.tellAgain(jobOf(), { type: 'Warning', reason: 'Refused', message }, same);
  const pass = (ms: number): void => {
    now += ms;
  };
  return { server, events, again, pass };
}

it('two that alternate are two events, which are written again in ever longer pauses', async () => {
  const { server, again, pass } = begin();
  for (let half = 0; half < 150; half++) {
    await again(half % 2 === 0 ? 'no scheduler' : 'no PS');
    pass(500);
  }
  const told = server.of<Told>('Event');
  expect(told.map(({ message }) => message)).toEqual(['no scheduler', 'no PS']);
  // 75 s: after 30 s each was written again, and after another 60 s it would be.
  expect(server.requests).toEqual(
    new Map([
      ['create', 2],
      ['update', 2],
    ]),
  );
  for (const { count, lastTimestamp } of told) {
    expect(count).toBeGreaterThanOrEqual(30);
    expect(Date.parse(lastTimestamp)).toBeGreaterThanOrEqual(START + 30_000);
  }
});

it('the longest pause is half an hour, and an event that was forgotten is made anew', async () => {
  const { server, again, pass } = begin();
  for (let minute = 0; minute < 600; minute++) {
    await again('no');
    pass(60_000);
  }
  const writes = () => (server.requests.get('create') ?? 0) + (server.requests.get('update') ?? 0);
  expect(writes()).toBeGreaterThanOrEqual(20);
  expect(writes()).toBeLessThanOrEqual(27);
  const [event] = server.of<Told>('Event');
  server.drop('Event', event!.metadata);
  pass(1_800_000);
  await again('no');
  expect(server.of<Told>('Event')[0]!.count).toBe(601);
});

it('many different ones share an event', async () => {
  const { server, again } = begin();
  for (let index = 0; index < 100; index++) await again(`text ${index}`);
  expect(server.of<Told>('Event')).toHaveLength(17);
});

it('a job of the same name begins with none', async () => {
  const { server, events, again } = begin();
  await again('no');
  const job = jobOf();
  job.metadata.uid = 'another';
  await events.tellAgain(job, { type: 'Warning', reason: 'Refused', message: 'no' }, 'no');
  expect(server.of<Told>('Event')).toHaveLength(2);
});

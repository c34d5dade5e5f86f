/** Events of a job, read by clients: also by one that comes later, and from the next scheduler. */
import { expect, it } from 'vitest';
import type { EventKind, JobEvent } from '../../src/protocol/events.js';
import { openDirectoryStore } from '../../src/stores/decisions/directory.js';
import { client, cluster, ps, redundant, rejection, scheduler, temporaryDirectory } from './support.js';

async function until(events: AsyncIterable<JobEvent>, ...kinds: EventKind[]): Promise<JobEvent[]> {
  const seen: JobEvent[] = [];
  for await (const event of events) {
    seen.push(event);
    if (event.kind === kinds[0]) kinds.shift();
    if (kinds.length === 0) break;
  }
  return seen;
}

const RECOVERY: EventKind[] = ['recovery.begun', 'recovery.keysReady', 'recovery.complete'];

async function gather(events: AsyncIterable<JobEvent>): Promise<JobEvent[]> {
  const seen: JobEvent[] = [];
  for await (const event of events) seen.push(event);
  return seen;
}

it('a follower hears of a loss and of what became of it; who comes later reads the same', async () => {
  const running = await cluster({ code: '2+1', ps: 4 });
  const reader = await client(running.address);
  await redundant(reader);
  const since = (await gather(reader.events())).at(-1)!.number;
  const following = until(reader.events({ since, follow: true }), 'node.lost', ...RECOVERY);
  await running.kill(1);
  const seen = await following;
  const lost = seen.find(({ kind }) => kind === 'node.lost')!;
  expect(lost).toMatchObject({ subject: 'ps-1', fields: { name: 'ps-1', inc: 1 } });
  expect(Math.abs(Date.now() - lost.at)).toBeLessThan(600_000);
  expect(seen.map(({ number }) => number)).toEqual(seen.map((_, i) => since + 1 + i));
  const later = await client(running.address);
  const all = await gather(later.events());
  expect(all.filter(({ number }) => number > since).slice(0, seen.length)).toEqual(seen);
  expect(all.map(({ number }) => number)).toEqual(all.map((_, i) => i + 1));
});

it('events survive the scheduler, and a follower goes on where it was', async () => {
  const store = temporaryDirectory();
  const first = await scheduler({ store: openDirectoryStore(store) });
  await ps({ scheduler: first.address });
  const reader = await client(first.address);
  const events = reader.events({ follow: true });
  const before = await until(events, 'node.joined');
  await first.close();
  await scheduler({ store: openDirectoryStore(store), listen: first.address });
  const after = await until(
    reader.events({ since: before.at(-1)!.number, follow: true }),
    'scheduler.resumed',
  );
  const numbers = [...before, ...after].map(({ number }) => number);
  expect(numbers).toEqual(numbers.map((_, i) => i + 1));
});

it('a client tells what it has decided', async () => {
  const running = await cluster({ code: '1+1' });
  const teller = await client(running.address);
  const fields = { action: 'scale', reason: 'memory', ps: 5, dryRun: true };
  const number = await teller.tellEvent('autoscale.decided', fields);
  const [event] = await gather(teller.events({ since: number - 1 }));
  expect(event).toMatchObject({ number, kind: 'autoscale.decided', subject: 'scale', fields });
  const refused = await rejection(teller.tellEvent('node.lost' as 'autoscale.decided', {}));
  expect(refused).toEqual({ code: 'BAD_ARGUMENT', message: 'tellEvent: clients tell no "node.lost"' });
  const unknown = await rejection(teller.tellEvent('autoscale.decided', { color: 'red' }));
  expect(unknown.message).toContain('no field "color"');
  const stop = new AbortController();
  const events = teller.events({ signal: stop.signal });
  await events.next();
  stop.abort();
  expect((await rejection(events.next())).code).toBe('ABORTED');
  const told = [new Date(), { toJSON: () => 'x' }, ['x'], new Map(), 'x', { ps: 5n }, { action: {} }];
  for (const wrong of told) {
    const refused = await rejection(teller.tellEvent('autoscale.decided', wrong as never));
    expect(refused.code).toBe('BAD_ARGUMENT');
  }
});

it('following ends with its signal, and with the client', async () => {
  const running = await cluster({ code: '1+1' });
  const reader = await client(running.address);
  const newest = (await gather(reader.events())).at(-1)!.number;
  const stop = new AbortController();
  const waiting = reader.events({ since: newest + 50, follow: true, signal: stop.signal }).next();
  stop.abort();
  expect((await rejection(waiting)).code).toBe('ABORTED');
  const other = reader.events({ since: newest + 50, follow: true }).next();
  await reader.close();
  expect((await rejection(other)).code).toBe('CLOSED');
});

/** /status and /events of a scheduler, as JSON and as a stream, and who may read them. */
import { expect, it, onTestFinished } from 'vitest';
import { poolsFor } from '../../../src/core/placement/job.js';
import type { EventKind, JobEvent } from '../../../src/protocol/events.js';
import type { JobStatus } from '../../../src/protocol/messages.js';
import { client, cluster, ps, redundant, scheduler } from '../support.js';

const SSE = { accept: 'text/event-stream' };

/** Events of a stream until one of this kind, and the numbers that it gave them. */
async function until(
  url: string,
  kind: EventKind,
  headers = {},
): Promise<[ids: number[], events: JobEvent[]]> {
  const stop = new AbortController();
  onTestFinished(() => stop.abort());
  const response = await fetch(url, { headers: { ...SSE, ...headers }, signal: stop.signal });
  expect([response.status, response.headers.get('content-type')]).toEqual([200, 'text/event-stream']);
  let text = '';
  const [ids, events]: [number[], JobEvent[]] = [[], []];
  for await (const chunk of response.body!) {
    text += Buffer.from(chunk).toString();
    const blocks = text.split('\n\n');
    text = blocks.pop()!;
    for (const block of blocks) {
      const match = /^id: (\d+)\ndata: (.*)$/.exec(block);
      if (!match) continue;
      ids.push(Number(match[1]));
      events.push(JSON.parse(match[2]!) as JobEvent);
    }
    if (events.some((event) => event.kind === kind)) break;
  }
  return [ids, events];
}

it('tells the status and what happened', async () => {
  const job = await cluster({ code: '2+1', ps: 4 });
  const reader = await client(job.address);
  await redundant(reader, 4);
  const page = async (path: string) => (await fetch(`http://${job.address}${path}`)).json();
  const status = (await page('/status')) as JobStatus;
  expect(status).toMatchObject({ redundancy: 'full', job: (await reader.status()).job });
  expect(status.nodes).toHaveLength(4);
  type Page = { events: JobEvent[]; newest: number };
  const { events, newest } = (await page('/events')) as Page;
  const all: JobEvent[] = [];
  for await (const event of reader.events()) all.push(event);
  expect(events).toEqual(all.slice(0, events.length));
  expect(newest).toBe(events.at(-1)!.number);
  // The job goes on: more may have happened since.
  const since = (await page(`/events?since=${newest - 1}`)) as Page;
  expect(since.events[0]!.number).toBe(newest);
});

it('follows as a stream, and goes on after the last event that a browser has', async () => {
  const job = await cluster({ code: '2+1', ps: 4 });
  await redundant(await client(job.address), 4);
  const url = `http://${job.address}/events`;
  const following = until(url, 'node.lost');
  await job.kill(1);
  const [ids, events] = await following;
  expect(ids).toEqual(events.map(({ number }) => number));
  expect(ids).toEqual(ids.map((_, i) => i + 1));
  const { number } = events.find(({ kind }) => kind === 'node.lost')!;
  const [again] = await until(`${url}?since=1`, 'node.lost', { 'last-event-id': `${number - 1}` });
  expect(again[0]).toBe(number);
});

it('refuses what is no number, and changes nothing', async () => {
  const job = await cluster({ code: '1+1' });
  const answer = await fetch(`http://${job.address}/events?since=x`);
  expect([answer.status, await answer.json()]).toEqual([
    400,
    { code: 'BAD_ARGUMENT', message: 'an event has a number, not "x"' },
  ]);
  for (const path of ['/status', '/events'])
    for (const method of ['POST', 'PUT', 'DELETE'])
      expect((await fetch(`http://${job.address}${path}`, { method })).status).toBe(405);
});

it('gives nothing to who has no token', async () => {
  const options = { token: 'secret', metricsToken: 'another' };
  const pools = poolsFor({ k: 1, r: 0 }, 1);
  const { address } = await scheduler({ ...options, pools });
  await ps({ scheduler: address, token: 'secret' });
  for (const path of ['/status', '/events', '/events?since=3', '/metrics']) {
    for (const headers of [
      {},
      SSE,
      { authorization: 'Bearer secret' },
      { ...SSE, authorization: 'another' },
    ]) {
      const answer = await fetch(`http://${address}${path}`, { headers });
      expect([path, answer.status]).toEqual([path, 401]);
      expect(await answer.text()).not.toMatch(/ps-0|redundancy/);
    }
    const allowed = await fetch(`http://${address}${path}`, { headers: { authorization: 'Bearer another' } });
    expect([path, allowed.status]).toEqual([path, 200]);
    await allowed.text();
  }
});

/** A peer that asks for the status again and again does not keep the scheduler busy. */
import { expect, it, vi } from 'vitest';
import { Scheduler } from '../../../src/core/scheduler/scheduler.js';
import { dial, type Link } from '../../../src/net/transport/index.js';
import type { JobStatus, MessageOf } from '../../../src/protocol/messages.js';
import { StatusAnswers } from '../../../src/roles/scheduler/status-answers.js';
import { client, scheduler } from '../support.js';

class Story {
  made = 0;
  version = 'a';
  now = 0;
  /** Cost of each answer, in milliseconds. */
  costMs = 0;
  readonly sent: [link: number, id: number][] = [];
  readonly answers = new StatusAnswers({
    make: () => ({ epoch: ++this.made }) as JobStatus,
    version: () => this.version,
    clock: () => this.now,
  });

  link(id: number): Link {
    const send = (message: MessageOf<'statusReply'>): void => {
      this.now += this.costMs;
      this.sent.push([id, message.id]);
    };
    return { id, send } as unknown as Link;
  }

  /** Links that were answered since this was last asked. */
  take(): number[] {
    return this.sent.splice(0).map(([link]) => link);
  }
}

it('is put together once in a tick, unless something was decided or asked for', () => {
  const story = new Story();
  const [link] = [story.link(1)];
  for (let id = 0; id < 5; id++) story.answers.ask(link!, id);
  expect([story.made, story.sent.length]).toEqual([1, 5]);
  story.version = 'b';
  story.answers.ask(link!, 6);
  story.answers.outdated();
  story.answers.ask(link!, 7);
  expect(story.made).toBe(3);
  story.answers.tick();
  story.answers.ask(link!, 8);
  expect([story.made, story.sent.length]).toEqual([4, 8]);
});

it('is told to a connection so many times in a tick; the rest waits, or is dropped beyond a limit', () => {
  const story = new Story();
  const link = story.link(1);
  for (let id = 0; id < 10_000; id++) story.answers.ask(link, id);
  expect(story.take()).toHaveLength(16);
  const later: number[] = [];
  for (let i = 0; i < 10; i++) {
    story.answers.tick();
    later.push(story.take().length);
  }
  expect(later).toEqual([16, 16, 16, 16, 0, 0, 0, 0, 0, 0]);
});

it('is answered once when the question is repeated while it waits', () => {
  const story = new Story();
  const link = story.link(1);
  for (let id = 0; id < 16; id++) story.answers.ask(link, id);
  for (let i = 0; i < 5; i++) story.answers.ask(link, 99);
  story.take();
  story.answers.tick();
  expect(story.take()).toHaveLength(1);
});

it('takes a part of a tick, and those who wait take turns', () => {
  const story = new Story();
  story.costMs = 4;
  const links = [1, 2, 3, 4].map((id) => story.link(id));
  for (const link of links) for (let id = 0; id < 3; id++) story.answers.ask(link, id);
  expect(story.take()).toEqual([1, 1, 1]);
  const turns: number[] = [];
  for (let i = 0; i < 4; i++) {
    story.answers.tick();
    const answered = story.take();
    expect(answered.length).toBeLessThanOrEqual(3);
    turns.push(...answered);
  }
  expect(turns.slice(0, 3).sort()).toEqual([2, 3, 4]);
  expect([...turns].sort()).toEqual([2, 2, 2, 3, 3, 3, 4, 4, 4]);
});

it('forgets who has gone', () => {
  const story = new Story();
  const link = story.link(1);
  for (let id = 0; id < 20; id++) story.answers.ask(link, id);
  story.take();
  story.answers.closed(link);
  story.answers.tick();
  expect(story.take()).toEqual([]);
});

it('of a real scheduler: ten thousand questions cost few, and others are answered meanwhile', async () => {
  const { address } = await scheduler();
  const made = vi.spyOn(Scheduler.prototype, 'status');
  const port = Number(address.split(':')[1]);
  let answered = 0;
  const link = await dial({
    host: '127.0.0.1',
    port,
    handlers: {
      onOpen: () => {},
      onMessage: () => {
        answered++;
      },
      onClose: () => {},
      onError: () => {},
    },
  });
  for (let id = 1; id <= 10_000; id++) link.send({ t: 'status', id });
  const other = await client(address, { waitForJob: false });
  for (let i = 0; i < 10; i++) expect((await other.status()).redundancy).toBe('forming');
  // Questions that are not dropped are answered in the ticks after.
  while (answered < 16) await other.status();
  expect(answered).toBeLessThan(1000);
  expect(made.mock.calls.length).toBeLessThan(1000);
  link.close('done');
  made.mockRestore();
});

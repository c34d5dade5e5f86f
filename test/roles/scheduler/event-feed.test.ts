import { expect, it } from 'vitest';
import type { Link } from '../../../src/net/transport/index.js';
import type { JobEvent } from '../../../src/protocol/events.js';
import type { MessageOf } from '../../../src/protocol/messages.js';
import { EventFeed } from '../../../src/roles/scheduler/event-feed.js';

function feed() {
  const kept: JobEvent[] = [];
  const source = {
    durable: 0,
    since: (number: number) =>
      kept.filter((event) => event.number > number && event.number <= source.durable),
  };
  const clock = { now: 0 };
  const made = new EventFeed(source, () => clock.now);
  const happen = () => {
    kept.push({ number: ++source.durable, at: 1, kind: 'redundancy', subject: 'job', fields: {} });
    made.look();
  };
  const answers: [id: number, numbers: number[]][] = [];
  const link = {
    id: 1,
    send: ({ id, events }: MessageOf<'eventsReply'>) =>
      answers.push([id, events.map(({ number }) => number)]),
  } as unknown as Link;
  return { made, happen, answers, link, clock };
}

it('who does not follow is answered at once, who follows when something happens', () => {
  const { made, happen, answers, link } = feed();
  made.ask(link, { id: 1, since: 0, follow: false });
  made.ask(link, { id: 2, since: 0, follow: true });
  made.ask(link, { id: 2, since: 0, follow: true });
  expect(answers).toEqual([[1, []]]);
  happen();
  expect(answers).toEqual([
    [1, []],
    [2, [1]],
  ]);
  made.ask(link, { id: 3, since: 0, follow: true });
  expect(answers.at(-1)).toEqual([3, [1]]);
});

it('a question that follows is answered with nothing after some seconds', () => {
  const { made, answers, link, clock } = feed();
  made.ask(link, { id: 1, since: 0, follow: true });
  clock.now = 9_999;
  made.tick();
  expect(answers).toEqual([]);
  clock.now = 10_000;
  made.tick();
  expect(answers).toEqual([[1, []]]);
});

it('a connection has so many questions that wait, and so many answers in a tick', () => {
  const { made, happen, answers, link } = feed();
  for (let id = 0; id < 100; id++) made.ask(link, { id, since: 0, follow: true });
  happen();
  expect(answers).toHaveLength(16);
  made.tick();
  for (let id = 0; id < 100; id++) made.ask(link, { id, since: 0, follow: false });
  expect(answers).toHaveLength(16 + 32);
  made.tick();
  made.ask(link, { id: 1, since: 0, follow: false });
  expect(answers).toHaveLength(16 + 32 + 1);
  made.closed(link);
});

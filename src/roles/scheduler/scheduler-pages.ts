/**
 * Pages of a scheduler about its job over HTTP: `/status` and `/events`, to whoever may read `/metrics`.
 * Nothing here changes anything.
 */

import { coded, type HttpAnswer, type HttpDetails, type HttpStream } from '../../net/transport/index.js';
import { limitText } from '../../protocol/limits.js';
import type { JobStatus } from '../../protocol/messages.js';
import type { EventFeed } from './event-feed.js';

/** A stream says so often that it lives. Both servers would close one that is silent for longer. */
const BEAT_MS = 4000;
/** A browser whose stream has ended asks again after this time. */
const RETRY_MS = 1000;

export interface SchedulerPages {
  /** Undefined: too many have asked of late. */
  status(): JobStatus | undefined;
  readonly feed: EventFeed;
}

const json = (value: unknown): HttpAnswer => ({
  status: 200,
  type: 'application/json',
  body: JSON.stringify(value),
});

/** Undefined: there is no such page. */
export function pageOf(
  { status, feed }: SchedulerPages,
  path: string,
  details: HttpDetails,
): Promise<HttpAnswer> | undefined {
  if (path === '/status') {
    const told = status();
    return Promise.resolve(
      told
        ? json(told)
        : coded(503, 'LIMIT', limitText('too many ask for the status: ask later', 'maxStatusQuestions')),
    );
  }
  if (path !== '/events') return undefined;
  return Promise.resolve(eventsPage(feed, details));
}

function eventsPage(feed: EventFeed, { query, accept, lastEventId }: HttpDetails): HttpAnswer {
  const asked = lastEventId || (new URLSearchParams(query).get('since') ?? '0');
  const since = /^\d{1,15}$/.test(asked) ? Number(asked) : undefined;
  if (since === undefined)
    return coded(400, 'BAD_ARGUMENT', `an event has a number, not "${asked.slice(0, 80)}"`);
  if (accept.includes('text/event-stream')) {
    const body = `retry: ${RETRY_MS}\n\n`;
    return { status: 200, type: 'text/event-stream', body, stream: streamOf(feed, since) };
  }
  const events = [...feed.after(since)];
  return json({ events, newest: feed.newest });
}

function streamOf(feed: EventFeed, since: number): HttpStream {
  let seen = since;
  let beat = false;
  return {
    open(wake) {
      const end = feed.listen(wake);
      const timer = setInterval(() => {
        beat = true;
        wake();
      }, BEAT_MS);
      return () => {
        clearInterval(timer);
        end();
      };
    },
    next() {
      const events = feed.since(seen);
      seen = events.at(-1)?.number ?? seen;
      const text = events.map((event) => `id: ${event.number}\ndata: ${JSON.stringify(event)}\n\n`).join('');
      if (text !== '' || !beat) return text;
      beat = false;
      return ': \n\n';
    },
  };
}

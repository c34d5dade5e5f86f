/** The events of a job: read, followed, and told by whoever decides something for the job. */
import { aborted, causedBy, KintsugiError } from '../../common/errors.js';
import {
  checkInteger,
  checkOptions,
  checkSignal,
  checkSwitch,
  isRecord,
  type OptionKeys,
} from '../../common/options.js';
import {
  type EventFields,
  isEventKind,
  type JobEvent,
  specOf,
  type ToldKind,
} from '../../protocol/events.js';
import type { Message } from '../../protocol/messages.js';

/** Options of {@link Client.events}. */
export interface EventsOptions {
  /** Number of an event: only later ones are given. Default: 0, all that are kept. */
  since?: number | undefined;
  /** Goes on with events as they happen, without an end. Default: ends with the newest one. */
  follow?: boolean | undefined;
  /** Ends the iteration with ABORTED. */
  signal?: AbortSignal | undefined;
}

const EVENTS_OPTIONS = {
  since: true,
  follow: checkSwitch,
  signal: checkSignal,
} satisfies OptionKeys<EventsOptions>;

/** The parts of a session that reading events uses. */
interface EventsSession {
  ask(build: (id: number) => Message, limitMs?: number, signal?: AbortSignal): Promise<Message>;
}

/** See `Client.events`. @throws BAD_ARGUMENT */
export function eventsOf(session: EventsSession, options: EventsOptions): AsyncGenerator<JobEvent, void> {
  checkOptions('events', options, EVENTS_OPTIONS);
  const { since = 0 } = options;
  checkInteger('events: since', since, 0);
  return iterate(session, { ...options, since });
}

async function* iterate(
  session: EventsSession,
  { since, follow = false, signal }: EventsOptions & { since: number },
): AsyncGenerator<JobEvent, void> {
  let seen = since;
  for (;;) {
    if (signal?.aborted) throw aborted();
    const after = seen;
    const reply = await session.ask((id) => ({ t: 'events', id, since: after, follow }), undefined, signal);
    if (reply.t !== 'eventsReply') throw new KintsugiError('INTERNAL', `unexpected answer "${reply.t}"`);
    for (const event of reply.events) {
      if (signal?.aborted) throw aborted();
      seen = Math.max(seen, event.number);
      yield event;
    }
    // Events that are missing here have been pushed out meanwhile.
    if (!follow && (seen >= reply.newest || reply.events.length === 0)) return;
  }
}

/** The value that the receiver of a message gets. @throws BAD_ARGUMENT for what JSON has not */
function asJson(given: EventFields): EventFields | undefined {
  try {
    return JSON.parse(JSON.stringify(given) ?? 'null');
  } catch (error) {
    throw causedBy(error, 'BAD_ARGUMENT', 'tellEvent: fields');
  }
}

/** See `Client.tellEvent`. */
export async function tellEvent(session: EventsSession, kind: ToldKind, given: EventFields): Promise<number> {
  if (!isEventKind(kind) || !specOf(kind).told)
    throw new KintsugiError('BAD_ARGUMENT', `tellEvent: clients tell no "${kind}"`);
  const fields = asJson(given);
  if (!isRecord(given) || !isRecord(fields))
    throw new KintsugiError('BAD_ARGUMENT', 'tellEvent: fields must be an object');
  const known = specOf(kind).fields;
  const unknown = Object.keys(fields).find((name) => !known.includes(name));
  if (unknown !== undefined)
    throw new KintsugiError('BAD_ARGUMENT', `tellEvent: "${kind}" has no field "${unknown}"`);
  const reply = await session.ask((id) => ({ t: 'tellEvent', id, kind, fields }));
  if (reply.t !== 'eventTold') throw new KintsugiError('INTERNAL', `unexpected answer "${reply.t}"`);
  if (reply.code) throw new KintsugiError(reply.code, reply.message ?? reply.code);
  return reply.number;
}

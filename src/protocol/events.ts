/**
 * The events of a job that its scheduler keeps: the newest `EVENTS_KEPT`, durably. These are the events of
 * its log whose kinds are listed here. An event has the fields that are listed for its kind, as far as they
 * apply.
 */
import type { ErrorCode } from '../common/errors.js';

/** Events that the scheduler keeps: a new one replaces the oldest. */
export const EVENTS_KEPT = 1000;
/** Most events in one answer. */
export const EVENTS_AT_ONCE = 100;
/** Most fields of an event in a message; no kind has as many. */
export const MAX_EVENT_FIELDS = 16;
/** Most characters of a text in a field; longer texts are cut off. */
const EVENT_TEXT = 256;

interface EventSpec {
  /** Occasion of the event, for docs/events.md. */
  readonly when: string;
  /** Subject of the event, with fields in braces. Default: the job. */
  readonly subject?: string;
  readonly fields: readonly string[];
  /** True: clients tell the event. The scheduler makes all others itself. */
  readonly told?: true;
}

const CHANGE: Pick<EventSpec, 'subject' | 'fields'> = {
  subject: 'change {change}',
  fields: ['change', 'kind', 'from', 'to', 'reason', 'shardsMoved', 'bytesMoved'],
};

/** Every kind that is kept. */
export const EVENT_KINDS = {
  'scheduler.resumed': { when: 'a scheduler went on with the job', fields: ['epoch'] },
  'node.joined': {
    when: 'a process of a PS joined',
    subject: '{name}',
    fields: ['node', 'name', 'inc', 'host', 'standby'],
  },
  'node.lost': {
    when: 'a node was given up, so long after it was last heard',
    subject: '{name}',
    fields: ['node', 'name', 'inc', 'reason', 'silentMs'],
  },
  'node.suspected': {
    when: 'a node is silent, and a group could not do without it',
    subject: '{name}',
    fields: ['node', 'name', 'inc', 'reason', 'silentMs'],
  },
  'node.stopped': {
    when: 'the event loop of a PS does not turn, though its process answers; so long after its last turn',
    subject: '{name}',
    fields: ['node', 'name', 'inc', 'silentMs'],
  },
  'node.turning': {
    when: 'it turns again',
    subject: '{name}',
    fields: ['node', 'name', 'inc'],
  },
  'node.overloaded': {
    when: 'the event loop of a PS turns late, and has for so long: it has more to do than it can',
    subject: '{name}',
    fields: ['node', 'name', 'inc', 'forMs'],
  },
  'node.left': {
    when: 'an emptied node was taken off the map',
    subject: '{name}',
    fields: ['node', 'name', 'inc'],
  },
  'recovery.begun': {
    when: 'data shards whose nodes are gone have new owners; the recovery has the number of the map',
    subject: 'recovery {recovery}',
    fields: ['recovery', 'shards'],
  },
  'recovery.keysReady': {
    when: 'all shards of a recovery serve again, so long after it was decided',
    subject: 'recovery {recovery}',
    fields: ['recovery', 'shards', 'tookMs'],
  },
  'recovery.complete': {
    when: 'all shards of a recovery have every block; those that were lost again are not among them',
    subject: 'recovery {recovery}',
    fields: ['recovery', 'shards', 'tookMs'],
  },
  redundancy: {
    when: 'the redundancy of the job is another: `forming`, `full`, `degraded`, `recovering` or `lost`',
    fields: ['state', 'epoch'],
  },
  'shard.lost': {
    when: 'a shard is beyond repair; which checkpoint would bring back how many rows, from how long ago',
    subject: 'shard {group}/{member}',
    fields: ['group', 'member', 'url', 'number', 'rows', 'agoMs'],
  },
  'change.begun': { when: 'a scale, drain, rebalance or join was planned', ...CHANGE },
  'change.done': { when: 'it is carried out', ...CHANGE },
  'change.cancelled': { when: 'it was taken back', ...CHANGE },
  'move.done': {
    when: 'one planned move is over',
    subject: '{kind} {index} of group {group}',
    fields: ['group', 'kind', 'index', 'from', 'to', 'bytes'],
  },
  'checkpoint.done': {
    when: 'the manifest of a checkpoint is stored',
    subject: 'checkpoint {number}',
    fields: ['plan', 'number', 'rows', 'bytes', 'tookMs', 'pausedMs'],
  },
  'checkpoint.failed': {
    when: 'there is no checkpoint of this number',
    subject: 'checkpoint {number}',
    fields: ['plan', 'number', 'code', 'message'],
  },
  'restore.lost': {
    when: 'a lost shard is loaded from a checkpoint',
    subject: 'checkpoint {number}',
    fields: ['number', 'group', 'member', 'rows', 'agoMs'],
  },
  'restore.done': {
    when: 'all shards of a checkpoint are loaded',
    subject: 'checkpoint {number}',
    fields: ['number', 'tookMs', 'atLeastOnce'],
  },
  'dataset.opened': {
    when: 'the first worker of a run registered its files',
    subject: 'run {name}',
    fields: ['name', 'ranges', 'epochs'],
  },
  'dataset.complete': {
    when: 'every range of a run is finished or set aside',
    subject: 'run {name}',
    fields: ['name', 'samples', 'redone'],
  },
  'worker.lost': {
    when: "a worker's connection is gone; its ranges go to others",
    subject: 'client {client}',
    fields: ['client'],
  },
  'range.lost': {
    when: 'a lease ended without its range being finished: the range is done again from batch `done` on',
    subject: 'range {range}',
    fields: ['name', 'range', 'client', 'done', 'reason'],
  },
  'range.setAside': {
    when: 'a range failed too often',
    subject: '{fileName}',
    fields: ['fileName', 'epoch', 'file', 'begin', 'end', 'batch', 'attempts', 'code', 'message'],
  },
  'autoscale.decided': {
    when: 'an autoscaler has decided something, and its numbers',
    subject: '{action}',
    fields: ['action', 'reason', 'ps', 'psBefore', 'workers', 'workersBefore', 'value', 'limit', 'dryRun'],
    told: true,
  },
  'autoscale.tookBack': {
    when: 'an autoscaler has taken back a decision that was not worth it',
    subject: '{action}',
    fields: ['action', 'reason', 'ps', 'psBefore', 'workers', 'workersBefore', 'value', 'limit', 'dryRun'],
    told: true,
  },
} as const satisfies Record<string, EventSpec>;

/** Kinds of events of a job; docs/events.md says when each happens. */
export type EventKind = keyof typeof EVENT_KINDS;
/** Kinds of events that clients tell. */
export type ToldKind = {
  [K in EventKind]: (typeof EVENT_KINDS)[K] extends { told: true } ? K : never;
}[EventKind];

/** Fields of an event: numbers, texts and booleans. */
export type EventFields = Readonly<Record<string, number | string | boolean>>;

/** An event of a job. */
export interface JobEvent {
  /** Ascending from 1, and never given twice in a job. */
  readonly number: number;
  /** Milliseconds since 1970, by the clock of the scheduler; exact to a twentieth of a second. */
  readonly at: number;
  readonly kind: EventKind;
  /** Subject of the event, for people: a name, or a word and a number. */
  readonly subject: string;
  /**
   * Fields of the kind; see docs/events.md. `skipped`: number of events of this kind just before it that were
   * not kept, because there were too many of them.
   */
  readonly fields: EventFields;
}

export const isEventKind = (name: string): name is EventKind => Object.hasOwn(EVENT_KINDS, name);

export const specOf = (kind: EventKind): EventSpec => EVENT_KINDS[kind];

/** The fields that the kind has, as far as they were given as plain values. */
export function fieldsOf(kind: EventKind, given: Readonly<Record<string, unknown>>): EventFields {
  const fields: Record<string, number | string | boolean> = {};
  for (const name of specOf(kind).fields) {
    const value = given[name];
    if (typeof value === 'string') fields[name] = value.slice(0, EVENT_TEXT);
    else if (typeof value === 'number' ? Number.isFinite(value) : typeof value === 'boolean')
      fields[name] = value as number | boolean;
  }
  return fields;
}

export function subjectOf(kind: EventKind, fields: EventFields): string {
  const { subject = 'job' } = specOf(kind);
  return subject.replace(/\{(\w+)\}/g, (_, field: string) => `${fields[field] ?? '?'}`);
}

// ---- client -> scheduler
/**
 * Asks for the events after number `since`. With `follow` the answer waits until there is one, for some
 * seconds.
 */
export interface Events {
  t: 'events';
  id: number;
  since: number;
  follow: boolean;
}
/** The sender adds an event, because it has decided something about the job. */
export interface TellEvent {
  t: 'tellEvent';
  id: number;
  kind: ToldKind;
  fields: EventFields;
}

// ---- scheduler -> client
/**
 * The oldest events after the number that was asked for, at most `EVENTS_AT_ONCE`; all are durable. `newest`:
 * number of the newest event.
 */
export interface EventsReply {
  t: 'eventsReply';
  id: number;
  events: JobEvent[];
  newest: number;
}
/** The event is durable under `number`, or is not kept, and `code` says why. */
export interface EventTold {
  t: 'eventTold';
  id: number;
  number: number;
  code?: ErrorCode;
  message?: string;
}

export type EventMessage = Events | TellEvent | EventsReply | EventTold;

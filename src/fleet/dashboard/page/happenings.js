/** Events of the job in words, with their marks on the time line. */
import { bytes, count, duration, plural } from './format.js';

const CHANGES = {
  scale: ({ from, to }) => `scaling from ${from} to ${to} PS`,
  drain: () => 'draining a node',
  rebalance: () => 'rebalancing',
  join: () => 'a share for a node that joined',
};
const change = (fields) => CHANGES[fields.kind]?.(fields) ?? `${fields.kind}`;

/** For each kind: mark, tone, and words. Kinds that are not here are named as they are. */
export const KINDS = {
  'scheduler.resumed': ['◇', 'plain', () => 'a scheduler took over the job'],
  'node.joined': ['▲', 'good', ({ name }) => `${name} joined`],
  'node.lost': ['▼', 'bad', ({ name, reason }) => `${name} was lost${reason ? ` (${reason})` : ''}`],
  'node.suspected': ['▽', 'bad', ({ name }) => `${name} is silent`],
  'node.stopped': ['▽', 'bad', ({ name }) => `${name} answers, and does not turn`],
  'node.turning': ['▵', 'good', ({ name }) => `${name} turns again`],
  'node.overloaded': ['◮', 'bad', ({ name }) => `${name} is overloaded`],
  'node.left': ['△', 'plain', ({ name }) => `${name} left`],
  redundancy: ['◆', 'state', ({ state }) => `redundancy: ${state}`],
  'recovery.begun': ['◔', 'warn', ({ shards }) => `${plural(shards, 'shard')} being decoded`],
  'recovery.keysReady': [
    '◑',
    'warn',
    ({ shards, tookMs }) => `${plural(shards, 'shard')} serving again after ${duration(tookMs)}`,
  ],
  'recovery.complete': [
    '●',
    'good',
    ({ shards, tookMs }) => `${plural(shards, 'shard')} whole again after ${duration(tookMs)}`,
  ],
  'shard.lost': ['×', 'bad', ({ group, member }) => `data ${member} of group ${group} is beyond repair`],
  'change.begun': ['→', 'plain', (fields) => `begun: ${change(fields)}`],
  'change.done': ['⇥', 'good', (fields) => `done: ${change(fields)}`],
  'change.cancelled': ['↩', 'bad', (fields) => `taken back: ${change(fields)}, ${fields.reason}`],
  'checkpoint.done': [
    '✓',
    'good',
    ({ number, bytes: size, tookMs }) => `checkpoint ${number}: ${bytes(size)} in ${duration(tookMs)}`,
  ],
  'checkpoint.failed': ['✗', 'bad', ({ number, code }) => `checkpoint ${number} failed: ${code}`],
  'restore.lost': [
    '↺',
    'plain',
    ({ number, rows }) => `${plural(rows, 'row')} back from checkpoint ${number}`,
  ],
  'restore.done': ['↺', 'good', ({ number }) => `checkpoint ${number} is loaded`],
  'dataset.opened': ['■', 'plain', ({ name, ranges }) => `run ${name} began: ${plural(ranges, 'range')}`],
  'dataset.complete': [
    '■',
    'good',
    ({ name, samples }) => `run ${name} is complete: ${count(samples)} samples`,
  ],
  'worker.lost': ['▼', 'bad', ({ client }) => `worker ${client} was lost`],
  'range.lost': ['↻', 'plain', ({ range }) => `range ${range} is done again`],
  'range.setAside': ['×', 'bad', ({ fileName, code }) => `a range of ${fileName} was set aside: ${code}`],
  'autoscale.decided': ['★', 'plain', ({ action, reason }) => `autoscaler: ${action}, ${reason}`],
  'autoscale.tookBack': ['☆', 'plain', ({ action }) => `autoscaler took back: ${action}`],
};
const STATES = { full: 'good', recovering: 'warn', forming: 'plain' };
/** Kinds of events that are too many to be marked; the shards show them. */
export const UNMARKED = new Set(['move.done', 'range.lost']);

export function happening({ number, at, kind, subject, fields }) {
  const [mark, tone, words] = KINDS[kind] ?? ['·', 'plain', () => `${kind} ${subject}`];
  const shade = tone === 'state' ? (STATES[fields.state] ?? 'bad') : tone;
  const more = fields.skipped > 0 ? ` (and ${plural(fields.skipped, 'more', 'more')} like it)` : '';
  return { number, at, kind, mark, tone: shade, text: words(fields) + more };
}

/** The ones that a time line shows, newest first. */
export const happenings = (events = []) => events.filter(({ kind }) => !UNMARKED.has(kind)).map(happening);

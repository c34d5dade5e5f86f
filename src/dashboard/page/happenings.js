/** What happened to the job, in words, and how it is marked on the time line. */
import { bytes, count, duration, plural } from './format.js';

const change = ({ kind, from, to }) => (kind === 'scale' ? `scale from ${from} to ${to} PS` : kind);

/** For each kind: mark, tone, and words. Kinds that are not here are named as they are. */
const KINDS = {
  'scheduler.resumed': ['◇', 'plain', () => 'a scheduler took over the job'],
  'node.joined': ['▲', 'good', ({ name }) => `${name} joined`],
  'node.lost': ['▼', 'bad', ({ name, reason }) => `${name} was lost${reason ? `: ${reason}` : ''}`],
  'node.suspected': ['▽', 'bad', ({ name }) => `${name} is silent`],
  'node.left': ['△', 'plain', ({ name }) => `${name} left`],
  redundancy: ['◆', 'state', ({ state }) => `redundancy: ${state}`],
  'shard.lost': ['×', 'bad', ({ group, member }) => `data ${member} of group ${group} is beyond repair`],
  'change.begun': ['→', 'plain', (fields) => `begun: ${change(fields)}`],
  'change.done': ['⇥', 'good', (fields) => `done: ${change(fields)}`],
  'change.cancelled': ['↩', 'bad', (fields) => `taken back: ${change(fields)}, ${fields.reason}`],
  'checkpoint.done': [
    '●',
    'good',
    ({ number, bytes: size, tookMs }) => `checkpoint ${number}: ${bytes(size)} in ${duration(tookMs)}`,
  ],
  'checkpoint.failed': ['○', 'bad', ({ number, code }) => `checkpoint ${number} failed: ${code}`],
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
/** Too many to be marked; the shards show them. */
const UNMARKED = new Set(['move.done', 'range.lost']);

export function happening({ number, at, kind, subject, fields }) {
  const [mark, tone, words] = KINDS[kind] ?? ['·', 'plain', () => `${kind} ${subject}`];
  const shade = tone === 'state' ? (fields.state === 'full' ? 'good' : 'bad') : tone;
  return { number, at, kind, mark, tone: shade, text: words(fields) };
}

/** The ones that a time line shows, newest first. */
export const happenings = (events = []) => events.filter(({ kind }) => !UNMARKED.has(kind)).map(happening);

/** A valid message of each kind about replicas, events or telemetry, and about a table that is there. */
import type { EventMessage } from '../../src/protocol/events.js';
import { packItems } from '../../src/protocol/items.js';
import type { MessageOf } from '../../src/protocol/messages.js';
import type { ReplicaMessage } from '../../src/protocol/replicas.js';
import type { CreateTables, TableMessage, TablesCreated } from '../../src/protocol/tables.js';
import type { TelemetryMessage } from '../../src/protocol/telemetry.js';

type OfTable = Exclude<TableMessage, CreateTables | TablesCreated>;
type Kind = (EventMessage | ReplicaMessage | TelemetryMessage | OfTable)['t'];

export const LOOKING: { [K in Kind]: MessageOf<K> } = {
  setTable: { t: 'setTable', id: 5, name: 't', lr: 0.5, clipNorm: 2, schedule: { kind: 'constant' } },
  dropTable: { t: 'dropTable', id: 5, table: 3 },
  tableDropped: { t: 'tableDropped', id: 5, epoch: 9, code: 'NOT_READY', message: 'later' },
  tableSet: { t: 'tableSet', id: 5, epoch: 9, code: 'LIMIT', message: 'later' },
  follow: { t: 'follow', g: 1, m: 0, gen: 4, id: 7, v: 9, have: [3, 60, 71] },
  followWant: { t: 'followWant', g: 1, m: 0, gen: 4, id: 7 },
  followProbe: { t: 'followProbe', n: 12, upTo: 7, items: [[7, 71]] },
  followed: { t: 'followed', g: 1, m: 0, gen: 4, id: 7, how: 'fresh', base: 71, extents: [[1, 32, 700]] },
  followDelta: { t: 'followDelta', g: 1, m: 0, gen: 4, id: 7, seq: 72, committed: 70 },
  followContent: { t: 'followContent', g: 1, m: 0, gen: 4, id: 7, seq: 72 },
  followProbed: { t: 'followProbed', n: 12, items: [[7, 72]] },
  replicaReport: {
    ...{ t: 'replicaReport', n: 12, address: 'a:1', share: [1, 3], tables: ['items'] },
    ...{ served: { minFrequency: 3, maxAge: 100, maxAgeSeconds: 3600 } },
    ...{ shards: 4, complete: 4, lagMs: 12, behind: 1 },
  },
  observe: { t: 'observe', id: 5, epoch: 9, shards: true },
  observed: {
    ...{ t: 'observed', id: 5 },
    scheduler: { upSeconds: 1, cpuSeconds: 1, rssBytes: 1, workers: [], runs: [] },
  },
  workerReport: {
    t: 'workerReport',
    report: {
      ...{ name: 'worker-0', run: 'train', upSeconds: 12.5, cpuSeconds: 3.25, rssBytes: 1024 },
      ...{ samples: 4096, batches: 16, idleSeconds: 0, productiveSeconds: 2.5, stalenessBatches: 3 },
      ...{ phaseSeconds: { read: 0.5, pull: 1, compute: 2.5, push: 0.25 } },
    },
  },
  events: { t: 'events', id: 3, since: 17, follow: true },
  eventsReply: {
    ...{ t: 'eventsReply', id: 3, newest: 18 },
    events: [{ number: 18, at: 1, kind: 'node.lost', subject: 'ps-1', fields: { node: 4, name: 'ps-1' } }],
  },
  tellEvent: { t: 'tellEvent', id: 4, kind: 'autoscale.decided', fields: { action: 'scale', ps: 5 } },
  eventTold: { t: 'eventTold', id: 4, number: 0, code: 'LIMIT', message: 'too many' },
  replicaHeard: { t: 'replicaHeard', n: 12, epoch: 9 },
  read: {
    t: 'read',
    id: 3,
    items: packItems('pull', [[1, 0, 32]]),
    maxLagMs: 500,
    missing: new Uint8Array(4),
  },
  readRows: { t: 'readRows', id: 3, states: [[4, 72]], lagMs: 12 },
  readRefused: { t: 'readRefused', id: 3, code: 'STALE_REPLICA', message: 'too old' },
};

/** Fields of a table that may be missing. */
export const EARLIER_SAMPLES = {
  ...{ earlierRates: [0.2], earlierClips: [2], earlierSchedules: [null] },
  ...{ earlierPolicies: [{}], policyVersion: 2 },
};
export const EARLIER = Object.keys(EARLIER_SAMPLES);
export const isRate = (path: readonly (string | number)[]) =>
  path.some((name) => ['lr', 'clipNorm', 'earlierRates', 'earlierClips'].includes(String(name)));
/** Null: none. */
export const mayBeNull = (path: readonly (string | number)[]) => {
  const [list, name] = [String(path.at(-2)), String(path.at(-1))];
  return ['clipNorm', 'schedule'].includes(name) || ['earlierClips', 'earlierSchedules'].includes(list);
};

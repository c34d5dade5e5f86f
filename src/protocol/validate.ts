/**
 * Headers come from outside: before a machine sees one, its fields are checked against the table below. The
 * table has one line per kind of message; a new message is added here and in messages.ts. Payload parts are
 * checked by the engine.
 */
import { KintsugiError } from '../common/errors.js';
import {
  bool,
  code,
  dataset,
  either,
  type FieldCheck,
  integer,
  list,
  natural,
  object,
  optional,
  record,
  text,
  tuple,
  word,
  wrongField,
} from './checks.js';
import { EVENT_KINDS, EVENTS_AT_ONCE, isEventKind, MAX_EVENT_FIELDS } from './events.js';
import { areItems, type ItemKind, isMember } from './items.js';
import { CAPABILITIES } from './map.js';
import type { Message } from './messages.js';
import { fromWire } from './pack.js';
import { MAX_REPORTED_TABLES } from './replicas.js';
import { CHANGE_FIELDS, EARLIER_FIELDS, settingName } from './settings.js';
import { WORKER_PHASES } from './telemetry.js';

const itemsOf =
  (kind: ItemKind): FieldCheck =>
  (v) =>
    areItems(kind, v);
const u64: FieldCheck = (v) => natural(v) || (typeof v === 'bigint' && v >= 0n && v < 1n << 64n);

const ratio: FieldCheck = (v) => typeof v === 'number' && Number.isFinite(v) && v >= 0;

const float: FieldCheck = (v) => v instanceof Uint8Array && v.byteLength === 4;

const proof = optional((v) => v instanceof Uint8Array && v.byteLength <= 64);

/** A larger m would be taken for a shard of another group (shardKey). */
const shard = { g: natural, m: isMember };
const stream = { ...shard, sid: natural, gen: natural };
const ascending: FieldCheck = (v) => (v as number[])[0]! <= (v as number[])[1]!;
const tombstone = tuple(natural, natural, (v) => v === 'ENDED');
const ended: FieldCheck = (v) => tombstone(v) && ascending(v);
const segment = record({ name: text, bytes: natural, sha256: text, rows: natural });
const pair = tuple(natural, natural);
const range: FieldCheck = (v) => pair(v) && ascending(v);
const skipped = tuple(natural, natural, (v) => v === 'SKIPPED');
const mark = either(ended, skipped);
const streamId = either(tuple(natural, natural, optional(code)), mark);
const dedup = list(either(tuple(natural, natural, list(tuple(natural, code))), ended));
const extents = list(tuple(natural, natural, natural));

const data = record({
  node: natural,
  inc: natural,
  gen: natural,
  init: bool,
  restore: optional((v) => v === true),
  rewound: optional((v) => v === true),
});
const sink = record({
  sid: natural,
  kind: (v) => typeof v === 'string' && Object.hasOwn(CAPABILITIES, v),
  index: natural,
  node: natural,
  inc: natural,
  init: bool,
  protects: bool,
  acknowledges: bool,
  movesMember: optional(natural),
});
/** Packed in frames (pack.ts). */
const packed: FieldCheck = (v) => v instanceof Uint8Array;
const group = record({ id: natural, pool: natural, version: natural, data: list(data), sinks: list(sink) });
const groups = either(packed, list(group));
const nodes = list(
  record({
    id: natural,
    inc: natural,
    name: text,
    host: text,
    address: text,
    machine: optional(text),
    standby: bool,
  }),
);
const tables = list(
  record({
    id: natural,
    name: text,
    pool: text,
    dim: natural,
    optimizer: object,
    initializer: object,
    seed: natural,
    ...EARLIER_FIELDS,
    policy: optional(object),
  }),
);
const map = record({
  epoch: natural,
  job: text,
  pools: list(record({ name: text, k: natural, r: natural, firstGroup: natural, groups: natural })),
  groups,
  nodes,
  tables,
  lastTable: optional(natural),
});
const recovery = record({
  ...shard,
  gen: natural,
  blocksLost: natural,
  blocksPresent: natural,
  blocksOnDemand: natural,
  keysReady: optional((v) => v === true),
});
const asked = { ...shard, epoch: natural, id: natural };
const followed = { ...shard, gen: natural, id: natural };
const lease = { name: text, number: natural, lease: natural };

const saveKind: FieldCheck = (v) => v === 'full job' || v === 'export';
const rows = record({ minFrequency: optional(word), maxAge: optional(word), maxAgeSeconds: optional(word) });
const plan = record({
  url: text,
  everyMs: natural,
  keep: natural,
  rate: natural,
  kind: saveKind,
  tables: optional(list(text)),
  barrier: optional(bool),
  served: optional(rows),
});

const plain: FieldCheck = (v) => either(text, bool)(v) || (typeof v === 'number' && Number.isFinite(v));
const eventFields: FieldCheck = (v) => {
  const values = object(v) ? Object.values(v as object) : undefined;
  return values !== undefined && values.length <= MAX_EVENT_FIELDS && values.every(plain);
};
const toldKind: FieldCheck = (v) => typeof v === 'string' && isEventKind(v) && 'told' in EVENT_KINDS[v];
const event = record({ number: natural, at: natural, kind: text, subject: text, fields: eventFields });

const FIELDS: { [K in Message['t']]: Record<string, FieldCheck> } = {
  hello: { peer: natural, inc: natural, job: text, proof },
  push: { epoch: natural, client: optional(natural), proof, items: itemsOf('push') },
  pull: { epoch: natural, id: natural, first: optional(natural), items: itemsOf('pull') },
  keys: {
    ...asked,
    table: natural,
    order: (v) => v === 'slot' || v === 'key',
    from: u64,
    max: natural,
  },
  evictions: { ...asked, table: natural, gen: natural, from: natural, max: natural },
  shardStats: asked,
  pushAck: {
    client: optional(natural),
    items: itemsOf('pushAck'),
    refused: optional(list(tuple(natural, code))),
  },
  skipTo: { ...shard, client: optional(natural), proof, next: natural },
  gap: {
    ...shard,
    client: optional(natural),
    expected: natural,
    rewound: optional((v) => v === true),
  },
  rows: { id: natural, items: itemsOf('rows') },
  reject: {
    id: natural,
    items: list(
      tuple(
        integer,
        either(code, (v) => v === 'WRONG_OWNER'),
      ),
    ),
  },
  lost: { ...shard, client: optional(natural), v: natural },
  keysPage: { id: natural, next: either(u64, (v) => v === -1) },
  evicted: { ...shard, id: natural, table: natural, gen: natural, from: natural, end: natural },
  shardStatsReply: { id: natural, extents, tables: list(object) },
  open: { ...stream, v: natural, attempt: natural },
  openAck: { ...stream, none: bool, sgen: natural, applied: natural, attempt: natural },
  start: { ...stream, v: natural, base: natural, dedup, extents },
  startAck: { ...stream, applied: natural, dedup, extents },
  delta: { ...stream, seq: natural, ids: list(streamId), committed: natural },
  committed: { ...stream, committed: natural },
  applied: { ...stream, applied: natural, atLimit: optional(bool) },
  want: { ...stream, v: natural },
  content: { ...stream, seq: natural, servedRatio: optional(ratio) },
  lacking: { ...stream, seq: natural, v: natural },
  recover: { ...stream, seq: natural, v: natural, extents },
  equation: { ...stream, v: natural, index: natural, lacking: list(tuple(natural, natural)), ok: bool },
  install: { ...shard, gen: natural },
  check: { epoch: natural, id: natural, g: natural, sid: natural },
  checked: {
    id: natural,
    g: natural,
    sid: natural,
    checked: natural,
    unprotected: natural,
    mismatched: natural,
    unknown: bool,
  },
  join: {
    name: text,
    host: text,
    address: text,
    machine: optional(text),
    standby: bool,
    id: optional(natural),
    inc: optional(natural),
    job: optional(text),
  },
  welcome: { id: natural, inc: natural, map, proof },
  redirect: { to: text },
  stale: { code: (v) => v === 'STALE_NODE' || v === 'SESSION_EXPIRED' || v === 'LIMIT' },
  attach: { id: optional(natural), job: optional(text), proof },
  detach: {},
  sessions: {},
  openSessions: { next: natural, open: list(natural) },
  sessionsEnded: { ranges: list(range) },
  map: { map },
  mapDiff: { from: natural, to: natural, groups, nodes, removed: list(natural), tables },
  mapRequest: { epoch: natural },
  heartbeat: {
    inc: natural,
    epoch: natural,
    completeSinks: list(natural),
    completeShards: list(tuple(natural, natural, natural)),
    recoveries: optional(list(recovery)),
    owned: list(tuple(natural, natural, natural)),
    ...{ bytes: natural, limit: optional(natural), rows: natural, seconds: optional(word) },
    held: optional(list(tuple(natural, natural, natural, natural))),
  },
  reach: { node: natural, inc: natural, round: optional(natural) },
  reached: { node: natural, inc: natural, round: optional(natural), silentMs: optional(natural) },
  pulse: { node: natural, inc: natural, job: text, ageMs: natural, gapMs: natural },
  scale: { id: natural, ps: natural, timeoutMs: natural },
  drain: { id: natural, node: text, timeoutMs: natural, change: optional(natural), restart: optional(bool) },
  rebalance: { id: natural, dryRun: bool, timeoutMs: natural },
  changeReply: {
    id: natural,
    change: natural,
    moves: list(object),
    code: optional(code),
    message: optional(text),
  },
  movePace: { bytesPerSecond: natural },
  time: { seconds: word },
  moveProgress: { items: list(tuple(natural, natural)) },
  leave: { inc: natural, restart: optional(bool) },
  stalled: { ...stream, v: natural, forMs: optional(natural) },
  shardRefused: { ...shard, gen: natural, mirror: optional(natural) },
  replaceSink: { id: natural, g: natural, sid: natural },
  sinkReplaced: { id: natural, done: bool },
  confirmedLost: { ...shard, gen: natural, v: natural },
  unrecoverable: { ...shard, gen: natural, v: natural, blocks: natural },
  createTables: {
    id: natural,
    specs: list(
      record({
        ...{ name: text, pool: text, dim: natural, optimizer: object, initializer: object, seed: natural },
        set: optional(list(settingName)),
        policy: optional(object),
      }),
    ),
  },
  tablesCreated: { id: natural, tables: list(object), code: optional(code), message: optional(text) },
  setTable: { id: natural, table: optional(natural), name: text, ...CHANGE_FIELDS },
  dropTable: { id: natural, table: natural },
  tableDropped: { id: natural, epoch: natural, code: optional(code), message: optional(text) },
  tableSet: { id: natural, epoch: natural, code: optional(code), message: optional(text) },
  status: { id: natural },
  statusReply: { id: natural, status: object },
  observe: { id: natural, epoch: optional(natural), shards: optional(bool) },
  observed: { id: natural, node: optional(object), scheduler: optional(object) },
  workerReport: {
    report: record({
      name: text,
      run: text,
      ...{ upSeconds: ratio, cpuSeconds: ratio, rssBytes: natural },
      ...{ version: optional(text), clockMs: optional(natural) },
      ...{ samples: natural, batches: natural, stalenessBatches: natural },
      phaseSeconds: record(Object.fromEntries(WORKER_PHASES.map((phase) => [phase, ratio]))),
      ...{ idleSeconds: ratio, productiveSeconds: ratio },
      loss: optional((v) => typeof v === 'number'),
      over: optional(bool),
    }),
  },
  openDataset: { id: natural, name: text, spec: dataset },
  datasetOpened: { id: natural, spec: optional(dataset), code: optional(code), message: optional(text) },
  extendDataset: { id: natural, name: text, sizes: list(natural) },
  datasetExtended: { id: natural, sizes: list(natural), code: optional(code), message: optional(text) },
  acquire: { id: natural, name: text, clock: natural },
  acquired: {
    id: natural,
    range: optional(record({ number: natural, epoch: natural, file: natural, begin: natural, end: natural })),
    session: natural,
    proof,
    done: natural,
    begun: natural,
    leaseMs: natural,
  },
  rangeProgress: { ...lease, done: natural, begun: natural, clock: natural },
  rangeLost: lease,
  release: {
    ...lease,
    id: natural,
    session: optional(natural),
    proof,
    outcome: (v) => v === 'finished' || v === 'returned' || v === 'failed',
    done: natural,
    begun: natural,
    samples: natural,
    redone: natural,
    batch: optional(natural),
    code: optional(code),
    message: optional(text),
  },
  released: { id: natural },
  advance: { id: natural, name: text, clock: natural },
  advanced: { id: natural, until: natural },
  datasetStatus: { id: natural, name: text },
  datasetReply: { id: natural, status: optional(object) },
  saveShards: {
    epoch: natural,
    id: natural,
    url: text,
    prefix: text,
    kind: saveKind,
    tables: optional(list(natural)),
    served: optional(rows),
    rate: natural,
    barrier: bool,
    shards: list(tuple(natural, natural, natural, natural)),
  },
  saveProgress: { id: natural, items: list(tuple(natural, natural, natural, natural)) },
  shardSaved: {
    ...shard,
    id: natural,
    gen: natural,
    position: natural,
    stamp: natural,
    since: natural,
    segments: list(tuple(text, natural, text, natural)),
  },
  saveFailed: { ...shard, id: natural, gen: natural, code, message: text },
  saveEnded: { id: natural },
  hold: { id: natural, ms: natural },
  held: { id: natural, ranges: list(record({ ...lease, done: natural, begun: natural, clock: natural })) },
  resume: { id: natural },
  loadShard: {
    ...shard,
    epoch: natural,
    gen: natural,
    url: text,
    parts: list(record({ group: natural, member: isMember, segments: list(segment) })),
    reshaped: bool,
    sessionsBelow: optional(natural),
  },
  shardLoaded: { ...shard, gen: natural },
  loadFailed: { ...shard, gen: natural, code, message: text },
  restoreLost: { id: natural, url: text, number: optional(natural) },
  restoreReply: {
    id: natural,
    number: natural,
    agoMs: natural,
    shards: list(tuple(text, natural, natural)),
    code: optional(code),
    message: optional(text),
  },
  setPlan: { id: natural, name: text, plan: optional(plan), next: optional(natural) },
  planSet: { id: natural, code: optional(code), message: optional(text) },
  saveNow: { id: natural, name: text },
  saveDone: {
    id: natural,
    number: natural,
    rows: natural,
    bytes: natural,
    tookMs: natural,
    pausedMs: optional(natural),
    code: optional(code),
    message: optional(text),
  },
  follow: { ...followed, v: natural, have: optional(tuple(natural, natural, natural)) },
  followWant: followed,
  followProbe: { n: natural, upTo: natural, items: list(pair) },
  followed: {
    ...followed,
    how: (v) => v === 'fresh' || v === 'resumed' || v === 'gone',
    base: natural,
    extents,
  },
  followDelta: { ...followed, seq: natural, committed: natural },
  followContent: { ...followed, seq: natural, servedRatio: optional(ratio) },
  followProbed: { n: natural, items: list(pair) },
  replicaReport: {
    n: natural,
    address: text,
    share: (v) => pair(v) && ascending(v),
    tables: optional((v) => list(text)(v) && (v as string[]).length <= MAX_REPORTED_TABLES),
    served: optional(rows),
    ...{ shards: natural, complete: natural, lagMs: natural, behind: natural },
  },
  replicaHeard: { n: natural, epoch: natural },
  read: { id: natural, items: itemsOf('pull'), maxLagMs: optional(natural), missing: optional(float) },
  readRows: { id: natural, states: list(pair), lagMs: natural },
  readRefused: { id: natural, code, message: text },
  events: { id: natural, since: natural, follow: bool },
  eventsReply: {
    id: natural,
    events: (v) => list(event)(v) && (v as []).length <= EVENTS_AT_ONCE,
    newest: natural,
  },
  tellEvent: { id: natural, kind: toldKind, fields: eventFields },
  eventTold: { id: natural, number: natural, code: optional(code), message: optional(text) },
};

/** Kind -> the checks of its fields, as a list because they are walked for every message that arrives. */
const CHECKS = new Map(Object.entries(FIELDS).map(([kind, fields]) => [kind, Object.entries(fields)]));

/** A header that arrived, as the message it claims to be. @throws BAD_FRAME */
export function toMessage(header: Record<string, unknown>): Message {
  const kind = header.t as Message['t'];
  const checks = CHECKS.get(kind);
  if (!checks) throw new KintsugiError('BAD_FRAME', `unknown kind of message "${String(kind).slice(0, 40)}"`);
  const wrong = wrongField(checks, header);
  if (wrong !== undefined)
    throw new KintsugiError('BAD_FRAME', `message "${kind}": field "${wrong}" is missing or malformed`);
  const message = header as unknown as Message;
  if (message.t === 'map' || message.t === 'welcome') fromWire(message.map);
  else if (message.t === 'mapDiff') fromWire(message);
  return message;
}

/** The message with its known fields alone. A message that is kept has nothing else that takes memory. */
export function knownFields<M extends Message>(message: M): M {
  const from = message as unknown as Record<string, unknown>;
  const known: Record<string, unknown> = { t: message.t };
  for (const [name] of CHECKS.get(message.t) ?? []) if (from[name] !== undefined) known[name] = from[name];
  return known as unknown as M;
}

/**
 * Frames from nobody in particular: every kind of message as its sender would encode it, then cut, spliced,
 * flipped and retyped. The decoders answer with a message or with BAD_FRAME, whatever comes; nothing else is
 * thrown, nothing reaches into Object.prototype, and views stay inside the frame. frames.test.ts runs it
 * small; `npm run fuzz:frames` runs a million, or KINTSUGI_FRAMES of them from seed KINTSUGI_SEED.
 */

import type { Frame, Outgoing } from '../../src/protocol/frame.js';
import { packItems } from '../../src/protocol/items.js';
import { CAPABILITIES } from '../../src/protocol/map.js';
import type { Message } from '../../src/protocol/messages.js';

/** The code under test. */
export interface Decoders {
  encodeMessages(messages: readonly Outgoing[]): Uint8Array;
  decodeMessages(bytes: Uint8Array): Frame[];
  toMessage(header: Record<string, unknown>): Message;
}

export interface FuzzReport {
  frames: number;
  accepted: number;
  refused: number;
  /** Kinds of messages that were accepted at least once. */
  kinds: number;
  digest: number;
}

/** xorshift32: the same frames for the same seed, everywhere. */
export class Random {
  private state: number;
  constructor(seed: number) {
    this.state = Math.imul(seed, 0x9e3779b1) >>> 0 || 1;
  }
  next(): number {
    this.state ^= this.state << 13;
    this.state ^= this.state >>> 17;
    this.state ^= this.state << 5;
    this.state >>>= 0;
    return this.state;
  }
  below(n: number): number {
    return this.next() % n;
  }
  of<T>(list: readonly T[]): T {
    return list[this.below(list.length)]!;
  }
}

const shard = { g: 3, m: 1 };
const stream = { ...shard, sid: 12, gen: 4 };
const dedup = [
  [1, 6, 'ENDED'],
  [7, 12, [[11, 'MEMORY_LIMIT']]],
];
const extents = [
  [1, 32, 700],
  [2, 16, 0],
];
const table = {
  id: 1,
  name: 'user',
  pool: 'embedding',
  dim: 8,
  optimizer: { kind: 'sgd', lr: 0.1 },
  initializer: { kind: 'zeros' },
  seed: 3,
};
const { id: _, ...asked } = table;
const map = {
  epoch: 9,
  job: 'a-job',
  pools: [{ name: 'embedding', k: 1, r: 1, firstGroup: 0, groups: 1 }],
  groups: [
    {
      id: 0,
      pool: 0,
      version: 9,
      data: [{ node: 1, inc: 1, gen: 1, init: true }],
      sinks: [{ sid: 1, kind: 'P', index: 0, node: 2, inc: 1, init: true, ...CAPABILITIES.P }],
    },
  ],
  nodes: [{ id: 1, inc: 1, name: 'ps-0', host: 'a', address: '127.0.0.1:1', standby: false }],
  tables: [table],
};
const lease = { name: 'd', number: 1, lease: 5 };
const range = { number: 1, epoch: 0, file: 0, begin: 0, end: 100 };
const files = [{ name: 'a.tsv', size: 100, rangeBytes: 50 }];
const dataset = { files, batch: 4, epochs: 1, seed: 3, shuffle: true, staleness: 2 };
const proof = new Uint8Array(16).fill(5);
const workerReport = {
  ...{ name: 'worker-0', run: 'train', upSeconds: 12.5, cpuSeconds: 3.25, rssBytes: 1 << 27 },
  ...{ samples: 4096, batches: 16, idleSeconds: 0, productiveSeconds: 2.5, stalenessBatches: 3, loss: 0.5 },
  phaseSeconds: { read: 0.5, pull: 1, compute: 2.5, push: 0.25 },
};
/** A well-formed header of every kind of message; a new kind does not compile until it is here. */
const FIELDS: Record<Message['t'], object> = {
  hello: { peer: 3, inc: 1, job: 'a-job', proof },
  push: { epoch: 9, client: 7, proof, items: packItems('push', [[3, 1, 5, 24]]) },
  pull: { epoch: 9, id: 2, items: packItems('pull', [[3, 1, 24]]) },
  keys: { ...shard, epoch: 9, id: 2, table: 1, order: 'key', from: 2n ** 63n, max: 100 },
  evictions: { ...shard, epoch: 9, id: 2, table: 1, gen: 4, from: 5, max: 10 },
  shardStats: { ...shard, epoch: 9, id: 2 },
  pushAck: {
    items: packItems('pushAck', [
      [3, 1, 5],
      [3, 1, 6],
    ]),
    refused: [[1, 'MEMORY_LIMIT']],
  },
  skipTo: { ...shard, next: 9, client: 7, proof: new Uint8Array(16) },
  gap: { ...shard, expected: 4, rewound: true },
  rows: { id: 2, items: packItems('rows', [[0, 8]]) },
  reject: {
    id: 2,
    items: [
      [0, 'WRONG_OWNER'],
      [-1, 'LIMIT'],
    ],
  },
  lost: { ...shard, v: 9 },
  keysPage: { id: 2, next: -1 },
  evicted: { ...shard, id: 2, table: 1, gen: 4, from: 5, end: 9 },
  shardStatsReply: { id: 2, extents, tables: [{ table: 1, rows: 4 }] },
  open: { ...stream, v: 9, attempt: 2 },
  openAck: { ...stream, none: false, sgen: 4, applied: 70, attempt: 2 },
  start: { ...stream, v: 9, base: 70, dedup, extents },
  startAck: { ...stream, applied: 70, dedup, extents },
  delta: {
    ...stream,
    seq: 71,
    ids: [
      [7, 13],
      [7, 14, 'DIM_MISMATCH'],
      [1, 6, 'ENDED'],
    ],
    committed: 70,
  },
  committed: { ...stream, committed: 70 },
  applied: { ...stream, applied: 71, atLimit: true },
  want: { ...stream, v: 9 },
  content: { ...stream, seq: 71 },
  lacking: { ...stream, seq: 71, v: 9 },
  recover: { ...stream, seq: 71, v: 9, extents },
  equation: { ...stream, v: 9, index: 0, lacking: [[1, 4]], ok: true },
  install: { ...shard, gen: 4 },
  check: { epoch: 9, id: 2, g: 3, sid: 12 },
  checked: { id: 2, g: 3, sid: 12, checked: 100, unprotected: 0, mismatched: 0, unknown: false },
  join: { name: 'ps-0', host: 'a', address: '127.0.0.1:1', standby: false, id: 1, inc: 1, job: 'j' },
  welcome: { id: 1, inc: 1, map, proof },
  redirect: { to: 'host:7077' },
  stale: { code: 'STALE_NODE' },
  attach: { id: 7, job: 'j', proof },
  detach: {},
  sessions: {},
  openSessions: { next: 9, open: [7, 8] },
  sessionsEnded: {
    ranges: [
      [1, 6],
      [9, 9],
    ],
  },
  map: { map },
  mapDiff: { from: 8, to: 9, groups: map.groups, nodes: map.nodes, removed: [4], tables: [table] },
  mapRequest: { epoch: 8 },
  heartbeat: {
    inc: 1,
    epoch: 9,
    completeSinks: [1],
    completeShards: [[3, 1, 4]],
    recoveries: [{ ...shard, gen: 4, blocksLost: 9, blocksPresent: 3, blocksOnDemand: 1 }],
    owned: [[0, 1, 3]],
    bytes: 2 ** 33,
    rows: 5,
    held: [[3, 1, 4096, 17]],
  },
  stalled: { ...stream, v: 9, forMs: 3000 },
  shardRefused: { ...shard, gen: 4, mirror: 12 },
  replaceSink: { id: 2, g: 3, sid: 12 },
  sinkReplaced: { id: 2, done: true },
  unrecoverable: { ...shard, gen: 4, v: 9, blocks: 3 },
  reach: { node: 3, inc: 1 },
  reached: { node: 3, inc: 1, silentMs: 250 },
  pulse: { node: 3, inc: 1, job: 'job', ageMs: 40, gapMs: 90 },
  confirmedLost: { ...shard, gen: 4, v: 9 },
  createTables: { id: 2, specs: [{ ...asked, set: ['lr', 'schedule'] }] },
  // No test has this table: a scheduler would set the rate of one.
  setTable: { id: 2, name: 'none', lr: 0.5 },
  // Nor a table of this id.
  dropTable: { id: 2, table: 4000 },
  tableDropped: { id: 2, epoch: 9, code: 'LIMIT', message: 'later' },
  tableSet: { id: 2, epoch: 9, code: 'LIMIT', message: 'later' },
  tablesCreated: { id: 2, tables: [table], code: 'LIMIT', message: 'too many' },
  scale: { id: 2, ps: 8, timeoutMs: 0 },
  drain: { id: 2, node: 'ps-1', timeoutMs: 30_000, change: 3, restart: true },
  rebalance: { id: 2, dryRun: true, timeoutMs: 0 },
  changeReply: { id: 2, change: 3, moves: [], code: 'LIMIT', message: 'too many' },
  movePace: { bytesPerSecond: 4096 },
  time: { seconds: 7 },
  moveProgress: { items: [[12, 17]] },
  leave: { inc: 2, restart: true },
  status: { id: 2 },
  statusReply: { id: 2, status: { job: 'a-job' } },
  openDataset: { id: 2, name: 'd', spec: dataset },
  datasetOpened: { id: 2, spec: dataset, code: 'LIMIT', message: 'too many' },
  extendDataset: { id: 2, name: 'd', sizes: [4096, 0] },
  datasetExtended: { id: 2, sizes: [], code: 'BAD_ARGUMENT', message: 'no' },
  acquire: { id: 2, name: 'd', clock: 3 },
  acquired: { id: 2, range, session: 9, proof, done: 2, begun: 3, leaseMs: 1000 },
  rangeProgress: { ...lease, done: 2, begun: 3, clock: 4 },
  rangeLost: lease,
  release: {
    id: 2,
    ...lease,
    session: 9,
    proof,
    outcome: 'finished',
    done: 2,
    begun: 3,
    samples: 9,
    redone: 1,
  },
  released: { id: 2 },
  advance: { id: 2, name: 'd', clock: 3 },
  advanced: { id: 2, until: 7 },
  datasetStatus: { id: 2, name: 'd' },
  datasetReply: { id: 2, status: { name: 'd' } },
  saveShards: {
    ...{
      epoch: 9,
      id: 4,
      url: 's3://b/p',
      prefix: '000012/1a2b3c4d',
      kind: 'export',
      tables: [1],
      rate: 0,
      barrier: true,
    },
    shards: [[3, 1, 4, 0]],
  },
  saveProgress: { id: 4, items: [[3, 1, 4, 2 ** 33]] },
  shardSaved: {
    ...{ ...shard, id: 4, gen: 4, position: 71, stamp: 2, since: 1 },
    segments: [['000012/1a2b3c4d-g3-m1-4-0.safetensors', 4096, 'ab12', 17]],
  },
  saveFailed: { ...shard, id: 4, gen: 4, code: 'PLACE_FAILED', message: 'no' },
  saveEnded: { id: 4 },
  hold: { id: 4, ms: 15_000 },
  held: { id: 4, ranges: [{ ...lease, done: 2, begun: 3, clock: 4 }] },
  resume: { id: 4 },
  loadShard: {
    ...{ ...shard, epoch: 9, gen: 4, url: 'ckpt' },
    ...{ reshaped: false, sessionsBelow: 7 },
    parts: [
      {
        ...{ group: 3, member: 1 },
        segments: [{ name: '000012/1a2b3c4d-g3-m1-4-0.safetensors', bytes: 4096, sha256: 'ab12', rows: 17 }],
      },
    ],
  },
  shardLoaded: { ...shard, gen: 4 },
  loadFailed: { ...shard, gen: 4, code: 'BAD_CHECKPOINT', message: 'no' },
  follow: { ...shard, gen: 4, id: 7, v: 9, have: [3, 60, 71] },
  followWant: { ...shard, gen: 4, id: 7 },
  followProbe: { n: 12, upTo: 7, items: [[7, 71]] },
  followed: { ...shard, gen: 4, id: 7, how: 'fresh', base: 71, extents },
  followDelta: { ...shard, gen: 4, id: 7, seq: 72, committed: 70 },
  followContent: { ...shard, gen: 4, id: 7, seq: 72, servedRatio: 0.5 },
  followProbed: { n: 12, items: [[7, 72]] },
  observe: { id: 2, epoch: 9, shards: true },
  observed: { id: 2, node: { upSeconds: 1, cpuSeconds: 0.5 }, scheduler: { upSeconds: 1 } },
  workerReport: { report: workerReport },
  replicaReport: {
    ...{ n: 12, address: 'a:1', share: [1, 3], tables: ['items'] },
    ...{ served: { minFrequency: 3, maxAge: 100, maxAgeSeconds: 3600 } },
    ...{ shards: 4, complete: 4, lagMs: 12, behind: 1 },
  },
  replicaHeard: { n: 12, epoch: 9 },
  events: { id: 3, since: 17, follow: true },
  eventsReply: {
    ...{ id: 3, newest: 18 },
    events: [
      {
        number: 18,
        at: 1_790_000_000_000,
        kind: 'node.lost',
        subject: 'ps-1',
        fields: { node: 4, name: 'ps-1' },
      },
    ],
  },
  tellEvent: { id: 4, kind: 'autoscale.decided', fields: { action: 'scale', ps: 5, dryRun: true } },
  eventTold: { id: 4, number: 0, code: 'LIMIT', message: 'too many' },
  read: { id: 3, items: packItems('pull', [[1, 0, 32]]), maxLagMs: 500, missing: new Uint8Array(4) },
  readRows: { id: 3, states: [[4, 72]], lagMs: 12 },
  readRefused: { id: 3, code: 'STALE_REPLICA', message: 'too old' },
  restoreLost: { id: 2, url: 'ckpt', number: 3 },
  restoreReply: {
    ...{ id: 2, number: 3, agoMs: 1200, shards: [['embedding', 5, 17]] },
    ...{ code: 'NOT_READY', message: 'no' },
  },
  setPlan: {
    ...{ id: 2, name: 'checkpoint', next: 3 },
    plan: {
      url: 'ckpt',
      everyMs: 300_000,
      keep: 3,
      rate: 0,
      kind: 'full job',
      tables: ['user'],
      barrier: true,
    },
  },
  planSet: { id: 2, code: 'LIMIT', message: 'too many' },
  saveNow: { id: 2, name: 'checkpoint' },
  saveDone: { id: 2, number: 3, rows: 9, bytes: 99, tookMs: 5, code: 'TIMEOUT', message: 'no' },
};
export const SAMPLES: readonly object[] = Object.entries(FIELDS).map(([t, fields]) => ({ t, ...fields }));

const NASTY: readonly unknown[] = [
  -1,
  0.5,
  2 ** 31,
  2 ** 53,
  Number.NaN,
  2n ** 64n - 1n,
  '',
  'constructor',
  '__proto__',
  'x'.repeat(5000),
  null,
  true,
  [],
  [[]],
  {},
  { kind: 'P' },
  new Uint8Array(3),
  [[1, 2, 3, 4, 5]],
  ['WRONG_OWNER'],
];

/** Replaces something somewhere in the header; what was right stays right around it. */
export function retype(random: Random, value: unknown, depth = 0): unknown {
  if (depth > 0 && (random.below(3) === 0 || typeof value !== 'object' || value === null))
    return random.of(NASTY);
  if (Array.isArray(value)) {
    if (value.length === 0 || random.below(8) === 0) return [...value, random.of(NASTY)];
    const at = random.below(value.length);
    return value.map((item, i) => (i === at ? retype(random, item, depth + 1) : item));
  }
  const entries = Object.entries(value as object);
  const at = random.below(entries.length + 1);
  if (at === entries.length)
    return { ...(value as object), [String(random.of(['extra', 'constructor', 't']))]: 1 };
  const [name] = entries[at]!;
  if (random.below(6) === 0) return Object.fromEntries(entries.filter((entry) => entry[0] !== name));
  return Object.fromEntries(
    entries.map(([key, item]) => [key, key === name ? retype(random, item, depth + 1) : item]),
  );
}

/** Flips, overwrites, inserts, removes, repeats or cuts bytes. */
export function mutate(random: Random, frame: Uint8Array): Uint8Array {
  const bytes = [...frame];
  for (let n = 1 + random.below(4); n > 0 && bytes.length > 0; n--) {
    // Half of all changes hit the first bytes, where lengths are.
    const at = random.below(random.below(2) === 0 ? Math.min(bytes.length, 12) : bytes.length);
    const what = random.below(6);
    if (what === 0) bytes[at]! ^= 1 << random.below(8);
    else if (what === 1)
      bytes[at] = random.of([0, 0x7f, 0x80, 0x90, 0xc1, 0xc4, 0xc7, 0xd4, 0xd9, 0xdc, 0xdf, 0xff]);
    else if (what === 2) bytes.splice(at, 0, random.below(256));
    else if (what === 3) bytes.splice(at, 1 + random.below(8));
    else if (what === 4) bytes.splice(at, 0, ...bytes.slice(at, at + random.below(32)));
    else bytes.length = at;
  }
  return Uint8Array.from(bytes);
}

function message(random: Random): Outgoing {
  let header = random.of(SAMPLES);
  if (random.below(2) === 0) header = retype(random, header) as object;
  const parts = Array.from({ length: random.below(3) }, () =>
    new Uint8Array(random.below(40)).fill(random.below(256)),
  );
  return [header, parts];
}

function generate(random: Random, encode: Decoders['encodeMessages']): Uint8Array {
  if (random.below(20) === 0)
    return Uint8Array.from({ length: random.below(64) }, (_, i) =>
      i < 4 ? random.below(2) * 20 : random.below(256),
    );
  const count = random.below(3) === 0 ? 2 + random.below(2) : 1;
  let frame: Uint8Array;
  try {
    frame = encode(Array.from({ length: count }, () => message(random)));
  } catch {
    return Uint8Array.of(0, 0, 0, 0); // the sender's side refuses a header without `t`
  }
  return random.below(3) === 0 ? frame : mutate(random, frame);
}

/**
 * Runs; throws at the first frame that is answered by anything but a message or BAD_FRAME, with the frame in
 * hex.
 */
export function fuzzFrames(decoders: Decoders, frames: number, seed: number): FuzzReport {
  const random = new Random(seed);
  const kinds = new Set<string>();
  const report: FuzzReport = { frames, accepted: 0, refused: 0, kinds: 0, digest: 0 };
  const innocent = Object.getOwnPropertyNames(Object.prototype).length;
  for (let n = 0; n < frames; n++) {
    const bytes = generate(random, decoders.encodeMessages);
    const before = bytes.slice();
    try {
      for (const { header, parts } of decoders.decodeMessages(bytes)) {
        for (const part of parts) {
          if (part.buffer !== bytes.buffer || part.byteOffset + part.byteLength > bytes.byteLength)
            throw new Error('a part is not in the frame');
        }
        kinds.add(decoders.toMessage(header).t);
      }
      report.accepted++;
    } catch (error) {
      if ((error as { code?: unknown }).code !== 'BAD_FRAME')
        throw new Error(`frame ${n} of seed ${seed}: ${Buffer.from(before).toString('hex')}`, {
          cause: error,
        });
      report.refused++;
    }
    report.digest = (Math.imul(report.digest, 31) + report.accepted) >>> 0;
    if (Buffer.compare(bytes, before) !== 0) throw new Error(`frame ${n} of seed ${seed} was changed`);
  }
  if (Object.getOwnPropertyNames(Object.prototype).length !== innocent || 'kind' in {})
    throw new Error('Object.prototype was changed');
  report.kinds = kinds.size;
  return report;
}

/**
 * Headers from outside: a valid sample of every kind of message passes, and with any one field broken it is
 * BAD_FRAME.
 */
import { describe, expect, it } from 'vitest';
import { packItems } from '../../src/protocol/items.js';
import { CAPABILITIES } from '../../src/protocol/map.js';
import type { Message, MessageOf } from '../../src/protocol/messages.js';
import { toMessage } from '../../src/protocol/validate.js';
import { codeOf as codeOfCall } from '../codes.js';
import { EARLIER, EARLIER_SAMPLES, isRate, LOOKING, mayBeNull } from './samples.js';

const stream = { g: 0, m: 1, sid: 4, gen: 7 };
const spec = {
  ...{ name: 't', pool: 'embedding', dim: 8 },
  optimizer: { kind: 'sgd' as const, lr: 0.1 },
  initializer: { kind: 'zeros' as const },
  seed: 3,
};
const recovery = { g: 0, m: 1, gen: 7, blocksLost: 5, blocksPresent: 2, blocksOnDemand: 1 };
const map = {
  epoch: 9,
  job: 'j',
  pools: [{ name: 'embedding', k: 1, r: 1, firstGroup: 0, groups: 1 }],
  groups: [
    {
      id: 0,
      pool: 0,
      version: 9,
      data: [{ node: 1, inc: 1, gen: 1, init: true }],
      sinks: [
        { sid: 1, kind: 'P' as const, index: 0, node: 2, inc: 1, init: true, ...CAPABILITIES.P },
        {
          sid: 2,
          kind: 'M' as const,
          index: 0,
          node: 3,
          inc: 1,
          init: false,
          ...CAPABILITIES.M,
          movesMember: 0,
        },
      ],
    },
  ],
  nodes: [{ id: 1, inc: 1, name: 'ps-0', host: 'h', address: 'h:1', standby: false }],
  tables: [{ ...spec, id: 1, ...EARLIER_SAMPLES }],
};

const lease = { name: 'd', number: 1, lease: 5 };
const range = { number: 1, epoch: 0, file: 0, begin: 0, end: 100 };
const dataset = {
  files: [{ name: 'a.tsv', size: 100, rangeBytes: 50 }],
  ...{ batch: 4, epochs: 1, seed: 3, shuffle: true, staleness: 2 },
};

/** A new kind of message does not compile until it has a sample here. */
const proof = new Uint8Array(16);
const SAMPLES: { [T in Message['t']]: MessageOf<T> } = {
  hello: { t: 'hello', peer: 1, inc: 2, job: 'j', proof },
  push: { t: 'push', epoch: 1, client: 7, proof, items: packItems('push', [[0, 1, 2, 24]]) },
  pull: { t: 'pull', epoch: 1, id: 5, items: packItems('pull', [[0, 1, 24]]) },
  keys: { t: 'keys', g: 0, m: 1, epoch: 1, id: 5, table: 1, order: 'slot', from: 0, max: 10 },
  evictions: { t: 'evictions', g: 0, m: 1, epoch: 1, id: 5, table: 1, gen: 2, from: 3, max: 10 },
  shardStats: { t: 'shardStats', g: 0, m: 1, epoch: 1, id: 5 },
  pushAck: {
    t: 'pushAck',
    client: 7,
    items: packItems('pushAck', [
      [0, 1, 2],
      [0, 1, 3],
    ]),
    refused: [[1, 'DIM_MISMATCH']],
  },
  skipTo: { t: 'skipTo', g: 0, m: 1, client: 7, proof, next: 4 },
  gap: { t: 'gap', g: 0, m: 1, client: 7, expected: 4, rewound: true },
  rows: { t: 'rows', id: 5, items: packItems('rows', [[0, 64]]) },
  reject: {
    t: 'reject',
    id: 5,
    items: [
      [0, 'WRONG_OWNER'],
      [-3, 'LIMIT'],
    ],
  },
  lost: { t: 'lost', g: 0, m: 1, v: 9, client: 7 },
  keysPage: { t: 'keysPage', id: 5, next: -1 },
  evicted: { t: 'evicted', g: 0, m: 1, id: 5, table: 1, gen: 2, from: 3, end: 9 },
  shardStatsReply: {
    t: 'shardStatsReply',
    id: 5,
    extents: [[1, 16, 3]],
    tables: [{ table: 1, rows: 3, extent: 3, absentKeyBlocks: 0, absentRowBlocks: 0 }],
  },
  open: { t: 'open', ...stream, v: 9, attempt: 2 },
  openAck: { t: 'openAck', ...stream, none: false, sgen: 1, applied: 3, attempt: 2 },
  start: {
    t: 'start',
    ...stream,
    v: 9,
    base: 3,
    dedup: [[5, 2, [[1, 'LIMIT']]]],
    extents: [[1, 16, 3]],
  },
  startAck: { t: 'startAck', ...stream, applied: 3, dedup: [[5, 2, []]], extents: [[1, 16, 3]] },
  delta: {
    t: 'delta',
    ...stream,
    seq: 4,
    ids: [
      [5, 3],
      [5, 4, 'LIMIT'],
    ],
    committed: 3,
  },
  committed: { t: 'committed', ...stream, committed: 3 },
  applied: { t: 'applied', ...stream, applied: 4, atLimit: true },
  want: { t: 'want', ...stream, v: 9 },
  content: { t: 'content', ...stream, seq: 4 },
  lacking: { t: 'lacking', ...stream, seq: 4, v: 9 },
  recover: { t: 'recover', ...stream, seq: 4, v: 9, extents: [[1, 16, 3]] },
  equation: { t: 'equation', ...stream, v: 9, index: 0, lacking: [[0, 7]], ok: true },
  install: { t: 'install', g: 0, m: 1, gen: 7 },
  check: { t: 'check', epoch: 9, id: 5, g: 0, sid: 4 },
  checked: { t: 'checked', id: 5, g: 0, sid: 4, checked: 9, unprotected: 0, mismatched: 0, unknown: false },
  join: { t: 'join', name: 'ps-0', host: 'h', address: 'h:1', standby: false, id: 1, inc: 2, job: 'j' },
  welcome: { t: 'welcome', id: 1, inc: 2, map, proof },
  redirect: { t: 'redirect', to: 'host:7077' },
  stale: { t: 'stale', code: 'STALE_NODE' },
  attach: { t: 'attach', id: 5, job: 'j', proof },
  detach: { t: 'detach' },
  sessions: { t: 'sessions' },
  openSessions: { t: 'openSessions', next: 9, open: [5, 7] },
  sessionsEnded: {
    t: 'sessionsEnded',
    ranges: [
      [1, 4],
      [6, 6],
    ],
  },
  map: { t: 'map', map },
  mapDiff: {
    ...{ t: 'mapDiff', from: 8, to: 9, removed: [4] },
    ...{ groups: map.groups, nodes: map.nodes, tables: map.tables },
  },
  mapRequest: { t: 'mapRequest', epoch: 8 },
  heartbeat: {
    t: 'heartbeat',
    inc: 2,
    epoch: 9,
    completeSinks: [1],
    completeShards: [[0, 1, 7]],
    recoveries: [recovery],
    owned: [[0, 1, 3]],
    bytes: 100,
    rows: 3,
    held: [[0, 1, 4096, 17]],
  },
  unrecoverable: { t: 'unrecoverable', g: 0, m: 1, gen: 7, v: 9, blocks: 2 },
  stalled: { t: 'stalled', ...stream, v: 9, forMs: 3000 },
  shardRefused: { t: 'shardRefused', g: 0, m: 1, gen: 7, mirror: 4 },
  replaceSink: { t: 'replaceSink', id: 5, g: 0, sid: 4 },
  sinkReplaced: { t: 'sinkReplaced', id: 5, done: true },
  reach: { t: 'reach', node: 3, inc: 1 },
  reached: { t: 'reached', node: 3, inc: 1, silentMs: 250 },
  pulse: { t: 'pulse', node: 3, inc: 1, job: 'job', ageMs: 40, gapMs: 90 },
  confirmedLost: { t: 'confirmedLost', g: 0, m: 1, gen: 7, v: 9 },
  createTables: { t: 'createTables', id: 5, specs: [{ ...spec, set: ['lr'] }] },
  tablesCreated: {
    t: 'tablesCreated',
    id: 5,
    tables: [{ ...spec, id: 1 }],
    code: 'LIMIT',
    message: 'too many',
  },
  scale: { t: 'scale', id: 5, ps: 8, timeoutMs: 0 },
  drain: { t: 'drain', id: 5, node: 'ps-1', timeoutMs: 30_000, change: 3, restart: true },
  rebalance: { t: 'rebalance', id: 5, dryRun: true, timeoutMs: 0 },
  changeReply: {
    t: 'changeReply',
    id: 5,
    change: 3,
    moves: [{ group: 0, kind: 'data', index: 1, from: 'ps-0', to: 'ps-5', bytes: 4096 }],
    code: 'NOT_ENOUGH_NODES',
    message: 'too few',
  },
  movePace: { t: 'movePace', bytesPerSecond: 4096 },
  time: { t: 'time', seconds: 86_400 },
  moveProgress: { t: 'moveProgress', items: [[4, 17]] },
  leave: { t: 'leave', inc: 2, restart: true },
  status: { t: 'status', id: 5 },
  statusReply: {
    t: 'statusReply',
    id: 5,
    status: {
      job: 'j',
      epoch: 9,
      redundancy: 'full',
      reasons: [],
      warnings: [],
      nodes: [],
      pools: [],
      tables: [],
      recoveries: [recovery],
      unrecoverable: [],
      scaling: { wanted: 3, serving: 3, changes: [] },
    },
  },
  openDataset: { t: 'openDataset', id: 5, name: 'd', spec: dataset },
  datasetOpened: { t: 'datasetOpened', id: 5, spec: dataset, code: 'LIMIT', message: 'too many' },
  extendDataset: { t: 'extendDataset', id: 5, name: 'd', sizes: [4096, 0] },
  datasetExtended: { t: 'datasetExtended', id: 5, sizes: [], code: 'BAD_ARGUMENT', message: 'no' },
  acquire: { t: 'acquire', id: 5, name: 'd', clock: 3 },
  acquired: { t: 'acquired', id: 5, range, session: 9, proof, done: 2, begun: 3, leaseMs: 1000 },
  rangeProgress: { t: 'rangeProgress', ...lease, done: 2, begun: 3, clock: 4 },
  rangeLost: { t: 'rangeLost', ...lease },
  release: {
    t: 'release',
    id: 5,
    ...lease,
    ...{ session: 9, proof },
    ...{ outcome: 'failed', done: 2, begun: 3, samples: 9, redone: 1 },
    ...{ batch: 2, code: 'BAD_DATA', message: 'no' },
  },
  released: { t: 'released', id: 5 },
  advance: { t: 'advance', id: 5, name: 'd', clock: 3 },
  advanced: { t: 'advanced', id: 5, until: 7 },
  datasetStatus: { t: 'datasetStatus', id: 5, name: 'd' },
  datasetReply: {
    t: 'datasetReply',
    id: 5,
    status: {
      ...{ name: 'd', epochs: 1, ranges: 4, finished: 1, open: 1, samples: [9], redone: 0 },
      ...{ setAside: [], complete: false },
    },
  },
  saveShards: {
    ...{ t: 'saveShards', epoch: 9, id: 4, url: 'ckpt', prefix: '000001/1a2b3c4d', kind: 'full job' },
    ...{ tables: [1], rate: 0, barrier: false, shards: [[1, 0, 4, 2]] },
  },
  saveProgress: { t: 'saveProgress', id: 4, items: [[1, 0, 4, 4096]] },
  shardSaved: {
    ...{ t: 'shardSaved', id: 4, g: 1, m: 0, gen: 4, position: 7, stamp: 3, since: 2 },
    segments: [['000001/1a2b3c4d-g1-m0-4-0.safetensors', 4096, 'ab12', 9]],
  },
  saveFailed: { t: 'saveFailed', id: 4, g: 1, m: 0, gen: 4, code: 'PLACE_FAILED', message: 'no' },
  saveEnded: { t: 'saveEnded', id: 4 },
  hold: { t: 'hold', id: 4, ms: 15_000 },
  held: {
    t: 'held',
    id: 4,
    ranges: [{ name: 'd', number: 1, lease: 2, done: 3, begun: 4, clock: 5 }],
  },
  resume: { t: 'resume', id: 4 },
  loadShard: {
    ...{ t: 'loadShard', epoch: 9, g: 1, m: 0, gen: 4, url: 'ckpt', reshaped: true, sessionsBelow: 7 },
    parts: [{ group: 1, member: 0, segments: [{ name: 'a', bytes: 4096, sha256: 'ab12', rows: 9 }] }],
  },
  shardLoaded: { t: 'shardLoaded', g: 1, m: 0, gen: 4 },
  loadFailed: { t: 'loadFailed', g: 1, m: 0, gen: 4, code: 'BAD_CHECKPOINT', message: 'no' },
  ...LOOKING,
  restoreLost: { t: 'restoreLost', id: 5, url: 'ckpt', number: 3 },
  restoreReply: {
    ...{ t: 'restoreReply', id: 5, number: 3, agoMs: 1200, code: 'NOT_READY', message: 'no' },
    shards: [['embedding', 5, 17]],
  },
  setPlan: {
    ...{ t: 'setPlan', id: 5, name: 'checkpoint', next: 3 },
    plan: { url: 'ckpt', everyMs: 1000, keep: 3, rate: 0, kind: 'export' },
  },
  planSet: { t: 'planSet', id: 5, code: 'LIMIT', message: 'too many' },
  saveNow: { t: 'saveNow', id: 5, name: 'checkpoint' },
  saveDone: {
    ...{ t: 'saveDone', id: 5, number: 3, rows: 9, bytes: 99, tookMs: 5 },
    ...{ pausedMs: 12, code: 'TIMEOUT', message: 'no' },
  },
};
const OPTIONAL: Record<string, string[]> = {
  join: ['id', 'inc', 'job', 'machine'],
  attach: ['id', 'job', 'proof'],
  tablesCreated: ['code', 'message'],
  setTable: ['lr', 'clipNorm', 'schedule'],
  tableSet: ['code', 'message'],
  tableDropped: ['code', 'message'],
  eventTold: ['code', 'message'],
  drain: ['change', 'restart'],
  leave: ['restart'],
  changeReply: ['code', 'message'],
  heartbeat: ['held', 'recoveries'],
  hello: ['proof'],
  push: ['client', 'proof'],
  welcome: ['proof'],
  reached: ['silentMs'],
  shardRefused: ['mirror'],
  stalled: ['forMs'],
  pushAck: ['client', 'refused'],
  skipTo: ['client', 'proof'],
  gap: ['client', 'rewound'],
  loadShard: ['sessionsBelow'],
  restoreLost: ['number'],
  restoreReply: ['code', 'message'],
  lost: ['client'],
  applied: ['atLimit'],
  datasetOpened: ['spec', 'code', 'message'],
  datasetExtended: ['code', 'message'],
  acquired: ['range', 'proof'],
  release: ['session', 'proof', 'batch', 'code', 'message'],
  datasetReply: ['status'],
  saveShards: ['tables'],
  setPlan: ['plan', 'next'],
  follow: ['have'],
  replicaReport: ['tables', 'served'],
  observe: ['epoch', 'shards'],
  observed: ['scheduler'],
  read: ['maxLagMs', 'missing'],
  planSet: ['code', 'message'],
  saveDone: ['pausedMs', 'code', 'message'],
};
const INNER = ['movesMember', 'minFrequency', 'maxAge', 'maxAgeSeconds'];
/** Fields that only people read: any object is valid. */
const OPAQUE = ['optimizer', 'schedule', 'initializer', 'status', 'moves', 'scheduler', 'fields'].concat(
  ['shardStatsReply', 'tablesCreated'].map((kind) => `tables of ${kind}`),
);

const codeOf = (header: unknown): string =>
  codeOfCall(() => toMessage(header as Record<string, unknown>), 'accepted');

/** Values of another type than the expected one, or out of its range. */
function wrongOnes(value: unknown, path: Path): unknown[] {
  if (isRate(path) && typeof value === 'number') return ['1', Number.NaN, Infinity, null, [], true];
  if (path.some((name) => /Seconds$/.test(String(name))) && typeof value === 'number')
    return ['1', Number.NaN, -0.5, null, [], true];
  if (typeof value === 'number') return ['1', 1.5, Number.NaN, 2 ** 53, null, [], true];
  if (typeof value === 'boolean') return [0, 'true', null];
  if (typeof value === 'string') return [1, null, [], {}];
  if (Array.isArray(value)) return [{}, 'x', 1, null];
  return [[], 'x', 1, null];
}

type Path = (string | number)[];
/** Paths to every value inside a sample, down to the leaves. */
function* paths(value: unknown, at: Path, t: string): Generator<Path> {
  if (at.length > 0) yield at;
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return;
  const last = String(at.at(-1));
  if (OPAQUE.includes(last) || OPAQUE.includes(`${last} of ${t}`)) return;
  for (const [name, inner] of Object.entries(value))
    if (at.length > 0 || name !== 't')
      yield* paths(inner, [...at, Array.isArray(value) ? Number(name) : name], t);
}
function at(value: unknown, path: Path): unknown {
  return path.reduce((inner, name) => (inner as Record<string | number, unknown>)[name], value);
}
function replaced(sample: unknown, path: Path, value: unknown): unknown {
  const copy = structuredClone(sample);
  (at(copy, path.slice(0, -1)) as Record<string | number, unknown>)[path.at(-1)!] = value;
  return copy;
}
function without(sample: unknown, path: Path): unknown {
  const copy = structuredClone(sample);
  delete (at(copy, path.slice(0, -1)) as Record<string | number, unknown>)[path.at(-1)!];
  return copy;
}

describe.each(Object.entries(SAMPLES))('%s', (t, sample) => {
  const all = [...paths(sample, [], t)];

  it('passes when it is valid, as the same object', () => {
    expect(toMessage(sample as never)).toBe(sample);
  });

  it('is BAD_FRAME without any one of its fields', () => {
    const named = all.filter((path) => typeof path.at(-1) === 'string');
    for (const path of named) {
      const inner = [...INNER, ...EARLIER, ...(t === 'createTables' ? ['set'] : [])];
      const last = String(path.at(-1));
      const optional = inner.includes(last) || (path.length === 1 && (OPTIONAL[t] ?? []).includes(last));
      expect([path, codeOf(without(sample, path))]).toEqual([path, optional ? 'accepted' : 'BAD_FRAME']);
    }
    if (!['attach', 'detach', 'sessions'].includes(t)) expect(named.length).toBeGreaterThan(0);
  });

  it('is BAD_FRAME with any value of another type', () => {
    for (const path of all) {
      const wrongs = wrongOnes(at(sample, path), path);
      for (const wrong of wrongs.filter((each) => each !== null || !mayBeNull(path)))
        expect([path, wrong, codeOf(replaced(sample, path, wrong))]).toEqual([path, wrong, 'BAD_FRAME']);
    }
  });
});

describe('limits', () => {
  it('numbers are not negative, but for the two that may be', () => {
    for (const [t, sample] of Object.entries(SAMPLES)) {
      for (const path of paths(sample, [], t)) {
        if (typeof at(sample, path) !== 'number') continue;
        const signed =
          (t === 'keysPage' && path[0] === 'next') || (t === 'reject' && path.length === 3) || isRate(path);
        expect([t, path, codeOf(replaced(sample, path, -1))]).toEqual([
          t,
          path,
          signed ? 'accepted' : 'BAD_FRAME',
        ]);
      }
    }
  });

  it('tuples have their length, codes and kinds are known ones, texts are short', () => {
    for (const from of [0, 2n ** 53n, 2n ** 64n - 1n])
      expect(codeOf({ ...SAMPLES.keys, order: 'key', from })).toBe('accepted');
    for (const from of [-1n, 2n ** 64n, 2 ** 53])
      expect(codeOf({ ...SAMPLES.keys, order: 'key', from })).toBe('BAD_FRAME');
    expect(codeOf({ ...SAMPLES.keys, order: 'name' })).toBe('BAD_FRAME');
    expect(codeOf({ ...SAMPLES.keysPage, next: 2n ** 64n - 1n })).toBe('accepted');
    for (const next of [-2, -1n, 2n ** 64n]) expect(codeOf({ ...SAMPLES.keysPage, next })).toBe('BAD_FRAME');
    expect(codeOf({ ...SAMPLES.push, items: packItems('pull', [[0, 1, 24]]) })).toBe('BAD_FRAME');
    for (const refused of [[[0, 'NO_SUCH_CODE']], [[0, 'toString']], [[0]], [[-1, 'LIMIT']], {}])
      expect(codeOf({ ...SAMPLES.pushAck, refused })).toBe('BAD_FRAME');
    expect(codeOf({ ...SAMPLES.stale, code: 'WRONG_OWNER' })).toBe('BAD_FRAME');
    expect(codeOf({ ...SAMPLES.stale, code: 'BAD_FRAME' })).toBe('BAD_FRAME');
    expect(codeOf({ ...SAMPLES.delta, ids: [[1, 4, 'ENDED']] })).toBe('accepted');
    expect(codeOf({ ...SAMPLES.delta, ids: [[5, 4, 'ENDED']] })).toBe('BAD_FRAME');
    expect(codeOf({ ...SAMPLES.startAck, dedup: [[1, 4, 'ENDED']] })).toBe('accepted');
    expect(codeOf({ ...SAMPLES.startAck, dedup: [[5, 4, 'ENDED']] })).toBe('BAD_FRAME');
    expect(codeOf({ ...SAMPLES.sessionsEnded, ranges: [[5, 4]] })).toBe('BAD_FRAME');
    expect(codeOf({ ...SAMPLES.sessionsEnded, ranges: [] })).toBe('accepted');
    expect(codeOf({ ...SAMPLES.pushAck, refused: [[0, 'ENDED']] })).toBe('BAD_FRAME');
    expect(codeOf(replaced(SAMPLES.map, ['map', 'groups', 0, 'sinks', 0, 'kind'], 'X'))).toBe('BAD_FRAME');
    expect(codeOf({ ...SAMPLES.hello, job: 'j'.repeat(5000) })).toBe('BAD_FRAME');
    const told = (fields: unknown) => codeOf({ ...SAMPLES.tellEvent, fields });
    for (const value of [{}, [], null, Number.NaN, 'x'.repeat(5000)])
      expect(told({ ps: value })).toBe('BAD_FRAME');
    expect(told(Object.fromEntries(Array.from({ length: 17 }, (_, i) => [i, i])))).toBe('BAD_FRAME');
    for (const kind of ['node.lost', 'toString', 'map.durable'])
      expect(codeOf({ ...SAMPLES.tellEvent, kind })).toBe('BAD_FRAME');
    const events = Array.from({ length: 101 }, () => SAMPLES.eventsReply.events[0]);
    expect(codeOf({ ...SAMPLES.eventsReply, events })).toBe('BAD_FRAME');
  });

  it.each([['nonsense'], [''], ['toString'], ['__proto__'], ['constructor'], [undefined], [7], [null], [{}]])(
    'an unknown kind is BAD_FRAME: %s',
    (t) => expect(codeOf({ t })).toBe('BAD_FRAME'),
  );

  it('refuses a member that no group has, which would name a shard of another group', () => {
    const asked = (m: number) => codeOf({ t: 'shardStats', g: 0, m, epoch: 1, id: 1 });
    expect([65_535, 65_536, 65_537].map(asked)).toEqual(['accepted', 'BAD_FRAME', 'BAD_FRAME']);
    expect(codeOfCall(() => toMessage({ t: 'gap', g: 0, m: 65_536, expected: 1 }))).toBe('BAD_FRAME');
  });
});

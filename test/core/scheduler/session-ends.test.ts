// Rule 31: the scheduler says in time which sessions have ended, so that nobody remembers ranges of samples
// that are finished. Numbers of entries are counted, because memory is not measured here.
import { afterEach, describe, expect, it } from 'vitest';
import { listSections } from '../../../src/core/client/client.js';
import { rangesAround, rangesBetween, type SessionRange } from '../../../src/core/shared/session-ranges.js';
import type { PeerId } from '../../../src/protocol/map.js';
import type { Message } from '../../../src/protocol/messages.js';
import { type DatasetSpec, UNBOUNDED } from '../../../src/protocol/samples.js';
import { section } from '../client-actor.js';
import { Cluster, type ClusterOptions, kind } from '../harness.js';
import { acksIn } from '../packed.js';

/** No node asks by itself. */
const NEVER = 1e12;
const CHECK_MS = 1000;
const MEMBERS = [0, 1];

let cluster: Cluster;
afterEach(() => cluster.close());

const spec: DatasetSpec = {
  files: [{ name: 'day', size: 1_000_000, rangeBytes: 100 }],
  ...{ batch: 100, epochs: 1, seed: 1, shuffle: false, staleness: UNBOUNDED },
};

function start(options: Partial<ClusterOptions> = {}): void {
  cluster = new Cluster({ k: 2, r: 1, policy: { sessionCheckMs: NEVER }, ...options });
  for (const { id } of cluster.clients) ask(id, { t: 'openDataset', id: nextId(), name: 'd', spec });
  cluster.settle();
}

let asked = 0;
const nextId = () => ++asked;

function ask(from: PeerId, message: Message): void {
  cluster.stepScheduler({ kind: 'message', from, role: 'client', message });
}

interface Leased {
  id: number;
  session: PeerId;
  number: number;
}

/** A client leases the next range. */
function lease(from: PeerId = cluster.client.id): Leased {
  const id = nextId();
  const mark = cluster.history.length;
  ask(from, { t: 'acquire', id, name: 'd', clock: 0 });
  cluster.settle();
  const answer = cluster.sent('acquired', mark).find(({ message }) => message.id === id)!.message;
  return { id, session: answer.session, number: answer.range!.number };
}

/** A batch of the range, in every shard. It is durable afterwards. */
function train(session: PeerId): string | undefined {
  const ticket = { done: false, released: false, error: undefined, rows: [], answer: undefined };
  const number = 1_000_000 + nextId();
  const { client } = cluster;
  client.tickets.set(number, ticket);
  const items = MEMBERS.map((m) => ({ g: 0, m, section: section([{ keys: [1] }], true) }));
  client.step({ kind: 'push', ticket: number, lists: listSections(items), client: session });
  cluster.settle();
  return ticket.error;
}

function finish({ id: lease, session, number }: Leased): void {
  const counts = { done: 1, begun: 1, samples: 1, redone: 0 };
  const range = { name: 'd', number, lease, session };
  ask(cluster.client.id, { t: 'release', id: nextId(), ...range, outcome: 'finished', ...counts });
  cluster.client.step({ kind: 'leave', client: session });
  cluster.settle();
}

/** De-duplication of each shard, at its sinks. */
const tables = () => MEMBERS.map((m) => cluster.sink(0).dedupOf(m));
/** Sessions that are remembered, of each owner and of each sink. */
const remembered = () => [
  ...MEMBERS.map((m) => cluster.owner(m).clients()),
  ...tables().map((dedup) => dedup.clients()),
];
const most = () => Math.max(...remembered().map((sessions) => sessions.length));
const nobody = [[], [], [], []];

describe('ends of sessions', () => {
  it('a thousand ranges leave no more entries than were finished within a second', () => {
    start();
    let worst = 0;
    for (let i = 0; i < 1000; i++) {
      const range = lease();
      train(range.session);
      finish(range);
      if (i % 4 > 0) continue;
      cluster.advance(100);
      worst = Math.max(worst, most());
    }
    // 40 in a second.
    expect(worst).toBeGreaterThan(20);
    expect(worst).toBeLessThanOrEqual(44);
    cluster.advance(1200);
    expect(remembered()).toEqual(nobody);
    expect(tables().map(({ size }) => size)).toEqual([1, 1]);
    expect(cluster.sent('sessions')).toEqual([]);
  });

  it('are told when they are durable, and not before', () => {
    start();
    const range = lease();
    train(range.session);
    cluster.slowDisk = true;
    finish(range);
    cluster.advance(3000);
    expect(cluster.sent('sessionsEnded')).toEqual([]);
    cluster.persist();
    cluster.settle();
    expect(cluster.sent('sessionsEnded').map(({ to }) => to)).toEqual(cluster.nodes.map(({ id }) => id));
    expect(remembered()).toEqual(nobody);
  });

  it('never cover a session that is open, also when those beside it end', () => {
    start();
    const ranges = Array.from({ length: 30 }, () => lease());
    for (const { session } of ranges) train(session);
    const open = new Map(ranges.map((range) => [range.session, range]));
    const order = ranges.map((range, i) => [(i * 17) % 30, range] as const).sort((a, b) => a[0] - b[0]);
    for (const [, range] of order) {
      finish(range);
      open.delete(range.session);
      cluster.advance(1200);
      expect(remembered()).toEqual(nobody.map(() => [...open.keys()]));
      for (const session of open.keys()) expect(train(session)).toBeUndefined();
    }
    expect(tables().map(({ size }) => size)).toEqual([1, 1]);
  });

  it('a push that comes after its end is refused, by the next owner, too', () => {
    start();
    const range = lease();
    train(range.session);
    const late = cluster.sent('push').find(({ message }) => message.client === range.session)!;
    finish(range);
    cluster.advance(1200);
    const again = () => {
      const mark = cluster.history.length;
      const { node } = cluster.map.groups[0]!.data[0]!;
      cluster.send(cluster.client.id, node, { ...late.message, epoch: 0 }, late.parts);
      cluster.settle();
      return cluster.sent('pushAck', mark).map(({ message }) => acksIn(message));
    };
    expect(again()).toEqual([[[0, 0, 1, 'SESSION_EXPIRED']]]);
    cluster.addNode();
    cluster.crash(0);
    cluster.settle();
    expect(again()).toEqual([[[0, 0, 1, 'SESSION_EXPIRED']]]);
    expect(cluster.read(0, 1)).toBe(1);
  });

  it('owners record nothing of sessions that they do not know', () => {
    start({ clients: 2 });
    const kept = lease();
    train(kept.session);
    cluster.settle();
    const mark = cluster.history.length;
    for (let i = 0; i < 10; i++) {
      finish(lease());
      cluster.advance(1200);
    }
    expect(cluster.sent('sessionsEnded', mark).length).toBe(10 * cluster.nodes.length);
    expect(cluster.sent('delta', mark)).toEqual([]);
  });
});

describe('what is told once', () => {
  it('and lost is repaired by the question', () => {
    start({ policy: { sessionCheckMs: CHECK_MS } });
    const range = lease();
    train(range.session);
    const found = cluster.lose(kind('sessionsEnded'));
    const answers = cluster.lose(kind('openSessions'));
    finish(range);
    cluster.advance(2400);
    expect(cluster.sent('sessionsEnded').length).toBe(cluster.nodes.length);
    expect(remembered()).toEqual(nobody.map(() => [range.session]));
    found();
    answers();
    cluster.advance(2 * CHECK_MS);
    expect(cluster.sent('sessionsEnded').length).toBe(cluster.nodes.length);
    expect(remembered()).toEqual(nobody);
  });

  it('and dies with a scheduler that had not said it is repaired by the question', () => {
    start({ policy: { sessionCheckMs: CHECK_MS } });
    const range = lease();
    train(range.session);
    finish(range);
    cluster.crashScheduler();
    cluster.restartScheduler();
    cluster.settle();
    expect(cluster.disk.sessions.has(range.session)).toBe(false);
    cluster.advance(3 * CHECK_MS);
    expect(cluster.sent('sessionsEnded')).toEqual([]);
    expect(remembered()).toEqual(nobody);
  });

  it('and was not durable when the scheduler died has not happened', () => {
    start();
    const range = lease();
    train(range.session);
    cluster.slowDisk = true;
    finish(range);
    cluster.advance(2400);
    cluster.crashScheduler();
    cluster.slowDisk = false;
    cluster.restartScheduler();
    cluster.advance(2400);
    expect(cluster.sent('sessionsEnded')).toEqual([]);
    expect(train(range.session)).toBeUndefined();
    expect(remembered()).toEqual(nobody.map(() => [range.session]));
  });
});

describe('ranges of ids', () => {
  it('are those between open sessions, and of these the ones around given ids', () => {
    const ranges = rangesBetween([3, 4, 9], 12);
    expect(ranges).toEqual([
      [1, 2],
      [5, 8],
      [10, 11],
    ]);
    expect(rangesAround([11, 6, 7], ranges)).toEqual([
      [5, 8],
      [10, 11],
    ]);
    expect([rangesAround([], ranges), rangesBetween([], 1), rangesBetween([1, 2], 3)]).toEqual([[], [], []]);
  });

  it('agree with a plain set of ids', () => {
    let state = 99;
    const below = (n: number) => {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      return (state >>> 8) % n;
    };
    const within = (ranges: SessionRange[], id: number) => ranges.some(([a, b]) => a <= id && id <= b);
    for (let round = 0; round < 300; round++) {
      const next = 1 + below(40);
      const ids = Array.from({ length: next - 1 }, (_, i) => i + 1);
      const open = ids.filter(() => below(3) === 0);
      const ranges = rangesBetween(open, next);
      expect(ids.filter((id) => !within(ranges, id))).toEqual(open);
      const ended = ids.filter((id) => !open.includes(id) && below(4) === 0);
      const around = rangesAround(ended, ranges);
      expect(around).toEqual(ranges.filter(([a, b]) => ended.some((id) => a <= id && id <= b)));
    }
  });
});

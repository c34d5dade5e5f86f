/** Events of a job: numbered, kept in a ring, durable with decisions or soon after, told when they are. */
import { beforeEach, describe, expect, it } from 'vitest';
import { EVENT_DELAY_MS, EventLog } from '../../../src/core/scheduler/events.js';
import { Scheduler } from '../../../src/core/scheduler/scheduler.js';
import { DEFAULT_SCHEDULER_POLICY } from '../../../src/core/shared/policy.js';
import { EVENTS_AT_ONCE, EVENTS_KEPT, type JobEvent } from '../../../src/protocol/events.js';
import type { Message } from '../../../src/protocol/messages.js';
import { BareScheduler } from './bare.js';

const WALL = 1_790_000_000_000;

function all(events: Pick<EventLog, 'since'>): JobEvent[] {
  const found: JobEvent[] = [];
  for (let page = events.since(0); page.length > 0; page = events.since(found.at(-1)!.number))
    found.push(...page);
  return found;
}

describe('the ring', () => {
  let ring: Map<number, JobEvent>;
  let log: EventLog;
  beforeEach(() => {
    ring = new Map();
    log = new EventLog(ring);
    log.tick(1, WALL);
  });
  const store = () => log.stored(log.giveTo(new Map()));

  it('keeps the fields that the kind has, and says what it is about', () => {
    log.heard('node.lost', {
      node: 4,
      name: 'ps-1',
      inc: 2,
      reason: 'refused',
      secret: 'x',
      more: undefined,
    });
    log.heard('map.durable', { epoch: 4 });
    store();
    const fields = { node: 4, name: 'ps-1', inc: 2, reason: 'refused' };
    expect(all(log)).toEqual([{ number: 1, at: WALL, kind: 'node.lost', subject: 'ps-1', fields }]);
  });

  it('cuts long texts off, and leaves out what is no plain value', () => {
    log.note('checkpoint.failed', {
      plan: 'p',
      number: 3,
      code: 'LIMIT',
      message: 'x'.repeat(999),
      bytes: [],
    });
    log.note('redundancy', { state: 'full', epoch: Number.NaN });
    store();
    const [failed, redundancy] = all(log);
    expect([failed!.subject, failed!.fields.message]).toEqual(['checkpoint 3', 'x'.repeat(256)]);
    expect([redundancy!.subject, redundancy!.fields]).toEqual(['job', { state: 'full' }]);
  });

  it('has the newest, each in a place of its own, and gives a page of them', () => {
    for (let i = 1; i <= EVENTS_KEPT + 7; i++) {
      log.tick(i * 10_000, WALL + i);
      log.note('redundancy', { state: 'full', epoch: i });
      store();
    }
    expect(ring.size).toBe(EVENTS_KEPT);
    const found = all(log);
    expect(found.map(({ number }) => number)).toEqual(Array.from({ length: EVENTS_KEPT }, (_, i) => i + 8));
    expect(log.since(900)).toHaveLength(EVENTS_AT_ONCE);
    expect(log.since(900)[0]!.number).toBe(901);
    expect(log.since(log.durable)).toEqual([]);
  });

  it('a kind that happens too often is kept now and then, and says how often it was not', () => {
    for (let i = 0; i < 250; i++) log.note('move.done', { group: i, kind: 'data', index: 0 });
    expect(log.note('node.lost', { name: 'ps-1' })).toBe(101);
    log.tick(1 + 5000, WALL);
    expect(log.note('move.done', { group: 1, kind: 'data', index: 0 })).toBe(102);
    expect(log.note('move.done', { group: 1, kind: 'data', index: 0 })).toBeUndefined();
    store();
    expect(all(log).at(-1)!.fields).toEqual({ group: 1, kind: 'data', index: 0, skipped: 150 });
  });

  it('while the store is away it holds no more than it can keep', () => {
    for (let i = 1; i <= EVENTS_KEPT + 50; i++) {
      log.tick(i * 10_000, WALL);
      log.note('redundancy', { state: 'full', epoch: i });
    }
    const changes = new Map<string, unknown>();
    expect(log.giveTo(changes)).toBe(EVENTS_KEPT + 50);
    expect(changes.size).toBe(EVENTS_KEPT);
  });

  it('goes on numbering where the disk ends', () => {
    log.note('redundancy', { state: 'full' });
    log.note('redundancy', { state: 'degraded' });
    store();
    const next = new EventLog(new Map(ring));
    next.tick(1, WALL);
    expect([next.durable, next.note('redundancy', { state: 'full' }), next.durable]).toEqual([2, 3, 2]);
  });
});

describe('the scheduler', () => {
  let bare: BareScheduler;
  const kinds = () => all(bare.scheduler.events).map(({ kind, subject }) => `${kind} ${subject}`);
  const persists = () => bare.effects.filter(({ kind }) => kind === 'persist').length;
  const tick = (ms: number) => {
    bare.now += ms;
    bare.step({ kind: 'tick', now: bare.now, wall: WALL + bare.now });
  };
  const joins = (name: string) => {
    const fields = { name, host: name, address: `${name}:1`, standby: false };
    bare.step({ kind: 'join', link: 99, message: { t: 'join', ...fields } });
  };
  beforeEach(() => {
    bare = new BareScheduler(1, 1);
  });

  it('an event of a decision is in its transaction, and is told when that is durable', () => {
    bare.leaveStore();
    joins('ps-0');
    expect(kinds()).toEqual([]);
    bare.returnStore();
    expect(kinds()).toEqual(['node.joined ps-0']);
    expect([...bare.state.events.values()].map(({ kind }) => kind)).toEqual(['node.joined']);
  });

  it('an event without a decision is written alone after a while; a decision does not wait for it', () => {
    const client = bare.attach();
    bare.hear(client.id, { t: 'openDataset', id: 1, name: 'd', spec: SPEC });
    bare.hear(client.id, { t: 'acquire', id: 2, name: 'd', clock: 0 });
    const before = kinds();
    bare.step({ kind: 'closed', peer: client.id, inc: 0, link: client.link });
    for (let ms = 0; ms < DEFAULT_SCHEDULER_POLICY.silentMs; ms += 200) tick(200);
    // Losing a worker is a decision: its range is free.
    const lost = [`worker.lost client ${client.id}`, 'range.lost range 0'];
    expect(kinds().slice(before.length)).toEqual(lost);

    const other = bare.attach();
    bare.hear(other.id, TOLD);
    expect(persists()).toBe(0);
    bare.leaveStore();
    tick(EVENT_DELAY_MS - 1);
    expect(persists()).toBe(0);
    tick(1);
    expect(persists()).toBe(1);
    joins('ps-0');
    // The decision goes to the store at once, behind the event.
    expect(persists()).toBe(1);
    expect(kinds().slice(before.length + 2)).toEqual([]);
    bare.returnStore();
    expect(kinds().slice(before.length + 2)).toEqual(['autoscale.decided scale', 'node.joined ps-0']);
  });

  it('what a client tells is answered when it is durable, and once however often it is repeated', () => {
    const { id } = bare.attach();
    const answers = () =>
      bare.effects.flatMap((effect) =>
        effect.kind === 'send' && effect.message.t === 'eventTold' ? [effect.message] : [],
      );
    bare.hear(id, TOLD);
    bare.hear(id, TOLD);
    expect(answers()).toEqual([]);
    tick(EVENT_DELAY_MS);
    expect(answers()).toEqual([{ t: 'eventTold', id: 7, number: 1 }]);
    bare.hear(id, TOLD);
    expect(answers()).toEqual([{ t: 'eventTold', id: 7, number: 1 }]);
    expect(kinds()).toEqual(['autoscale.decided scale']);
  });

  it('a client that tells too much is refused', () => {
    const { id } = bare.attach();
    const codes: unknown[] = [];
    for (let i = 0; i < 200; i++) {
      bare.hear(id, { ...TOLD, id: i });
      const heard = bare.effects;
      tick(10);
      for (const effect of [...heard, ...bare.effects])
        if (effect.kind === 'send' && effect.message.t === 'eventTold') codes.push(effect.message.code);
    }
    expect(codes.filter((code) => code === undefined)).toHaveLength(100);
    expect(codes.filter((code) => code === 'LIMIT').length).toBeGreaterThan(90);
  });

  it('nothing is written for events before the job itself is', () => {
    const fresh = new Scheduler(bare.disk.read(), DEFAULT_SCHEDULER_POLICY, false, true);
    fresh.step({ kind: 'tick', now: 1, wall: WALL });
    fresh.step({ kind: 'message', from: 9, role: 'client', message: TOLD });
    const effects = fresh.step({ kind: 'tick', now: 5000, wall: WALL });
    expect(effects.filter(({ kind }) => kind === 'persist')).toEqual([]);
  });

  it('a scheduler that resumes the job says so', () => {
    bare.join('ps-0');
    const next = new Scheduler(bare.disk.read(), DEFAULT_SCHEDULER_POLICY, true);
    next.step({ kind: 'tick', now: 1, wall: WALL });
    const [effect] = next.step({ kind: 'tick', now: 1 + EVENT_DELAY_MS, wall: WALL });
    if (effect?.kind !== 'persist') throw new Error('nothing is written');
    next.step({ kind: 'persisted', version: effect.version });
    expect(all(next.events).map(({ kind, number }) => [kind, number])).toEqual([
      ['node.joined', 1],
      ['scheduler.resumed', 2],
    ]);
  });
});

const TOLD: Message & { t: 'tellEvent' } = {
  ...{ t: 'tellEvent', id: 7, kind: 'autoscale.decided' },
  fields: { action: 'scale', ps: 5, reason: 'memory' },
};
const SPEC = {
  ...{ files: [{ name: 'a', size: 100, rangeBytes: 50 }], batch: 4, epochs: 1, seed: 1 },
  ...{ shuffle: false, staleness: 1000 },
};

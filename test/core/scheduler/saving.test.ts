/** Checkpoints: what is asked of whom, what counts, and what a manifest has. */
import { describe, expect, it } from 'vitest';
import type { MessageOf } from '../../../src/protocol/messages.js';
import { decodeManifest, encodeManifest } from '../../../src/stores/checkpoint/manifest.js';
import { kind } from '../harness.js';
import { cluster, DATASET, drafts, failures, PLAN, push, save, start, tell } from './saves.js';

describe('a checkpoint', () => {
  it('has all rows of all shards, with the de-duplication state of the same position', () => {
    start();
    push(1, 1, 2, 3);
    push(2, 2);
    const [done] = save();
    expect(done).toMatchObject({ number: 1, rows: 6 });
    expect(done!.code).toBeUndefined();
    const draft = drafts()[0]!;
    expect(
      draft.shards.map(({ group, member, position, since }) => [group, member, position, since]),
    ).toEqual([
      [0, 0, 2, 0],
      [0, 1, 2, 0],
    ]);
    expect(cluster.place.rows(draft, 0)).toEqual({ 1: 1, 2: 3, 3: 1 });
    const last = cluster.place.files.get(draft.shards[0]!.segments.at(-1)!.name)!;
    expect(last).toMatchObject({ position: 2, sessions: [[cluster.client.id, 2, []]] });
  });

  it('adds what changed since the one before, and all of it after a new owner', () => {
    start();
    push(1, 1, 3, 5, 7);
    save();
    push(1, 1);
    expect(save()[0]).toMatchObject({ number: 2 });
    const [first, second] = drafts();
    const [whole] = first!.shards[0]!.segments;
    expect(second!.shards[0]!.segments[0]).toEqual(whole);
    expect(second!.shards[0]!.segments.slice(1).map(({ rows }) => rows)).toEqual([1]);
    expect(cluster.place.rows(second!, 0)).toEqual({ 1: 2, 3: 1, 5: 1, 7: 1 });
    cluster.crash(0);
    cluster.restart(0);
    cluster.advance(3000);
    expect(cluster.owner(0).complete).toBe(true);
    // The engine of an owner may have given the same number for a snapshot of its own.
    const stamps = new Set<string>();
    const looking = cluster.hold(({ message }) => {
      if (message.t === 'saveShards')
        for (const [g, m, , since] of message.shards) stamps.add(`${g}/${m} since ${since}`);
      return false;
    });
    expect(save()[0]).toMatchObject({ number: 3 });
    looking.release();
    expect([...stamps].sort()).toEqual(['0/0 since 0', '0/1 since 2']);
    const third = drafts()[2]!;
    expect(third.shards.map(({ since, segments }) => [since > 0, segments.length])).toEqual([
      [false, 1],
      [true, 3],
    ]);
    expect(cluster.place.rows(third, 0)).toEqual({ 1: 2, 3: 1, 5: 1, 7: 1 });
  });

  it('is a full one again when the increments are larger than what they add to, or too many', () => {
    start({ schedulerPolicy: { maxIncrements: 2 } });
    push(1, 1);
    const sinces = Array.from({ length: 4 }, () => {
      save();
      push(1, 1);
      return drafts().at(-1)!.shards[0]!.since;
    });
    // Files of the test all count 100 bytes: after two increments there are more of them than of the rest.
    expect(sinces).toEqual([0, 1, 2, 0]);
  });

  it('waits for the position to be committed: an acknowledgement that does not come holds it up', () => {
    start();
    const acks = cluster.hold(kind(['applied', 'openAck']));
    const ticket = cluster.client.push({ 0: [{ keys: [1], value: 1 }], 1: [{ keys: [1], value: 1 }] });
    cluster.settle();
    expect(save()).toEqual([]);
    expect(cluster.place.files.size).toBe(2);
    acks.release();
    cluster.advance(600);
    expect(ticket.done).toBe(true);
    expect(drafts().length).toBe(1);
  });

  it('does not change with pushes that come while it is read', () => {
    start({ policy: { saveChunkBytes: 4096, segmentBytes: 4096 } });
    push(1, 1, 2, 3, 4, 5, 6, 7, 8);
    cluster.place.held = true;
    const asked = save();
    expect(asked).toEqual([]);
    expect(cluster.place.heldWrites).toBeGreaterThan(2);
    push(5, 1, 2, 3, 4, 5, 6, 7, 8, 9);
    cluster.advance(2000);
    cluster.place.release();
    cluster.advance(600);
    expect(drafts()[0]!.shards[0]!.position).toBe(1);
    expect(cluster.place.agesMs[0]).toBeGreaterThanOrEqual(2000);
    expect(Object.values(cluster.place.rows(drafts()[0]!, 0))).toEqual(Array(8).fill(1));
  });

  it('has smaller files where less memory is allowed than a file takes', () => {
    start({ policy: { checkpointBytes: 64 << 10, saveChunkBytes: 4096 } });
    push(1, ...Array.from({ length: 60 }, (_, key) => key));
    expect(save(5000)).toMatchObject([{ number: 1, rows: 120 }]);
    expect(failures()).toEqual([]);
    expect(drafts()[0]!.shards[0]!.segments.length).toBeGreaterThan(4);
  });

  it('of an export has the values of the chosen tables, and neither sessions nor samples', () => {
    start({}, { kind: 'export', tables: [] });
    push(1, 1);
    save();
    expect(drafts()[0]).toMatchObject({ kind: 'export', tables: [] });
    expect(drafts()[0]!.samples).toBeUndefined();
    expect([...cluster.place.files]).toEqual([]);
    tell({ t: 'setPlan', id: 1, name: 'all', plan: { ...PLAN, kind: 'export' } });
    save();
    const [file] = [...cluster.place.files.values()];
    expect(file).toMatchObject({ valuesOnly: true, tables: [{ name: 't', state: [] }] });
    expect(file!.sessions).toBeUndefined();
  });

  it('is made again and again, and not before its time', () => {
    start({}, { everyMs: 10_000 });
    cluster.advance(9000);
    expect(drafts().length).toBe(0);
    cluster.advance(23_000);
    expect(drafts().map(({ number }) => number)).toEqual([1, 2, 3]);
    const before = cluster.history.length;
    tell({ t: 'setPlan', id: 1, name: 'all' });
    cluster.advance(30_000);
    expect(drafts().length).toBe(3);
    expect(cluster.sent('saveShards', before)).toEqual([]);
  });

  it('is made in the time of a plan that is changed, not in that of the one before', () => {
    start();
    save();
    tell({ t: 'setPlan', id: 1, name: 'all', plan: { ...PLAN, everyMs: 5000 } });
    cluster.advance(6000);
    expect(drafts().length).toBe(2);
    tell({ t: 'setPlan', id: 2, name: 'all', plan: { ...PLAN, everyMs: 3_600_000 } });
    cluster.advance(20_000);
    expect(drafts().length).toBe(2);
    tell({ t: 'setPlan', id: 3, name: 'all', plan: { ...PLAN, everyMs: 5000, keep: 1 } });
    cluster.advance(6000);
    expect(drafts().length).toBe(3);
    tell({ t: 'setPlan', id: 4, name: 'all', plan: { ...PLAN, keep: 1 } });
    cluster.advance(60_000);
    expect(drafts().length).toBe(3);
    // How often, and how many are kept, says nothing about what has changed.
    expect(drafts().map(({ shards }) => shards[0]!.since > 0)).toEqual([false, true, true]);
  });

  it('goes on with the newest owner when a shard is moved to another', () => {
    start({ spares: 1 });
    push(1, 1);
    const lost = cluster.lose(kind('saveShards', { to: cluster.map.groups[0]!.data[0]!.node }));
    save();
    expect(drafts().length).toBe(0);
    lost();
    cluster.crash(0);
    cluster.advance(5000);
    expect(drafts().length).toBe(1);
    expect(cluster.place.rows(drafts()[0]!, 0)).toEqual({ 1: 1 });
  });
});

describe('samples in a checkpoint', () => {
  const acquire = (id: number) => {
    tell({ t: 'acquire', id, name: 'd', clock: 0 });
    return cluster.sent('acquired').at(-1)!.message;
  };
  const finish = ({ range, id: lease, session }: MessageOf<'acquired'>) =>
    tell({
      ...{ t: 'release', id: 99, name: 'd', number: range!.number, lease, session, outcome: 'finished' },
      ...{ done: 5, begun: 5, samples: 20, redone: 0 },
    });

  function train(): MessageOf<'acquired'>[] {
    start();
    tell({ t: 'openDataset', id: 1, name: 'd', spec: DATASET });
    const early = acquire(2);
    const finishedBefore = acquire(3);
    finish(finishedBefore);
    cluster.place.held = true;
    save();
    const since = acquire(4);
    return [early, since];
  }

  it('are as they were when it began, with ranges handed out since; their sessions stay open', () => {
    const [early, since] = train();
    finish(early!);
    finish(since!);
    expect([...cluster.disk.sessions.keys()]).toEqual(
      expect.arrayContaining([early!.session, since!.session]),
    );
    cluster.place.release();
    cluster.advance(300);
    const { samples } = drafts()[0]!;
    expect(samples!.sessions).toEqual([early!.session, since!.session]);
    expect(samples!.nextPeer).toBe(cluster.disk.nextPeer);
    const [dataset] = samples!.datasets;
    expect(dataset).toMatchObject({ next: 3, finished: 1, samples: [20] });
    expect(dataset!.open.map(({ number, worker, done }) => [number, worker, done])).toEqual([
      [0, 0, 0],
      [2, 0, 0],
    ]);
    expect(cluster.disk.sessions.has(early!.session)).toBe(false);
    expect(cluster.disk.sessions.has(since!.session)).toBe(false);
  });

  it('make a manifest that is read again, also of files that grow', () => {
    start();
    const growing = { ...DATASET, follow: true, files: [{ ...DATASET.files[0]!, size: 0 }] };
    for (const [name, spec] of Object.entries({ d: DATASET, e: growing }))
      tell({ t: 'openDataset', id: 1, name, spec });
    tell({ t: 'extendDataset', id: 1, name: 'e', sizes: [70] });
    const lease = (id: number, name: string) => tell({ t: 'acquire', id, name, clock: 0 });
    for (const [id, name] of ['d', 'd', 'e'].entries()) lease(id + 2, name);
    cluster.place.held = true;
    save();
    for (const [id, name] of ['d', 'e', 'e'].entries()) lease(id + 12, name);
    cluster.place.release();
    cluster.advance(300);
    const { samples, ...draft } = drafts()[0]!;
    expect(samples!.datasets.map(({ open, next }) => [open.length, next])).toEqual([
      [3, 3],
      [3, 3],
    ]);
    // The place of the test gives no hashes.
    const shards = draft.shards.map((shard) => {
      return { ...shard, segments: shard.segments.map((ref) => ({ ...ref, sha256: '0'.repeat(64) })) };
    });
    const createdAt = new Date(0).toISOString();
    const file = encodeManifest({ ...draft, shards, samples: samples!, createdAt });
    expect(decodeManifest(file, draft.number).samples).toEqual(samples);
  });

  it('a scheduler that is started again ends the sessions that were held', () => {
    const [early, since] = train();
    finish(early!);
    cluster.crashScheduler();
    cluster.restartScheduler();
    cluster.advance(300);
    expect(cluster.disk.sessions.has(early!.session)).toBe(false);
    expect(cluster.disk.sessions.has(since!.session)).toBe(true);
    expect(cluster.disk.saving!.plans.get('all')).toMatchObject({ next: 2 });
    cluster.place.release();
    cluster.advance(3000);
    // The nodes were told that the attempt of the one before is over.
    expect(cluster.sent('saveEnded').length).toBeGreaterThan(0);
    expect(save(1000)[0]).toMatchObject({ number: 2 });
  });

  it('sessions of clients end as ever', () => {
    start();
    const other = cluster.addClient();
    cluster.place.held = true;
    save();
    cluster.stepScheduler({ kind: 'message', from: other.id, role: 'client', message: { t: 'detach' } });
    expect(cluster.disk.sessions.has(other.id)).toBe(false);
  });
});

describe('a barrier', () => {
  const BARRIER = { barrier: true };
  const held = (ranges: MessageOf<'held'>['ranges'] = [], from = cluster.client.id) => {
    const id = cluster.sent('hold').at(-1)!.message.id;
    cluster.stepScheduler({ kind: 'message', from, role: 'client', message: { t: 'held', id, ranges } });
    cluster.settle();
  };

  it('has all shards begin when no client pushes, and clients go on when all have begun', () => {
    start({}, BARRIER);
    push(1, 1);
    const since = cluster.history.length;
    save();
    expect(cluster.sent('hold').map(({ to }) => to)).toContain(cluster.client.id);
    expect(cluster.sent('saveShards', since)).toEqual([]);
    held();
    cluster.advance(600);
    expect(cluster.sent('saveShards', since).every(({ message }) => message.barrier)).toBe(true);
    expect(cluster.sent('resume', since).length).toBe(1);
    expect(drafts()[0]).toMatchObject({ barrier: true });
    expect(cluster.eventsNamed('checkpoint.done')[0]!.pausedMs).toBeGreaterThan(0);
  });

  it('has a shard begin that becomes complete while others of its node are read', () => {
    start({ groups: 2 }, BARRIER);
    push(1, 1);
    const recovering = cluster.hold(kind('equation'));
    cluster.crash(0);
    cluster.advance(1500);
    cluster.place.held = true;
    save();
    held();
    cluster.advance(600);
    recovering.release();
    cluster.advance(900);
    expect(cluster.sent('resume').length).toBe(1);
    expect(failures()).toEqual([]);
    cluster.place.release();
    cluster.advance(600);
    expect(drafts().length).toBe(1);
  });

  it('leaves clients as much time as it has held them in vain, however short the interval is', () => {
    start({}, { ...BARRIER, everyMs: 100 });
    cluster.advance(6000);
    expect(failures()).toEqual(['TIMEOUT']);
    const begun = () => cluster.eventsNamed('checkpoint.begun').length;
    cluster.advance(3900);
    expect(begun()).toBe(1);
    cluster.advance(1800);
    expect(begun()).toBe(2);
  });

  it('that clients do not answer in time is given up, and they go on', () => {
    start({}, BARRIER);
    save();
    cluster.advance(5400);
    expect(failures()).toEqual(['TIMEOUT']);
    expect(cluster.sent('resume').length).toBe(1);
    held();
    cluster.advance(600);
    expect(drafts()).toEqual([]);
  });

  it('fails when a client comes while shards begin, or a shard has another owner afterwards', () => {
    start({ spares: 1 }, BARRIER);
    push(1, 1);
    const progress = cluster.hold(kind(['saveProgress', 'shardSaved']));
    save();
    held();
    cluster.advance(300);
    const other = cluster.addClient();
    cluster.settle();
    held([], other.id);
    progress.release();
    cluster.advance(600);
    expect(failures()).toEqual(['ABORTED']);
    cluster.place.held = true;
    save();
    held();
    held([], other.id);
    cluster.advance(300);
    cluster.crash(0);
    cluster.advance(3000);
    expect(failures()).toEqual(['ABORTED', 'ABORTED']);
  });

  it('ends when all shards are saved, also where one has another owner since', () => {
    start({ spares: 1 }, BARRIER);
    push(1, 1);
    save();
    const late = cluster.hold(({ message, to }) => message.t === 'saveShards' && to === cluster.nodes[1]!.id);
    held();
    cluster.advance(300);
    expect(cluster.sent('shardSaved').map(({ message }) => message.m)).toEqual([0]);
    cluster.crash(0);
    cluster.advance(2100);
    late.drop();
    cluster.advance(1200);
    expect(drafts().length).toBe(1);
    expect(cluster.sent('resume').length).toBe(1);
    expect(cluster.eventsNamed('checkpoint.done')[0]!.pausedMs).toBeGreaterThan(0);
  });

  it('waits for ranges whose workers are lost, and hands out none', () => {
    start({}, BARRIER);
    tell({ t: 'openDataset', id: 1, name: 'd', spec: DATASET });
    tell({ t: 'acquire', id: 2, name: 'd', clock: 0 });
    const { range, id: lease } = cluster.sent('acquired').at(-1)!.message;
    const mine = { name: 'd', number: range!.number, lease, done: 2, begun: 2, clock: 2 };
    save();
    tell({ t: 'acquire', id: 3, name: 'd', clock: 0 });
    expect(cluster.sent('acquired').length).toBe(1);
    held([mine]);
    cluster.advance(900);
    // The second one was handed out when clients went on.
    expect(drafts()[0]!.samples!.datasets[0]!.open).toMatchObject([{ done: 2 }, { number: 1, done: 0 }]);
    expect(cluster.sent('acquired').length).toBe(2);
    tell({ t: 'release', ...mine, id: 9, outcome: 'failed', samples: 0, redone: 0 });
    save();
    held([{ name: 'd', number: 1, lease: 3, done: 0, begun: 0, clock: 2 }]);
    cluster.advance(5400);
    expect(failures()).toEqual(['TIMEOUT']);
  });
});

/** Attempts to make a checkpoint that fail: who is told why, and what becomes of the next one. */
import { describe, expect, it } from 'vitest';
import { SCHEDULER } from '../../../src/protocol/map.js';
import { cluster, drafts, failures, newId, PLAN, push, save, start, tell } from './saves.js';

describe('an attempt that fails', () => {
  it('says why, and the next one has another number', () => {
    start();
    push(1, 1);
    cluster.place.storeFails = 'PLACE_FAILED';
    expect(save()[0]).toMatchObject({ code: 'PLACE_FAILED' });
    cluster.place.storeFails = undefined;
    expect(cluster.scheduler!.status().saving![0]!.failure).toMatchObject({
      number: 1,
      code: 'PLACE_FAILED',
    });
    expect(save()[0]).toMatchObject({ number: 2 });
    expect(cluster.scheduler!.status().saving![0]!.failure).toBeUndefined();
    expect(new Set([...cluster.place.files.keys()].map((name) => name.slice(0, 6)))).toEqual(
      new Set(['000002']),
    );
  });

  it('at its limit of memory lets pushes go on', () => {
    start({ policy: { checkpointBytes: 16_000, saveChunkBytes: 4096, segmentBytes: 4096 } });
    push(1, 1, 2, 3, 4, 5, 6, 7, 8);
    cluster.place.held = true;
    save();
    push(1, 1, 2, 3, 4, 5, 6, 7, 8);
    cluster.advance(300);
    expect(failures()).toEqual(['LIMIT']);
    push(1, 1);
    cluster.place.release();
    expect(save()[0]).toMatchObject({ number: 2 });
    expect(cluster.place.rows(drafts()[0]!, 0)).toMatchObject({ 1: 3, 8: 2 });
  });

  it('is tried again sooner than the next would be, and less and less often', () => {
    start({}, { everyMs: 60_000 });
    cluster.place.storeFails = 'PLACE_FAILED';
    cluster.advance(61_000);
    expect(failures().length).toBe(1);
    cluster.advance(2500);
    expect(failures().length).toBe(2);
    cluster.advance(2000);
    expect(failures().length).toBe(2);
    cluster.place.storeFails = undefined;
    cluster.advance(3000);
    expect(drafts().length).toBe(1);
  });

  it('because its number is taken goes on behind the newest of the place', () => {
    start();
    cluster.place.publishFails = { code: 'CHECKPOINT_TAKEN', newest: 41 };
    expect(save(900)[0]).toMatchObject({ code: 'CHECKPOINT_TAKEN' });
    // Not again and again without a pause.
    expect(failures().length).toBe(2);
    cluster.place.publishFails = undefined;
    expect(save()[0]).toMatchObject({ number: 43 });
  });

  it('because its number is taken is made again for who asked, once', () => {
    start();
    push(1, 1);
    cluster.place.publishFails = { code: 'CHECKPOINT_TAKEN', newest: 41 };
    tell({ t: 'saveNow', id: newId(), name: 'all' });
    while (failures().length === 0) cluster.advance(10);
    cluster.place.publishFails = undefined;
    cluster.advance(300);
    expect(cluster.sent('saveDone').map(({ message }) => [message.number, message.code])).toEqual([
      [42, undefined],
    ]);
    cluster.place.publishFails = { code: 'CHECKPOINT_TAKEN', newest: 50 };
    expect(save(900).map(({ code }) => code)).toEqual(['CHECKPOINT_TAKEN']);
  });

  it('or is complete is not begun again by a request that comes late', () => {
    start();
    push(1, 1);
    save();
    const { to, message } = cluster.sent('saveShards').at(-1)!;
    push(1, 1);
    // Files of another attempt would have other content under names that a manifest lists.
    const stored = () => [...cluster.place.files].map(([name, { position }]) => [name, position]);
    const before = stored();
    cluster.send(SCHEDULER, to, message);
    cluster.advance(600);
    expect(stored()).toEqual(before);
    expect(failures()).toEqual([]);
  });

  it('on a node ends for all, also when its shard has another owner by then', () => {
    start({ spares: 1 });
    push(1, 1);
    cluster.place.held = true;
    save();
    const { data } = cluster.map.groups[0]!;
    const attempt = cluster.sent('saveShards').at(-1)!.message.id;
    const fails = (from: number, gen: number) => {
      const where = { g: 0, m: 0, gen, code: 'LIMIT' as const, message: 'no memory' };
      const message = { t: 'saveFailed' as const, id: attempt, ...where };
      cluster.stepScheduler({ kind: 'message', from, role: 'node', message });
      cluster.settle();
    };
    const owners = data.map(({ node }) => node);
    fails(cluster.map.nodes.find(({ id }) => !owners.includes(id))!.id, data[0]!.gen - 1);
    expect(failures()).toEqual([]);
    // An owner that fails saves no shard of this attempt any more, whichever it has.
    fails(data[1]!.node, data[0]!.gen - 1);
    expect(failures()).toEqual(['LIMIT']);
  });

  it('because nothing comes further, or a shard is lost, ends', () => {
    start({ schedulerPolicy: { saveStallMs: 5000 } });
    push(1, 1);
    cluster.place.held = true;
    save();
    cluster.advance(7500);
    expect(failures()).toEqual(['TIMEOUT']);
    cluster.crash(0);
    cluster.crash(1);
    cluster.advance(3000);
    cluster.restart(0);
    cluster.restart(1);
    cluster.advance(6000);
    save(900);
    expect(failures().at(-1)).toBe('UNRECOVERABLE');
  });

  it('a question that is repeated has one checkpoint made, also after its answer', () => {
    start();
    const ask = () => tell({ t: 'saveNow', id: 7, name: 'all' });
    const before = drafts().length;
    ask();
    ask();
    cluster.advance(300);
    ask();
    cluster.advance(300);
    expect(drafts().length).toBe(before + 1);
    const answers = cluster.sent('saveDone').filter(({ message }) => message.id === 7);
    expect(answers.length).toBe(2);
    expect(answers[0]!.message).toEqual(answers[1]!.message);
  });

  it('a plan that is set again as it is does not end what is under way', () => {
    start();
    tell({ t: 'saveNow', id: 8, name: 'all' });
    cluster.advance(50);
    tell({ t: 'setPlan', id: 1, name: 'all', plan: PLAN });
    cluster.advance(300);
    expect(failures()).toEqual([]);
  });

  it('a plan that is not there, or cannot be, is refused', () => {
    start();
    tell({ t: 'saveNow', id: 4, name: 'none' });
    expect(cluster.sent('saveDone')[0]!.message).toMatchObject({ id: 4, code: 'BAD_ARGUMENT' });
    tell({ t: 'setPlan', id: 5, name: '', plan: PLAN });
    expect(cluster.sent('planSet').at(-1)!.message).toMatchObject({ id: 5, code: 'BAD_ARGUMENT' });
    tell({ t: 'setPlan', id: 6, name: 'other', plan: PLAN });
    expect(cluster.sent('planSet').at(-1)!.message).toMatchObject({
      ...{ id: 6, code: 'BAD_ARGUMENT' },
      message: expect.stringContaining('"all"'),
    });
    const spellings: [string, string][] = [
      ['s3://bucket/job', 's3://bucket/job/'],
      ['s3://bucket/job', 'S3://bucket//job'],
      ['/data/job', '/data/job/'],
      ['/data/a job', 'file:///data/a%20job'],
    ];
    for (const [url, same] of spellings) {
      tell({ t: 'setPlan', id: 7, name: 'all', plan: { ...PLAN, url } });
      tell({ t: 'setPlan', id: 8, name: 'other', plan: { ...PLAN, url: same } });
      expect(cluster.sent('planSet').at(-1)!.message).toMatchObject({ id: 8, code: 'BAD_ARGUMENT' });
    }
    for (let i = 0; i < 20; i++)
      tell({ t: 'setPlan', id: 6, name: `p${i}`, plan: { ...PLAN, url: `memory/${i}` } });
    expect(cluster.sent('planSet').at(-1)!.message).toMatchObject({ code: 'LIMIT' });
  });
});

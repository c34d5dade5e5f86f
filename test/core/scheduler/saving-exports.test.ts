/** Exports of chosen tables: what they leave out must not be missing in those that add to them. */
import { describe, expect, it } from 'vitest';
import { kind, tableSpec } from '../harness.js';
import { cluster, drafts, failures, push, save, start } from './saves.js';

/** Pushes to one table, whose keys have rows in no other. */
function pushTo(table: number, value: number, ...keys: number[]): void {
  const part = { table, keys, value };
  const ticket = cluster.client.push({ 0: [part], 1: [part] });
  cluster.settle();
  expect(ticket.done).toBe(true);
}

describe('an export of chosen tables', () => {
  it('has the position of the newest files, also of shards where nothing of it has changed', () => {
    start({ tables: [tableSpec('t'), tableSpec('u')] }, { kind: 'export', tables: ['t'] });
    pushTo(1, 1, 1);
    save();
    pushTo(2, 1, 9);
    cluster.client.push({ 1: [{ table: 1, keys: [5], value: 1 }] });
    cluster.settle();
    save();
    expect(drafts().map(({ shards }) => shards.map(({ segments }) => segments.length))).toEqual([
      [1, 1],
      [1, 2],
    ]);
    for (const { shards } of drafts()) {
      for (const { position, segments } of shards)
        expect(cluster.place.files.get(segments.at(-1)!.name)!.position).toBe(position);
    }
    pushTo(1, 1, 1);
    save();
    expect(drafts()[2]!.shards[0]).toMatchObject({ position: 3, segments: { length: 2 } });
  });

  it('has all rows of a table that came while the one before was made', () => {
    start({}, { kind: 'export', tables: ['t', 'u'] });
    pushTo(1, 1, 1);
    const asked = cluster.hold(kind('saveShards'));
    save();
    cluster.createTables([tableSpec('u')]);
    cluster.settle();
    pushTo(2, 5, 9);
    asked.release();
    cluster.advance(300);
    save();
    expect(failures()).toEqual([]);
    expect(cluster.place.rows(drafts().at(-1)!, 0)).toEqual({ 1: 1, 9: 5 });
  });
});

describe('an export of a job in which nothing has changed', () => {
  const unchanged = () =>
    cluster.eventsNamed('checkpoint.unchanged').map(({ number, newest }) => ({ number, newest }));

  it('is not made: the answer names the newest one, and its files stay', () => {
    start({}, { kind: 'export' });
    push(1, 1);
    expect(save()).toMatchObject([{ number: 1, rows: 2 }]);
    expect(save()).toMatchObject([{ number: 1, rows: 0, bytes: 0 }]);
    expect(unchanged()).toEqual([{ number: 2, newest: 1 }]);
    expect(drafts().map(({ number }) => number)).toEqual([1]);
    push(1, 2);
    expect(save()).toMatchObject([{ number: 3, rows: 2 }]);
    expect(cluster.place.rows(drafts().at(-1)!, 0)).toEqual({ 1: 1, 2: 1 });
    expect(failures()).toEqual([]);
  });

  it('is not made again and again, however often it is due, and is as new as the last look', () => {
    start({ schedulerPolicy: { maxIncrements: 3 } }, { kind: 'export', everyMs: 1000 });
    push(1, 1);
    cluster.advance(10_500);
    expect(drafts().map(({ number }) => number)).toEqual([1]);
    expect(unchanged().length).toBeGreaterThan(5);
    const [plan] = cluster.scheduler!.status().saving!;
    expect(plan).toMatchObject({ last: { number: 1, rows: 0, bytes: 0 } });
    expect(plan!.last!.agoMs).toBeLessThan(1500);
  });

  it('is made of another table, or of a shard that has another owner', () => {
    start({ spares: 1 }, { kind: 'export' });
    push(1, 1);
    save();
    cluster.createTables([tableSpec('u')]);
    cluster.settle();
    expect(save()).toMatchObject([{ number: 2, rows: 0 }]);
    expect(
      drafts()
        .at(-1)!
        .tables.map(({ name }) => name),
    ).toEqual(['t', 'u']);
    const { node } = cluster.map.groups[0]!.data[0]!;
    cluster.crash(cluster.nodes.findIndex(({ id }) => id === node));
    cluster.advance(10_000);
    save();
    expect(drafts()).toHaveLength(3);
  });

  it('is a checkpoint if it is one of a full job: it has the samples, too', () => {
    start();
    push(1, 1);
    save();
    save();
    expect(drafts()).toHaveLength(2);
  });
});

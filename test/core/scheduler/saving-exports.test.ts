/** Exports of chosen tables: what they leave out must not be missing in those that add to them. */
import { describe, expect, it } from 'vitest';
import { kind, tableSpec } from '../harness.js';
import { cluster, drafts, failures, save, start } from './saves.js';

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
    save();
    expect(drafts().map(({ shards }) => shards[0]!.segments.length)).toEqual([1, 1]);
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

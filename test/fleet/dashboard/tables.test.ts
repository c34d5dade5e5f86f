/** Ten thousand tables: a page shows some of them, and is sent no more than these. */
import { expect, test } from 'vitest';
import { TABLES_AT_ONCE, Tables, tablesOf } from '../../../src/fleet/dashboard/tables.js';
import { patchOf, sectionsOf } from '../../../src/fleet/dashboard/view.js';
import { jobOf } from './model.js';
import { nodeTelemetry, snapshot } from './snapshots.js';

const COUNT = 10_000;
const { status } = jobOf(2, 2, 1, 1);
status.tables = Array.from({ length: COUNT }, (_, i) => ({
  ...{ name: `feature-${i}`, pool: 'embedding', dim: 16, optimizer: 'adagrad' },
}));

/** The 77th table has most rows. `pulled`: rows that were pulled of table 5. */
function look(seconds: number, pulled = 0) {
  const telemetry = nodeTelemetry(seconds, {});
  const tables = status.tables.map(({ name }, i) => {
    const rows = i === 77 ? 5000 : 100;
    return { name, rows, pulledRows: i === 5 ? pulled : 0, pushedRows: 0 };
  });
  return snapshot(seconds * 1000, status, [{ ...telemetry, tables }]);
}

const sections = (tables: Tables) =>
  sectionsOf({ link: { state: 'up', since: 0 }, actions: [], hosts: [], tables: tables.view });

test('the largest come first, a page at a time, and by a part of their names', () => {
  const tables = new Tables();
  expect(tables.view).toBe(undefined);
  tables.look(tablesOf([look(1), look(3)]));
  const first = tables.page('', 0);
  expect(first).toMatchObject({ count: COUNT, found: COUNT, from: 0 });
  expect(first.tables).toHaveLength(TABLES_AT_ONCE);
  expect(first.tables.slice(0, 3).map(({ name }) => name)).toEqual(['feature-77', 'feature-0', 'feature-1']);
  expect(tables.page('', COUNT * 2)).toMatchObject({ from: COUNT - TABLES_AT_ONCE });
  const found = tables.page('FEATURE-999', 0);
  expect([found.found, found.tables[0]!.name]).toEqual([11, 'feature-999']);
  expect(tables.page('nothing', 50)).toMatchObject({ found: 0, from: 0, tables: [] });
  expect(tables.asked('find=feature-12&from=60')).toMatchObject({ found: 111, from: 50 });
  for (const query of ['from=-1', 'from=x', `find=${'x'.repeat(300)}`])
    expect(() => tables.asked(query)).toThrowError(expect.objectContaining({ code: 'BAD_ARGUMENT' }));
});

test('nothing is sent when nothing has changed, and a change sends two numbers', () => {
  const tables = new Tables();
  const history = [look(1), look(3)];
  tables.look(tablesOf(history));
  const before = sections(tables);
  history.push(look(5));
  tables.look(tablesOf(history));
  expect(patchOf(before, sections(tables))).toEqual([]);
  history.push(look(7, 40));
  tables.look(tablesOf(history));
  const patch = patchOf(before, sections(tables));
  expect(patch).toHaveLength(1);
  expect(patch[0]!.length).toBeLessThan(100);
  // The page then asks for this.
  expect(JSON.stringify(tables.page('', 0)).length).toBeLessThan(200 * TABLES_AT_ONCE);
});

test('a table with a policy has it, its wider rows, and what went by reason', () => {
  const policy = { counter: 2, ttl: 9 };
  const job = {
    ...status,
    tables: [
      { name: 'plain', pool: 'embedding', dim: 16, optimizer: 'adagrad' },
      { name: 'living', pool: 'embedding', dim: 16, optimizer: 'adagrad', policy },
    ],
  };
  const of = (expired: number) => {
    const life = { expired, rare: 0, faint: 3, displaced: 1, deleted: 2, refused: 7 };
    const counts = { rows: 10, pulledRows: 0, pushedRows: 0 };
    const tables = [
      { name: 'plain', ...counts },
      { name: 'living', ...counts, life },
    ];
    const node = { ...nodeTelemetry(1, {}), tables };
    return snapshot(1000, job, [node, node]);
  };
  const shown = new Tables();
  const history = [of(0)];
  shown.look(tablesOf(history));
  const gone = { expired: 0, rare: 0, faint: 6, displaced: 2, deleted: 4, refused: 14 };
  expect(shown.page('', 0).tables).toEqual([
    expect.objectContaining({
      name: 'living',
      bytes: 20 * 144,
      policy: 'admit=counter(2),evict=ttl(9)',
      gone,
    }),
    expect.not.objectContaining({ policy: expect.anything(), gone: expect.anything() }),
  ]);
  // Counts alone are a change, too.
  const { version } = shown.page('', 0);
  shown.look(tablesOf([of(3)]));
  expect(shown.page('', 0)).not.toMatchObject({ version });
  expect(shown.page('living', 0).tables).toMatchObject([{ gone: { ...gone, expired: 6 } }]);
});

/** Bugs of tables that are dropped. */
import type { Mutant } from './mutant.js';

export const DROP_MUTANTS: readonly Mutant[] = [
  {
    name: 'drops: the id of a table that was dropped is used again',
    file: 'scheduler/tables',
    from: 'lastTableOf({ ...map, tables: all }) + 1',
    to: '(all.at(-1)?.id ?? 0) + 1',
  },
  {
    name: 'drops: a later scheduler does not know which ids are used up',
    file: 'scheduler/entries',
    from: '(lastTable !== undefined && { lastTable })',
    place: 0,
    to: '{}',
  },
  {
    name: 'drops: a copy of the question drops the table that has the name now',
    file: 'scheduler/tables',
    from: 'map.tables.find((each) => each.id === dropped)',
    to: "map.tables.find((each) => each.id === dropped || each.name.endsWith('t2'))",
  },
  {
    name: 'drops: nodes keep a table until their shards move',
    file: 'node/node',
    from: 'if (dropped.length > 0)',
    to: 'if (dropped.length > 99)',
  },
  {
    name: 'drops: the delta of an owner with an older map brings a table back',
    file: 'sink/sink',
    from: 'this.host.gone.delta(delta)',
    to: 'delta',
  },
  {
    name: 'drops: a sink with an older map gives a table to a new owner',
    file: 'shard/owner',
    from: 'of this.host.gone.extents(extents))',
    to: 'of extents)',
    scenario: {
      test: 'test/core/scheduler/drops.test.ts',
      because: 'the epoch comes to the new owner between the answers of sinks',
    },
  },
  {
    name: 'drops: a push that a drop overtakes is refused',
    file: 'shard/owner',
    from: 'push(this.host.gone.push(section))',
    to: 'status',
  },
  {
    name: 'drops: a checkpoint adds to files with rows of a table that is gone',
    file: 'scheduler/saving/saver',
    from: 'of this.live.values())',
    to: 'of [])',
    scenario: {
      test: 'test/core/scheduler/drops.test.ts',
      because: 'a restore must come between two checkpoints, a drop and another table of the name',
    },
  },
];

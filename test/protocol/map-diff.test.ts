/** Changes of the map: applied in order they make every map of the scheduler, and nothing else. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeFrame, encodeFrame } from '../../src/protocol/frame.js';
import {
  CAPABILITIES,
  type ClusterMap,
  type Group,
  type NodeEntry,
  type SinkEntry,
  type TableSpec,
} from '../../src/protocol/map.js';
import { changeBy, diffOf } from '../../src/protocol/map-diff.js';
import type { MapDiff, MapMessage } from '../../src/protocol/membership.js';
import { packGroups, unpackGroups } from '../../src/protocol/pack.js';
import { withSettings } from '../../src/protocol/settings.js';
import { toMessage } from '../../src/protocol/validate.js';
import { codeOf } from '../codes.js';

const node = (id: number, inc = 1): NodeEntry => ({
  ...{ id, inc, name: `ps-${id}`, host: 'h', address: `h:${id}` },
  standby: false,
});
const table = (id: number) => ({
  ...{ id, name: `t${id}`, pool: 'embedding', dim: 4, seed: 1 },
  optimizer: { kind: 'sgd' as const, lr: 0.1 },
  initializer: { kind: 'zeros' as const },
});
const rated = (old: TableSpec, lr: number): TableSpec => withSettings(old, { lr });
const group = (id: number, version: number, owner: number): Group => ({
  ...{ id, pool: 0, version },
  data: [{ node: owner, inc: 1, gen: version, init: version === 1 }],
  sinks: [{ sid: version, kind: 'P', index: 0, node: owner + 1, inc: 1, init: false, ...CAPABILITIES.P }],
});
const START: ClusterMap = {
  ...{ epoch: 1, job: 'j', pools: [{ name: 'embedding', k: 1, r: 1, firstGroup: 0, groups: 3 }] },
  ...{ groups: [], nodes: [node(1)], tables: [] },
};

type Step = (map: ClusterMap, epoch: number) => Partial<ClusterMap>;
const STEPS: Step[] = [
  (_, epoch) => ({ groups: [0, 1, 2].map((id) => group(id, epoch, 1)) }),
  ({ groups }, epoch) => ({ groups: groups.map((old) => (old.id === 1 ? group(1, epoch, 5) : old)) }),
  ({ groups }, epoch) => ({ groups: groups.map(({ id }) => group(id, epoch, epoch)) }),
  ({ nodes }, epoch) => ({ nodes: [node(epoch), ...nodes] }),
  ({ nodes }) => ({ nodes: nodes.slice(1) }),
  ({ nodes }, epoch) => ({ nodes: nodes.map((old) => (old.id === 1 ? node(1, epoch) : old)) }),
  ({ tables }) => ({ tables: [...tables, table(tables.length + 1), table(tables.length + 2)] }),
  ({ tables }, epoch) => ({ tables: tables.map((old) => (old.id === 2 ? rated(old, epoch) : old)) }),
  ({ tables }, epoch) => ({
    tables: [...tables.map((old) => rated(old, epoch)), table(tables.length + 1)],
  }),
  () => ({}),
];
const steps = fc.array(fc.constantFrom(...STEPS), { maxLength: 12 });

/** A map with its nodes in a fixed order, because their order means nothing. */
const sorted = (map: ClusterMap) => ({ ...map, nodes: [...map.nodes].sort((a, b) => a.id - b.id) });

function mapsOf(made: readonly Step[]): ClusterMap[] {
  const maps = [START];
  for (const step of made) {
    const last = maps.at(-1)!;
    const epoch = last.epoch + 1;
    maps.push({ ...last, ...step(last, epoch), epoch });
  }
  return maps;
}

/** A message as it arrives. */
function sent(message: MapDiff | MapMessage): MapDiff | MapMessage {
  return toMessage(decodeFrame(encodeFrame(message)).header) as MapDiff | MapMessage;
}

describe('changes of the map', () => {
  it('take a receiver from map to map; what did not change stays the same object', () => {
    fc.assert(
      fc.property(steps, (made) => {
        const maps = mapsOf(made);
        let mine = START;
        for (const [at, next] of maps.entries()) {
          if (at === 0) continue;
          const before = maps[at - 1]!;
          const change = changeBy(mine, sent(diffOf(before, next)));
          if (typeof change === 'string') throw new Error(change);
          expect(sorted(change.map)).toEqual(sorted(next));
          const changed = next.groups.filter((each, g) => each !== before.groups[g]);
          expect(change.groups.map(({ id }) => id)).toEqual(changed.map(({ id }) => id));
          for (const [g, each] of next.groups.entries())
            if (each === before.groups[g]) expect(change.map.groups[g]).toBe(mine.groups[g]);
          if (next.nodes === before.nodes) expect(change.map.nodes).toBe(mine.nodes);
          if (next.tables === before.tables) expect(change.map.tables).toBe(mine.tables);
          mine = change.map;
        }
      }),
    );
  });

  it('are applied to the map that they change only: twice is known, one left out is a gap', () => {
    const maps = mapsOf([STEPS[0]!, STEPS[1]!, STEPS[3]!]);
    const [first, second, third] = [1, 2, 3].map((at) => diffOf(maps[at - 1]!, maps[at]!));
    expect(changeBy(maps[1]!, first!)).toBe('known');
    expect(changeBy(maps[3]!, second!)).toBe('known');
    expect(changeBy(maps[1]!, third!)).toBe('gap');
    const whole = changeBy(maps[1]!, sent({ t: 'map', map: maps[3]! }));
    expect(whole).toMatchObject({ map: maps[3], groups: [{ id: 1 }] });
    expect(changeBy(maps[3]!, { t: 'map', map: maps[3]! })).toBe('known');
  });

  it('of a group that a map of this size cannot have are BAD_FRAME', () => {
    const diff = diffOf(START, { ...START, epoch: 2, groups: [group(0, 2, 1)] }) as MapDiff;
    expect(() => changeBy(START, { ...diff, groups: [group(1, 2, 1)] })).toThrow(/BAD_FRAME|group 1/);
  });

  it('are a whole map where changes cannot say it', () => {
    const fewer = { ...START, epoch: 3, tables: [] };
    expect(diffOf({ ...START, epoch: 2, tables: [table(1)] }, fewer)).toEqual({ t: 'map', map: fewer });
  });
});

const number = fc.oneof(fc.nat(300), fc.maxSafeNat());
const sink: fc.Arbitrary<SinkEntry> = fc.record(
  {
    ...{ sid: number, kind: fc.constantFrom('P' as const, 'M' as const), index: number, node: number },
    ...{ inc: number, init: fc.boolean(), protects: fc.boolean(), acknowledges: fc.boolean() },
    movesMember: number,
  },
  { requiredKeys: ['sid', 'kind', 'index', 'node', 'inc', 'init', 'protects', 'acknowledges'] },
);
const groups: fc.Arbitrary<Group[]> = fc.array(
  fc.record({
    ...{ id: number, pool: number, version: number },
    data: fc.array(fc.record({ node: number, inc: number, gen: number, init: fc.boolean() })),
    sinks: fc.array(sink),
  }),
);

describe('packed groups', () => {
  it('are what was packed', () => {
    fc.assert(
      fc.property(groups, (some) => {
        expect(unpackGroups(packGroups(some))).toEqual(some);
      }),
    );
  });

  it('that are cut anywhere but between groups are BAD_FRAME', () => {
    const whole = packGroups([group(0, 1, 1), group(1, 300, 70_000)]);
    const ends = [0, packGroups([group(0, 1, 1)]).length, whole.length];
    for (let end = 0; end <= whole.length; end++)
      expect([end, codeOf(() => unpackGroups(whole.slice(0, end)))]).toEqual([
        end,
        ends.includes(end) ? 'nothing was thrown' : 'BAD_FRAME',
      ]);
  });

  it('of any bytes are groups or BAD_FRAME, and their numbers are natural', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => {
        if (codeOf(() => unpackGroups(bytes)) === 'BAD_FRAME') return;
        expect(packGroups(unpackGroups(bytes))).toEqual(bytes);
      }),
    );
    for (const bytes of [
      [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
      [0x80, 0],
    ])
      expect(codeOf(() => unpackGroups(Uint8Array.from([...bytes, 0, 0, 0, 0])))).toBe('BAD_FRAME');
  });
});

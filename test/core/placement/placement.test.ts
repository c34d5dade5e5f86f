/**
 * Placement as pure functions of the map and the reports of nodes. Rule 27: a lost shard gets a new home at
 * once. Rule 28: a move hands over when its target is complete and the group is healthy.
 */
import { describe, expect, it } from 'vitest';
import { formGroups, interleaveHosts } from '../../../src/core/placement/form.js';
import {
  type ClusterView,
  canDoWithout,
  canImprove,
  isHealthy,
  isIndispensable,
  isSpread,
  shardsPerNode,
} from '../../../src/core/placement/health.js';
import { sinkForMove, sinksForSwap } from '../../../src/core/placement/moves.js';
import { repair } from '../../../src/core/placement/repair.js';
import {
  type Group,
  hasMove,
  isMoveTarget,
  type NodeEntry,
  type Pool,
  parities,
} from '../../../src/protocol/map.js';

const node = (id: number, host = `h${id}`): NodeEntry => ({
  id,
  inc: 1,
  name: `ps-${id}`,
  host,
  address: `${host}:1`,
  standby: false,
});
const nodes = (count: number): NodeEntry[] => Array.from({ length: count }, (_, i) => node(i + 1));
const pool = (k: number, r: number, groups: number, firstGroup = 0, name = 'embedding'): Pool => ({
  name,
  k,
  r,
  groups,
  firstGroup,
});
const counter = (): (() => number) => {
  let next = 1;
  return () => next++;
};
/** A group as text: its data nodes, then `p` and its parity nodes. */
const seats = ({ data, sinks }: Group): string =>
  `${data.map((d) => d.node).join(' ')} p ${sinks.map((s) => s.node).join(' ')}`;
/** A view in which these nodes are alive and complete, unless a test says otherwise. */
const view = (alive: NodeEntry[], fields: Partial<ClusterView> = {}): ClusterView => ({
  nodes: alive,
  alive: (id, inc) => alive.some((entry) => entry.id === id && entry.inc === inc),
  sinkComplete: () => true,
  shardComplete: () => true,
  ...fields,
});

describe('the first groups', () => {
  it('one group: the first k nodes hold only data, the next r only parity', () => {
    const [group] = formGroups([pool(3, 2, 1)], nodes(5), 7, counter());
    expect(seats(group!)).toBe('1 2 3 p 4 5');
    expect(group).toMatchObject({
      id: 0,
      version: 7,
      sinks: [
        { sid: 1, index: 0 },
        { sid: 2, index: 1 },
      ],
    });
  });

  it('as many groups as nodes: everyone has the same load of data and of parity', () => {
    const groups = formGroups([pool(4, 1, 5)], nodes(5), 1, counter());
    expect(groups.map(seats)).toEqual([
      '1 2 3 4 p 5',
      '2 3 4 5 p 1',
      '3 4 5 1 p 2',
      '4 5 1 2 p 3',
      '5 1 2 3 p 4',
    ]);
    expect([...shardsPerNode(groups).values()]).toEqual([5, 5, 5, 5, 5]);
  });

  it('a mirrored pool beside it takes the first data node and the parity nodes', () => {
    const groups = formGroups([pool(4, 1, 1), pool(1, 1, 1, 1, 'mirrored')], nodes(5), 1, counter());
    expect(groups.map(seats)).toEqual(['1 2 3 4 p 5', '1 p 5']);
    expect(groups.map((group) => [group.id, group.pool])).toEqual([
      [0, 0],
      [1, 1],
    ]);
  });

  it('members of a group are on different hosts where there are enough', () => {
    const six = ['a', 'a', 'b', 'b', 'c', 'c'].map((host, i) => node(i + 1, host));
    expect(interleaveHosts(six).map(({ host }) => host)).toEqual(['a', 'b', 'c', 'a', 'b', 'c']);
    const hostOf = (id: number) => six.find((entry) => entry.id === id)!.host;
    for (const group of formGroups([pool(2, 1, 6)], six, 1, counter())) {
      const hosts = [...group.data, ...group.sinks].map((entry) => hostOf(entry.node));
      expect(new Set(hosts).size).toBe(3);
    }
    // With fewer hosts than seats, the nodes still differ.
    const two = ['a', 'a', 'a', 'b'].map((host, i) => node(i + 1, host));
    const [group] = formGroups([pool(3, 1, 1)], two, 1, counter());
    expect(isSpread(group!, pool(3, 1, 1))).toBe(true);
  });
});

describe('zones', () => {
  /** Nodes in three zones: `size` PS on each of two machines. */
  const places = ['a/1', 'b/1', 'c/1', 'a/2', 'b/2', 'c/2'];
  const inZones = (size: number): NodeEntry[] =>
    Array.from({ length: size * places.length }, (_, i) => node(i + 1, places[Math.floor(i / size)]));
  const hostsOf = (group: Group, all: readonly NodeEntry[]): string[] =>
    [...group.data, ...group.sinks].map((entry) => all.find(({ id }) => id === entry.node)!.host).sort();

  it('take as many members of a group each, on different machines', () => {
    const all = inZones(2);
    for (const group of formGroups([pool(4, 2, 12)], all, 1, counter()))
      expect(hostsOf(group, all)).toEqual([...places].sort());
  });

  it('are left by repair for the one with the fewest members, and for a machine without any', () => {
    const all = inZones(2);
    const groups = formGroups([pool(4, 2, 1)], all, 1, counter());
    const lost = all.find(({ id }) => id === groups[0]!.sinks[0]!.node)!;
    const spare = all.filter(({ id, host }) => host !== lost.host || id === lost.id);
    const nearest = spare.filter(({ host }) => host.split('/')[0] === lost.host.split('/')[0]);
    const left = all.filter(({ id }) => id !== lost.id);
    const repaired = repair(groups, [pool(4, 2, 1)], view(left), 2, () => 50)!;
    expect(hostsOf(repaired[0]!, all)).toEqual([...places].sort());
    const without = spare.filter(({ id }) => id !== lost.id);
    const other = repair(groups, [pool(4, 2, 1)], view(without), 2, () => 50)!;
    // The zone has one machine left, with another seat of the group on one of its two PS.
    const machine = nearest.find(({ id }) => id !== lost.id)!.host;
    expect(hostsOf(other[0]!, all).filter((host) => host === machine)).toHaveLength(2);
  });
});

describe('repair', () => {
  const code = pool(2, 1, 1);
  const formed = (spares = 1): { all: NodeEntry[]; groups: Group[] } => {
    const all = nodes(3 + spares);
    return { all, groups: formGroups([code], all.slice(0, 3), 1, counter()) };
  };
  const mend = (groups: Group[], state: ClusterView, epoch = 2) =>
    repair(groups, [code], state, epoch, () => 50);

  it('changes nothing when there is nothing to mend', () => {
    const { all, groups } = formed();
    expect(mend(groups, view(all))).toBeUndefined();
  });

  it('gives lost data a new home and a new generation; lost parity a new sid', () => {
    const { all, groups } = formed(2);
    const [group] = mend(groups, view([all[1]!, all[3]!, all[4]!]))!;
    expect(seats(group!)).toBe('4 2 p 5');
    expect(group!.data[0]).toMatchObject({ gen: 2, init: false });
    expect(group!.sinks).toMatchObject([
      { sid: 50, index: 0, init: false, protects: true, acknowledges: true },
    ]);
    expect(group!.sinks[0]).not.toHaveProperty('movesMember');
  });

  it('an entry of an older incarnation is a lost one, and the same node may take it again', () => {
    const { all, groups } = formed(0);
    const reborn = { ...all[0]!, inc: 2 };
    const [group] = mend(groups, view([reborn, all[1]!, all[2]!]))!;
    expect(group!.data[0]).toEqual({ node: 1, inc: 2, gen: 2, init: false });
  });

  it('prefers a host outside the group, then the least loaded node', () => {
    const { all, groups } = formed(0);
    const near = node(4, all[1]!.host);
    const far = node(5);
    expect(seats(mend(groups, view([all[1]!, all[2]!, near, far]))![0]!)).toBe('5 2 p 3');
    const busy = [
      ...groups,
      { ...groups[0]!, id: 1, data: [], sinks: [{ ...groups[0]!.sinks[0]!, node: 4 }] },
    ];
    const two = [code, { ...code, r: 1 }];
    const idle = [all[1]!, all[2]!, node(4), node(5)];
    expect(seats(repair(busy, two, view(idle), 2, () => 50)![0]!)).toBe('5 2 p 3');
  });

  it('without a free node, data goes to a parity holder rather than beside other data', () => {
    const { all, groups } = formed(0);
    expect(seats(mend(groups, view(all.slice(1)))![0]!)).toBe('3 2 p 3');
  });

  it('with nobody left, lost data has no home, and gets one as soon as somebody comes', () => {
    const { all, groups } = formed(0);
    const lost = mend(groups, view([]))!;
    expect(seats(lost[0]!)).toBe('0 0 p ');
    const later = mend(lost, view([all[2]!]), 3)!;
    expect(seats(later[0]!)).toBe('3 3 p ');
  });

  it('a second parity is added only in health, and the first dropped only when it is complete', () => {
    const { all, groups } = formed(0);
    const crowded = mend(groups, view(all.slice(1)))!;
    const back = [...all.slice(1), { ...all[0]!, inc: 2 }];
    expect(mend(crowded, view(back, { shardComplete: () => false }), 3)).toBeUndefined();
    expect(canImprove(crowded[0]!, code, view(back))).toBe(true);
    const both = mend(crowded, view(back), 3)!;
    expect(both[0]!.sinks.map(({ sid }) => sid)).toEqual([1, 50]);
    expect(mend(both, view(back, { sinkComplete: (sid) => sid === 1 }), 4)).toBeUndefined();
    expect(mend(both, view(back, { shardComplete: (_, m) => m !== 1 }), 4)).toBeUndefined();
    const done = mend(both, view(back), 4)!;
    expect([seats(done[0]!), isSpread(done[0]!, code)]).toEqual(['3 2 p 1', true]);
  });

  it.each<[string, number[], number]>([
    ['is not complete', [1], 1],
    ['is complete, and the first has no node of its own', [1, 50], 1],
    ['is complete, and the first is not', [50], 50],
  ])('gives up a planned move to mend a loss, where the second parity %s', (_, complete, stays) => {
    const { all, groups } = formed(0);
    const crowded = mend(groups, view(all.slice(1)))!;
    const both = mend(crowded, view([...all.slice(1), { ...all[0]!, inc: 2 }]), 3)!;
    const left = [all[2]!, { ...all[0]!, inc: 2 }];
    const [after] = mend(both, view(left, { sinkComplete: (sid) => complete.includes(sid) }), 4)!;
    expect(after!.data[1]).toMatchObject({ node: 1, gen: 4 });
    expect(after!.sinks.map(({ sid }) => sid)).toEqual([stays]);
  });
});

describe('a swap of data shard 0 on node 1 and the parity on node 3 (rule 48)', () => {
  const code = pool(2, 1, 1);
  const all = nodes(3);
  const [group] = formGroups([code], all, 1, counter());
  const [mirror, parity] = sinksForSwap(group!, code, view(all), { member: 0, index: 0 })!;
  const swapping = { ...group!, sinks: [...group!.sinks, { sid: 50, ...mirror }, { sid: 51, ...parity }] };
  const mend = (state: ClusterView, from = swapping) => repair([from], [code], state, 2, () => 60)?.[0];
  const without = (id: number, fields: Partial<ClusterView> = {}, more: NodeEntry[] = []) =>
    view([...all.filter((entry) => entry.id !== id), ...more], fields);
  /** Shards are complete until they change their owner. */
  const handing = { shardComplete: (_: number, __: number, gen: number) => gen === 1 };
  const only =
    (...sids: number[]) =>
    (sid: number) =>
      sids.includes(sid);

  it('begins with a mirror and a second parity, where every seat has a node and all is complete', () => {
    expect(seats(swapping)).toBe('1 2 p 3 3 1');
    expect([mirror, parity].map(({ movesMember }) => movesMember)).toEqual([0, 2]);
    expect(isSpread(swapping, code)).toBe(true);
    const lacking = view(all, { sinkComplete: () => false });
    expect(sinksForSwap(group!, code, lacking, { member: 0, index: 0 })).toBeUndefined();
    expect(sinksForSwap(swapping, code, view(all), { member: 1, index: 0 })).toBeUndefined();
  });

  it('neither half arrives before both are complete and the group is healthy', () => {
    expect(mend(view(all, { sinkComplete: only(1, 50) }))).toBeUndefined();
    expect(mend(view(all, { sinkComplete: only(1, 51) }))).toBeUndefined();
    expect(mend(view(all, { shardComplete: (_, m) => m !== 1 }))).toBeUndefined();
  });

  it('both arrive in one map, and the mirror goes when the new owner is complete', () => {
    const after = mend(view(all, handing))!;
    expect([seats(after), after.data[0]]).toMatchObject(['3 2 p 3 1', { node: 3, gen: 2 }]);
    expect(after.sinks.map(({ sid, movesMember }) => [sid, movesMember])).toEqual([
      [50, undefined],
      [51, undefined],
    ]);
    expect(mend(view(all, handing), after)).toBeUndefined();
    const done = mend(view(all), after)!;
    expect([seats(done), isSpread(done, code), hasMove(done)]).toEqual(['3 2 p 1', true, false]);
  });

  it('a half that is left alone is dropped', () => {
    for (const sid of [50, 51]) {
      const half = { ...swapping, sinks: swapping.sinks.filter((sink) => sink.sid !== sid) };
      expect(seats(mend(view(all), half)!)).toBe('1 2 p 3');
    }
  });

  it('a lost owner: a complete mirror takes over, and one that is not goes', () => {
    expect(seats(mend(without(1, { ...handing, sinkComplete: only(1, 50) }))!)).toBe('3 2 p 3 3');
    const decoded = mend(without(1, { sinkComplete: only(1) }))!;
    expect([seats(decoded), decoded.data[0]!.gen]).toEqual(['3 2 p 3', 2]);
  });

  it('a lost parity: the second one takes its seat, and moves where another node is free', () => {
    expect(seats(mend(without(3, { sinkComplete: () => false }))!)).toBe('1 2 p 1');
    const crowded = mend(without(3, { sinkComplete: () => false }, [node(4)]))!;
    expect(seats(crowded)).toBe('1 2 p 1');
    expect(seats(mend(without(3, {}, [node(4)]), crowded)!)).toBe('1 2 p 1 4');
  });

  it('another lost member gets a home, and the swap is given up', () => {
    for (const complete of [only(1), only(1, 50, 51)])
      expect(seats(mend(without(2, { sinkComplete: complete }))!)).toBe('1 3 p 3');
  });
});

describe('the target of a move', () => {
  const code = pool(2, 1, 1);
  const all = nodes(4);
  const [group] = formGroups([code], all, 1, counter());
  const begun = (request: { member?: number; index?: number }): Group => {
    const sink = sinkForMove(group!, code, view(all), {
      member: request.member,
      index: request.index,
      node: all[3]!,
    });
    return { ...group!, sinks: [...group!.sinks, { sid: 50, ...sink! }] };
  };
  const mend = (groups: Group[], state: ClusterView) => repair(groups, [code], state, 2, () => 60)![0]!;
  const without = (id: number, fields: Partial<ClusterView>) =>
    view(
      all.filter((entry) => entry.id !== id),
      fields,
    );

  it('names its seat: a mirror acknowledges and does not protect, a parity does both', () => {
    const mirror = begun({ member: 1 });
    expect(mirror.sinks[1]).toMatchObject({ protects: false, acknowledges: true, movesMember: 1 });
    const parity = begun({ index: 0 });
    expect(parity.sinks[1]).toMatchObject({ protects: true, acknowledges: true, movesMember: 2 });
    for (const moving of [mirror, parity]) {
      expect(moving.sinks.map((sink) => isMoveTarget(moving, sink))).toEqual([false, true]);
      expect(parities(moving)).toEqual(group!.sinks);
      expect([hasMove(moving), isSpread(moving, code)]).toEqual([true, true]);
    }
  });

  it('is no target any more when its mirror is promoted, and something moves until the mirror goes', () => {
    const promoted = mend([begun({ member: 1 })], view(all));
    expect(promoted.data[1]).toMatchObject({ node: 4, gen: 2 });
    expect(promoted.sinks[1]).not.toHaveProperty('movesMember');
    expect(isMoveTarget(promoted, promoted.sinks[1]!)).toBe(false);
    expect([hasMove(promoted), hasMove(mend([promoted], view(all)))]).toEqual([true, false]);
  });

  it('frees the node of its parity for a lost shard when it is complete', () => {
    const after = mend([begun({ index: 0 })], without(1, {}));
    expect([seats(after), isSpread(after, code)]).toEqual(['3 2 p 4', true]);
  });

  it('stays beside its parity while the node of that can take no lost shard', () => {
    const moving = begun({ index: 0 });
    const [, second, third, fourth] = all;
    /** Node 1 is lost, and node 3 is alive but not connected. */
    const outOfReach = { ...view([second!, fourth!]), alive: without(1, {}).alive };
    const full = new Set([3]);
    for (const state of [outOfReach, without(1, { avoid: full, full })]) {
      const crowded = mend([moving], state);
      expect([seats(crowded), isSpread(crowded, code)]).toEqual(['4 2 p 3 4', true]);
      expect(repair([crowded], [code], state, 3, () => 70)).toBeUndefined();
      expect(seats(mend([crowded], view([second!, third!, fourth!])))).toBe('4 2 p 3');
      expect(seats(mend([crowded], view([second!, fourth!])))).toBe('4 2 p 4');
    }
    const lacking = { ...outOfReach, sinkComplete: (sid: number) => sid !== 50 };
    expect(seats(mend([moving], lacking))).toBe('4 2 p 3');
  });

  it('takes the place of its parity when that goes, complete or lost', () => {
    const moving = begun({ index: 0 });
    for (const state of [view(all), without(3, { sinkComplete: () => false })]) {
      const after = mend([moving], state);
      expect(after.sinks.map(({ sid }) => sid)).toEqual([50]);
      expect(after.sinks[0]).not.toHaveProperty('movesMember');
      expect(parities(after)).toEqual(after.sinks);
    }
  });

  it('is in a hurry while two members share a node', () => {
    const moving = begun({ member: 1 });
    const crowded = { ...moving, data: [{ ...moving.data[0]!, node: 3 }, moving.data[1]!] };
    expect(isMoveTarget(crowded, crowded.sinks[1]!)).toBe(false);
  });

  it('that has handed over has the shard: a dead parity is not waited for', () => {
    const promoted = mend([begun({ member: 1 })], view(all));
    const taking = view(all, { shardComplete: (_, m) => m !== 1 });
    const needed = (group: Group, state: ClusterView) =>
      isIndispensable(3, [group], [code], state, () => false);
    expect(promoted.sinks.map((sink) => [sink.kind, sink.node])).toEqual([
      ['P', 3],
      ['M', 4],
    ]);
    expect(needed(promoted, taking)).toBe(false);
    expect(canDoWithout(promoted, promoted.sinks[0]!, code, taking)).toBe(true);
    // The mirror lacks blocks, is on another node, or is on the node that would go.
    const incomplete = { ...taking, sinkComplete: (sid: number) => sid !== promoted.sinks[1]!.sid };
    expect(needed(promoted, incomplete)).toBe(true);
    expect(
      needed({ ...promoted, data: [promoted.data[0]!, { ...promoted.data[1]!, node: 5 }] }, taking),
    ).toBe(true);
    const withoutParity = { ...promoted, sinks: [promoted.sinks[1]!] };
    expect(canDoWithout(withoutParity, withoutParity.sinks[0]!, code, taking)).toBe(false);
  });

  it('of a mirror is no parity: with the parity lost the group is not healthy', () => {
    const moving = begun({ member: 0 });
    expect(isHealthy({ ...moving, sinks: moving.sinks.slice(1) }, code, view(all))).toBe(false);
    expect(canDoWithout(moving, moving.sinks[0]!, code, view(all))).toBe(true);
    expect(
      canDoWithout(moving, moving.sinks[0]!, code, view(all, { shardComplete: (_, m) => m !== 1 })),
    ).toBe(false);
  });
});

/** Places and looks of cells, for every state that a shard can be in. */
import { describe, expect, test } from 'vitest';
import {
  cellsByNode,
  Filling,
  hostsOf,
  jobOf as jobView,
  NOWHERE,
  recoveriesOf,
  type SeenJob,
  WholeParities,
} from '../../../src/fleet/dashboard/cells.js';
import type { Cell, HostView } from '../../../src/fleet/dashboard/view.js';
import { patchOf, sectionsOf } from '../../../src/fleet/dashboard/view.js';
import type { SinkTelemetry } from '../../../src/protocol/telemetry.js';
import { jobOf } from './model.js';
import { nodeTelemetry, snapshot } from './snapshots.js';

/** A quiet look first, as a page has it that is open before something happens. */
function looked(seen: SeenJob): WholeParities {
  const parities = new WholeParities();
  parities.look(seen);
  return parities;
}

function cell(cells: Map<number, Cell[]>, node: number, kind: Cell['kind'], group = 0): Cell | undefined {
  return cells.get(node)?.find((each) => each.kind === kind && each.group === group);
}

describe('cells', () => {
  test('a quiet job has whole cells only, each on its node', () => {
    const seen = jobOf(4, 4, 2, 1);
    const cells = cellsByNode(seen, looked(seen));
    expect([...cells.keys()].sort()).toEqual([1, 2, 3, 4]);
    for (const own of cells.values())
      expect(own.map(({ state }) => state)).toEqual(['whole', 'whole', 'whole']);
    expect(cell(cells, 3, 'parity')).toEqual({
      kind: 'parity',
      pool: 'embedding',
      group: 0,
      index: 0,
      state: 'whole',
    });
  });

  test('what a node that is down had waits for a home, also when its process has come back empty', () => {
    const seen = jobOf(4, 1, 2, 1);
    const parities = looked(seen);
    seen.status.nodes[0]!.alive = false;
    expect(cell(cellsByNode(seen, parities), 1, 'data')?.state).toBe('waiting');
    Object.assign(seen.status.nodes[0]!, { alive: true, inc: 2 });
    expect(cell(cellsByNode(seen, parities), 1, 'data')?.state).toBe('waiting');
  });

  test('a shard recovers on its new node, with the share that is back and the share on demand', () => {
    const seen = jobOf(4, 1, 2, 1);
    const parities = looked(seen);
    Object.assign(seen.map.groups[0]!.data[0]!, { node: 4, gen: 9, init: false });
    const report = { g: 0, m: 0, gen: 9, blocksLost: 40, blocksPresent: 10, blocksOnDemand: 4 };
    seen.status.recoveries = [report];
    seen.status.reasons = ['embedding group 0: recovering'];
    const now = () => cell(cellsByNode(seen, parities), 4, 'data');
    expect(now()).toMatchObject({ state: 'recovering', percent: 25, demand: 10 });
    expect(recoveriesOf(seen)).toEqual([
      { pool: 'embedding', group: 0, index: 0, node: 'ps-3', blocks: 40, present: 10, onDemand: 4 },
    ]);
    // Before it has the keys it knows of no blocks, and is not whole.
    seen.status.recoveries = [{ ...report, blocksLost: 0, blocksPresent: 0, blocksOnDemand: 0 }];
    expect(now()).toMatchObject({ state: 'recovering' });
    expect(recoveriesOf(seen)).toMatchObject([{ blocks: 0 }]);
    expect(now()).not.toHaveProperty('percent');
    // A report of an earlier owner is not of this one.
    seen.status.recoveries = [{ ...report, gen: 8 }];
    expect(now()?.state).toBe('whole');
    expect(recoveriesOf(seen)).toEqual([]);
    seen.status.recoveries = [{ ...report, blocksPresent: 40 }];
    expect(now()?.state).toBe('whole');
    expect(recoveriesOf(seen)).toEqual([]);
    // A shard without rows had no blocks to lose: it has its keys, whatever else its group lacks.
    seen.status.recoveries = [
      { ...report, blocksLost: 0, blocksPresent: 0, blocksOnDemand: 0, keysReady: true },
    ];
    expect([now()?.state, recoveriesOf(seen)]).toEqual(['whole', []]);
  });

  test('a parity that is built again recovers until its group is whole', () => {
    const seen = jobOf(4, 1, 2, 1);
    const parities = looked(seen);
    seen.map.groups[0]!.sinks[0] = { ...seen.map.groups[0]!.sinks[0]!, sid: 99, node: 4, init: false };
    seen.status.reasons = ['embedding group 0: recovering'];
    parities.look(seen);
    expect(cell(cellsByNode(seen, parities), 4, 'parity')?.state).toBe('recovering');
    seen.status.reasons = [];
    parities.look(seen);
    expect(cell(cellsByNode(seen, parities), 4, 'parity')?.state).toBe('whole');
  });

  test('what is being filled says how far it is', () => {
    const seen = jobOf(4, 1, 2, 1);
    const parities = looked(seen);
    const filling = new Filling();
    const look = (...sinks: SinkTelemetry[]) => {
      const telemetry = nodeTelemetry(0, {});
      filling.look(snapshot(0, seen.status, [{ ...telemetry, sinks }]));
      return cellsByNode(seen, parities, filling);
    };
    seen.map.groups[0]!.sinks[0] = { ...seen.map.groups[0]!.sinks[0]!, sid: 99, node: 4, init: false };
    seen.status.reasons = ['embedding group 0: recovering'];
    parities.look(seen);
    const parity = (...sinks: SinkTelemetry[]) => cell(look(...sinks), 4, 'parity')?.percent;
    expect([parity(), parity({ sid: 99 })]).toEqual([undefined, undefined]);
    // New rows make more of it.
    const left = [200, 400, 100, 1].map((blocksLeft) => parity({ sid: 99, blocksLeft }));
    expect(left).toEqual([0, 0, 75, 99]);
    expect(parity()).toBeUndefined();
    const mirror = { sid: 50, kind: 'M' as const, index: 0, node: 4, inc: 1, init: false };
    seen.map.groups[0]!.sinks.push({ ...mirror, protects: false, acknowledges: true, movesMember: 0 });
    look({ sid: 50, blocksLeft: 10 });
    expect(cell(look({ sid: 50, blocksLeft: 5 }), 4, 'mirror')).toMatchObject({
      ...{ state: 'arriving', percent: 50, other: 'ps-0' },
    });
  });

  test('a move is drawn on both nodes, and names the other one', () => {
    const seen = jobOf(4, 1, 2, 1);
    const group = seen.map.groups[0]!;
    const mirror = { sid: 50, kind: 'M' as const, index: 0, node: 4, inc: 1, init: false };
    group.sinks.push({ ...mirror, protects: false, acknowledges: true, movesMember: 0 });
    let cells = cellsByNode(seen, looked(seen));
    expect(cell(cells, 1, 'data')).toMatchObject({ state: 'moving', other: 'ps-3' });
    expect(cell(cells, 4, 'mirror')).toMatchObject({ state: 'arriving', other: 'ps-0' });
    group.sinks.pop();
    group.sinks.push({ ...mirror, kind: 'P', protects: true, acknowledges: true, movesMember: 2 });
    cells = cellsByNode(seen, looked(seen));
    expect(cell(cells, 3, 'parity')).toMatchObject({ state: 'moving', other: 'ps-3' });
    expect(cell(cells, 4, 'parity')).toMatchObject({ state: 'arriving', other: 'ps-2' });
  });

  test('what is beyond repair is lost, and what has no node is drawn as such', () => {
    const seen = jobOf(4, 1, 2, 1);
    seen.status.unrecoverable = [{ g: 0, m: 0, blocks: 3, rows: 7 }];
    seen.map.groups[0]!.data[1]!.node = 0;
    const hosts = hostsOf(seen, looked(seen));
    expect(hosts[0]!.nodes[0]!.cells[0]).toMatchObject({ state: 'lost' });
    seen.status.recoveries = [{ g: 0, m: 0, gen: 1, blocksLost: 3, blocksPresent: 0, blocksOnDemand: 0 }];
    expect(recoveriesOf(seen)).toEqual([]);
    const none = hosts.at(-1)!;
    expect(none).toMatchObject({ name: NOWHERE, counts: { waiting: 1 } });
    expect(jobView(seen, hosts)).toMatchObject({ hosts: 4, counts: { lost: 1, waiting: 1, whole: 1 } });
  });
});

describe('hosts', () => {
  test('are in order of their numbers, with what their nodes hold and how they are', () => {
    const seen = jobOf(24, 24, 2, 1, 2);
    seen.status.nodes[3]!.alive = false;
    const change = { id: 1, kind: 'drain' as const, from: 24, to: 23, state: 'running' as const, reason: '' };
    const moved = { shardsMoved: 0, bytesMoved: 0, shardsMoving: 0, shardsLeft: 0 };
    seen.status.scaling.changes = [{ ...change, ...moved, leaving: ['ps-0'] }];
    const hosts = hostsOf(seen, looked(seen));
    expect(hosts.map((host) => host.name)).toEqual(Array.from({ length: 12 }, (_, i) => `host-${i}`));
    const states = (host: HostView) => host.nodes.map((node) => [node.name, node.state]);
    expect(states(hosts[0]!)).toEqual([
      ['ps-0', 'leaving'],
      ['ps-1', 'alive'],
    ]);
    expect(hosts[1]).toMatchObject({ down: 1, rows: 10, bytes: 1000, counts: { waiting: 3, whole: 3 } });
  });

  test('what a node holds is not known before it has reported to a scheduler that took over', () => {
    const seen = jobOf(4, 4, 2, 1);
    Object.assign(seen.status.nodes[2]!, { rows: 0, bytes: 0, reported: false });
    const hosts = hostsOf(seen, looked(seen));
    expect(hosts[2]!.nodes[0]).not.toHaveProperty('rows');
    expect(hosts[1]!.nodes[0]).toMatchObject({ rows: 10, bytes: 1000 });
    const job = jobView(seen, hosts);
    expect(job.unreported).toBe(1);
    expect(job).not.toHaveProperty('rows');
    expect(job).not.toHaveProperty('bytes');
  });

  test('a thousand nodes: every shard is counted, and a change of one host sends one host', () => {
    const seen = jobOf(1000, 4000, 8, 2, 4);
    const parities = looked(seen);
    const view = () => {
      const hosts = hostsOf(seen, parities);
      const link = { state: 'up' as const, since: 0 };
      return { link, actions: [], hosts, job: jobView(seen, hosts) };
    };
    const before = view();
    expect(before.job).toMatchObject({ hosts: 250, nodes: 1000, counts: { whole: 40_000 } });
    const sections = sectionsOf(before);
    expect(patchOf(sections, sectionsOf(view()))).toEqual([]);
    seen.status.nodes[10]!.rows++;
    const patch = patchOf(sections, sectionsOf(view()));
    expect(patch.map((each) => each.slice(0, each.indexOf(':')))).toEqual(['"job"', '"host/host-2"']);
    // A page that opens is sent everything.
    expect(patchOf(new Map(), sections).join().length).toBeLessThan(6 << 20);
  });

  test('a section that is gone is null in the patch', () => {
    const seen = jobOf(4, 4, 2, 1);
    const link = { state: 'up' as const, since: 0 };
    const sections = () => sectionsOf({ link, actions: [], hosts: hostsOf(seen, looked(seen)) });
    const before = sections();
    seen.status.nodes.pop();
    seen.map.groups = [];
    expect(patchOf(before, sections())).toContain('"host/host-3":null');
  });
});

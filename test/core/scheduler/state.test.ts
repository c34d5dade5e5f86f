/** A restarted scheduler resumes from the stored state, also when an older version wrote it. */
import { expect, it } from 'vitest';
import { formGroups } from '../../../src/core/placement/form.js';
import { entriesOf, stateOf as read, type WholeState } from '../../../src/core/scheduler/entries.js';
import { type DurableState, newJob, withCapabilities } from '../../../src/core/scheduler/state.js';
import { CAPABILITIES, type Group, type SinkEntry } from '../../../src/protocol/map.js';

const nodes = [1, 2, 3, 4].map((id) => {
  const name = `ps-${id}`;
  return { id, inc: 1, name, host: name, address: `${name}:1`, standby: false };
});

function stateOf(sinks: (group: Group) => SinkEntry[]): DurableState {
  const state = newJob('job', 3, [{ name: 'embedding', k: 2, r: 1, groups: 1 }]);
  let sid = 1;
  const [group] = formGroups(state.map.pools, nodes, 2, () => sid++);
  return { ...state, map: { ...state.map, nodes, groups: [{ ...group!, sinks: sinks(group!) }] } };
}

/** As format 2 stored it. */
const whole = (state: DurableState): WholeState => ({
  ...state,
  sessions: [...state.sessions.values()],
  datasets: state.datasets.map((dataset) => ({ ...dataset, open: [...dataset.open.values()] })),
});

it('a stored state without capabilities has them derived; one with them is left as it is', () => {
  const place = { node: 4, inc: 1, init: false };
  const states = [
    stateOf((group) => group.sinks),
    stateOf(({ sinks }) => [
      ...sinks,
      { sid: 7, kind: 'P', index: 0, ...place, ...CAPABILITIES.P, movesMember: 2 },
    ]),
    stateOf(({ sinks }) => [
      ...sinks,
      { sid: 7, kind: 'M', index: 1, ...place, ...CAPABILITIES.M, movesMember: 1 },
    ]),
    // The node of the mirror is the owner already.
    stateOf(({ sinks, data }) => [
      ...sinks,
      { sid: 7, kind: 'M', index: 1, ...place, node: data[1]!.node, ...CAPABILITIES.M },
    ]),
  ];
  for (const state of states) {
    const old = structuredClone(state);
    for (const sink of old.map.groups[0]!.sinks as Partial<SinkEntry>[]) {
      delete sink.protects;
      delete sink.acknowledges;
      delete sink.movesMember;
    }
    expect(withCapabilities(old)).toEqual(state);
    expect(read(new Map([['state', { format: 2, value: whole(old) }]]))).toEqual({ state, outdated: true });
    expect(withCapabilities(state)).toEqual(state);
  }
});

it('a state of format 2 is read and becomes entries, also one from before there were data sets', () => {
  const state = stateOf(({ sinks }) => sinks);
  state.names['ps-1'] = { id: 1, inc: 2, left: true };
  state.sessions.set(7, { id: 7, leased: true });
  state.scaling = { wanted: 3, nextChange: 1, changes: [] };
  const open = { number: 3, session: 8, worker: 7, lease: 1, done: 2, begun: 2, failures: 0, failedAt: -1 };
  const files = [{ name: 'f', size: 0, rangeBytes: 10 }];
  state.datasets.push({
    ...{ name: 'd', next: 4, finished: 3, redone: 1, samples: [30], setAside: [] },
    spec: { follow: true, files, batch: 1, epochs: 1, seed: 1, shuffle: false, staleness: 1 },
    open: new Map([[3, { ...open, piece: { file: 0, begin: 30, end: 40 } }]]),
    growth: [{ size: 40, given: 40 }],
  });
  const stored = (value: WholeState) => read(new Map([['state', { format: 2, value }]]));
  expect(stored(whole(state))).toEqual({ state, outdated: true });
  const { datasets: _, ...old } = whole(state);
  expect(stored(old)?.state).toEqual({ ...state, datasets: [] });
  expect(read(entriesOf(state))).toEqual({ state, outdated: false });
  expect(read(new Map())).toBeUndefined();
  for (const other of [{ format: 1 }, { format: 4 }, undefined])
    expect(() => read(new Map([['state', other]]))).toThrow(
      expect.objectContaining({ code: 'BAD_ARGUMENT' }),
    );
});

it('a state whose sessions have the rates that they set is read, and chunks may be newer', () => {
  const state = stateOf(({ sinks }) => sinks);
  state.sessions.set(7, { id: 7, leased: true });
  const entries = entriesOf(state);
  entries.set('session/7', { id: 7, leased: true, rates: { 1: 4, 2: 9, 200: 5 } });
  entries.set('rates/7/0', { 1: 6 });
  state.settingQuestions.set(7, new Map([0, 3].map((chunk) => [chunk, chunk ? { 200: 5 } : { 1: 6, 2: 9 }])));
  expect(read(entries)).toEqual({ state, outdated: false });
  expect(read(entriesOf(state))).toEqual({ state, outdated: false });
});

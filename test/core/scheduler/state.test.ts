/** What a restarted scheduler resumes from, also when an older version wrote it. */
import { expect, it } from 'vitest';
import { formGroups } from '../../../src/core/placement/form.js';
import { DEFAULT_SCHEDULER_POLICY, Scheduler } from '../../../src/core/scheduler/scheduler.js';
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
    // Its node is the owner already.
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
    expect(new Scheduler(old, DEFAULT_SCHEDULER_POLICY, true).map).toEqual(state.map);
    expect(withCapabilities(state)).toEqual(state);
  }
});

/** A report counts only for shards and sinks that the map gives to the reporting node. */
import { describe, expect, it } from 'vitest';
import { Reports } from '../../../src/core/scheduler/reports.js';
import { CAPABILITIES, EMPTY_MAP, type Group } from '../../../src/protocol/map.js';
import { BareScheduler, type Identity } from './bare.js';

/** Code 2+1 on three nodes, all complete, a fourth without anything. */
function started(): { job: BareScheduler; nodes: Identity[]; spare: Identity } {
  const job = new BareScheduler(2, 1);
  const nodes = ['a', 'b', 'c'].map((name) => job.join(name));
  const spare = job.join('d', { standby: true });
  for (const node of [...nodes, spare]) job.complete(node);
  expect(job.redundancy).toBe('full');
  return { job, nodes, spare };
}

describe('a report of what is complete', () => {
  it('counts only from the node that the map names', () => {
    const { job, nodes, spare } = started();
    job.step({ kind: 'closed', peer: nodes[0]!.id, inc: 1 });
    job.step({ kind: 'refused', node: nodes[0]!.id, inc: 1 });
    const [{ data, sinks }] = job.groups as [(typeof job.groups)[0]];
    expect([data[0]!.node, job.redundancy]).toEqual([spare.id, 'recovering']);
    const lie = { completeShards: [[0, 0, data[0]!.gen]] as [number, number, number][], completeSinks: [1] };
    job.heartbeat(nodes[1]!, lie);
    job.heartbeat({ id: nodes[0]!.id, inc: 1 }, lie);
    expect(job.redundancy).toBe('recovering');
    job.heartbeat({ id: spare.id, inc: spare.inc + 1 }, lie);
    expect(job.redundancy).toBe('recovering');
    expect(sinks.length).toBe(1);
    job.complete(spare);
    expect(job.redundancy).toBe('full');
  });

  it('counts for a sink only from the node that the map names', () => {
    const { job, nodes, spare } = started();
    job.step({ kind: 'closed', peer: nodes[2]!.id, inc: 1 });
    job.step({ kind: 'refused', node: nodes[2]!.id, inc: 1 });
    const [sink] = job.groups[0]!.sinks;
    expect([sink!.node, job.redundancy]).toEqual([spare.id, 'recovering']);
    for (const liar of [nodes[0]!, nodes[2]!, { ...spare, inc: spare.inc + 1 }]) {
      job.heartbeat(liar, { completeSinks: [sink!.sid] });
      expect(job.redundancy).toBe('recovering');
    }
    job.complete(spare);
    expect(job.redundancy).toBe('full');
  });

  it('does not change the rows of a shard of another node, and gives no node rows it does not have', () => {
    const { job, nodes, spare } = started();
    job.heartbeat(spare, { owned: [[0, 0, 1e9]], held: [[0, 0, 1e12, 1]] });
    const v = job.groups[0]!.version;
    job.hear(nodes[0]!.id, { t: 'unrecoverable', g: 0, m: 0, gen: 1, v, blocks: 3 });
    expect(job.scheduler.status().unrecoverable).toEqual([{ g: 0, m: 0, blocks: 3, rows: 7 }]);
  });
});

describe('a report of a load', () => {
  it('counts for a parity only from the one in use: two counters are not one', () => {
    const place = { kind: 'P' as const, index: 0, inc: 1, init: false, ...CAPABILITIES.P };
    const group: Group = {
      ...{ id: 0, pool: 0, version: 1 },
      data: [{ node: 1, inc: 1, gen: 1, init: true }],
      sinks: [
        { sid: 1, node: 2, ...place },
        { sid: 2, node: 3, ...place, movesMember: 1 },
      ],
    };
    const reports = new Reports({ map: { ...EMPTY_MAP, groups: [group] } });
    const nothing = { completeSinks: [], completeShards: [], recoveries: [], owned: [], bytes: 0, rows: 0 };
    const hear = (from: number, count: number, now: number) =>
      reports.learn(from, { t: 'heartbeat', inc: 1, epoch: 1, ...nothing, held: [[0, 1, 8, count]] }, now);
    for (let now = 1000; now <= 5000; now += 1000) {
      hear(2, 1e6, now);
      hear(3, 10, now + 500);
    }
    expect(reports.loads.weight(0, 1)).toEqual({ bytes: 8, load: 0 });
  });
});

describe('a recovery', () => {
  it('is in the status as long as its owner is the owner', () => {
    const { job, nodes, spare } = started();
    const lose = ({ id, inc }: Identity) => {
      job.step({ kind: 'closed', peer: id, inc });
      job.step({ kind: 'refused', node: id, inc });
    };
    lose(nodes[0]!);
    const recovery = { g: 0, m: 0, gen: job.groups[0]!.data[0]!.gen };
    job.heartbeat(spare, {
      recoveries: [{ ...recovery, blocksLost: 9, blocksPresent: 1, blocksOnDemand: 0 }],
    });
    expect(job.scheduler.status().recoveries).toMatchObject([recovery]);
    lose(spare);
    expect(job.scheduler.status().recoveries).toEqual([]);
  });
});

describe('a report of a loss', () => {
  it('counts only from the owner, in its generation', () => {
    const { job, nodes, spare } = started();
    const client = job.attach();
    const v = job.groups[0]!.version;
    for (const from of [client.id, spare.id, nodes[1]!.id])
      job.hear(from, { t: 'unrecoverable', g: 0, m: 0, gen: 1, v, blocks: 1 });
    job.hear(nodes[0]!.id, { t: 'unrecoverable', g: 0, m: 0, gen: 2, v, blocks: 1 });
    job.hear(nodes[0]!.id, { t: 'unrecoverable', g: 0, m: 5, gen: 1, v, blocks: 1 });
    expect([job.redundancy, job.scheduler.status().unrecoverable]).toEqual(['full', []]);
    job.hear(nodes[0]!.id, { t: 'unrecoverable', g: 0, m: 0, gen: 1, v, blocks: 1 });
    expect(job.redundancy).toBe('lost');
  });
});

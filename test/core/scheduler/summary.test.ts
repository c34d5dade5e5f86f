/** What those are told who ask often, and warnings that come with it. */
import { describe, expect, it } from 'vitest';
import { BareScheduler, type Identity } from './bare.js';

const warnings = (job: BareScheduler) =>
  job.effects.flatMap((effect) =>
    effect.kind === 'event' && effect.name === 'hosts.warning' ? [effect.fields.message] : [],
  );

describe('the summary', () => {
  const started = (): { job: BareScheduler; nodes: Identity[] } => {
    const job = new BareScheduler(2, 1);
    const nodes = ['a', 'b', 'c'].map((name) => job.join(name));
    for (const node of nodes) job.complete(node);
    return { job, nodes };
  };
  /** Counts how often the condition of the groups is computed: it looks at their members. */
  const looks = (job: BareScheduler): (() => number) => {
    let count = 0;
    for (const group of job.groups) {
      const { data } = group;
      Object.defineProperty(group, 'data', {
        get: () => {
          count++;
          return data;
        },
      });
    }
    return () => count;
  };

  it('says what the status says', () => {
    const { job, nodes } = started();
    const { epoch, redundancy } = job.scheduler.status();
    const known = { epoch, reasons: [], nodesAlive: 3, nodesKnown: 3, tables: 0 };
    expect(job.scheduler.summary()).toEqual({ ...known, redundancy: 'full' });
    expect(redundancy).toBe('full');
    job.step({ kind: 'closed', peer: nodes[0]!.id, inc: 1 });
    job.step({ kind: 'refused', node: nodes[0]!.id, inc: 1 });
    const after = job.scheduler.status();
    expect(job.scheduler.summary()).toMatchObject({ epoch: after.epoch, nodesAlive: 2, nodesKnown: 3 });
    expect(job.scheduler.summary().redundancy).toBe(after.redundancy);
    expect(after.redundancy).not.toBe('full');
  });

  it('is computed once, and again only when something has happened', () => {
    const { job, nodes } = started();
    job.scheduler.summary();
    const count = looks(job);
    for (let i = 0; i < 100; i++) {
      job.scheduler.summary();
      job.tick(10);
      // A heartbeat without news is looked at for what it says of its shards, and no group is.
      job.heartbeat(nodes[0]!);
    }
    expect(count()).toBe(0);
    job.step({ kind: 'closed', peer: nodes[0]!.id, inc: 1 });
    expect(count()).toBeGreaterThan(0);
    const before = count();
    job.scheduler.summary();
    expect(count()).toBe(before);
  });
});

describe('a warning of host labels', () => {
  it('is given once, stands in the status, and goes with its reason', () => {
    const job = new BareScheduler(1, 1);
    job.join('a', { machine: 'm' });
    expect(warnings(job)).toEqual([]);
    job.join('b', { machine: 'm' });
    const [said] = job.scheduler.status().warnings;
    expect(said).toMatch(/^all PS run on one machine/);
    expect(warnings(job)).toEqual([said]);
    job.join('c', { machine: 'm' });
    expect(job.scheduler.status().warnings).toEqual([said]);
    expect(warnings(job)).toEqual([]);
    job.attach();
    expect(warnings(job)).toEqual([]);
    job.join('d', { machine: 'n' });
    expect(job.scheduler.status().warnings).toEqual([]);
  });
});

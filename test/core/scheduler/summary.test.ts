/** The summary for those who ask often, and warnings that come with it. */
import { describe, expect, it } from 'vitest';
import { BareScheduler, type Identity } from './bare.js';

const warnings = (job: BareScheduler, name = 'hosts.warning') =>
  job.effects.flatMap((effect) =>
    effect.kind === 'event' && effect.name === name ? [effect.fields.message] : [],
  );

describe('the summary', () => {
  const started = (): { job: BareScheduler; nodes: Identity[] } => {
    const job = new BareScheduler(2, 1);
    const nodes = ['a', 'b', 'c'].map((name) => job.join(name));
    for (const node of nodes) job.complete(node);
    return { job, nodes };
  };
  /** Counts how often the condition of the groups is computed: it looks at their members. */
  const looks = (job: BareScheduler, groups = job.groups): (() => number) => {
    let count = 0;
    for (const group of groups) {
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
    // The first tick finds that all owners have the map.
    job.tick(10);
    const count = looks(job);
    for (let i = 0; i < 100; i++) {
      job.scheduler.summary();
      job.tick(10);
      // A heartbeat without news is looked at for what it says of its shards, and no group is.
      job.heartbeat(nodes[0]!);
    }
    // Whose connection closed may come back.
    job.step({ kind: 'closed', peer: nodes[0]!.id, inc: 1 });
    expect(count()).toBe(0);
    job.step({ kind: 'refused', node: nodes[0]!.id, inc: 1 });
    expect(count()).toBeGreaterThan(0);
    const before = count();
    job.scheduler.summary();
    expect(count()).toBe(before);
  });

  it('looks at no group that a lost node held nothing of', () => {
    const job = new BareScheduler(1, 1, 12, {}, 6);
    const nodes = ['a', 'b', 'c', 'd', 'e', 'f'].map((name) => job.join(name));
    for (const node of nodes) job.complete(node);
    const { id, inc } = nodes[0]!;
    const others = job.groups.filter(
      ({ data, sinks }) => ![...data, ...sinks].some(({ node }) => node === id),
    );
    expect(others.length).toBe(8);
    const count = looks(job, others);
    job.step({ kind: 'closed', peer: id, inc });
    job.step({ kind: 'refused', node: id, inc });
    expect(job.scheduler.summary().redundancy).toBe('recovering');
    expect(count()).toBe(0);
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

describe('a warning of the number of shards', () => {
  it('is given beyond 64 data shards on a PS, and not for 64', () => {
    const fits = new BareScheduler(1, 1, 128);
    for (const name of ['a', 'b']) fits.join(name);
    expect(fits.groups.length).toBe(128);
    expect([warnings(fits, 'shards.warning'), fits.scheduler.status().warnings]).toEqual([[], []]);
    const job = new BareScheduler(1, 1, 129);
    for (const name of ['a', 'b']) job.join(name);
    const [said] = job.scheduler.status().warnings;
    expect(said).toMatch(/^a PS holds 65 data shards, and more than 64 cost more .* Start more PS;/);
    expect(warnings(job, 'shards.warning')).toEqual([said]);
    expect(warnings(job)).toEqual([]);
    job.attach();
    expect(warnings(job, 'shards.warning')).toEqual([]);
  });
});

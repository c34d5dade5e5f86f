/** Identities of nodes, and what becomes of those of nodes that stay away. */
import { describe, expect, it } from 'vitest';
import { BareScheduler, type Identity } from './bare.js';

describe('a node that is forgotten', () => {
  const start = () => {
    const job = new BareScheduler(1, 1, 1, { maxAbsentNodes: 1 });
    for (const name of ['a', 'b']) job.complete(job.join(name));
    const absent = ['c', 'd', 'e'].map((name) => job.join(name));
    for (const { id, inc } of absent) {
      job.step({ kind: 'closed', peer: id, inc });
      job.step({ kind: 'refused', node: id, inc });
    }
    job.join('f');
    return { job, absent };
  };

  it('was absent for longest, and one that lives is none', () => {
    const { job } = start();
    expect(job.scheduler.map.nodes.map(({ name }) => name)).toEqual(['a', 'b', 'e', 'f']);
    expect(Object.keys(job.state.names)).toEqual(['a', 'b', 'e', 'f']);
  });

  it('joins under its name as a new node, and never under its old identity', () => {
    const { job, absent } = start();
    const [{ id, inc }] = absent as [Identity];
    job.heartbeat({ id, inc });
    expect(job.effects).toMatchObject([
      { kind: 'send', to: id, message: { t: 'stale', code: 'STALE_NODE' } },
    ]);
    const join = { t: 'join' as const, name: 'c', host: 'c', address: 'c:1', standby: false };
    job.step({ kind: 'join', link: 99, message: { ...join, id, inc } });
    expect(job.effects).toMatchObject([{ kind: 'reply', message: { t: 'stale', code: 'STALE_NODE' } }]);
    const reborn = job.join('c');
    expect([reborn.id > id, reborn.inc]).toEqual([true, 1]);
  });
});

/** The seconds of a job (rule 50): who is told, and what they are after another scheduler took over. */
import { expect, it } from 'vitest';
import type { TablePolicy } from '../../../src/engine/policies.js';
import { BareScheduler, type Identity } from './bare.js';

const table = (policy?: TablePolicy) => ({
  ...{ name: 't', pool: 'embedding', dim: 4, seed: 1, ...(policy && { policy }) },
  optimizer: { kind: 'sgd' as const, lr: 0.1 },
  initializer: { kind: 'zeros' as const },
});

function start(policy?: TablePolicy): { job: BareScheduler; nodes: Identity[] } {
  const job = new BareScheduler(1, 1);
  const nodes = [job.join('ps-0'), job.join('ps-1')];
  job.hear(job.attach().id, { t: 'createTables', id: 1, specs: [table(policy)] });
  return { job, nodes };
}

/** The second that each node was told in the last step. */
const told = ({ effects }: BareScheduler): [number, number][] =>
  effects.flatMap((effect): [number, number][] =>
    effect.kind === 'send' && effect.message.t === 'time' ? [[effect.to, effect.message.seconds]] : [],
  );

const SECONDS: TablePolicy = { clock: 'seconds', ttl: 60 };

it('every node is told each second, if a table counts seconds', () => {
  const { job, nodes } = start(SECONDS);
  const [a, b] = nodes.map(({ id }) => id);
  job.tick(999);
  expect(told(job)).toEqual([]);
  job.tick(1);
  expect(told(job)).toEqual([
    [a, 1],
    [b, 1],
  ]);
  for (let i = 0; i < 3; i++) job.tick(500);
  expect(told(job)).toEqual([]);
  job.tick(600);
  expect(told(job).map(([, second]) => second)).toEqual([3, 3]);
});

it('nobody is told where tables count steps', () => {
  for (const policy of [undefined, { ttl: 60 }]) {
    const { job } = start(policy);
    job.tick(1000);
    job.tick(1000);
    expect(told(job)).toEqual([]);
  }
});

it('a scheduler that takes over goes on from what nodes have heard', () => {
  const { job, nodes } = start(SECONDS);
  for (let i = 0; i < 7; i++) job.tick(1000);
  job.heartbeat(nodes[0]!, { seconds: 7 });
  job.restart();
  for (const node of nodes) job.heartbeat(node, { seconds: 6 });
  job.heartbeat(nodes[1]!, { seconds: 7 });
  job.tick(1000);
  expect(told(job).map(([, second]) => second)).toEqual([8, 8]);
});

it('time does not pass while the process sleeps', () => {
  const { job } = start(SECONDS);
  job.tick(1000);
  job.tick(3_600_000);
  job.tick(1000);
  const [[, second] = [0, 0]] = told(job);
  expect(second).toBeGreaterThan(1);
  expect(second).toBeLessThan(10);
});

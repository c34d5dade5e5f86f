// The cluster in one process, as its user handles it.
import { expect, it } from 'vitest';
import { client, cluster, noticed, statusWhere } from './support.js';

it('nodes that are added at once have names of their own', async () => {
  const job = await cluster({ code: '1+1' });
  const added = await Promise.all([job.add(), job.add()]);
  const from = await client(job.address);
  const { nodes } = await statusWhere(from, '4 nodes', (status) => status.nodes.length === 4);
  expect(nodes.map(({ name, alive }) => [name, alive])).toEqual(
    [0, 1, 2, 3].map((index) => [`ps-${index}`, true]),
  );
  expect(new Set(job.nodes).size).toBe(4);
  expect(job.nodes).toEqual(expect.arrayContaining(added));
});

it('a node comes back as what it was: with shards or on standby', async () => {
  const job = await cluster({ code: '1+1', standby: 1 });
  await job.add();
  const from = await client(job.address);
  for (const [index, standby] of [true, false].entries()) {
    const name = `ps-${2 + index}`;
    const entry = () => from.clusterMap.nodes.find((node) => node.name === name)!;
    const { inc } = entry();
    await job.kill(2 + index);
    await noticed(from, name);
    await job.restart(2 + index);
    await statusWhere(from, `the return of ${name}`, () => entry().inc > inc);
    expect(entry().standby).toBe(standby);
  }
});

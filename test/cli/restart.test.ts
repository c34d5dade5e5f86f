/** Restarting PS from the command line: with processes that are started again, and one that is not. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Client, connect } from '../../src/client/client.js';
import { type LocalCluster, startLocalCluster } from '../../src/runtime/cluster.js';
import type { RestartedNode } from '../../src/tools/restart.js';
import { statusWhere } from '../runtime/support.js';
import { kintsugi, record, start } from './support.js';

let cluster: LocalCluster;
let client: Client;

beforeEach(async () => {
  cluster = await startLocalCluster({ code: '2+1', ps: 3, groups: 3 });
  client = await connect(cluster.address);
  const table = await client.createTable({ name: 'items', dim: 4 });
  const keys = BigUint64Array.from({ length: 500 }, (_, i) => BigInt(i));
  await table.push(keys, new Float32Array(2000).fill(1));
});
afterEach(async () => {
  await client.close();
  await cluster.close();
});

const run = (...args: string[]) => kintsugi(['restart', ...args, '--scheduler', cluster.address]);

test('restart --rolling restarts all, one after the other', async () => {
  await cluster.add();
  const before = (await client.status()).nodes;
  const { code, stdout, stderr } = await run('--rolling');
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  const lines = stdout.trimEnd().split('\n');
  const moved = String.raw`\d+ shards \(.*\) moved in \S+ \S+, back after \S+ \S+`;
  for (const name of ['ps-0', 'ps-1', 'ps-2', 'ps-3'])
    expect(lines).toContainEqual(expect.stringMatching(new RegExp(`^${name}: ${moved}$`)));
  expect(lines.at(-1)).toBe('4 PS were restarted');
  const after = await client.status();
  expect(after).toMatchObject({ redundancy: 'full', scaling: { wanted: 4, serving: 4 } });
  expect(after.nodes.map(({ name, inc }) => [name, inc])).toEqual(
    before.map(({ name, inc }) => [name, inc + 1]),
  );
  const one = await run('ps-2', '--json');
  expect(JSON.parse(one.stdout) as RestartedNode[]).toMatchObject([{ name: 'ps-2', back: 'ps-2' }]);
});

test('one that is not started again ends the command; nothing is lost', async () => {
  const extra = start(['ps', '--scheduler', cluster.address, '--name', 'extra', '--log-format', 'json']);
  await record(extra, 'ps.ready');
  await statusWhere(client, 'four PS wanted', ({ scaling }) => scaling.wanted === 4);
  const { code, stderr } = await run('extra', '--timeout', '1s');
  expect({ code, stderr }).toEqual({
    code: 1,
    stderr:
      'kintsugi: TIMEOUT: extra was emptied and ended, and no PS has joined in 1 s: nothing is lost, and ' +
      'the other PS were left alone; start it again, or see to its supervisor',
  });
  // The code that has a supervisor start it again.
  expect((await extra.ended).code).toBe(75);
  expect(await client.status()).toMatchObject({ redundancy: 'full', scaling: { wanted: 4, serving: 3 } });
});

test('what cannot be is refused', async () => {
  expect(await run('--rolling')).toMatchObject({
    code: 2,
    stderr:
      'kintsugi: NOT_ENOUGH_NODES: ps-0 cannot leave: 2 PS would be left, and the code of this job needs 3',
  });
  for (const args of [[], ['ps-0', '--rolling']])
    expect(await run(...args)).toMatchObject({
      code: 2,
      stderr: 'kintsugi: BAD_ARGUMENT: restart needs names of PS, or --rolling for all',
    });
  expect(await run('nobody')).toMatchObject({
    code: 2,
    stderr: 'kintsugi: BAD_ARGUMENT: no PS "nobody" is up in this job',
  });
});

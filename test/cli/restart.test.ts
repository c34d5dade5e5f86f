/** Restarts PS from the command line: some are started again by a supervisor, and one is not. */
import { expect, test } from 'vitest';
import type { RestartedNode } from '../../src/library/tools/restart.js';
import { statusWhere } from '../roles/support.js';
import { client, cluster, join, run } from './job.js';

const restart = (...args: string[]) => run('restart', ...args);

test('restart --rolling restarts all, one after the other', async () => {
  await cluster.add();
  const before = (await client.status()).nodes;
  const { code, stdout, stderr } = await restart('--rolling');
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
  const one = await restart('ps-2', '--json');
  expect(JSON.parse(one.stdout) as RestartedNode[]).toMatchObject([{ name: 'ps-2', back: 'ps-2' }]);
});

test('one that is not started again ends the command; nothing is lost', async () => {
  const extra = await join('extra');
  await statusWhere(client, 'four PS wanted', ({ scaling }) => scaling.wanted === 4);
  const { code, stderr } = await restart('extra', '--timeout', '1s');
  expect({ code, stderr }).toEqual({
    code: 1,
    stderr:
      'kintsugi: TIMEOUT: extra was emptied and ended, and no PS has joined in 1 s: nothing is lost, and ' +
      'the other PS were left alone; start it again, or see to its supervisor',
  });
  // 75 asks the supervisor for a restart.
  expect((await extra.ended).code).toBe(75);
  expect(await client.status()).toMatchObject({ redundancy: 'full', scaling: { wanted: 4, serving: 3 } });
});

test('what cannot be is refused', async () => {
  expect(await restart('--rolling')).toMatchObject({
    code: 2,
    stderr:
      'kintsugi: NOT_ENOUGH_NODES: ps-0 cannot leave: 2 PS would be left, and the code of this job needs 3',
  });
  for (const args of [[], ['ps-0', '--rolling']])
    expect(await restart(...args)).toMatchObject({
      code: 2,
      stderr: 'kintsugi: BAD_ARGUMENT: restart needs names of PS, or --rolling for all',
    });
  expect(await restart('nobody')).toMatchObject({
    code: 2,
    stderr: 'kintsugi: BAD_ARGUMENT: no PS "nobody" is up in this job',
  });
});

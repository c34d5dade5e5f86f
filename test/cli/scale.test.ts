/** Changing the number of PS from the command line, with real processes. */
import { describe, expect, test } from 'vitest';
import { progressLine } from '../../src/cli/scale.js';
import type { ChangeStatus, MoveStatus } from '../../src/protocol/messages.js';
import { client, join, run } from './job.js';
import { record } from './support.js';

const names = async () => (await client.status()).nodes.map((node) => node.name);

describe('kintsugi scale', () => {
  test('out waits for the new ones, in empties the newest, which end with 0', async () => {
    const growing = run('scale', '--add', '1');
    // A PS that joins before the change would be counted as one that serves already.
    while ((await client.status()).scaling.changes.length === 0);
    const added = await join('ps-3');
    expect(await growing).toMatchObject({
      code: 0,
      stderr: '',
      stdout: expect.stringMatching(
        /^3 PS serve: start 1 more, .*: kintsugi ps --sch\S+ \S+\n.*\n4 PS serve; \d+ shards .* moved\n$/s,
      ),
    });
    const shrunk = await run('scale', '--ps', '3', '--json');
    expect(shrunk).toMatchObject({ code: 0, stderr: '' });
    expect(JSON.parse(shrunk.stdout)).toMatchObject({ kind: 'scale', state: 'done', leaving: ['ps-3'] });
    expect((await added.ended).code).toBe(0);
    expect(await names()).toEqual(['ps-0', 'ps-1', 'ps-2']);
  });

  test('what cannot be is refused, what does not come in time is taken back', async () => {
    const few = await run('scale', '--remove', '1');
    expect(few).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/^kintsugi: NOT_ENOUGH_NODES: 2 PS /),
    });
    const late = await run('scale', '--ps', '5', '--timeout', '300ms');
    expect(late).toMatchObject({
      code: 1,
      stderr: 'kintsugi: TIMEOUT: no progress in 0.3 s: 2 of 5 PS have not joined; 3 PS are wanted as before',
    });
    const both = await run('scale', '--ps', '5', '--add', '2');
    expect(both).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('BAD_ARGUMENT: scale needs one of'),
    });
  });
});

describe('leaving', () => {
  test('SIGTERM drains a PS, which then ends with 0 and is forgotten', async () => {
    const extra = await join('extra');
    await run('rebalance');
    extra.process.kill('SIGTERM');
    const { code, said } = await extra.ended;
    expect({ code, said }).toEqual({ code: 0, said: [] });
    await record(extra, 'ps.drained');
    expect(await names()).toEqual(['ps-0', 'ps-1', 'ps-2']);
    expect((await client.status()).redundancy).toBe('full');
  });

  test('one that the job cannot do without says so, and ends with 1', async () => {
    const needed = await join('extra');
    await run('drain', 'ps-0');
    needed.process.kill('SIGTERM');
    const { code, said } = await needed.ended;
    expect(code).toBe(1);
    expect(said).toEqual([
      'kintsugi: NOT_ENOUGH_NODES: extra cannot leave: 2 PS would be left, and the code of this job needs 3',
    ]);
  });

  test('SIGINT, or --drain-timeout 0s, ends it at once', async () => {
    for (const [signal, ...flags] of [['SIGINT'], ['SIGTERM', '--drain-timeout', '0s']] as const) {
      const extra = await join('extra', ...flags);
      extra.process.kill(signal);
      expect((await extra.ended).code).toBe(0);
      expect((await extra.ended).stderr).not.toContain('ps.draining');
    }
  });

  test('kintsugi drain takes a name or an id', async () => {
    await join('extra');
    const drained = await run('drain', 'ps-1');
    expect(drained).toMatchObject({
      code: 0,
      stderr: '',
      stdout: expect.stringMatching(/ps-1 has left; .*3 PS serve/),
    });
    await join('another');
    const { id } = (await client.status()).nodes.find((node) => node.name === 'another')!;
    const status = await run('drain', `${id}`);
    expect(status).toMatchObject({ code: 0, stdout: expect.stringContaining('another has left') });
    expect(await run('drain', 'nobody')).toMatchObject({
      code: 2,
      stderr: 'kintsugi: BAD_ARGUMENT: no PS "nobody" is part of this job',
    });
  });
});

test('rebalance --dry-run shows what would move', async () => {
  const text = await run('rebalance', '--dry-run');
  expect(text).toMatchObject({ code: 0, stdout: 'balanced: nothing would move\n' });
  await join('extra', '--standby');
  // Nobody has asked for a standby to serve.
  const moves = await run('rebalance', '--dry-run', '--json');
  expect(JSON.parse(moves.stdout) as MoveStatus[]).toEqual([]);
});

test('progress is one line', () => {
  const change: ChangeStatus = {
    id: 1,
    kind: 'scale',
    from: 3,
    to: 4,
    state: 'running',
    reason: '',
    leaving: [],
    shardsMoved: 0,
    bytesMoved: 0,
    shardsMoving: 0,
    shardsLeft: 0,
  };
  expect(progressLine(change)).toBe(undefined);
  expect(progressLine({ ...change, reason: 'waiting for 1 PS to join' })).toBe('waiting for 1 PS to join');
  expect(progressLine({ ...change, shardsMoved: 2, bytesMoved: 4096, shardsMoving: 1, shardsLeft: 3 })).toBe(
    '2 of 6 shards moved (4.0 KiB), 1 moving',
  );
});

import { afterAll, beforeAll, expect, test } from 'vitest';
import { eventLine } from '../../src/cli/events.js';
import { connect } from '../../src/library/client/client.js';
import type { JobEvent } from '../../src/protocol/events.js';
import { type LocalCluster, startLocalCluster } from '../../src/roles/cluster.js';
import { kintsugi, start } from './support.js';

let cluster: LocalCluster;
beforeAll(async () => {
  cluster = await startLocalCluster({ code: '2+1', ps: 4 });
});
afterAll(() => cluster.close());

test('events shows what happened, and as JSON an event a line', async () => {
  const asked = ['events', '--scheduler', cluster.address];
  const text = await kintsugi(asked);
  expect(text).toMatchObject({ code: 0, stderr: '' });
  expect(text.stdout).toMatch(/^[\d-]+ [\d:.]+ {6}1 {2}node.joined +ps-\d {2}host=host-\d standby=false\n/);
  const json = await kintsugi([...asked, '--json', '--since', '1']);
  const events = json.stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as JobEvent);
  expect(events[0]).toMatchObject({ number: 2, kind: 'node.joined' });
  expect(events.filter(({ kind }) => kind === 'node.joined')).toHaveLength(3);
  expect(await kintsugi([...asked, '--since', '-1'])).toMatchObject({ code: 2 });
  const newest = (await kintsugi([...asked, '--json'])).stdout.trim().split('\n').length;
  expect(await kintsugi([...asked, '--since', `${newest}`])).toMatchObject({ code: 0, stdout: '' });
  for (const follow of [[], ['--follow']])
    expect(await kintsugi([...asked, '--since', `${newest + 1}`, ...follow])).toMatchObject({
      code: 2,
      said: [expect.stringMatching(/--since \d+: the newest event of this job is \d+; another job/)],
    });
});

test('--follow tells of a loss when it happens', async () => {
  const client = await connect(cluster.address);
  const since = await client.tellEvent('autoscale.decided', { action: 'scale', reason: 'a test' });
  const running = start([
    'events',
    '--follow',
    '--json',
    '--since',
    `${since}`,
    '--scheduler',
    cluster.address,
  ]);
  const first = new Promise<string>((resolve) => {
    running.process.stdout!.once('data', (chunk: Buffer) => resolve(chunk.toString()));
  });
  await cluster.kill(3);
  expect(await first).toContain('"kind":"node.lost"');
  running.process.kill('SIGINT');
  await running.ended;
  await client.close();
});

test('a line leaves out what its subject says', () => {
  const event = { number: 7, at: Date.UTC(2026, 10, 23, 6, 0, 0, 5) };
  const fields = { node: 4, name: 'ps-3', inc: 2, reason: 'refused' };
  const lost = eventLine({ ...event, kind: 'node.lost', subject: 'ps-3', fields });
  expect(lost).toBe('2026-11-23 06:00:00.005      7  node.lost            ps-3  reason=refused');
});

/** `kintsugi autoscale` beside a running job: it says what it would do, or does it. */
import { afterEach, expect, it, vi } from 'vitest';
import { connect } from '../../src/library/client/client.js';
import { drain } from '../../src/library/tools/scaling.js';
import { type LocalCluster, startLocalCluster } from '../../src/roles/cluster.js';
import { kintsugi, type Running, start } from './support.js';

vi.setConfig({ testTimeout: 120_000 });

let cluster: LocalCluster | undefined;
const running: Running[] = [];
afterEach(async () => {
  for (const each of running.splice(0)) each.process.kill('SIGKILL');
  await cluster?.close();
  cluster = undefined;
});

function autoscale(...flags: string[]): { next: Promise<string>; run: Running } {
  const run = start(['autoscale', '--scheduler', cluster!.address, '--interval', '200ms', ...flags]);
  running.push(run);
  const next = new Promise<string>((resolve) => {
    let text = '';
    run.process.stdout!.on('data', (chunk: Buffer) => {
      text += chunk.toString();
      if (text.includes('\n')) resolve(text.slice(0, text.indexOf('\n')));
    });
  });
  return { next, run };
}

it('says what it would do, and changes nothing', async () => {
  cluster = await startLocalCluster({ ps: 3, code: '2+1' });
  const { next, run } = autoscale('--bounds', 'ps=4..6', '--dry-run', '--json');
  const said = JSON.parse(await next) as Record<string, unknown>;
  expect(said).toMatchObject({
    ps: 3,
    decision: { kind: 'ps', from: 3, to: 4, reason: 'outside of the bounds' },
  });
  run.process.kill('SIGINT');
  expect((await run.ended).code).toBe(0);
  const client = await connect(cluster.address);
  for await (const { kind, subject, fields } of client.events({ follow: true })) {
    if (kind !== 'autoscale.decided') continue;
    expect(subject).toBe('scale ps');
    expect(fields).toMatchObject({ ps: 4, psBefore: 3, dryRun: true });
    expect(fields.reason).toBe('3 to 4 PS: outside of the bounds (least 4, most 6)');
    break;
  }
  expect((await client.status()).scaling).toMatchObject({ wanted: 3, serving: 3 });
  await client.close();
});

it('starts a PS that outlives it', async () => {
  cluster = await startLocalCluster({ ps: 3, code: '2+1' });
  const client = await connect(cluster.address);
  const table = await client.createTable({ name: 't', dim: 4 });
  await table.push(BigUint64Array.of(1n, 2n, 3n), new Float32Array(12).fill(1));
  const { next, run } = autoscale('--bounds', 'ps=4..6', '--json');
  const done = JSON.parse(await next) as Record<string, unknown>;
  expect(done).toMatchObject({ decision: { kind: 'ps', to: 4 } });
  expect(done.problem).toBeUndefined();
  run.process.kill('SIGINT');
  expect((await run.ended).code).toBe(0);
  const { nodes, scaling } = await client.status();
  expect(scaling).toMatchObject({ wanted: 4, serving: 4 });
  const started = nodes.find(({ name }) => name.startsWith('ps-by-'))!;
  expect(started.alive).toBe(true);
  // The drained PS ends by itself when it is empty.
  await drain(client, started.name);
  expect((await client.status()).nodes.some(({ name, alive }) => name === started.name && alive)).toBe(false);
  await client.close();
});

it.each([
  [[], 'BAD_ARGUMENT', /required option '--bounds/],
  [['--bounds', 'ps=9..4'], 'BAD_ARGUMENT', /--bounds must be ps=LEAST\.\.MOST/],
])('refuses %j', async (flags, name, message) => {
  const { code, stderr } = await kintsugi(['autoscale', ...flags]);
  expect(stderr).toMatch(new RegExp(`^kintsugi: ${name}: `));
  expect(stderr).toMatch(message);
  expect(code).toBe(2);
});

/** A busy PS is not a dead one: real processes whose event loop is held, or that are stopped. */
import { fileURLToPath, pathToFileURL } from 'node:url';
import { afterEach, expect, test } from 'vitest';
import { type Client, connect } from '../../src/library/client/client.js';
import type { JobEvent } from '../../src/protocol/events.js';
import { type LocalCluster, startLocalCluster } from '../../src/roles/cluster.js';
import { type Running, record, start } from './support.js';

const BLOCKS = pathToFileURL(fileURLToPath(new URL('../fixtures/blocks.mjs', import.meta.url))).href;
const SILENT_MS = 3000;
const STOPPED_MS = 5 * SILENT_MS;

let cluster: LocalCluster;
let client: Client;
let running: Running | undefined;
afterEach(async () => {
  running?.process.kill('SIGKILL');
  await client.close();
  await cluster.close();
});

/** A PS joins a job. SIGUSR2 holds its event loop for a time. */
async function join(blockMs: number, stoppedMs = STOPPED_MS): Promise<Running> {
  const schedulerPolicy = { silentMs: SILENT_MS, stoppedMs };
  cluster = await startLocalCluster({ code: '2+1', ps: 3, token: 'a secret', schedulerPolicy });
  client = await connect(cluster.address, { token: 'a secret' });
  const args = ['ps', '--scheduler', cluster.address, '--name', 'busy', '--log-format', 'json'];
  const env = { NODE_OPTIONS: `--import=${BLOCKS}`, BLOCK_MS: `${blockMs}`, KINTSUGI_TOKEN: 'a secret' };
  running = start(args, env);
  await record(running, 'ps.ready');
  return running;
}

/** Events about the PS, up to the first one that is wanted. */
async function eventsUntil(wanted: (event: JobEvent) => boolean): Promise<string[]> {
  const seen: string[] = [];
  for await (const event of client.events({ follow: true })) {
    if (event.subject === 'busy') seen.push([event.kind, event.fields.reason ?? ''].join(' ').trim());
    if (wanted(event) || isLost(event)) break;
  }
  return seen;
}

const isLost = ({ kind, subject }: JobEvent): boolean => kind === 'node.lost' && subject === 'busy';
const life = async () => (await client.status()).nodes.find(({ name }) => name === 'busy')?.life;

test('a PS whose event loop is held three times as long as a silent one has is not lost', async () => {
  const { process, line } = await join(3 * SILENT_MS);
  expect(await life()).toBe('turning');
  process.kill('SIGUSR2');
  await eventsUntil(({ kind }) => kind === 'node.stopped');
  expect(await life()).toBe('stopped');
  await line((text) => text === 'turns again');
  expect(await eventsUntil(({ kind }) => kind === 'node.turning')).toEqual([
    'node.joined',
    'node.stopped',
    'node.turning',
  ]);
  expect(await life()).toBe('turning');
});

test('a PS whose event loop does not turn any more is lost after stoppedMs', async () => {
  const { process } = await join(20 * STOPPED_MS, SILENT_MS + 1);
  process.kill('SIGUSR2');
  expect(await eventsUntil(isLost)).toEqual(['node.joined', 'node.stopped', 'node.lost stopped']);
  expect(await life()).toBe('gone');
});

test('a process that is stopped is silent, and is lost', async () => {
  const { process } = await join(0);
  process.kill('SIGSTOP');
  expect(await eventsUntil(isLost)).toEqual(['node.joined', 'node.lost silent']);
  expect(await life()).toBe('gone');
});

test('a process that is killed is lost at once', async () => {
  const { process } = await join(0);
  process.kill('SIGKILL');
  expect(await eventsUntil(isLost)).toEqual(['node.joined', 'node.lost refused']);
});

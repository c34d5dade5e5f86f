// A client that sends what it likes, beside one that pushes and checks; real processes, with both tokens.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { scrub } from '../../src/library/tools/scrub.js';
import { type Running, record, start } from '../cli/support.js';
import { COUNTING, client, expectExactSums, Pusher, redundant } from '../roles/support.js';
import { Impostor } from './impostor.js';

const MESSAGES = Number(process.env.KINTSUGI_MESSAGES ?? 6000);
const SEED = Number(process.env.KINTSUGI_SEED ?? 1);
/** Each with a session and a connection to everybody. */
const IMPOSTORS = 3;
const NODES = 3;
const ROWS = 500;

const TOKEN = 'of clients';
const SECRETS = { KINTSUGI_TOKEN: TOKEN, KINTSUGI_NODE_TOKEN: 'of nodes' };

/** In a directory of the test: there is no telling where a plan of an impostor has checkpoints. */
function run(args: string[], dead: string[], directory: string): Running {
  const running = start(args, SECRETS, 'ignore', undefined, directory);
  let expected = false;
  onTestFinished(() => {
    expected = true;
    running.process.kill('SIGKILL');
  });
  void running.ended.then(({ code, stderr }) => {
    if (!expected) dead.push(`${args.join(' ')} ended with ${code}: ${stderr.slice(-2000)}`);
  });
  return running;
}

/** Number of messages that a role has refused, of all kinds. */
async function refusedBy(address: string): Promise<number> {
  const metrics = await (await fetch(`http://${address}/metrics`)).text();
  const counts = [...metrics.matchAll(/^kintsugi_refused_messages_total\{[^}]*\} (\d+)$/gm)];
  return counts.reduce((sum, [, count]) => sum + Number(count), 0);
}

it('a client that sends what it likes harms nobody', { timeout: 3_600_000 }, async () => {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-impostor-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const dead: string[] = [];
  const shape = ['--listen', '127.0.0.1:0', '--ps', `${NODES}`, '--code', '2+1', '--dir', directory];
  const leader = run(['scheduler', ...shape], dead, directory);
  const scheduler = String((await record(leader, 'scheduler.ready')).address);
  const nodes = Array.from({ length: NODES }, (_, i) =>
    run(['ps', '--scheduler', scheduler, '--name', `ps-${i}`, '--host-label', `host-${i}`], dead, directory),
  );
  for (const node of nodes) await record(node, 'ps.ready');

  const trainer = await client(scheduler, { token: TOKEN, audit: true });
  await trainer.createTables([{ name: 'counts', ...COUNTING }]);
  const pushers = [0, 1].map((i) => new Pusher(trainer, 'counts', ROWS, i * 5));
  const impostors = Array.from({ length: IMPOSTORS }, (_, i) => {
    const messages = Math.ceil(MESSAGES / IMPOSTORS);
    return new Impostor({ scheduler, token: TOKEN, messages, seed: SEED * 100 + i }).run();
  });
  const reports = await Promise.all(impostors);
  console.log(JSON.stringify({ seed: SEED, reports, pushes: pushers.map(({ pushes }) => pushes) }));

  for (const pusher of pushers) await pusher.more(10);
  await expectExactSums(trainer, 'counts', pushers);
  await redundant(trainer, NODES);
  expect(await scrub(trainer)).toMatchObject({ mismatched: 0, wrong: [] });
  expect((await trainer.status()).nodes.map(({ name, inc }) => [name, inc])).toEqual(
    nodes.map((_, i) => [`ps-${i}`, 1]),
  );
  expect(dead).toEqual([]);
  const addresses = [scheduler, ...trainer.clusterMap.nodes.map(({ address }) => address)];
  const refused = await Promise.all(addresses.map(refusedBy));
  for (const count of refused) expect(count).toBeGreaterThan(0);
  const forbidden = reports.reduce((sum, each) => sum + each.forbidden, 0);
  expect(refused.reduce((sum, count) => sum + count, 0)).toBeGreaterThanOrEqual(forbidden);
  // Logged once per peer.
  leader.process.kill('SIGTERM');
  const { stderr } = await leader.ended;
  const logged = stderr.split('\n').filter((line) => line.includes('"sender.refused"'));
  expect(logged.length).toBeGreaterThan(0);
  expect(logged.length).toBeLessThan(refused[0]!);
});

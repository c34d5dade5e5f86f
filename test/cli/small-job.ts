/** A small job of programs: a scheduler, its PS, and a client of this process. All end with the test. */
import { onTestFinished } from 'vitest';
import { type Client, connect } from '../../src/index.js';
import { type Running, record, start } from './support.js';

export interface SmallJob {
  nodes: Running[];
  client: Client;
  /** Flags of a command for this job. */
  to: string[];
}

/** A job of code 2+1 for 3 PS; resolves when `ps` of them serve. */
export async function startSmallJob(ps = 3): Promise<SmallJob> {
  const scheduler = start(['scheduler', '--listen', '127.0.0.1:0', '--ps', '3', '--code', '2+1']);
  const address = `${(await record(scheduler, 'scheduler.ready')).address}`;
  const to = ['--scheduler', address];
  const nodes = Array.from({ length: ps }, (_, i) =>
    start(['ps', '--name', `ps-${i}`, '--host-label', `h${i}`, ...to, '--log-format', 'json']),
  );
  const client = await connect(address, { connectTimeoutMs: 60_000 });
  onTestFinished(async () => {
    await client.close();
    for (const { process } of [...nodes, scheduler]) process.kill('SIGKILL');
    await Promise.all([...nodes, scheduler].map(({ ended }) => ended));
  });
  await Promise.all(nodes.map((node) => record(node, 'ps.ready')));
  return { nodes, client, to };
}

/**
 * `kintsugi bench life`: rows of a table with a policy against those of a table without: the speed of
 * requests, bytes, when rows go, and what exports have of them. And rows that make room for endless new ones.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { RoleEvent } from '../../src/fleet/local/events.js';
import { connect } from '../../src/library/client/client.js';
import { withJob } from '../common/job.js';
import { BenchReport } from '../common/report.js';
import { Aging } from './aging.js';
import { ENDLESS_KEYS, Endless } from './endless.js';
import type { LifeOptions } from './options.js';
import { Passing } from './passing.js';
import { LifeSpeed } from './speed.js';

const CONNECT_MS = 120_000;

/** @throws BAD_ARGUMENT, and what a request is refused with */
export async function run(options: LifeOptions): Promise<void> {
  const { ps, mode, rounds, seconds, rows, dim, batch, ttl, ttlSeconds, memory } = options;
  const report = new BenchReport('life', options);
  const sizes = { rounds, seconds, rows, dim, batch, ttl, ttlSeconds, memory };
  Object.assign(report.parameters, { ps, code: mode.code, ...sizes });
  const pids = new Map<string, number>();
  const onEvent = ({ event, name, pid }: RoleEvent) => {
    if (event === 'process.started') pids.set(String(name), Number(pid));
  };
  await withJob({ ps, mode, onEvent }, async (cluster) => {
    const client = await connect(cluster.address, { connectTimeoutMs: CONNECT_MS });
    await new LifeSpeed(options, client, pids).run(report);
    await client.close();
  });
  for (const stream of ENDLESS_KEYS)
    await withJob({ ps, mode, memory }, async (cluster) => {
      const client = await connect(cluster.address, { connectTimeoutMs: CONNECT_MS });
      await new Endless(options, client, cluster, stream).run(report);
      await client.close();
    });
  await withJob({ ps, mode }, async (cluster) => {
    const client = await connect(cluster.address, { connectTimeoutMs: CONNECT_MS });
    await new Passing(options, client).run(report);
    await client.close();
  });
  const place = mkdtempSync(join(tmpdir(), 'kintsugi-bench-life-'));
  try {
    await withJob({ ps, mode }, async (cluster) => {
      const client = await connect(cluster.address, { connectTimeoutMs: CONNECT_MS });
      await (await Aging.begin(options, client, place)).run(report);
      await client.close();
    });
  } finally {
    rmSync(place, { recursive: true, force: true });
  }
  report.finish();
}

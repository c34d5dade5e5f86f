/**
 * Cost of a request in JavaScript, both sides together: a whole cluster in this process, one request after
 * the other. Work per row belongs to the engine, so neither the work in JavaScript nor what a request leaves
 * on the heap may grow with its rows. Work is the number of blocks of our code that ran, as V8 counts them
 * for coverage, so a loop over rows shows. Heap is the growth of the used heap from one request to the next,
 * without the steps in which V8 collected; sockets deliver pieces of 64 KiB, and each is a few objects, so a
 * megabyte takes some.
 */
import { Session } from 'node:inspector/promises';
import type { Table } from '../../../src/library/client/client.js';
import { connect } from '../../../src/library/client/client.js';
import { startLocalCluster } from '../../../src/roles/cluster.js';
import type { BenchReport } from '../report.js';
import { median } from '../statistics.js';
import { LATENCY_ROWS } from './latency.js';
import { DIM } from './options.js';
import { gradients, keySets } from './requests.js';

/** Our own code, compiled, and not that of the benchmarks. */
const CODE = new URL('../../../src/', import.meta.url).href;

interface JavaScriptCost {
  heapBytes: number;
  blocks: number;
}

/** Runs of blocks of our code while `work` runs. */
async function blocksRun(work: () => Promise<void>): Promise<number> {
  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  await work();
  const { result } = await session.post('Profiler.takePreciseCoverage');
  await session.post('Profiler.stopPreciseCoverage');
  session.disconnect();
  let blocks = 0;
  for (const { url, functions } of result) {
    if (!url.startsWith(CODE)) continue;
    for (const { ranges } of functions) for (const { count } of ranges) blocks += count;
  }
  return blocks;
}

async function cost(request: (i: number) => Promise<unknown>, count: number): Promise<JavaScriptCost> {
  for (let i = 0; i < count; i++) await request(i);
  const grown: number[] = [];
  for (let i = 0; i < count; i++) {
    const before = process.memoryUsage().heapUsed;
    await request(i);
    const growth = process.memoryUsage().heapUsed - before;
    if (growth > 0) grown.push(growth);
  }
  const blocks = await blocksRun(async () => {
    for (let i = 0; i < count; i++) await request(i);
  });
  return { heapBytes: median(grown), blocks: blocks / count };
}

/** Adds the costs of pulls or pushes of few and of many rows, and the goal that they do not differ. */
export async function addJavaScript(
  report: BenchReport,
  kind: 'pull' | 'push',
  smoke: boolean,
): Promise<void> {
  const rows = 8192;
  const cluster = await startLocalCluster({ ps: 1, code: 'none' });
  try {
    const client = await connect(cluster.address);
    const table: Table = await client.createTable({ name: 'rows', dim: DIM });
    const heap: Record<string, number> = {};
    const work: Record<string, number> = {};
    for (const count of LATENCY_ROWS) {
      const keys = keySets(count, rows);
      const gradient = gradients(count);
      const at = (i: number) => keys[i % keys.length]!;
      const request = (i: number) => (kind === 'pull' ? table.pull(at(i)) : table.push(at(i), gradient));
      const { heapBytes, blocks } = await cost(request, smoke ? 20 : 1000);
      heap[`${count} rows`] = heapBytes;
      work[`${count} rows`] = blocks;
    }
    report.add({ name: `${kind}: heap per request`, unit: 'bytes', values: heap });
    report.add({ name: `${kind}: JavaScript per request`, unit: 'blocks run', values: work });
    const [few, many] = [`${LATENCY_ROWS[0]} rows`, `${LATENCY_ROWS.at(-1)} rows`];
    report.goal(`${kind}: JavaScript per request, 1 row / 4,096 rows`, work[few]! / work[many]!, 0.8);
    report.goal(`${kind}: heap per request, 1 row / 4,096 rows`, heap[few]! / heap[many]!, 0.5);
    await client.close();
  } finally {
    await cluster.close();
  }
}

/**
 * `kintsugi bench tables`: a job with as many tables as it may have. Each is created and used by itself, as a
 * client would that does not know of the others. Then a PS is killed, and the digest must be as without it.
 */
import { readFileSync } from 'node:fs';
import type { RoleEvent } from '../../src/fleet/local/events.js';
import { type Processes, psName } from '../../src/fleet/local/processes.js';
import { type Client, connect, type Table } from '../../src/library/client/client.js';
import { digest } from '../../src/library/tools/digest.js';
import { monotonicMs } from '../../src/net/log.js';
import { withJob } from '../common/job.js';
import { BenchReport } from '../common/report.js';
import type { TablesOptions } from './options.js';

const PS = 5;
const CODE = { name: '4+1', code: '4+1', k: 4 };
const VICTIM = 1;
const MEBIBYTE = 2 ** 20;

/** Resident memory of a process in bytes; NaN where the system does not say. */
function residentBytes(pid: number): number {
  try {
    const kilobytes = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    return Number(kilobytes) * 1024;
  } catch {
    return Number.NaN;
  }
}

class TablesStory {
  private readonly keys: BigUint64Array;

  constructor(
    private readonly client: Client,
    private readonly cluster: Processes,
    private readonly options: TablesOptions,
    private readonly report: BenchReport,
    private readonly pids: ReadonlyMap<string, number>,
  ) {
    this.keys = BigUint64Array.from({ length: options.rows }, (_, i) => BigInt(i));
  }

  async run(): Promise<void> {
    const { tables, dim } = this.options;
    const made: Table[] = [];
    await this.step('create', async () => {
      const optimizer = { kind: 'sgd', lr: -1 } as const;
      for (let i = 0; i < tables; i++)
        made.push(await this.client.createTable({ name: `table-${i}`, dim, optimizer }));
    });
    let wrong = 0;
    const expected: Float32Array[] = [];
    await this.step('push', async () => {
      for (const table of made) await table.push(this.keys, this.ones());
    });
    await this.step('pull', async () => {
      for (const table of made) expected.push(await table.pull(this.keys));
    });
    const before = await this.step('digest', () => digest(this.client));
    const { nodes } = await this.client.status();
    const bytes = nodes.reduce((sum, node) => sum + node.bytes, 0);
    const shards = nodes.reduce((sum, node) => sum + node.dataShards + node.parityShards, 0);
    this.report.parameters.bytesOfTableAndShard = Math.round(bytes / (tables * shards));
    await this.step('kill of a PS until redundant', async () => {
      this.cluster.kill('ps', psName(VICTIM));
      await this.cluster.startPs(VICTIM);
      while (!(await this.whole())) await new Promise((resolve) => setTimeout(resolve, 50));
    });
    await this.step('pull again', async () => {
      for (const [i, table] of made.entries()) {
        const values = await table.pull(this.keys);
        if (!values.every((value, at) => value === expected[i]![at])) wrong++;
      }
    });
    const after = await this.step('digest again', () => digest(this.client));
    const resident = [...this.pids].map(([name, pid]) => [name, residentBytes(pid) / MEBIBYTE]);
    this.report.add({ name: 'resident memory', unit: '(MiB)', values: Object.fromEntries(resident) });
    this.report.exactly('tables', (await this.client.status()).tables.length, tables);
    this.report.exactly('tables whose rows changed', wrong, 0);
    this.report.exactly('digests that differ', after.sha256 === before.sha256 ? 0 : 1, 0);
  }

  private ones(): Float32Array {
    return new Float32Array(this.options.rows * this.options.dim).fill(1);
  }

  /** The killed one was missed, and everything is there again. */
  private async whole(): Promise<boolean> {
    const { redundancy, nodes } = await this.client.status();
    const back = nodes.find(({ name }) => name === psName(VICTIM));
    return redundancy === 'full' && back?.inc === 2;
  }

  private async step<T>(name: string, work: () => Promise<T>): Promise<T> {
    const begun = monotonicMs();
    const result = await work();
    const seconds = (monotonicMs() - begun) / 1000;
    const each = (seconds * 1000) / this.options.tables;
    this.options.tell(`${name}: ${seconds.toFixed(1)} s`);
    this.report.add({ name, unit: '(s; ms)', values: { took: seconds, 'a table': each } });
    return result;
  }
}

/** @throws BAD_ARGUMENT, and what a request is refused with */
export async function run(options: TablesOptions): Promise<void> {
  const { tables, rows, dim } = options;
  const report = new BenchReport('tables', options);
  Object.assign(report.parameters, { tables, rows, dim, ps: PS, code: CODE.code });
  const pids = new Map<string, number>();
  const onEvent = ({ event, name, pid }: RoleEvent) => {
    if (event === 'process.started') pids.set(String(name), Number(pid));
  };
  await withJob({ ps: PS, mode: CODE, onEvent }, async (cluster) => {
    const client = await connect(cluster.address);
    await new TablesStory(client, cluster, options, report, pids).run();
    await client.close();
  });
  report.finish();
}

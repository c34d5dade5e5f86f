/** Cost of a row in time and in memory when the table is large: two tables on one PS take turns. */
import { readFileSync } from 'node:fs';
import type { Table } from '../../../src/library/client/client.js';
import type { BenchReport } from '../report.js';
import { tableBytes } from '../table-memory.js';
import type { OnePs } from './cluster.js';
import { type Contender, compare } from './measure.js';
import { DIM, REQUEST_ROWS } from './options.js';
import { keySets } from './requests.js';

/** Without redundancy, in one shard; SGD keeps no state. */
export function predictedBytes(rows: number): number {
  return tableBytes(rows, DIM);
}

/** Memory that a process has, as the kernel counts it. */
function residentBytes(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) * 1024;
}

export interface Growth {
  ps: OnePs;
  small: Table;
  smallRows: number;
  largeRows: number;
  rounds: number;
  turnMs: number;
  request(table: Table, keys: BigUint64Array): Promise<unknown>;
}

export async function addGrowth(report: BenchReport, kind: string, it: Growth): Promise<void> {
  const { ps, small, smallRows, largeRows, rounds, turnMs } = it;
  const before = residentBytes(ps.pid);
  const large = await ps.fill('large', largeRows);
  const bytes = residentBytes(ps.pid) - before;
  const contender = (table: Table, count: number): Contender => {
    const keys = keySets(REQUEST_ROWS, count, 5);
    return ps.contender(`${count / 1e6} M rows`, (i) => it.request(table, keys[i % keys.length]!));
  };
  const medians = await compare([contender(small, smallRows), contender(large, largeRows)], rounds, turnMs);
  const values: Record<string, number> = {};
  for (const [name, turn] of medians) values[name] = (turn.perServerSecond * REQUEST_ROWS) / 1e6;
  const name = `${kind} by table size`;
  report.add({ name, unit: 'M rows per CPU second of the server', values });
  const goal = `${kind}: rows per server core, ${largeRows / 1e6} M rows / ${smallRows / 1e6} M rows`;
  report.goal(goal, report.ratio(name, `${largeRows / 1e6} M rows`, `${smallRows / 1e6} M rows`), 0.6);
  const predicted = predictedBytes(largeRows);
  report.add({
    name: `memory of ${largeRows / 1e6} M rows`,
    unit: 'bytes per row',
    values: { resident: bytes / largeRows, formula: predicted / largeRows },
  });
  report.goal('memory: agreement of the kernel with the formula', 1 - Math.abs(bytes / predicted - 1), 0.98);
}

/**
 * `bench read`: what a worker's reader makes of files per CPU second, against DuckDB on one thread, which
 * decodes, transforms and hashes the same values, and against programs that only cut or count lines.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { KintsugiError } from '../../src/common/errors.js';
import { BenchReport } from '../common/report.js';
import { median } from '../common/statistics.js';
import { criteoParquet, type ReadFile, ratingsParquet, writeCriteo } from './files.js';
import type { ReadOptions } from './options.js';
import { DuckDb, secondsOf } from './peers.js';
import { BATCH, type ReaderAnswer } from './reader.js';

const READER = fileURLToPath(new URL('./reader.js', import.meta.url));
/** Rounds that do not count: code gets compiled, and memory is asked for. */
const WARM_ROUNDS = 3;
const OURS = 'this package';
const LINES_GOAL = 400;
const PARQUET_GOAL = 0.7;
const DUCKDB = 'DuckDB: --python has no package duckdb (pip install duckdb)';

/** A reader of one file. `seconds` throws INTERNAL when not all rows were read, or the process has ended. */
function readerOf(file: ReadFile, rows: number) {
  const child = fork(READER);
  const exit = once(child, 'exit').then((): never => {
    throw new KintsugiError('INTERNAL', `the reader of ${file.path} has ended`);
  });
  exit.catch(() => {});
  return {
    async seconds(): Promise<number> {
      child.send(file);
      const [answer] = (await Promise.race([once(child, 'message'), exit])) as [ReaderAnswer];
      if (answer.rows === rows) return answer.seconds;
      throw new KintsugiError('INTERNAL', `${file.path}: ${answer.rows} of ${rows} rows were read`);
    },
    close: () => child.disconnect(),
  };
}

/** @throws BAD_ARGUMENT, DEPENDENCY_MISSING (hyparquet, hyparquet-writer) */
export async function run(options: ReadOptions): Promise<void> {
  const { rows, rounds, tell } = options;
  const report = new BenchReport('read', options);
  Object.assign(report.parameters, { rows, rounds, batch: BATCH });
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-read-'));
  const duckdb = await DuckDb.start(options.python);
  if (duckdb) report.parameters.duckdb = duckdb.version;
  else report.skip(DUCKDB);
  try {
    const lines = await writeCriteo(directory, rows);
    const parquet = [await criteoParquet(directory), await ratingsParquet(directory, rows)];
    for (const file of [...lines, ...parquet]) {
      const reader = readerOf(file, rows);
      const contenders: Record<string, () => Promise<number> | number> = {
        [OURS]: () => reader.seconds(),
        ...(duckdb && { DuckDB: () => duckdb.seconds(file.query, rows) }),
        ...(file === lines[0] && {
          cut: () => secondsOf(`cut -f 2- ${file.path}`),
          'wc -l': () => secondsOf(`wc -l ${file.path}`),
        }),
      };
      const taken = Object.entries(contenders).map(([name, take]) => ({
        name,
        take,
        seconds: [] as number[],
      }));
      for (let round = 1 - WARM_ROUNDS; round <= rounds; round++)
        for (const { take, seconds } of taken) {
          const one = await take();
          if (round > 0) seconds.push(one);
        }
      reader.close();
      const bytes = statSync(file.path).size;
      const per = (amount: number) =>
        Object.fromEntries(taken.map(({ name, seconds }) => [name, amount / 1e6 / median(seconds)]));
      report.add({ name: file.name, unit: 'M rows per CPU second', values: per(rows) });
      report.add({ name: `${file.name}, bytes`, unit: 'MB per CPU second', values: per(bytes) });
      tell(`${file.name}: ${(rows / 1e6 / median(taken[0]!.seconds)).toFixed(2)} M rows per CPU second`);
    }
    const rate = report.results.find(({ name }) => name === 'Criteo TSV, bytes')!.values[OURS];
    report.goal('Criteo TSV (MB per CPU second)', rate, LINES_GOAL);
    for (const { name } of parquet)
      report.goal(`${name}: ${OURS} / DuckDB`, report.ratio(name, OURS, 'DuckDB'), PARQUET_GOAL);
  } finally {
    await duckdb?.close();
    rmSync(directory, { recursive: true, force: true });
  }
  report.finish();
}

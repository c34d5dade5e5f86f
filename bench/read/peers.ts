/** Peers of the reader: DuckDB on one thread, and programs that only cut or count. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { KintsugiError } from '../../src/common/errors.js';

/** Answers each query on a line of JSON with the CPU seconds that it took, of all threads. */
const SCRIPT = `
import json, sys, time
import duckdb
con = duckdb.connect()
con.execute("SET threads=1")
print(json.dumps(duckdb.__version__), flush=True)
for line in sys.stdin:
    query = json.loads(line)
    before = time.process_time()
    rows = con.execute(query).fetchall()
    print(json.dumps([time.process_time() - before, int(rows[0][0])]), flush=True)
`;

export class DuckDb {
  private readonly lines: AsyncIterator<string>;
  version = '';

  private constructor(private readonly child: ChildProcess) {
    this.lines = createInterface({ input: child.stdout! })[Symbol.asyncIterator]();
  }

  /** Undefined where Python or its package is not there. */
  static async start(python: string): Promise<DuckDb | undefined> {
    const there = spawnSync(python, ['-c', 'import duckdb'], { stdio: 'ignore' });
    if (there.status !== 0) return undefined;
    const peer = new DuckDb(spawn(python, ['-c', SCRIPT], { stdio: ['pipe', 'pipe', 'inherit'] }));
    peer.version = String(await peer.answer());
    return peer;
  }

  private async answer(): Promise<unknown> {
    const { value, done } = await this.lines.next();
    if (done) throw new KintsugiError('INTERNAL', 'DuckDB has ended');
    return JSON.parse(value as string);
  }

  /** CPU seconds of a query whose first value is a number of rows. */
  async seconds(query: string, rows: number): Promise<number> {
    this.child.stdin!.write(`${JSON.stringify(query)}\n`);
    const [seconds, seen] = (await this.answer()) as [number, number];
    if (seen !== rows) throw new KintsugiError('INTERNAL', `DuckDB saw ${seen} of ${rows} rows`);
    return seconds;
  }

  async close(): Promise<void> {
    const gone = once(this.child, 'exit');
    this.child.stdin!.end();
    await gone;
  }
}

/** CPU seconds of a program of the system, as the shell counts them. */
export function secondsOf(command: string): number {
  const script = `TIMEFORMAT='%U %S'; time ${command} > /dev/null`;
  const { stderr } = spawnSync('bash', ['-c', script], {
    encoding: 'utf8',
    env: { ...process.env, LC_ALL: 'C' },
  });
  const [user, system] = stderr.trim().split(' ').map(Number);
  return user! + system!;
}

/**
 * One task of one client, as a process of its own: what it needed of memory is the peak of that process. The
 * arguments are one JSON value, and so is the result, on standard output.
 */
import { readFileSync } from 'node:fs';
import { describe } from '../../src/common/errors.js';
import { type Client, connect } from '../../src/library/client/client.js';
import { eachAtMost, ranges } from '../../src/library/client/concurrent.js';
import { checkPushes } from '../../src/library/tools/audit.js';
import { digest } from '../../src/library/tools/digest.js';
import { load } from '../../src/library/tools/load.js';
import { save } from '../../src/library/tools/save.js';
import { scrub } from '../../src/library/tools/scrub.js';
import { monotonicMs } from '../../src/net/log.js';

const TABLE = 'rows';
const TASKS = ['connect', 'fill', 'keys', 'scan', 'digest', 'save', 'load', 'audit', 'scrub'] as const;
export type Task = (typeof TASKS)[number];

export interface TaskOptions {
  task: Task;
  scheduler: string;
  rows: number;
  dim: number;
  directory: string;
}

export interface TaskResult {
  seconds: number;
  peakBytes: number;
  /** Rows that it saw, as far as it counts them. */
  rows: number;
  /** Sum or digest that must be the same wherever the task runs; '': the task has none. */
  proof: string;
}

const FILL_ROWS = 16_384;
const IN_FLIGHT = 4;

async function fill(client: Client, { rows, dim }: TaskOptions): Promise<void> {
  await client.createTable({ name: TABLE, dim, optimizer: { kind: 'sgd', lr: 1 } });
  const gradients = Float32Array.from({ length: FILL_ROWS * dim }, (_, i) => Math.sin(i));
  await eachAtMost(IN_FLIGHT, ranges(rows, FILL_ROWS), async ([start, end]) => {
    const keys = BigUint64Array.from({ length: end - start }, (_, i) => BigInt(start + i));
    await client.push([{ table: TABLE, keys, gradients: gradients.subarray(0, keys.length * dim) }]);
  });
}

async function scanned(client: Client, select: 'keys' | 'values'): Promise<{ rows: number; proof: string }> {
  let [rows, sum] = [0, 0];
  for await (const { keys } of client.scan(TABLE, { select })) {
    rows += keys.length;
    // The low halves: the keys of this table have no other.
    const halves = new Uint32Array(keys.buffer, keys.byteOffset, keys.length * 2);
    for (let i = 0; i < halves.length; i += 2) sum += halves[i]!;
  }
  return { rows, proof: `${sum}` };
}

async function carryOut(client: Client, options: TaskOptions): Promise<{ rows: number; proof: string }> {
  const { task, rows, directory } = options;
  switch (task) {
    case 'connect':
      return { rows: 0, proof: '' };
    case 'fill':
      await fill(client, options);
      return { rows, proof: '' };
    case 'keys':
      return scanned(client, 'keys');
    case 'scan':
      return scanned(client, 'values');
    case 'digest': {
      const { sha256, rows: found } = await digest(client);
      return { rows: found, proof: sha256 };
    }
    case 'save':
      return { rows: (await save(client, directory)).rows, proof: '' };
    case 'load':
      return { rows: (await load(client, directory)).rows, proof: '' };
    case 'audit':
      return { rows: 0, proof: `${(await checkPushes(client, [])).acked}` };
    case 'scrub':
      return { rows: 0, proof: `${(await scrub(client)).mismatched}` };
  }
}

/** Peak of the resident memory of this process. `maxRSS` would count what its parent had at the fork, too. */
function peakBytes(): number {
  try {
    const found = /^VmHWM:\s+(\d+) kB/m.exec(readFileSync('/proc/self/status', 'utf8'));
    if (found) return Number(found[1]) * 1024;
  } catch {
    // No such file: not Linux.
  }
  return process.resourceUsage().maxRSS * 1024;
}

async function main(options: TaskOptions): Promise<TaskResult> {
  const client = await connect(options.scheduler, { connectTimeoutMs: 60_000 });
  const started = monotonicMs();
  const done = await carryOut(client, options);
  const seconds = (monotonicMs() - started) / 1000;
  await client.close();
  return { ...done, seconds, peakBytes: peakBytes() };
}

if (process.argv[2] !== undefined) {
  main(JSON.parse(process.argv[2]) as TaskOptions).then(
    (result) => process.stdout.write(JSON.stringify(result)),
    (error: unknown) => {
      process.stderr.write(`${describe(error)}\n`);
      process.exitCode = 1;
    },
  );
}

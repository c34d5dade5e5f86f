/**
 * The memory of real processes while a sink is stopped: owners keep what it has not acknowledged, up to the
 * limit of their node.
 */
import { readFileSync } from 'node:fs';
import { expect, it, onTestFinished } from 'vitest';
import { loadNative } from '../../src/engine/native.js';
import { connect } from '../../src/library/client/client.js';
import { type Running, record, start } from './support.js';

const MIB = 1 << 20;
const LIMIT = 8 * MIB;
const NODES = 3;
const SHARDS = 2 * NODES;
const DIM = 256;
/** Rows of each push that go to shards whose parity is on the stopped node. */
const ROWS = 1024;
const PUSHES = 48;

/**
 * A process grows by some 50 MiB besides the deltas: requests that wait, and memory that is not collected
 * yet. Without the limit it grows by 115 MiB: each push has a MiB as a batch, and another in the connection.
 */
const MOST_GROWN_MIB = 80;

/** Resident memory of a process in bytes. */
function residentBytes({ process: { pid } }: Running): number {
  const line = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
  return Number(line![1]) * 1024;
}

function started(args: string[]): Running {
  const running = start(args);
  onTestFinished(() => void running.process.kill('SIGKILL'));
  return running;
}

it.runIf(process.platform === 'linux')(
  'resident memory stays near the limit for deltas while a sink is stopped, and all pushes arrive after it',
  async () => {
    const limits = [`maxDeltaBytes=${LIMIT}`, `maxParkedBytes=${LIMIT}`, 'sinkStallMs=3000'];
    const scheduler = started(
      [
        'scheduler',
        '--listen',
        '127.0.0.1:0',
        '--ps',
        `${NODES}`,
        '--code',
        '2+1',
        '--groups',
        `${NODES}`,
      ].concat(['--limit', 'silentMs=600000']),
    );
    const { address } = await record(scheduler, 'scheduler.ready');
    const nodes = Array.from({ length: NODES }, (_, i) =>
      started(
        ['ps', '--scheduler', `${address}`, '--name', `ps-${i}`, '--host-label', `host-${i}`].concat(
          ...limits.map((limit) => ['--limit', limit]),
        ),
      ),
    );
    for (const node of nodes) await record(node, 'ps.ready');
    const client = await connect(`${address}`);
    onTestFinished(() => client.close());
    const table = await client.createTable({
      ...{ name: 't', dim: DIM },
      ...{ optimizer: { kind: 'sgd', lr: -1 }, initializer: { kind: 'zeros' } },
    });
    const ids = await Promise.all(nodes.map(async (node) => (await record(node, 'ps.ready')).node as number));
    const stopped = nodes[2]!;
    const waiting = client.clusterMap.groups
      .filter(({ data, sinks }) => data.length === 2 && sinks[0]!.node === ids[2])
      .map(({ id }) => id);
    expect(waiting.length).toBeGreaterThan(0);
    const all = BigUint64Array.from({ length: ROWS * SHARDS }, (_, i) => BigInt(i));
    const { order, starts } = loadNative().partition(all, SHARDS);
    const keys = BigUint64Array.from(
      waiting
        .flatMap((g) => [2 * g, 2 * g + 1])
        .flatMap((s) => [...order.subarray(starts[s], starts[s + 1])]),
      (i) => all[i]!,
    );
    const gradients = new Float32Array(keys.length * DIM).fill(1);
    await table.push(keys, gradients);
    const owners = nodes.slice(0, 2);
    const before = owners.map(residentBytes);
    stopped.process.kill('SIGSTOP');
    onTestFinished(() => void stopped.process.kill('SIGCONT'));
    const pushes = Array.from({ length: PUSHES }, () => table.push(keys, gradients));
    // The first report has the sink replaced, often before the other owner's is due.
    await Promise.race(owners.map((node) => record(node, 'sink.stalled')));
    const grown = owners.map((node, i) => (residentBytes(node) - before[i]!) / MIB);
    stopped.process.kill('SIGCONT');
    await Promise.all(pushes);
    const rows = await table.pull(keys);
    expect(rows.every((value) => value === 1 + PUSHES)).toBe(true);
    for (const mib of grown) expect(mib).toBeLessThan(MOST_GROWN_MIB);
  },
);

// A program that asks for much, and reads nothing of it, takes a bounded part of the memory of its gateway.
import { Socket } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, onTestFinished, vi } from 'vitest';
import { connect } from '../../../src/library/client/client.js';
import { ConnectedClient } from '../../../src/library/client/connected.js';
import { type LocalCluster, startLocalCluster } from '../../../src/roles/cluster.js';
import { Gateway } from '../../../src/training/gateway/gateway.js';
import { COUNTING, firstKeys, silent, temporaryDirectory } from '../../roles/support.js';
import { Program } from './program.js';

const MIB = 1 << 20;
const LIMIT = MIB;
let cluster: LocalCluster;
let gateway: Gateway;
let path: string;
/** A program of its own, to see that the gateway has done what it can. */
let other: Program;

beforeEach(async () => {
  cluster = await startLocalCluster({ code: '2+1', ps: 3 });
  path = join(temporaryDirectory(), 'gateway.sock');
  const client = { maxInFlightBytes: LIMIT };
  gateway = await Gateway.open({ scheduler: cluster.address, socket: path, client, log: silent });
  other = await joined();
});
afterEach(async () => {
  await gateway.close();
  await cluster.close();
});

async function joined(): Promise<Program> {
  const program = await Program.at(path);
  await program.value({ op: 'hello', version: 1, memory: null });
  return program;
}

const times = <T>(count: number, of: (i: number) => T): T[] => Array.from({ length: count }, (_, i) => of(i));

/**
 * Asks all of the requests at once, reads nothing while another program is served, and then all answers.
 * Returns the most bytes that the gateway had to send.
 */
async function flood(program: Program, requests: readonly object[]): Promise<number> {
  let most = 0;
  const real = Socket.prototype.write;
  const write = vi.spyOn(Socket.prototype, 'write').mockImplementation(function (this: Socket, ...args) {
    const result = real.apply(this, args);
    if (this !== program.socket) most = Math.max(most, this.writableLength);
    return result;
  });
  onTestFinished(() => write.mockRestore());
  program.socket.pause();
  program.socket.cork();
  const answers = requests.map((request) => program.ask(request));
  program.socket.uncork();
  for (let i = 0; i < 50; i++) await other.value({ op: 'clock' });
  program.socket.resume();
  for (const { message } of await Promise.all(answers)) expect(message.code).toBeUndefined();
  return most;
}

it('lists of tables wait until the program reads', async () => {
  const client = await connect(cluster.address);
  onTestFinished(() => client.close());
  await client.createTables(times(1000, (i) => ({ ...COUNTING, name: `table-${i}`, dim: 4 })));
  const program = await joined();
  const most = await flood(
    program,
    times(400, () => ({ op: 'tables' })),
  );
  expect(most).toBeGreaterThan(LIMIT / 4);
  expect(most).toBeLessThan(2 * LIMIT);
});

it('batches of scans wait until the program reads', async () => {
  const client = await connect(cluster.address);
  onTestFinished(() => client.close());
  const items = await client.createTable({ ...COUNTING, name: 'items', dim: 64 });
  await items.push(firstKeys(20_000), new Float32Array(20_000 * 64).fill(1));
  const program = await joined();
  for (const scan of times(8, (i) => i))
    await program.value({ op: 'scan', name: 'items', scan, batch: 1_000_000 });
  const asked = times(20, () => times(8, (scan) => ({ op: 'scanned', scan }))).flat();
  const most = await flood(program, asked);
  expect(most).toBeGreaterThan(LIMIT / 4);
  expect(most).toBeLessThan(6 * LIMIT);
});

it('long messages count as requests', async () => {
  const program = await joined();
  const junk = 'x'.repeat(LIMIT);
  for (let i = 0; i < 40; i++) void program.ask({ op: 'events', follow: true, since: 1e9, junk });
  for (let i = 0; i < 200; i++) await other.value({ op: 'tables' });
  expect(program.socket.writableLength).toBeGreaterThan(30 * MIB);
});

it('of many requests that come at once, some wait for others', async () => {
  const events = vi.spyOn(ConnectedClient.prototype, 'events');
  onTestFinished(() => events.mockRestore());
  const program = await joined();
  program.socket.cork();
  for (let i = 0; i < 1000; i++) void program.ask({ op: 'events', follow: true, since: 1e9 });
  program.socket.uncork();
  for (let i = 0; i < 50; i++) await other.value({ op: 'clock' });
  expect(events).toHaveBeenCalledTimes(256);
});

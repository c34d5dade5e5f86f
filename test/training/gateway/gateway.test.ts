// A gateway and programs of other languages: rows in shared memory and on the socket, and what is refused.
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, onTestFinished, vi } from 'vitest';
import { InFlightRoom } from '../../../src/library/client/room.js';
import { type LocalCluster, startLocalCluster } from '../../../src/roles/cluster.js';
import { Gateway } from '../../../src/training/gateway/gateway.js';
import { COUNTING, EventLog, rejection, silent, temporaryDirectory } from '../../roles/support.js';
import { Program } from './program.js';

const BYTES = 1 << 16;
let cluster: LocalCluster;
let gateway: Gateway;
let path: string;
let log: EventLog;

beforeEach(async () => {
  log = new EventLog();
  cluster = await startLocalCluster({ code: '2+1', ps: 3 });
  path = join(temporaryDirectory(), 'gateway.sock');
  gateway = await Gateway.open({ scheduler: cluster.address, socket: path, client: {}, log });
});
afterEach(async () => {
  await gateway.close();
  await cluster.close();
});

function sharedFile(): string {
  const file = join(temporaryDirectory(), 'memory');
  writeFileSync(file, new Uint8Array(BYTES));
  return file;
}

async function joined(file?: string): Promise<Program> {
  const program = await Program.at(path);
  const memory = file === undefined ? null : { path: file, bytes: BYTES };
  const welcome = await program.value({ op: 'hello', version: 1, memory });
  expect(welcome).toMatchObject({ shared: file !== undefined });
  return program;
}

const TABLE = { ...COUNTING, name: 'items', dim: 2 };

it('rows lie in memory that both sides share', async () => {
  const file = sharedFile();
  const program = await joined(file);
  expect(await program.value({ op: 'createTable', table: TABLE })).toMatchObject({ name: 'items', width: 2 });
  const bytes = readFileSync(file);
  for (const [i, key] of [7n, 9n].entries()) bytes.writeBigUInt64LE(key, 8 * i);
  for (let i = 0; i < 4; i++) bytes.writeFloatLE(i + 1, 64 + 4 * i);
  writeFileSync(file, bytes);
  expect(await program.value({ op: 'push', calls: [['items', 0, 2, 64]] })).toBeUndefined();
  expect(await program.value({ op: 'pull', calls: [['items', 0, 2, 128]] })).toBeUndefined();
  const seen = readFileSync(file);
  expect([0, 1, 2, 3].map((i) => seen.readFloatLE(128 + 4 * i))).toEqual([1, 2, 3, 4]);
});

it('without shared memory keys and rows follow the messages', async () => {
  const program = await joined();
  await program.value({ op: 'createTable', table: TABLE });
  const keys = new Uint8Array(BigUint64Array.of(7n, 9n).buffer);
  const rows = new Uint8Array(Float32Array.of(1, 2, 3, 4).buffer);
  const calls = [['items', 0, 2, 16]];
  await program.value({ op: 'push', behind: true, calls }, Buffer.concat([keys, rows]));
  const { payload } = await program.ask({ op: 'pull', behind: true, calls }, keys);
  expect(new Uint8Array(payload)).toEqual(rows);
  expect(await program.value({ op: 'pull', calls })).toBe('BAD_ARGUMENT');
});

it('a stream of evictions that waits for its next batch ends', async () => {
  const program = await joined();
  await program.value({ op: 'createTable', table: TABLE });
  await program.value({ op: 'evictions', name: 'items', stream: 1, pollMs: 5 });
  expect(await program.value({ op: 'evicted', stream: 1 })).toMatchObject({ gap: false });
  const waits = program.value({ op: 'evicted', stream: 1 });
  expect(await program.value({ op: 'endEvictions', stream: 1 })).toBeUndefined();
  expect(await waits).toBe('ABORTED');
});

it('a push that comes later than it counts is refused before it begins', async () => {
  const program = await joined();
  await program.value({ op: 'createTable', table: TABLE });
  const keys = new Uint8Array(BigUint64Array.of(7n).buffer);
  const rows = new Uint8Array(Float32Array.of(1, 2).buffer);
  const push = (until?: unknown) =>
    program.value(
      { op: 'push', behind: true, calls: [['items', 0, 1, 8]], until },
      Buffer.concat([keys, rows]),
    );
  const [clock, now] = (await program.value({ op: 'clock' })) as [string, number];
  expect(await push([clock, now - 1])).toBe('TIMEOUT');
  expect(await push(['another gateway', now + 60_000])).toBe('TIMEOUT');
  for (const nonsense of [now, [now], ['x', 'y'], null]) expect(await push(nonsense)).toBe('BAD_ARGUMENT');
  expect(await push([clock, now + 60_000])).toBeUndefined();
  const { payload } = await program.ask({ op: 'pull', behind: true, calls: [['items', 0, 1, 8]] }, keys);
  expect(new Uint8Array(payload)).toEqual(rows);
});

it('nonsense is refused, and the program goes on', async () => {
  const program = await joined(sharedFile());
  await program.value({ op: 'createTable', table: TABLE });
  const refused: object[] = [
    { op: 'nothing' },
    { op: 'constructor' },
    {},
    { op: 'pull' },
    { op: 'pull', calls: [['items', 0, 2]] },
    { op: 'pull', calls: [['items', 0, '2', 64]] },
    { op: 'pull', calls: [['items', 0, 2, BYTES - 8]] },
    { op: 'pull', calls: [['items', -8, 2, 64]] },
    { op: 'push', calls: [['items', BYTES, 1, 64]] },
    { op: 'push', calls: [['items', 0, 2 ** 52, 64]] },
    { op: 'createTable', table: 7 },
    { op: 'createTable', table: { name: 'x' } },
    { op: 'table', name: 7 },
    { op: 'hello', version: 1 },
  ];
  for (const message of refused) expect(await program.value(message)).toBe('BAD_ARGUMENT');
  expect(await program.value({ op: 'pull', calls: [['nobody', 0, 1, 64]] })).toBe('UNKNOWN_TABLE');
  expect(await program.value({ op: 'tables' })).toHaveLength(1);
});

it('a push that says where to mark it with nonsense is refused before it begins', async () => {
  const program = await joined(sharedFile());
  await program.value({ op: 'createTable', table: TABLE });
  const rejected: unknown[] = [];
  const note = (error: unknown) => void rejected.push(error);
  process.on('unhandledRejection', note);
  onTestFinished(() => void process.off('unhandledRejection', note));
  const [key, reserved] = [0n, 2n ** 64n - 1n].map((each) => BigUint64Array.of(each));
  const row = new Uint8Array(Float32Array.of(1, 1).buffer);
  const payload = (keys: BigUint64Array) => Buffer.concat([new Uint8Array(keys.buffer), row]);
  const calls = [['items', 0, 1, 8]];
  const behind = { op: 'push', behind: true, calls, taken: 'x' };
  expect(await program.value(behind, payload(key!))).toBe('BAD_ARGUMENT');
  // A push of this key fails by itself, with nobody who waits for it.
  expect(await program.value(behind, payload(reserved!))).toBe('BAD_ARGUMENT');
  for (const taken of [2, BYTES, -4])
    expect(await program.value({ op: 'push', calls: [['items', 0, 1, 64]], taken })).toBe('BAD_ARGUMENT');
  const { payload: rows } = await program.ask({ op: 'pull', behind: true, calls }, payload(key!));
  expect(new Uint8Array(rows)).toEqual(new Uint8Array(8));
  expect(await program.value({ op: 'rows', name: 'items' })).toBe(0);
  expect(rejected).toEqual([]);
});

it('a program must say hello first, in the same version', async () => {
  const early = await Program.at(path);
  expect(await early.value({ op: 'status' })).toBe('BAD_ARGUMENT');
  expect(await early.value({ op: 'hello', version: 99 })).toBe('BAD_ARGUMENT');
});

it('memory that cannot be shared is no reason to refuse a program', async () => {
  const program = await Program.at(path);
  const memory = { path: '/nowhere', bytes: BYTES };
  expect(await program.value({ op: 'hello', version: 1, memory })).toMatchObject({ shared: false });
});

it('a frame that is none closes the connection', async () => {
  const program = await joined();
  const refused = log.next('gateway.refused');
  program.socket.write(Buffer.alloc(8, 0xff));
  await Promise.all([program.closed, refused]);
});

it('the client of a program ends with it', async () => {
  const program = await joined();
  const left = log.next('gateway.left');
  program.socket.destroy();
  expect(await left).toEqual({ client: expect.any(Number) });
});

it('only its owner may open the socket, and one gateway listens on it', async () => {
  expect(statSync(path).mode & 0o777).toBe(0o600);
  const again = { scheduler: cluster.address, socket: path, client: {}, log: silent };
  expect((await rejection(Gateway.open(again))).code).toBe('PORT_IN_USE');
  const file = sharedFile();
  expect((await rejection(Gateway.open({ ...again, socket: file }))).code).toBe('PORT_IN_USE');
  expect(readFileSync(file)).toHaveLength(BYTES);
});

it('rows behind answers take no more than maxInFlightBytes until the program has read them', async () => {
  const [width, limit] = [1024, 64 << 10];
  const small = join(temporaryDirectory(), 'small.sock');
  const client = { maxInFlightBytes: limit };
  const bounded = await Gateway.open({ scheduler: cluster.address, socket: small, client, log });
  onTestFinished(() => bounded.close());
  const seen: number[] = [];
  const free = vi.spyOn(InFlightRoom.prototype, 'free').mockImplementation(function (
    this: InFlightRoom,
    bytes,
  ) {
    const room = this as unknown as { taken: number; handOut(): void };
    seen.push(room.taken);
    room.taken -= bytes;
    room.handOut();
  });
  onTestFinished(() => free.mockRestore());
  const program = await Program.at(small);
  await program.value({ op: 'hello', version: 1, memory: null });
  await program.value({ op: 'createTable', table: { ...TABLE, dim: width } });
  const keys = new Uint8Array(BigUint64Array.of(1n, 2n, 3n).buffer);
  const message = { op: 'pull', behind: true, calls: [['items', 0, 3, 0]] };
  program.socket.pause();
  const asked = Array.from({ length: 100 }, () => program.ask(message, keys));
  program.socket.resume();
  for (const { payload } of await Promise.all(asked)) expect(payload.length).toBe(3 * width * 4);
  expect(seen.length).toBeGreaterThanOrEqual(100);
  expect(Math.max(...seen)).toBeLessThanOrEqual(limit);
});

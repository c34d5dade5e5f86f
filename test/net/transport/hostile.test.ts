/**
 * Peers without the token, or with it and without manners: bounded in number and memory, and nobody else
 * notices.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect as connectTcp, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { type Client, connect, type Table } from '../../../src/library/client/client.js';
import { GATE_HEADER, gatePass } from '../../../src/net/transport/auth.js';
import {
  dial,
  LINK_PATH,
  type Link,
  type ListenOptions,
  type ServerKind,
} from '../../../src/net/transport/index.js';
import { kintsugi, type Running, record, start } from '../../cli/support.js';
import { HOST, RawClient, Recorder, rejection, serveFor } from './support.js';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  // All cleanups run, also after one that fails: a process must not outlive its test.
  const failures: unknown[] = [];
  for (const cleanup of cleanups.splice(0).reverse()) {
    try {
      await cleanup();
    } catch (error) {
      failures.push(error);
    }
  }
  if (failures.length > 0) throw failures[0];
});

const serve = (server: ServerKind, options: Partial<ListenOptions> = {}) =>
  serveFor(cleanups, { token: 'secret', server, ...options });

/** A link of a peer with manners: one without a first message is hung up on after a while. */
async function established(port: number, served: Recorder): Promise<Link> {
  const link = await dial({ host: HOST, port, token: 'secret', handlers: new Recorder() });
  await served.take('open');
  link.send({ t: 'hello' });
  await served.take('message');
  return link;
}

/** Checks that the link works: a frame sent now arrives, and no other came before it. */
async function expectUndisturbed(link: Link, served: Recorder): Promise<void> {
  expect(link.send({ t: 'still here' })).toBe(true);
  expect((await served.take('message')).header).toEqual({ t: 'still here' });
}

interface Raw {
  socket: Socket;
  connected: Promise<void>;
  closed: Promise<void>;
}

/** A TCP client that sends `bytes` and then nothing more. */
function raw(port: number, bytes: string | Uint8Array = ''): Raw {
  const socket = connectTcp(port, HOST);
  cleanups.push(() => socket.destroy());
  socket.on('error', () => {});
  const connected = new Promise<void>((resolve) => socket.once('connect', () => resolve()));
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  socket.resume();
  if (bytes.length > 0) socket.write(bytes);
  return { socket, connected, closed };
}

const GARBAGE: [what: string, bytes: string | Uint8Array][] = [
  ['zeros', new Uint8Array(100_000)],
  ['bytes of all kinds', Uint8Array.from({ length: 100_000 }, (_, i) => (i * 167 + (i >> 8)) & 255)],
  ['a TLS hello', Uint8Array.from([0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, ...new Uint8Array(600)])],
  ['another protocol', 'SSH-2.0-OpenSSH_9.2\r\n'.repeat(50)],
  ['a header without end', `GET / HTTP/1.1\r\nX: ${'a'.repeat(1 << 20)}`],
  ['headers without number', `GET / HTTP/1.1\r\n${'X: y\r\n'.repeat(200_000)}`],
  ['a bad request line', 'GET\r\n\r\n'],
];

describe.each<ServerKind>(['uws', 'ws'])('server %s', (kind) => {
  it.each(GARBAGE)('hangs up on %s', async (_, bytes) => {
    const [listener, served] = await serve(kind);
    const link = await established(listener.port, served);
    await raw(listener.port, bytes).closed;
    await expectUndisturbed(link, served);
  });

  it('hangs up on requests and headers that never end', async () => {
    const [listener, served] = await serve(kind, { limits: { handshakeMs: 100 } });
    const link = await established(listener.port, served);
    const silent = Array.from({ length: 20 }, () => raw(listener.port));
    const slow = Array.from({ length: 20 }, () => raw(listener.port, `GET ${LINK_PATH} HTTP/1.1\r\nHost: `));
    await Promise.all([...silent, ...slow].map((each) => each.closed));
    await expectUndisturbed(link, served);
  });

  it('lets a peer in beside a thousand idle connections', async () => {
    const [listener, served] = await serve(kind);
    const link = await established(listener.port, served);
    const idle = Array.from({ length: 1000 }, () => raw(listener.port));
    await Promise.all(idle.map((each) => each.connected));
    await expectUndisturbed(link, served);
    const late = await established(listener.port, served);
    await expectUndisturbed(late, served);
  });

  it('holds no more connections in the handshake than its limit, even with a pass for the gate', async () => {
    const [listener, served] = await serve(kind, { limits: { maxUnauthenticated: 5 } });
    const link = await established(listener.port, served);
    const pass = { [GATE_HEADER]: gatePass('secret') };
    const idle = Array.from({ length: 5 }, () => new RawClient(listener.port, pass));
    await Promise.all(idle.map((each) => each.next()));
    expect(await new RawClient(listener.port, pass).refused).toBe(503);
    // A caller without the pass does not count as unauthenticated.
    expect(await new RawClient(listener.port).refused).toBe(401);
    await expectUndisturbed(link, served);
    for (const each of idle) each.ws.terminate();
  });
});

it('closes the oldest waiting connection for a new one (server ws)', async () => {
  const [listener, served] = await serve('ws', { limits: { maxWaiting: 3 } });
  const link = await established(listener.port, served);
  const idle: Raw[] = [];
  for (let i = 0; i < 4; i++) {
    const each = raw(listener.port);
    await each.connected;
    idle.push(each);
  }
  await idle[0]!.closed;
  const late = await established(listener.port, served);
  await idle[1]!.closed;
  await expectUndisturbed(link, served);
  await expectUndisturbed(late, served);
  // Links do not count as waiting connections, and waiting connections not as links.
  expect(idle.slice(2).map((each) => each.socket.destroyed)).toEqual([false, false]);
});

// ---- a real job

const TOKEN = 'a secret that nobody guesses';
/** Most growth of a role's memory while it is attacked with three times as much; its tables are a few KiB. */
const GROWTH_BYTES = 100 << 20;

interface Job {
  scheduler: string;
  nodes: string[];
  /** Process ids of the scheduler and the nodes. */
  pids: number[];
}

async function startJob(server: ServerKind): Promise<Job> {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-hostile-'));
  const tokenFile = join(directory, 'token');
  writeFileSync(tokenFile, TOKEN);
  const role = (args: string[]): Running => {
    const running = start([...args, '--token-file', tokenFile, '--log-format', 'json'], {
      KINTSUGI_TRANSPORT: server,
    });
    cleanups.push(async () => {
      running.process.kill('SIGINT');
      expect((await running.ended).code).toBe(0);
    });
    return running;
  };
  cleanups.push(() => rmSync(directory, { recursive: true }));
  const running = role(['scheduler', '--listen', `${HOST}:0`, '--code', '1+1']);
  const scheduler = String((await record(running, 'scheduler.ready')).address);
  const nodes = ['a', 'b'].map((name) => role(['ps', '--scheduler', scheduler, '--name', name]));
  const ready = await Promise.all(nodes.map((node) => record(node, 'ps.ready')));
  const pids = [running, ...nodes].map((each) => each.process.pid!);
  return { scheduler, nodes: ready.map((each) => String(each.address)), pids };
}

/** The most memory that a process ever held (Linux), so memory that was given back since counts, too. */
function peakBytes(pid: number): number {
  const match = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
  return Number(match![1]) * 1024;
}
const LINUX = process.platform === 'linux';

const portOf = (address: string): number => Number(address.split(':')[1]);

/** A WebSocket without a pass for the gate, and most of a frame that would be legal after the handshake. */
function hugeFrame(): Uint8Array {
  const upgrade =
    `GET ${LINK_PATH} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n` +
    'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n';
  // The frame is binary and final, with 64 bits of length, and masked with zeros.
  const head = Buffer.alloc(14);
  head.set([0x82, 0xff]);
  head.writeBigUInt64BE(32n << 20n, 2);
  return Buffer.concat([Buffer.from(upgrade), head, new Uint8Array(16 << 20)]);
}

/**
 * Runs all attacks at once against one port, until each was answered or cut, or is held open on purpose.
 */
async function attack(port: number, job: string): Promise<void> {
  const idle = Array.from({ length: 1000 }, () => raw(port));
  const halfOpen = Array.from({ length: 200 }, () => raw(port, `GET ${LINK_PATH} HTTP/1.1\r\nHost: `));
  await Promise.all([...idle, ...halfOpen].map((each) => each.connected));
  for (const [, bytes] of GARBAGE) await raw(port, bytes).closed;
  const huge = hugeFrame();
  await Promise.all(Array.from({ length: 20 }, () => raw(port, huge).closed));
  for (let i = 0; i < 50; i++) {
    const wrong = dial({ host: HOST, port, token: `wrong ${i}`, handlers: new Recorder() });
    expect((await rejection(wrong)).code).toBe('UNAUTHORIZED');
  }
  for (const first of [[], [{ t: 'hello', peer: 1 << 20, inc: 1, job }]]) {
    for (const header of [{ t: 'no such kind' }, { t: 'delta' }, { t: 'pull', ticket: 'x' }]) {
      const handlers = new Recorder();
      const link = await dial({ host: HOST, port, token: TOKEN, handlers });
      await handlers.take('open');
      for (const each of first) link.send(each);
      link.send(header);
      await handlers.take('close');
    }
  }
}

it.each<ServerKind>(['uws', 'ws'])(
  'a job trains on while its nodes are attacked (server %s)',
  async (server) => {
    const job = await startJob(server);
    const client: Client = await connect(job.scheduler, { token: TOKEN });
    cleanups.push(() => client.close());
    const sgd = { kind: 'sgd' as const, lr: 1 };
    const counting = { name: 'count', dim: 4, optimizer: sgd, initializer: { kind: 'zeros' as const } };
    const table: Table = await client.createTable(counting);
    const keys = BigUint64Array.from({ length: 100 }, (_, i) => BigInt(i));
    const gradients = new Float32Array(400).fill(-1);
    await table.push(keys, gradients);
    const before = LINUX ? job.pids.map(peakBytes) : [];

    let attacked = false;
    let pushes = 1;
    const { job: id } = client.clusterMap;
    const ports = [job.scheduler, ...job.nodes].map(portOf);
    const attacks = Promise.all(ports.map((port) => attack(port, id))).finally(() => {
      attacked = true;
    });
    const training = (async () => {
      for (; !attacked; pushes++) await table.push(keys, gradients);
    })();
    await Promise.all([attacks, training]);

    expect(pushes).toBeGreaterThan(1);
    expect(await table.pull(keys)).toEqual(new Float32Array(400).fill(pushes));
    // No node was taken for dead, and a newcomer gets in while idle connections are still there.
    const status = await kintsugi(['status', '--json', '--scheduler', job.scheduler], {
      KINTSUGI_TOKEN: TOKEN,
    });
    expect(status.said).toEqual([]);
    expect(JSON.parse(status.stdout)).toMatchObject({
      redundancy: 'full',
      nodes: [{ alive: true }, { alive: true }],
    });
    const grown = before.map((bytes, i) => peakBytes(job.pids[i]!) - bytes);
    expect(Math.max(0, ...grown)).toBeLessThan(GROWTH_BYTES);
  },
);

/**
 * A connection that is slower than the answers that go over it: a request whose answer is on the way is not
 * repeated. Without that each copy would make the next answer later.
 */
import { once } from 'node:events';
import { type AddressInfo, createServer, connect as dial } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { parseCode, poolsFor } from '../../../src/core/placement/job.js';
import { connect } from '../../../src/library/client/client.js';
import type { Logger } from '../../../src/net/log.js';
import { startPs } from '../../../src/roles/ps/ps.js';
import { startScheduler } from '../../../src/roles/scheduler/scheduler.js';
import { MemoryStore } from '../../../src/stores/decisions/index.js';

const ROWS = 8192;
const DIM = 64;
/** A piece of an answer, and the pause after it. */
const PIECE_BYTES = 64 * 1024;
const PAUSE_MS = 20;

const quiet: Logger = { info: () => {}, warn: () => {}, error: () => {} };

/** Passes bytes on, those of the PS in small pieces, and counts these. */
async function slowProxy(target: () => number): Promise<{ port: number; passed: () => number }> {
  let passed = 0;
  const server = createServer((client) => {
    const ps = dial(target(), '127.0.0.1');
    client.pipe(ps);
    const timer = setInterval(() => {
      const piece = ps.read(Math.min(PIECE_BYTES, ps.readableLength)) as Buffer | null;
      if (!piece || piece.length === 0) return;
      passed += piece.length;
      client.write(piece);
    }, PAUSE_MS);
    const end = () => {
      clearInterval(timer);
      client.destroy();
      ps.destroy();
    };
    for (const socket of [client, ps]) socket.on('close', end).on('error', end);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return { port: (server.address() as AddressInfo).port, passed: () => passed };
}

it('a pull is not repeated while its answer comes in', async () => {
  let port = 0;
  const proxy = await slowProxy(() => port);
  const pools = poolsFor(parseCode('none'), 1, 4);
  const scheduler = await startScheduler({ store: new MemoryStore(), job: 'j', nodes: 1, pools, log: quiet });
  onTestFinished(() => scheduler.close());
  const info = (event: string, fields?: Record<string, unknown>) => {
    if (event === 'ps.listening') port = Number(fields?.port);
  };
  const ps = await startPs({
    scheduler: scheduler.address,
    name: 'ps-0',
    listen: '127.0.0.1:0',
    advertise: `127.0.0.1:${proxy.port}`,
    log: { ...quiet, info },
  });
  onTestFinished(() => ps.close());
  // A pull is overdue after 80 ms, and its answer takes some 600 ms.
  const client = await connect(scheduler.address, { policy: { retryMs: 20 } });
  onTestFinished(() => client.close());
  const table = await client.createTable({ name: 't', dim: DIM, optimizer: { kind: 'sgd', lr: 1 } });
  const before = proxy.passed();
  const keys = BigUint64Array.from({ length: ROWS }, (_, i) => BigInt(i));
  // Copies of the first answer would come before the second one.
  for (let i = 0; i < 2; i++) expect((await table.pull(keys)).length).toBe(ROWS * DIM);
  expect(proxy.passed() - before).toBeLessThan(4 * ROWS * DIM * Float32Array.BYTES_PER_ELEMENT);
});

/**
 * The memory of a real PS while connections send half a frame, a byte, nothing, or more than they were
 * granted: it stays within the class `received`, and a client that keeps the rules goes on.
 */
import { readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { PIECE_BYTES } from '../../src/core/shared/received-bytes.js';
import { connect } from '../../src/library/client/client.js';
import { openingOf } from '../../src/net/transport/inbound.js';
import { CloseCode } from '../../src/net/transport/index.js';
import { LINK_PATH, SMALL_LINK_PATH } from '../../src/net/transport/types.js';
import { RawClient } from '../net/transport/support.js';
import { type Running, record, start } from './support.js';

const MIB = 1 << 20;
const MEMORY = 512 * MIB;
/** An eighth, as `maxReceivedBytes` is. */
const SHARE = MEMORY / 8;
const TENTH = MEMORY / 10;
const HALVES = 24;
/** A quarter of the class is for large windows, of which each is a thirty-second. */
const LARGE = 6;
const LARGE_MESSAGE = SHARE / 32 / 2;
const WINDOW = 2 * PIECE_BYTES;

function started(args: string[]): Running {
  const running = start(args);
  onTestFinished(() => void running.process.kill('SIGKILL'));
  return running;
}

it.runIf(process.platform === 'linux')(
  'connections that send half a frame, nothing, or too much take no more than their class',
  async () => {
    const scheduler = started(['scheduler', '--listen', '127.0.0.1:0', '--ps', '1', '--code', 'none']);
    const { address } = await record(scheduler, 'scheduler.ready');
    const ps = started(['ps', '--scheduler', `${address}`, '--name', 'ps-0', '--memory', '512MiB']);
    const { port } = await record(ps, 'ps.listening');
    await record(ps, 'ps.ready');
    const client = await connect(`${address}`);
    onTestFinished(() => client.close());
    const table = await client.createTable({
      ...{ name: 't', dim: 64 },
      ...{ optimizer: { kind: 'sgd', lr: -1 }, initializer: { kind: 'zeros' } },
    });
    const keys = BigUint64Array.from({ length: 20_000 }, (_, i) => BigInt(i));
    const ones = new Float32Array(keys.length * 64).fill(1);
    await table.push(keys, ones);

    const part = async (name: string): Promise<number> => {
      const text = await (await fetch(`http://127.0.0.1:${port as number}/metrics`)).text();
      return Number(new RegExp(`kintsugi_memory_bytes{[^}]*part="${name}"[^}]*} (\\d+)`).exec(text)?.[1]);
    };
    const raw = async (path = SMALL_LINK_PATH): Promise<RawClient> => {
      const one = new RawClient(port as number, {}, path);
      onTestFinished(() => one.ws.terminate());
      return one.prove();
    };
    const resident = () =>
      Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${ps.process.pid}/status`, 'utf8'))![1]) * 1024;
    const before = resident();

    for (let i = 0; i < LARGE; i++) {
      const { _socket: socket } = (await raw(LINK_PATH)).ws as unknown as { _socket: Socket };
      // The header of a binary message, masked with zeros, and all of it but a byte.
      const message = Buffer.alloc(14 + LARGE_MESSAGE - 1, 1);
      message.set([0x82, 0xff]);
      message.writeBigUInt64BE(BigInt(LARGE_MESSAGE), 2);
      message.fill(0, 10, 14);
      await new Promise<void>((resolve, reject) =>
        socket.write(message, (error) => (error ? reject(error) : resolve())),
      );
    }

    for (let i = 0; i < HALVES; i++) {
      const half = await raw();
      half.ws.send(openingOf(24 * MIB));
      for (let sent = 0; sent < WINDOW; sent += PIECE_BYTES) half.ws.send(new Uint8Array(PIECE_BYTES));
      await half.heard();
      await raw();
    }
    expect(await part('received')).toBeLessThanOrEqual(SHARE);
    const greedy = await raw();
    greedy.ws.send(openingOf(24 * MIB));
    for (let sent = 0; sent < 25 * MIB; sent += PIECE_BYTES) greedy.ws.send(new Uint8Array(PIECE_BYTES));
    const { code, reason } = await greedy.closed;
    expect([code, reason]).toEqual([CloseCode.LIMIT, expect.stringContaining('receiveWindowBytes')]);

    for (let round = 0; round < 4; round++) await table.push(keys, ones);
    expect((await table.pull(keys)).every((value) => value === 5)).toBe(true);
    expect(await part('received')).toBeLessThanOrEqual(SHARE);
    expect(resident() - before).toBeLessThan(SHARE + TENTH);
    expect(await part('unaccounted')).toBeLessThanOrEqual(TENTH);
  },
  120_000,
);

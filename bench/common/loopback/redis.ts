/**
 * A client of our own is kept: `redis` and `ioredis` take 6 to 11 times its processor time (bench/LOG.md).
 *
 * Redis as a peer: started here on a free port, without persistence. Commands are encoded before the
 * measurement, and only the needed part of an answer is read, so that this client never limits the server.
 * The processor time of the server is what is compared.
 *
 * A gradient can be applied there in two ways. A Lua script does it where the rows are: atomic for any number
 * of clients. Or the client reads the rows (MGET), computes, and writes them back (MSET): two round trips,
 * and updates are lost as soon as there is a second client (WATCH cannot help: it compares every key with all
 * the keys watched so far).
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createConnection, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, KintsugiError } from '../../../src/common/errors.js';
import { type Contender, ending } from './measure.js';
import { DIM } from './options.js';

const ROW_BYTES = DIM * 4;
/** Bytes of a value in an answer: its length, itself, and the ends of two lines. */
const VALUE_BYTES = `$${ROW_BYTES}\r\n`.length + ROW_BYTES + 2;

/** Applies SGD to every row that is named; a row that is not there counts as zeros. */
const SCRIPT = `local fmt = '<' .. string.rep('f', ${DIM})
local zeros = string.rep('\\0', ${ROW_BYTES})
local lr = tonumber(ARGV[#KEYS + 1])
for i = 1, #KEYS do
  local row = {struct.unpack(fmt, redis.call('GET', KEYS[i]) or zeros)}
  local gradient = {struct.unpack(fmt, ARGV[i])}
  for j = 1, ${DIM} do row[j] = row[j] - lr * gradient[j] end
  redis.call('SET', KEYS[i], struct.pack(fmt, unpack(row, 1, ${DIM})))
end
return redis.status_reply('OK')`;

/** Version of Redis, or undefined where it is not installed. */
export function redisVersion(): string | undefined {
  const { stdout } = spawnSync('redis-server', ['--version'], { encoding: 'utf8' });
  return /v=(\S+)/.exec(stdout ?? '')?.[1];
}

function command(...words: (string | Uint8Array)[]): Buffer {
  const pieces: Uint8Array[] = [Buffer.from(`*${words.length}\r\n`)];
  for (const word of words) {
    const bytes = Buffer.from(word as string);
    pieces.push(Buffer.from(`$${bytes.length}\r\n`), bytes, Buffer.from('\r\n'));
  }
  return Buffer.concat(pieces);
}

/** Eight bytes per key, as in our own messages. */
function keyBytes(keys: BigUint64Array): Uint8Array[] {
  return Array.from(keys, (_, i) => new Uint8Array(keys.buffer, keys.byteOffset + 8 * i, 8));
}

function rowBytes(rows: Float32Array): Uint8Array[] {
  return Array.from(
    { length: rows.length / DIM },
    (_, i) => new Uint8Array(rows.buffer, rows.byteOffset + i * ROW_BYTES, ROW_BYTES),
  );
}

interface Expected {
  /** Bytes of the answer when all is well. */
  bytes: number;
  taken: Buffer[];
  resolve(answer: Buffer): void;
  reject(error: Error): void;
  /** The answer is wanted; otherwise only its length and first line are looked at. */
  keep: boolean;
}

export class Redis {
  readonly pid: number;
  private readonly expected: Expected[] = [];
  private left = 0;
  private readonly ending = ending('redis');
  private readonly gone: Promise<unknown>;

  private constructor(
    private readonly server: ChildProcess,
    private readonly socket: Socket,
    private readonly directory: string,
  ) {
    this.pid = server.pid ?? 0;
    this.gone = once(server, 'exit');
    socket.on('data', (chunk) => this.onData(chunk));
    socket.on('error', (error) => this.ending.end(describe(error)));
    socket.on('close', () => this.ending.end('its connection was closed'));
  }

  static async start(): Promise<Redis> {
    const directory = mkdtempSync(join(tmpdir(), 'kintsugi-redis-'));
    // Redis takes no port 0. A port that was free a moment ago is good enough, on loopback and for a
    // benchmark.
    const probe = createServer().listen(0, '127.0.0.1');
    await once(probe, 'listening');
    const { port } = probe.address() as { port: number };
    probe.close();
    await once(probe, 'close');
    const settings = ['--save', '', '--appendonly', 'no', '--daemonize', 'no', '--dir', directory];
    const server = spawn('redis-server', ['--bind', '127.0.0.1', '--port', `${port}`, ...settings], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const kill = () => server.kill('SIGKILL');
    // Unlike our own roles Redis does not notice when this process is gone, and a signal ends this process
    // without an exit event.
    const quit = () => process.exit(143);
    process.on('exit', kill);
    process.on('SIGTERM', quit);
    server.on('exit', () => {
      process.off('exit', kill);
      process.off('SIGTERM', quit);
    });
    await new Promise<void>((resolve, reject) => {
      server.stdout?.on('data', (text: Buffer) => {
        if (text.includes('Ready to accept connections')) resolve();
      });
      server.on('exit', () => reject(new KintsugiError('DEPENDENCY_MISSING', 'redis-server did not start')));
    });
    const socket = createConnection({ host: '127.0.0.1', port, noDelay: true });
    await once(socket, 'connect');
    return new Redis(server, socket, directory);
  }

  contender(name: string, request: (i: number) => Promise<unknown>): Contender {
    const { ended } = this.ending;
    return { name, serverPid: this.pid, ended, request: async (i) => void (await request(i)) };
  }

  /** Sends an encoded command. The answer comes in order and has a length that is known. */
  send(encoded: Uint8Array, bytes: number, keep = false): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      if (this.expected.length === 0) this.left = bytes;
      this.expected.push({ bytes, taken: [], resolve, reject, keep });
      this.socket.write(encoded);
    });
  }

  private onData(received: Buffer): void {
    let chunk = received;
    while (chunk.length > 0) {
      const first = this.expected[0];
      if (!first) throw new KintsugiError('INTERNAL', 'Redis answers more than it was asked');
      if (first.bytes === this.left && chunk[0] === 0x2d)
        return first.reject(new KintsugiError('INTERNAL', `Redis: ${chunk.toString('latin1', 0, 200)}`));
      const now = chunk.subarray(0, this.left);
      if (first.keep) first.taken.push(now);
      this.left -= now.length;
      chunk = chunk.subarray(now.length);
      if (this.left > 0) return;
      this.expected.shift();
      this.left = this.expected[0]?.bytes ?? 0;
      first.resolve(Buffer.concat(first.taken));
    }
  }

  mget(encoded: Uint8Array, count: number, keep = false): Promise<Buffer> {
    return this.send(encoded, `*${count}\r\n`.length + count * VALUE_BYTES, keep);
  }

  /** Commands that answer +OK. */
  async ok(encoded: Uint8Array): Promise<void> {
    await this.send(encoded, '+OK\r\n'.length);
  }

  /** Loads the script that applies gradients; resolves to its name. */
  async loadScript(): Promise<string> {
    const answer = await this.send(command('SCRIPT', 'LOAD', SCRIPT), '$40\r\n'.length + 42, true);
    return answer.toString('latin1', 5, 45);
  }

  async close(): Promise<void> {
    this.socket.destroy();
    this.server.kill('SIGKILL');
    await this.gone;
    rmSync(this.directory, { recursive: true, force: true });
  }
}

export const mget = (keys: BigUint64Array): Buffer => command('MGET', ...keyBytes(keys));

export function mset(keys: BigUint64Array, rows: Float32Array): Buffer {
  const values = rowBytes(rows);
  return command('MSET', ...keyBytes(keys).flatMap((key, i) => [key, values[i]!]));
}

export function evalSha(script: string, keys: BigUint64Array, rows: Float32Array, lr: number): Buffer {
  return command('EVALSHA', script, `${keys.length}`, ...keyBytes(keys), ...rowBytes(rows), `${lr}`);
}

/** Rows out of an answer to MGET, minus lr times the gradient, as the values of a MSET. */
export function descend(answer: Buffer, count: number, gradient: Float32Array, lr: number): Float32Array {
  const rows = new Float32Array(count * DIM);
  const target = new Uint8Array(rows.buffer);
  const prefix = `$${ROW_BYTES}\r\n`.length;
  let at = `*${count}\r\n`.length + prefix;
  for (let i = 0; i < count; i++, at += VALUE_BYTES)
    target.set(answer.subarray(at, at + ROW_BYTES), i * ROW_BYTES);
  for (let i = 0; i < rows.length; i++) rows[i] = rows[i]! - lr * gradient[i]!;
  return rows;
}

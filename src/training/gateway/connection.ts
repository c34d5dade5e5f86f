/**
 * One program at a gateway: a client of the job of its own, the memory that both share, and its requests
 * under way. When the program ends or closes, so does its client: the job hears at once that it is gone.
 */
import { setMaxListeners } from 'node:events';
import type { Socket } from 'node:net';
import { codeOf, describe, KintsugiError } from '../../common/errors.js';
import { type Client, type ConnectOptions, connect } from '../../library/client/client.js';
import { DEFAULT_IN_FLIGHT_BYTES, InFlightRoom } from '../../library/client/room.js';
import type { Logger } from '../../net/log.js';
import { EVICTION_OPERATIONS } from './eviction-operations.js';
import { encodeFrame, FrameReader, type GatewayFrame } from './frames.js';
import { type MemoryPlace, SharedFrameMemory, SharedMemory } from './memory.js';
import { type GatewayOperation, OPERATIONS, type OperationAnswer, type ProgramState } from './operations.js';
import { ProgramRoom } from './program-room.js';
import { RANGE_OPERATIONS } from './range-operations.js';

/** Version of the messages between programs and gateways. A program of another version is refused. */
const GATEWAY_VERSION = 1;
/** Requests of one program that are under way; the next ones are not read until some are answered. */
const MAX_REQUESTS = 256;
/** Bytes of answers that the program has not read yet. Above that its next requests are not read either. */
const MAX_UNREAD_BYTES = 64 << 20;

const NOTHING = new Uint8Array(0);

const KNOWN: Readonly<Record<string, GatewayOperation>> = {
  ...OPERATIONS,
  ...EVICTION_OPERATIONS,
  ...RANGE_OPERATIONS,
};

export interface ProgramConnectionOptions {
  scheduler: string;
  client: ConnectOptions;
  log: Logger;
}

export class ProgramConnection {
  private readonly reader = new FrameReader();
  private readonly gone = new AbortController();
  private opening = false;
  private client: Client | undefined;
  private memory: SharedMemory | undefined;
  private readonly program: ProgramState = { scans: new Map(), streams: new Map() };
  /** Frames that were read and wait for room: those of one piece of the socket at most. */
  private frames: GatewayFrame[] = [];
  private requests = 0;
  /** Bytes of requests under way, with their messages. */
  private requestBytes = 0;
  /** Bytes that may follow answers. */
  private readonly answers: InFlightRoom;
  /** Resolves when the client of the program has left the job. */
  readonly closed: Promise<void>;

  constructor(
    private readonly socket: Socket,
    private readonly options: ProgramConnectionOptions,
  ) {
    this.answers = new InFlightRoom(this.maxInFlightBytes);
    // Each request under way listens.
    setMaxListeners(0, this.gone.signal);
    socket.on('data', (piece) => this.read(piece)).on('drain', () => this.serve());
    this.closed = new Promise((resolve) => {
      socket.on('error', () => {}).on('close', () => void this.end().then(resolve));
    });
  }

  private get maxInFlightBytes(): number {
    return this.options.client.maxInFlightBytes ?? DEFAULT_IN_FLIGHT_BYTES;
  }

  /** Ends the connection as if the program had. */
  close(): Promise<void> {
    this.socket.destroy();
    return this.closed;
  }

  private async end(): Promise<void> {
    this.gone.abort();
    this.frames = [];
    this.answers.end(new KintsugiError('CLOSED', 'the program is gone'));
    this.program.ranges?.close();
    await this.client?.close();
    // The memory is freed only now: an answer that comes late would have nowhere to go.
    this.memory?.close();
    this.options.log.info('gateway.left', { client: this.client?.id });
  }

  private read(piece: Buffer): void {
    try {
      this.frames = this.frames.concat(this.reader.take(piece));
    } catch (error) {
      this.options.log.warn('gateway.refused', { message: describe(error) });
      this.socket.destroy();
    }
    this.serve();
  }

  private get isFull(): boolean {
    return (
      this.requests >= MAX_REQUESTS ||
      this.requestBytes >= this.maxInFlightBytes ||
      this.socket.writableLength > MAX_UNREAD_BYTES
    );
  }

  /** A program that asks faster than it is answered waits in its own writes. */
  private serve(): void {
    while (this.frames.length > 0 && !this.isFull) void this.take(this.frames.shift()!);
    const waits = this.frames.length > 0 || this.isFull;
    if (waits === this.socket.isPaused()) return;
    if (waits) this.socket.pause();
    else this.socket.resume();
  }

  private async take({ message, payload, bytes: size }: GatewayFrame): Promise<void> {
    const { id } = message;
    this.requests += 1;
    this.requestBytes += size;
    const room = new ProgramRoom(this.answers, this.gone.signal);
    try {
      if (message.op === 'hello') this.answer(id, { value: await this.hello(message) });
      else this.answer(id, await this.work(message, payload, room));
    } catch (error) {
      room.abandon();
      const code = codeOf(error, 'INTERNAL');
      this.send(encodeFrame({ id, code, message: describe(error) }));
    } finally {
      if (room.isUsed) this.afterSending(room);
      this.requests -= 1;
      this.requestBytes -= size;
      this.serve();
    }
  }

  private async work(
    message: Record<string, unknown>,
    payload: Buffer,
    room: ProgramRoom,
  ): Promise<OperationAnswer> {
    const { client, memory } = this;
    const name = String(message.op);
    if (!client) throw new KintsugiError('BAD_ARGUMENT', 'the first message must be "hello"');
    if (!Object.hasOwn(KNOWN, name)) throw new KintsugiError('BAD_ARGUMENT', `there is no "${name}"`);
    const behind = message.behind === true;
    if (!behind && !memory && Array.isArray(message.calls))
      throw new KintsugiError('BAD_ARGUMENT', 'no memory is shared');
    const lies = behind || !memory ? new SharedFrameMemory(payload) : memory;
    const { program } = this;
    program.ranges?.hear();
    return KNOWN[name]!({ client, message, memory: lies, signal: this.gone.signal, room, program });
  }

  private answer(id: unknown, { value, behind = [] }: OperationAnswer): void {
    const bytes = behind.reduce((sum, { byteLength }) => sum + byteLength, 0);
    this.send(encodeFrame(value === undefined ? { id } : { id, value }, bytes));
    for (const { buffer, byteOffset, byteLength } of behind)
      this.send(new Uint8Array(buffer, byteOffset, byteLength));
  }

  /** Frees the room when everything that was sent has left, or never will. */
  private afterSending(room: ProgramRoom): void {
    const end = (error?: Error | null) => {
      if (error) room.abandon();
      room.end();
    };
    if (this.socket.writable) this.socket.write(NOTHING, end);
    else end(new Error('the program is gone'));
  }

  private send(bytes: Uint8Array): void {
    if (this.socket.writable) this.socket.write(bytes);
  }

  /** @throws BAD_ARGUMENT, what `connect` throws, and what the memory throws */
  private async hello({ version, memory, timeoutMs }: Record<string, unknown>): Promise<object> {
    if (version !== GATEWAY_VERSION) {
      const text = `this gateway speaks version ${GATEWAY_VERSION}, not ${version}: install the same release`;
      throw new KintsugiError('BAD_ARGUMENT', text);
    }
    if (this.opening) throw new KintsugiError('BAD_ARGUMENT', '"hello" is said once');
    this.opening = true;
    const { scheduler, client: options, log } = this.options;
    const timeout = timeoutMs === undefined ? {} : { connectTimeoutMs: Number(timeoutMs) };
    const { signal } = this.gone;
    const client = await connect(scheduler, { ...options, ...timeout, signal });
    if (signal.aborted) {
      await client.close();
      throw new KintsugiError('CLOSED', 'the program is gone');
    }
    this.client = client;
    const refused = this.share(memory);
    log.info('gateway.joined', { client: client.id, shared: this.memory !== undefined });
    return { client: client.id, shared: this.memory !== undefined, ...(refused && { refused }) };
  }

  /** Why the memory is not shared; undefined: it is, or nobody asked for it. */
  private share(place: unknown): string | undefined {
    if (typeof place !== 'object' || place === null) return undefined;
    const { pid, fd, path, bytes, nonce, nonceAt } = place as Partial<Record<keyof MemoryPlace, unknown>>;
    const file = typeof path === 'string' ? { path } : { pid: Number(pid), fd: Number(fd) };
    const proof = typeof nonce === 'string' ? { nonce, nonceAt: Number(nonceAt) } : {};
    try {
      this.memory = new SharedMemory({ ...file, ...proof, bytes: Number(bytes) });
      return undefined;
    } catch (error) {
      return describe(error);
    }
  }
}

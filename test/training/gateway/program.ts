/** A program at a gateway, for tests: what the Python package does, in a few lines. */
import { once } from 'node:events';
import { createConnection, type Socket } from 'node:net';
import { encodeFrame, FrameReader, type GatewayFrame } from '../../../src/training/gateway/frames.js';

export class Program {
  private readonly reader = new FrameReader();
  private readonly waiting = new Map<number, (frame: GatewayFrame) => void>();
  private next = 1;
  /** The gateway has closed the connection. */
  readonly closed: Promise<unknown>;

  private constructor(readonly socket: Socket) {
    socket.on('data', (piece) => {
      for (const frame of this.reader.take(piece)) this.waiting.get(frame.message.id as number)?.(frame);
    });
    socket.on('error', () => {});
    this.closed = once(socket, 'close');
    // The gateway may end while it has something to read.
    this.closed.catch(() => {});
  }

  static async at(path: string): Promise<Program> {
    const socket = createConnection(path);
    await once(socket, 'connect');
    return new Program(socket);
  }

  /** The answer, with the bytes behind it. */
  ask(message: object, payload: Uint8Array = new Uint8Array(0)): Promise<GatewayFrame> {
    const id = this.next++;
    const answer = new Promise<GatewayFrame>((resolve) => this.waiting.set(id, resolve));
    this.socket.write(encodeFrame({ ...message, id }, payload.length));
    if (payload.length > 0) this.socket.write(payload);
    return answer;
  }

  /** The value of the answer, or its code. */
  async value(message: object, payload?: Uint8Array): Promise<unknown> {
    const { message: answer } = await this.ask(message, payload);
    return answer.code ?? answer.value;
  }
}

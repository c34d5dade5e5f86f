/**
 * A process that reads data files for one program of another language, which has started it. They talk over
 * the socket that is its standard input, in the frames of a gateway, and batches lie in memory that both
 * share. So there is one reader of files. It ends with its program.
 */
import type { Socket } from 'node:net';
import { codeOf, describe } from '../../common/errors.js';
import { ARRAY_ALIGNMENT } from '../../data/rows.js';
import { bad, integer } from '../gateway/fields.js';
import { encodeFrame, FrameReader, type GatewayFrame } from '../gateway/frames.js';
import { type MemoryPlace, SharedMemory } from '../gateway/memory.js';
import { type BatchLayout, BatchStream, openSource, type ProgramSource } from './streams.js';

/** Version of the messages between programs and readers. A program of another version is refused. */
const READER_VERSION = 3;
/** The head of a frame can say no more. */
const MAX_BEHIND_BYTES = 2 ** 32 - 1;

interface FilesAnswer {
  value?: unknown;
  behind?: readonly ArrayBufferView[];
}

type FilesOperation = (message: Record<string, unknown>) => Promise<FilesAnswer>;

export class ProgramReader {
  private readonly frames = new FrameReader();
  private memory: SharedMemory | undefined;
  private readonly sources = new Map<number, ProgramSource>();
  private readonly streams = new Map<number, BatchStream>();
  /** Resolves when the program is gone. */
  readonly closed: Promise<void>;

  constructor(private readonly socket: Socket) {
    socket.on('data', (piece) => this.read(piece));
    this.closed = new Promise((resolve) => {
      socket.on('error', () => {}).on('close', () => resolve());
    });
  }

  private read(piece: Buffer): void {
    try {
      for (const frame of this.frames.take(piece)) void this.take(frame);
    } catch {
      this.socket.destroy();
    }
  }

  private async take({ message }: GatewayFrame): Promise<void> {
    const { id, op } = message;
    try {
      const name = String(op);
      if (!Object.hasOwn(this.operations, name)) throw bad(`there is no "${name}"`);
      this.answer(id, await this.operations[name]!(message));
    } catch (error) {
      const code = codeOf(error, 'INTERNAL');
      this.socket.write(encodeFrame({ id, code, message: describe(error) }));
    }
  }

  private answer(id: unknown, { value = null, behind = [] }: FilesAnswer): void {
    const bytes = behind.reduce((sum, { byteLength }) => sum + byteLength, 0);
    if (bytes > MAX_BEHIND_BYTES) throw bad(`a batch of ${bytes} bytes is too large: take fewer samples`);
    this.socket.cork();
    this.socket.write(encodeFrame({ id, value }, bytes));
    for (const { buffer, byteOffset, byteLength } of behind)
      this.socket.write(new Uint8Array(buffer, byteOffset, byteLength));
    this.socket.uncork();
  }

  private sourceOf(message: Record<string, unknown>): ProgramSource {
    const source = this.sources.get(integer(message, 'source'));
    if (!source) throw bad(`there is no source ${message.source}`);
    return source;
  }

  private readonly operations: Readonly<Record<string, FilesOperation>> = {
    /** The first message: whether memory is shared. */
    hello: async ({ version, memory }) => {
      if (version !== READER_VERSION)
        throw bad(`this reader speaks version ${READER_VERSION}, not ${version}: install the same release`);
      if (memory) this.memory = new SharedMemory(memory as MemoryPlace);
      return {};
    },

    /** Opens files: the value has the files that paths stand for, their parts, and what batches are. */
    open: async (message) => {
      const number = integer(message, 'source');
      const { files: paths, layout, expanded } = message;
      if (!Array.isArray(paths) || !paths.every((path) => typeof path === 'string'))
        throw bad('files must be a list of paths');
      if (typeof layout !== 'object' || layout === null) throw bad('layout must be an object');
      const source = await openSource(paths, layout as BatchLayout, expanded === true);
      this.sources.set(number, source);
      const { files, parts, shape = null, meaning = null } = source;
      return { value: { files, parts, shape, meaning } };
    },

    /** Begins to read all parts, or a range of one; a range may be read in shares, each by its rank. */
    read: async (message) => {
      const source = this.sourceOf(message);
      const number = integer(message, 'stream');
      const at = (name: string) => integer(message, name);
      const { part, shares } = message;
      const share =
        shares === undefined ? undefined : { index: at('share'), count: integer(message, 'shares', 1) };
      if (share && share.index >= share.count)
        throw bad(`there is no share ${share.index} of ${share.count}`);
      if (share && part === undefined) throw bad('a share is one of the batches of a part');
      const range =
        part === undefined ? undefined : { part: at('part'), begin: at('begin'), end: at('end'), share };
      if (range && range.part >= source.parts.length) throw bad(`there is no part ${range.part}`);
      const stream = new BatchStream(source, range, integer(message, 'batch', 1), at('skip'));
      this.streams.set(number, stream);
      return {};
    },

    /** The next batches of a stream, in the memory of the program or behind the answer. */
    fill: async (message) => {
      const stream = this.streams.get(integer(message, 'stream'));
      if (!stream) throw bad(`there is no stream ${message.stream}`);
      const most = integer(message, 'bytes');
      const at = message.at === undefined ? undefined : integer(message, 'at');
      if (at !== undefined && at % ARRAY_ALIGNMENT !== 0)
        throw bad(`a room must begin at a multiple of ${ARRAY_ALIGNMENT} bytes, not at ${at}`);
      const room = at === undefined ? undefined : this.memory?.room(at, most);
      const { behind, ...value } = await stream.fill(most, room);
      return { value, behind };
    },

    endStream: async (message) => {
      const number = integer(message, 'stream');
      const stream = this.streams.get(number);
      this.streams.delete(number);
      await stream?.close();
      return {};
    },

    /** Number of samples in all parts. */
    count: async (message) => ({ value: await this.sourceOf(message).source.count!() }),

    /** How far the whole lines of each part go now. */
    sizes: async (message) => ({ value: await this.sourceOf(message).source.sizes!() }),

    closeSource: async (message) => {
      await this.sourceOf(message).source.close?.();
      this.sources.delete(integer(message, 'source'));
      return {};
    },
  };
}

// Batches in the memory that a program shares: the same bytes as behind an answer, whatever lay there before.
import { once } from 'node:events';
import { closeSync, openSync, readSync, writeFileSync, writeSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { ProgramReader } from '../../../src/training/reading/program.js';
import { Program } from '../gateway/program.js';
import { temporaryDirectory } from '../models/rows.js';

const MEMORY_BYTES = 1 << 20;
const ROWS = 1000;

interface Filled {
  batches: number[][];
  done: boolean;
  need?: number;
}

/** A program and its reader, which share a file that is mapped. */
async function opened() {
  const directory = temporaryDirectory();
  const path = join(directory, 'reader.sock');
  const server = createServer().listen(path);
  await once(server, 'listening');
  const connected = once(server, 'connection') as Promise<[Socket]>;
  const program = await Program.at(path);
  const [socket] = await connected;
  const reader = new ProgramReader(socket);
  const memory = join(directory, 'memory');
  writeFileSync(memory, new Uint8Array(MEMORY_BYTES));
  const fd = openSync(memory, 'r+');
  onTestFinished(async () => {
    program.socket.destroy();
    await reader.closed;
    server.close();
    closeSync(fd);
  });
  const place = { path: memory, bytes: MEMORY_BYTES };
  expect(await program.value({ op: 'hello', version: 3, memory: place })).toBe(null);
  return { program, fd };
}

const LAYOUTS = {
  everything: {
    schema: {
      label: [{ column: 'y' }, { column: 'z', atLeast: 3 }],
      dense: ['d', { column: 'e', transform: { bucketise: [1, 2, 3] } }],
      sparse: ['a', { column: 'l', multi: true, weights: 'w' }, 'b', { column: 'm', multi: true, limit: 2 }],
      weight: 's',
      time: 't',
    },
  },
  'lists alone': { schema: { label: 'y', sparse: [{ column: 'm', multi: true }] } },
  'one column': { schema: { label: 'y', sparse: ['a'] } },
  numbers: { columns: { dense: ['d', 'e'], sparse: [], label: 'y', keys: 'hex' } },
} as const;

/** Lists of up to 40 values, and cells that are missing. */
function samples(): string {
  const lines = Array.from({ length: ROWS }, (_, i) => {
    const count = (i * 7) % 41;
    const list = Array.from({ length: i % 9 === 0 ? 0 : count }, (_, j) => `v${i}.${j}`);
    const weights = list.map((_, j) => j / 4);
    const cells = [i % 2, i % 7, i % 3 ? i / 8 : '', i % 5 ? i % 4 : '', i % 11 ? `a${i}` : '', `b${i}`];
    return [...cells, list.join('|'), weights.join('|'), list.join('|'), i / 2, 1e9 + i].join('\t');
  });
  const file = join(temporaryDirectory(), 'a.tsv');
  writeFileSync(file, `${['y z d e a b l w m s t'.replaceAll(' ', '\t'), ...lines].join('\n')}\n`);
  return file;
}

/** The batches of a stream behind answers. */
async function behind(program: Program, stream: number): Promise<[number[], Buffer][]> {
  const found: [number[], Buffer][] = [];
  for (;;) {
    const { message, payload } = await program.ask({ op: 'fill', stream, bytes: 1 });
    const { batches, done } = message.value as Filled;
    for (const counts of batches) found.push([counts, Buffer.from(payload)]);
    if (done) return found;
  }
}

it.each(Object.keys(LAYOUTS) as (keyof typeof LAYOUTS)[])('rooms of every size: %s', async (name) => {
  const { program, fd } = await opened();
  const layout = LAYOUTS[name];
  const opening = await program.ask({ op: 'open', source: 1, files: [samples()], layout });
  expect(opening.message).toMatchObject({ value: { parts: [{ name: 'a.tsv' }] } });
  let stream = 1;
  for (const batch of [1, 3, 64, 300, ROWS, 2 * ROWS]) {
    await program.value({ op: 'read', source: 1, stream: ++stream, batch, skip: 0 });
    const expected = await behind(program, stream);
    expect(expected).toHaveLength(Math.ceil(ROWS / batch));
    for (const bytes of [4096, 40_000, 200_000]) {
      await program.value({ op: 'read', source: 1, stream: ++stream, batch, skip: 0 });
      const found: [number[], Buffer][] = [];
      for (let room = bytes, done = false; !done; ) {
        // A program uses the memory again, and what lay there is of no account.
        const at = 64 * (found.length % 5);
        writeSync(fd, new Uint8Array(MEMORY_BYTES).fill(0xa5), 0, MEMORY_BYTES, 0);
        const filled = (await program.value({ op: 'fill', stream, bytes: room, at })) as Filled;
        if (filled.need !== undefined) {
          expect(filled.need).toBeGreaterThan(room);
          room = filled.need;
          continue;
        }
        let from = at;
        for (const counts of filled.batches) {
          const whole = expected[found.length]![1];
          const bytesThere = Buffer.alloc(whole.length);
          readSync(fd, bytesThere, 0, whole.length, from);
          found.push([counts, bytesThere]);
          from += whole.length;
        }
        done = filled.done;
      }
      expect(found.map(([counts]) => counts)).toEqual(expected.map(([counts]) => counts));
      for (const [i, [counts, content]] of found.entries()) sameBatch(name, counts, content, expected[i]![1]);
    }
  }
});

/** The same bytes, but for those between arrays and behind the last one. */
function sameBatch(name: keyof typeof LAYOUTS, counts: number[], found: Buffer, expected: Buffer): void {
  let at = 0;
  for (const bytes of arrayBytes(name, counts)) {
    expect(found.subarray(at, at + bytes).equals(expected.subarray(at, at + bytes))).toBe(true);
    at += Math.ceil(bytes / 8) * 8;
  }
  expect(expected).toHaveLength(Math.ceil(at / 64) * 64);
}

function arrayBytes(name: keyof typeof LAYOUTS, [size, first, second]: number[]): number[] {
  const [rows, values, others] = [size!, first!, second!];
  if (name === 'numbers') return [4 * rows, 8 * rows];
  if (name === 'one column') return [8 * rows, 4 * rows, 0];
  if (name === 'lists alone') return [4 * rows, 0, 8 * values, 8 * (rows + 1)];
  const lists = [8 * values, 8 * (rows + 1), 4 * values, 8 * others, 8 * (rows + 1)];
  return [8 * rows, 8 * rows, 8 * rows, 8 * rows, 20 * rows, 4 * rows, ...lists];
}

it('a room begins where numbers may lie', async () => {
  const { program } = await opened();
  const layout = LAYOUTS.numbers;
  const opening = await program.ask({ op: 'open', source: 1, files: [samples()], layout });
  expect(opening.message).toMatchObject({ value: { parts: [{ name: 'a.tsv' }] } });
  await program.value({ op: 'read', source: 1, stream: 2, batch: 7, skip: 0 });
  const { message } = await program.ask({ op: 'fill', stream: 2, bytes: 4096, at: 4 });
  expect(message).toMatchObject({
    code: 'BAD_ARGUMENT',
    message: expect.stringMatching(/8 bytes, not at 4/),
  });
  expect(await program.value({ op: 'fill', stream: 2, bytes: MEMORY_BYTES, at: 8 })).toBe('BAD_ARGUMENT');
  expect(await program.value({ op: 'fill', stream: 2, bytes: 4096, at: 8 })).toMatchObject({ done: false });
});

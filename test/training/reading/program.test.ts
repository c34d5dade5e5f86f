// A program and its reader of files: batches that fit the room, that do not, and behind the answers.
import { once } from 'node:events';
import { statSync, writeFileSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { ProgramReader } from '../../../src/training/reading/program.js';
import { Program } from '../gateway/program.js';
import { temporaryDirectory } from '../models/rows.js';

async function opened(): Promise<Program> {
  const path = join(temporaryDirectory(), 'reader.sock');
  const server = createServer().listen(path);
  await once(server, 'listening');
  const connected = once(server, 'connection') as Promise<[Socket]>;
  const program = await Program.at(path);
  const [socket] = await connected;
  const reader = new ProgramReader(socket);
  onTestFinished(async () => {
    program.socket.destroy();
    await reader.closed;
    server.close();
  });
  expect(await program.value({ op: 'hello', version: 3 })).toBe(null);
  return program;
}

function numbers(count: number): string {
  const file = join(temporaryDirectory(), 'a.tsv');
  writeFileSync(file, Array.from({ length: count }, (_, i) => `${i}\t${i.toString(16)}\n`).join(''));
  return file;
}

const COLUMNS = { columns: { dense: [0], sparse: [1], label: 0, keys: 'hex' } };
/** A key, a label and a number */
const ROW_BYTES = 16;

async function open(program: Program, file: string, layout: object = COLUMNS): Promise<void> {
  const { message } = await program.ask({ op: 'open', source: 1, files: [file], layout });
  expect(message).toMatchObject({ value: { parts: [{ name: 'a.tsv' }] } });
}

/** All labels that a stream gives in rooms of these bytes. */
async function labelsOf(program: Program, stream: number, bytes: number): Promise<number[]> {
  const labels: number[] = [];
  for (;;) {
    const { message, payload } = await program.ask({ op: 'fill', stream, bytes });
    const { batches, done } = message.value as { batches: number[][]; done: boolean };
    let at = 0;
    for (const [size] of batches as [number][]) {
      for (let i = 0; i < size; i++) labels.push(payload.readFloatLE(at + 8 * size + 4 * i));
      at += Math.ceil((ROW_BYTES * size) / 64) * 64;
    }
    expect(at).toBe(payload.length);
    if (done) return labels;
    expect(batches.length).toBeGreaterThan(0);
  }
}

it.each([1, 700, 4096])('all batches come in answers of about %i bytes', async (bytes) => {
  const program = await opened();
  await open(program, numbers(100));
  await program.value({ op: 'read', source: 1, stream: 2, batch: 7, skip: 0 });
  expect(await labelsOf(program, 2, bytes)).toEqual(Array.from({ length: 100 }, (_, i) => i));
  expect(await program.value({ op: 'count', source: 1 })).toBe(100);
  expect(await program.value({ op: 'sizes', source: 1 })).toEqual([expect.any(Number)]);
});

it('a range, without the batches that the program has', async () => {
  const program = await opened();
  await open(program, numbers(100));
  const range = { part: 0, begin: 4, end: 16 };
  await program.value({ op: 'read', source: 1, stream: 2, batch: 2, skip: 1, ...range });
  expect(await labelsOf(program, 2, 64)).toEqual([3]);
});

it('a share of each batch, and the whole of one that cannot be divided', async () => {
  const program = await opened();
  const file = numbers(14);
  await open(program, file);
  const range = { part: 0, begin: 0, end: statSync(file).size };
  const shares = { op: 'read', source: 1, batch: 4, skip: 0, shares: 4, ...range };
  const labels = async (share: number) => {
    await program.value({ ...shares, stream: 2 + share, share });
    return labelsOf(program, 2 + share, 64);
  };
  expect(await labels(0)).toEqual([0, 4, 8, 12, 13]);
  expect(await labels(3)).toEqual([3, 7, 11, 12, 13]);
  expect(await program.value({ ...shares, stream: 9, share: 4 })).toBe('BAD_ARGUMENT');
});

it('files that paths stand for are pinned', async () => {
  const program = await opened();
  const directory = temporaryDirectory();
  const opening = async (expanded: boolean, file: string) => {
    const message = { op: 'open', source: 1, files: [file], layout: COLUMNS, expanded };
    return (await program.ask(message)).message;
  };
  writeFileSync(join(directory, 'b.tsv'), '1\tb\n');
  const files = [join(directory, 'b.tsv')];
  expect(await opening(false, directory)).toMatchObject({ value: { files } });
  expect(await opening(false, join(directory, '*.tsv'))).toMatchObject({ value: { files } });
  expect(await opening(true, files[0]!)).toMatchObject({ value: { files } });
  expect(await opening(true, join(directory, '*.tsv'))).toMatchObject({ code: 'BAD_DATA' });
});

it('lines as they are', async () => {
  const program = await opened();
  const file = join(temporaryDirectory(), 'a.tsv');
  writeFileSync(file, '\uFEFFhead\nab\r\nc\nd');
  await open(program, file, { header: true });
  await program.value({ op: 'read', source: 1, stream: 2, batch: 2, skip: 0 });
  const { message, payload } = await program.ask({ op: 'fill', stream: 2, bytes: 1000 });
  expect(message.value).toEqual({
    batches: [
      [2, 6],
      [1, 2],
    ],
    samples: [2, 1],
    done: true,
  });
  expect(payload.toString('latin1', 0, 6)).toBe('ab\r\nc\n');
  expect(payload.toString('latin1', 64, 66)).toBe('d\n');
});

it('batches before a wrong line leave first', async () => {
  const program = await opened();
  const file = join(temporaryDirectory(), 'a.tsv');
  writeFileSync(file, '1\ta\n2\tb\n3\tx\n');
  await open(program, file);
  await program.value({ op: 'read', source: 1, stream: 2, batch: 2, skip: 0 });
  const first = await program.ask({ op: 'fill', stream: 2, bytes: 1000 });
  expect(first.message.value).toEqual({ batches: [[2]], samples: [2], done: false });
  const { message } = await program.ask({ op: 'fill', stream: 2, bytes: 1000 });
  const text = `${file}:3: column "1" must be up to 8 hexadecimal digits or empty, not "x"`;
  expect(message).toMatchObject({ code: 'BAD_DATA', message: text });
});

it('what a program gets wrong is said', async () => {
  const program = await opened();
  const file = numbers(3);
  const wrong = [
    { op: 'none' },
    { op: 'hello', version: 0 },
    { op: 'open', source: 1, files: 5, layout: {} },
    { op: 'open', source: 1, files: [file], layout: null },
    { op: 'open', source: 1, files: [], layout: {} },
    { op: 'open', source: 1, files: [file], layout: { columns: { ...COLUMNS.columns, keys: 'any' } } },
    { op: 'open', source: 1, files: [file], layout: { columns: { ...COLUMNS.columns, label: 'y' } } },
    { op: 'open', source: 1, files: [file], layout: { columns: { label: 0 } } },
    { op: 'open', source: 1, files: ['a.parquet'], layout: COLUMNS },
    { op: 'read', source: 9, stream: 1, batch: 1, skip: 0 },
    { op: 'fill', stream: 9, bytes: 1 },
    { op: 'count', source: 9 },
  ];
  for (const message of wrong)
    expect([message, await program.value(message)]).toEqual([message, expect.stringMatching(/^BAD_/)]);
  await open(program, file);
  expect(await program.value({ op: 'read', source: 1, stream: 2, batch: 0, skip: 0 })).toBe('BAD_ARGUMENT');
  const beyond = { op: 'read', source: 1, stream: 2, batch: 1, skip: 0, part: 1, begin: 0, end: 1 };
  expect(await program.value(beyond)).toBe('BAD_ARGUMENT');
  expect(await program.value({ op: 'endStream', stream: 2 })).toBe(null);
  expect(await program.value({ op: 'closeSource', source: 1 })).toBe(null);
});

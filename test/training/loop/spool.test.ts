/** A spool: whole lines of what can be read only once, kept, limited, and gone on with. */
import { appendFileSync, closeSync, mkdirSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { MAX_LINE_BYTES } from '../../../src/data/lines.js';
import { Spool } from '../../../src/training/loop/spool.js';
import { temporaryDirectory } from '../models/rows.js';

const BAD_DATA = 'BAD_DATA';
const BAD_ARGUMENT = 'BAD_ARGUMENT';

async function opened(content?: string, maxLead?: number) {
  const file = join(temporaryDirectory(), 'spool.tsv');
  if (content !== undefined) writeFileSync(file, content);
  const spool = await Spool.open(file, maxLead);
  onTestFinished(() => spool.close().catch(() => {}));
  return { file, spool, text: () => readFileSync(file, 'latin1') };
}

const nothing = () => {};
const pieces = (...texts: string[]) => Readable.from(texts.map((text) => Buffer.from(text)));

describe('what is read', () => {
  it('is appended in whole lines as they are; its end is the end of the last line', async () => {
    const { spool, text } = await opened();
    const seen: string[] = [];
    await spool.fill(pieces('on', 'e\ntwo\r', '\n', 'three\n\nfour'), () => void seen.push(text()));
    expect(seen).toEqual([
      '',
      'one\n',
      'one\ntwo\r\n',
      'one\ntwo\r\nthree\n\n',
      'one\ntwo\r\nthree\n\nfour\n',
    ]);
    expect(spool).toMatchObject({ ended: true, failure: undefined, lines: 5, dropped: 0, size: 21 });
  });

  it('may be nothing', async () => {
    const { spool, text } = await opened();
    await spool.fill(pieces(), nothing);
    expect(spool).toMatchObject({ ended: true, failure: undefined, lines: 0, size: 0, paused: false });
    expect(text()).toBe('');
  });

  it('has lines of a limited length: one that is longer ends it, those before are kept', async () => {
    const longest = 'x'.repeat(MAX_LINE_BYTES);
    for (const tail of [`${longest}x\nthree\n`, `${longest}x`]) {
      const { spool, text } = await opened();
      await spool.fill(pieces(`one\n${longest}\n${tail}`), nothing);
      expect(spool.failure).toMatchObject({ code: BAD_DATA, message: /standard input: line 3 .* 65536/ });
      expect(text()).toBe(`one\n${longest}\n`);
    }
    // Also one that comes in pieces and has no end.
    const { spool } = await opened();
    await spool.fill(pieces(...Array<string>(10).fill('x'.repeat(10_000))), nothing);
    expect(spool).toMatchObject({ ended: true, size: 0, failure: { code: BAD_DATA } });
    const { spool: other } = await opened();
    await other.fill(pieces(longest.slice(1), 'x'), nothing);
    expect(other).toMatchObject({ failure: undefined, lines: 1 });
  });

  it('may fail: what came before is kept', async () => {
    const { spool, text } = await opened();
    const input = new PassThrough();
    const done = spool.fill(input, () => input.destroy(new Error('EIO: i/o error, read')));
    input.write('one\ntw');
    await done;
    expect(spool.failure).toMatchObject({ code: BAD_DATA, message: 'standard input: EIO: i/o error, read' });
    expect(text()).toBe('one\n');
  });

  it('is taken to the end of what was read ahead when it is closed while it waits for room', async () => {
    const { spool, text } = await opened('', 4);
    const input = new PassThrough();
    const first = new Promise<void>((resolve) => {
      void spool.fill(input, resolve);
    });
    input.write('one\ntwo\n');
    await first;
    expect(spool.paused).toBe(true);
    input.write('three\nfour\nfi');
    await spool.close();
    expect(text()).toBe('one\ntwo\nthree\nfour\n');
    expect(spool).toMatchObject({ ended: true, failure: undefined, lines: 4, dropped: 2 });
  });

  it('is not read any more after close; half a line is counted as dropped', async () => {
    const { spool, text } = await opened();
    const input = new PassThrough();
    const first = new Promise<void>((resolve) => {
      void spool.fill(input, resolve);
    });
    input.write('one\ntw');
    await first;
    await spool.close();
    expect(input.destroyed).toBe(true);
    expect(spool).toMatchObject({ ended: true, failure: undefined, lines: 1, dropped: 2 });
    expect(text()).toBe('one\n');
  });

  it('is not read faster than it is taken', async () => {
    const line = `${'x'.repeat(99)}\n`;
    const { file, spool } = await opened(undefined, 1000);
    let pauses = 0;
    const takes: Promise<void>[] = [];
    const take = async () => {
      const { lead, size } = spool;
      expect(lead).toBe(1000);
      // Time enough to append more, if it did.
      for (let i = 0; i < 5; i++) expect((await readFile(file)).length).toBe(size);
      pauses += 1;
      spool.taken(size - 1000);
      expect(spool.paused).toBe(true);
      spool.taken(size);
    };
    const input = Readable.from(Array<Buffer>(105).fill(Buffer.from(line)));
    await spool.fill(input, () => {
      if (spool.paused) takes.push(take());
    });
    await Promise.all(takes);
    expect([pauses, spool.size, spool.lead]).toEqual([10, 10_500, 500]);
  });

  it('does not wait for room for ever when it is closed', async () => {
    const { spool } = await opened('one\n', 4);
    expect(spool.paused).toBe(true);
    const filled = spool.fill(new PassThrough(), nothing);
    await spool.close();
    await filled;
    expect(spool).toMatchObject({ ended: true, failure: undefined });
  });
});

describe('the file', () => {
  it('is gone on with; half a line that a crash left is cut', async () => {
    const { spool, text } = await opened('one\ntwo\nthr');
    expect(spool).toMatchObject({ size: 8, cut: 3 });
    await spool.fill(pieces('three\n'), nothing);
    expect(text()).toBe('one\ntwo\nthree\n');
    const { spool: whole } = await opened('one\n');
    expect(whole).toMatchObject({ size: 4, cut: 0 });
    const { spool: half, text: rest } = await opened('one');
    expect(half).toMatchObject({ size: 0, cut: 3 });
    expect(rest()).toBe('');
  });

  it('must be one that can hold lines, and must have what was trained of it', async () => {
    const directory = temporaryDirectory();
    const at = (name: string) => join(directory, name);
    mkdirSync(at('folder'));
    for (const file of [at('folder'), '/dev/null', at('no/spool.tsv')])
      await expect(Spool.open(file), file).rejects.toMatchObject({ code: BAD_ARGUMENT, message: /--spool/ });
    writeFileSync(at('wide'), 'x'.repeat(2 * MAX_LINE_BYTES));
    await expect(Spool.open(at('wide'))).rejects.toMatchObject({ code: BAD_DATA });
    const input = openSync(at('same'), 'a+');
    const folder = openSync(at('folder'), 'r');
    for (const [fd, message] of [
      [input, /both standard input and its spool/],
      [folder, /is a directory/],
    ] as const)
      await expect(Spool.open(at('same'), 1, fd)).rejects.toMatchObject({ code: BAD_ARGUMENT, message });
    closeSync(input);
    closeSync(folder);
    const { spool } = await opened('one\n');
    spool.resume(4);
    expect(() => spool.resume(5)).toThrow(expect.objectContaining({ code: BAD_DATA }));
  });

  it('has one writer', async () => {
    const { file, spool, text } = await opened();
    const input = new PassThrough();
    const done = spool.fill(input, () => {
      if (spool.ended) return;
      appendFileSync(file, 'other\n');
      input.write('two\n');
    });
    input.write('one\n');
    await done;
    expect(spool.failure).toMatchObject({ code: BAD_DATA, message: /somebody else writes it/ });
    expect(text()).toBe('one\nother\n');
  });

  it('may be on a disk that is full: there is a code, and what is there stays', async () => {
    const { file, spool, text } = await opened();
    const handle = await open(file);
    const write = vi.spyOn(Object.getPrototypeOf(handle) as typeof handle, 'write');
    onTestFinished(() => write.mockRestore());
    await handle.close();
    await spool.fill(pieces('one\n', 'two\n'), () => {
      write.mockRejectedValueOnce(new Error('ENOSPC: no space left on device, write'));
    });
    expect(spool.failure).toMatchObject({ code: BAD_ARGUMENT, message: /cannot be written: ENOSPC/ });
    expect(text()).toBe('one\n');
    rmSync(file);
  });
});

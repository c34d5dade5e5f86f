/**
 * Files that grow: whole lines only, word when there are more, and errors when they do something else than
 * grow.
 */
import { appendFileSync, mkdtempSync, renameSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { criteo } from '../../../src/data/criteo.js';
import { fileSource } from '../../../src/data/file-source.js';
import { GrowingFiles } from '../../../src/data/growing.js';
import type { Source } from '../../../src/data/source.js';
import type { DatasetStatus, RangeLease } from '../../../src/library/client/dataset.js';
import { cutGrowingParts } from '../../../src/training/loop/files.js';
import { type Feeding, FileFollower, FileLength } from '../../../src/training/loop/follow.js';

let directory = '';
let file = '';
let files: GrowingFiles;
let growing: FileLength;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-follow-'));
  file = join(directory, 'a.tsv');
  writeFileSync(file, '');
  files = new GrowingFiles([file]);
  growing = new FileLength(files, ['a.tsv']);
});
afterEach(() => {
  growing.close();
  files.close();
  rmSync(directory, { recursive: true, force: true });
});

describe('growing files', () => {
  it('are there up to the last whole line', async () => {
    expect(await growing.look()).toEqual([0]);
    for (const [text, whole] of [
      ['one', 0],
      ['\ntwo', 4],
      ['', 4],
      ['\n\n', 9],
      ['x'.repeat(70), 9],
    ] as const) {
      appendFileSync(file, text);
      expect(await growing.look()).toEqual([whole]);
    }
    const many = `${'0123456789\n'.repeat(20_000)}rest`;
    appendFileSync(file, `\n${many}`);
    expect(await growing.look()).toEqual([9 + 71 + many.length - 4]);
  });

  it('that were cut, replaced, removed, or have no end of a line are refused', async () => {
    appendFileSync(file, 'one\ntwo\n');
    await growing.look();
    truncateSync(file, 4);
    await expect(growing.look()).rejects.toMatchObject({ code: 'BAD_DATA', message: /cut or replaced/ });
    const other = join(directory, 'b.tsv');
    writeFileSync(other, 'one\ntwo\nthree\n');
    renameSync(other, file);
    await expect(growing.look()).rejects.toMatchObject({ code: 'BAD_DATA', message: /cut or replaced/ });
    rmSync(file);
    await expect(growing.look()).rejects.toMatchObject({ code: 'BAD_DATA' });
    const wide = join(directory, 'wide.tsv');
    writeFileSync(wide, 'x'.repeat(70_000));
    await expect(new GrowingFiles([wide]).sizes()).rejects.toMatchObject({ code: 'BAD_DATA' });
  });

  it('may take back half a line, which nobody was told of', async () => {
    writeFileSync(file, 'one\ntw');
    expect(await growing.look()).toEqual([4]);
    truncateSync(file, 4);
    expect(await growing.look()).toEqual([4]);
    // As long as what was there before.
    appendFileSync(file, '2\n');
    expect(await growing.look()).toEqual([6]);
  });

  it('are on disk as far as they are told of', async () => {
    const handle = await open(file);
    const synced = vi.spyOn(Object.getPrototypeOf(handle) as typeof handle, 'datasync');
    await handle.close();
    appendFileSync(file, 'one');
    await growing.look();
    expect(synced).toHaveBeenCalledTimes(0);
    appendFileSync(file, '\n');
    await growing.look();
    await growing.look();
    expect(synced).toHaveBeenCalledTimes(1);
    appendFileSync(file, 'two\n');
    synced.mockRejectedValueOnce(new Error('EIO: i/o error, fdatasync'));
    await expect(growing.look()).rejects.toMatchObject({ code: 'BAD_DATA', message: /a\.tsv: EIO/ });
    expect(await growing.look()).toEqual([8]);
    synced.mockRestore();
  });

  it('give word when they grow, also where the file system does not', async () => {
    await growing.look();
    const change = growing.change();
    appendFileSync(file, 'one\n');
    await change;
    expect(await growing.look()).toEqual([4]);
    files.close();
    const unwatched = new FileLength(files, ['a.tsv'], 5);
    await unwatched.change();
    expect(await unwatched.look()).toEqual([4]);
  });

  it('that a run has read before go at least so far, and a line ends there', async () => {
    const follow = (lagMs = 500) => new FileLength(new GrowingFiles([file]), ['a.tsv'], 5, lagMs);
    writeFileSync(file, 'one\ntwo\n');
    await follow().resume([0]);
    await follow().resume([4]);
    await follow().resume([8]);
    const other = { code: 'BAD_DATA', message: /a\.tsv: no line ends at byte 5, .* another --run/ };
    await expect(follow().resume([5])).rejects.toMatchObject(other);
    const cut = { code: 'BAD_DATA', message: /a\.tsv: goes to 8 here, and to 12 .* before/ };
    await expect(follow(20).resume([12])).rejects.toMatchObject(cut);
    // A file of another machine may come up later.
    const late = follow(10_000).resume([12]);
    appendFileSync(file, 'ten\n');
    await late;
  });

  it('are waited for where another worker has seen more', async () => {
    const quick = new FileLength(files, ['a.tsv'], 5, 500);
    const reached = quick.reached(0, 4);
    appendFileSync(file, 'one\n');
    await reached;
    await expect(quick.reached(0, 5)).rejects.toMatchObject({
      code: 'BAD_DATA',
      message: /a\.tsv: goes to 4 here, and to 5/,
    });
    quick.close();
  });

  it('that are compressed or parquet cannot be followed; empty ones are cut as others are', async () => {
    const sizes = fileSource(criteo, ['a.tsv.gz']).sizes!();
    await expect(sizes).rejects.toMatchObject({ code: 'BAD_ARGUMENT', message: /is compressed/ });
    const cut = async () => cutGrowingParts(await fileSource(criteo, [file]).list(), 10, 10);
    expect(await cut()).toEqual([{ name: 'a.tsv', size: 0, rangeBytes: 19_600 }]);
    writeFileSync(file, '123456789\n');
    expect(await cut()).toEqual([{ name: 'a.tsv', size: 0, rangeBytes: 980 }]);
  });
});

describe('a source that grows', () => {
  it('is asked one time after the other, and must only grow', async () => {
    const answers = [[5], [7], [6], [1, 2]];
    let asked = 0;
    const source: Pick<Source, 'sizes'> = {
      async sizes() {
        expect(++asked).toBe(1);
        await new Promise((resolve) => setImmediate(resolve));
        asked -= 1;
        return answers.shift()!;
      },
    };
    const growth = new FileLength(source, ['p'], 5);
    const looks = await Promise.allSettled([growth.look(), growth.look(), growth.look(), growth.look()]);
    expect(looks.map((each) => (each.status === 'fulfilled' ? each.value : each.reason.message))).toEqual([
      ...[[5], [7]],
      'p: goes to 6, and went to 7; what is followed must only grow',
      'the source has 1 parts, and sizes() of 2',
    ]);
  });

  it('ends a sleep with its word, and none that fails to give it', async () => {
    let tell: () => void = () => {};
    const told = new FileLength({ changed: () => new Promise((resolve) => (tell = resolve)) }, ['p'], 60_000);
    const change = told.change();
    tell();
    await change;
    const fails = new FileLength({ changed: () => Promise.reject(new Error('no')) }, ['p'], 5);
    await fails.change();
    const stopped = new FileLength(
      { changed: (signal) => new Promise((resolve) => signal.addEventListener('abort', () => resolve())) },
      ['p'],
      5,
    );
    await stopped.change();
    stopped.close();
  });
});

describe('a follower', () => {
  class Scheduler {
    readonly told: number[][] = [];
    answer: (lease: RangeLease | undefined) => void = () => {};
    onTold: () => void = () => {};

    acquire(): Promise<RangeLease | undefined> {
      return new Promise((resolve) => {
        this.answer = resolve;
      });
    }

    async extend(sizes: readonly number[]): Promise<number[]> {
      this.told.push([...sizes]);
      this.onTold();
      return [...sizes];
    }

    next(): Promise<void> {
      return new Promise((resolve) => {
        this.onTold = resolve;
      });
    }
  }

  it('tells what has grown as long as it waits, once each time', async () => {
    const scheduler = new Scheduler();
    const follower = new FileFollower(scheduler, growing, 1);
    const asked = follower.acquire(0);
    for (const line of ['one\n', 'two\n']) {
      const told = scheduler.next();
      appendFileSync(file, line);
      await told;
    }
    const lease = { id: 7 } as RangeLease;
    scheduler.answer(lease);
    expect(await asked).toBe(lease);
    expect(scheduler.told).toEqual([[4], [8]]);
    // A size that the scheduler knows is not told again; without news only its answer ends the waiting.
    const again = follower.acquire(0);
    scheduler.answer(undefined);
    expect(await again).toBeUndefined();
    expect(scheduler.told).toHaveLength(2);
  });

  describe('that feeds its file', () => {
    const lease = (end: number) => ({ range: { end } }) as RangeLease;

    /**
     * A follower that feeds its file, and `told`: what it says of the file, in order. `statuses` are the
     * answers of the scheduler.
     */
    function feeding(states: { paused?: boolean; ended?: boolean }, statuses: Partial<DatasetStatus>[]) {
      const told: (number | 'end')[] = [];
      const fed: Feeding = {
        inlet: { paused: false, ended: false, ...states, taken: (end) => void told.push(end) },
        status: async () => ({ setAside: [], ...statuses.shift() }) as unknown as DatasetStatus,
        onEnd: () => void told.push('end'),
      };
      return { fed, told, statuses };
    }

    it('makes room by what it takes, and by what is left for nobody', async () => {
      const scheduler = new Scheduler();
      const { fed, told } = feeding({ paused: true }, [{ finished: 0, ranges: 1 }]);
      const follower = new FileFollower(scheduler, growing, 1, fed);
      appendFileSync(file, 'one\n');
      const room = new Promise<void>((resolve) => {
        fed.inlet.taken = (end) => {
          told.push(end);
          resolve();
        };
      });
      const asked = follower.acquire(0);
      await room;
      scheduler.answer(lease(9));
      await asked;
      expect(told).toEqual([4, 9]);
    });

    it('ends when its input has ended, all was told, and every range is finished or set aside', async () => {
      const scheduler = new Scheduler();
      const open = { finished: 1, ranges: 3 };
      const over = { finished: 2, ranges: 3, setAside: [{}] as DatasetStatus['setAside'] };
      const { fed, told, statuses } = feeding({ ended: true }, [open, over]);
      const quick = new FileLength(files, ['a.tsv'], 5);
      appendFileSync(file, 'one\n');
      const ended = new Promise<void>((resolve) => {
        fed.onEnd = () => {
          told.push('end');
          resolve();
        };
      });
      const asked = new FileFollower(scheduler, quick, 1, fed).acquire(0);
      await ended;
      expect(scheduler.told).toEqual([[4]]);
      expect([told, statuses]).toEqual([[4, 4, 'end'], []]);
      // A range that comes all the same, because it was returned at this moment, is for whoever asked: to be
      // handed back.
      scheduler.answer(lease(4));
      expect(await asked).toEqual(lease(4));
      quick.close();
    });
  });

  it('fails with its files', async () => {
    const follower = new FileFollower(new Scheduler(), growing, 1);
    rmSync(file);
    await expect(follower.acquire(0)).rejects.toMatchObject({ code: 'BAD_DATA' });
  });
});

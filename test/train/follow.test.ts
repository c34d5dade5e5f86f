/**
 * Files that grow: whole lines only, word when there are more, and errors when they do something else than
 * grow.
 */
import { appendFileSync, mkdtempSync, renameSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { DatasetStatus, Lease } from '../../src/client/dataset.js';
import { cutGrowingFiles } from '../../src/train/files.js';
import { type Feeding, Follower, GrowingFiles } from '../../src/train/follow.js';

let directory = '';
let file = '';
let growing: GrowingFiles;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-follow-'));
  file = join(directory, 'a.tsv');
  writeFileSync(file, '');
  growing = new GrowingFiles([file]);
});
afterEach(() => {
  growing.close();
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
    await expect(new GrowingFiles([wide]).look()).rejects.toMatchObject({ code: 'BAD_DATA' });
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
    const unwatched = new GrowingFiles([file], 5);
    unwatched.close();
    await unwatched.change();
    expect(await unwatched.look()).toEqual([4]);
  });

  it('are waited for where another worker has seen more', async () => {
    const quick = new GrowingFiles([file], 5, 500);
    const reached = quick.reached(0, 4);
    appendFileSync(file, 'one\n');
    await reached;
    await expect(quick.reached(0, 5)).rejects.toMatchObject({ code: 'BAD_DATA', message: /4 bytes here/ });
    quick.close();
  });

  it('that are compressed cannot be followed; empty ones are cut as others are', async () => {
    await expect(cutGrowingFiles(['a.tsv.gz'], 4)).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
    expect(await cutGrowingFiles([file], 10, 10)).toEqual([{ name: 'a.tsv', size: 0, rangeBytes: 19_600 }]);
    writeFileSync(file, '123456789\n');
    expect(await cutGrowingFiles([file], 10, 10)).toEqual([{ name: 'a.tsv', size: 0, rangeBytes: 980 }]);
  });
});

describe('a follower', () => {
  class Scheduler {
    readonly told: number[][] = [];
    answer: (lease: Lease | undefined) => void = () => {};
    onTold: () => void = () => {};

    acquire(): Promise<Lease | undefined> {
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
    const follower = new Follower(scheduler, growing);
    const asked = follower.acquire(0);
    for (const line of ['one\n', 'two\n']) {
      const told = scheduler.next();
      appendFileSync(file, line);
      await told;
    }
    const lease = { id: 7 } as Lease;
    scheduler.answer(lease);
    expect(await asked).toBe(lease);
    expect(scheduler.told).toEqual([[4], [8]]);
    // What is known is not told again; with nothing new the answer alone ends the waiting.
    const again = follower.acquire(0);
    scheduler.answer(undefined);
    expect(await again).toBeUndefined();
    expect(scheduler.told).toHaveLength(2);
  });

  describe('that feeds its file', () => {
    const lease = (end: number) => ({ range: { end } }) as Lease;

    /** What it says of the file, in order; `statuses` are the answers of the scheduler. */
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
      const follower = new Follower(scheduler, growing, fed);
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
      const quick = new GrowingFiles([file], 5);
      appendFileSync(file, 'one\n');
      const ended = new Promise<void>((resolve) => {
        fed.onEnd = () => {
          told.push('end');
          resolve();
        };
      });
      const asked = new Follower(scheduler, quick, fed).acquire(0);
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
    const follower = new Follower(new Scheduler(), growing);
    rmSync(file);
    await expect(follower.acquire(0)).rejects.toMatchObject({ code: 'BAD_DATA' });
  });
});

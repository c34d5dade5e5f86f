/**
 * Several schedulers that use one directory, step by step: a seed says whose call to the file system comes
 * next, and who dies there. Whatever the order, what was acknowledged is what everybody finds.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it, vi } from 'vitest';
import { openDirectoryStore } from '../../../src/stores/decisions/directory.js';

/** Awaited before every call to the file system; undefined: calls go on at once. */
const gates = vi.hoisted(() => ({ wait: undefined as (() => Promise<void>) | undefined }));
/** Closes the files of those who died. */
const closers = vi.hoisted(() => [] as (() => Promise<unknown>)[]);

vi.mock('node:fs/promises', async (original) => {
  type Call = (...args: unknown[]) => Promise<unknown>;
  const gated = (call: Call): Call =>
    async function (this: unknown, ...args) {
      await gates.wait?.();
      return call.apply(this, args);
    };
  const real = await original<Record<string, Call>>();
  const open = gated(async (...args) => {
    const file = (await real.open!(...args)) as Record<string, Call>;
    closers.push(file.close!.bind(file));
    // Only processes die here: what is written stays.
    file.sync = file.datasync = () => Promise.resolve();
    for (const name of ['appendFile', 'readFile', 'datasync', 'sync', 'stat', 'close'])
      file[name] = gated(file[name]!.bind(file));
    return file;
  });
  const names = ['readdir', 'rename', 'rm', 'stat'];
  return { ...real, open, ...Object.fromEntries(names.map((name) => [name, gated(real[name]!)])) };
});

const SCHEDULES = Number(process.env.KINTSUGI_TAKEOVERS ?? 60);
const PROCESSES = 4;
const WRITES = 5;
/** Small, so that journals are written anew all the time. */
const GROWTH_BYTES = 100;

function randomOf(seed: number): (below: number) => number {
  let state = seed * 2654435761;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    return (state >>> 8) % below;
  };
}

/** A process that stops before each call, until it is let go on. */
class Stepped {
  private static readonly current = new AsyncLocalStorage<Stepped>();
  over = false;
  private goOn: (() => void) | undefined;
  private stopped!: () => void;
  private failed!: (error: unknown) => void;

  static {
    gates.wait = () => Stepped.current.getStore()?.stop() ?? Promise.resolve();
  }

  /** Resolves when it stands before its first call. */
  start(work: () => Promise<void>): Promise<void> {
    return this.next(() => {
      Stepped.current.run(this, work).then(
        () => {
          this.over = true;
          this.stopped();
        },
        (error: unknown) => this.failed(error),
      );
    });
  }

  /** One call. */
  step(): Promise<void> {
    return this.next(() => this.goOn!());
  }

  private next(goOn: () => void): Promise<void> {
    return new Promise((resolve, reject) => {
      this.stopped = resolve;
      this.failed = reject;
      goOn();
    });
  }

  private stop(): Promise<void> {
    return new Promise((resolve) => {
      this.goOn = resolve;
      this.stopped();
    });
  }
}

const root = mkdtempSync(join(tmpdir(), 'kintsugi-takeover-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));

it('what was acknowledged is found, whoever goes on and whoever dies', async () => {
  const outcomes = { acknowledged: 0, deposed: 0 };
  for (let seed = 1; seed <= SCHEDULES; seed++) {
    const random = randomOf(seed);
    const path = join(root, `${seed}`);
    const acknowledged: string[] = [];
    let started = 0;

    const work = async () => {
      const name = `${++started}`;
      const store = openDirectoryStore(path, GROWTH_BYTES);
      const before = [...acknowledged];
      const loaded = await store.load();
      expect(
        before.filter((key) => !loaded.has(key)),
        `seed ${seed}: what ${name} reads`,
      ).toEqual([]);
      try {
        for (let i = 0; i < WRITES; i++) {
          await store.write(new Map([[`${name}/${i}`, 'x'.repeat(random(40))]]));
          acknowledged.push(`${name}/${i}`);
        }
      } catch (error) {
        expect(error).toMatchObject({ code: 'DEPOSED' });
        outcomes.deposed++;
      }
    };

    let alive: Stepped[] = [];
    while (started < PROCESSES || alive.length > 0) {
      if (started < PROCESSES && random(30) === 0) {
        const process = new Stepped();
        await process.start(work);
        alive.push(process);
      } else if (alive.length > 0) {
        const chosen = alive[random(alive.length)]!;
        if (random(60) === 0) alive = alive.filter((process) => process !== chosen);
        // One goes on for a while, so that others are far behind.
        else for (let steps = 1 + random(8); steps > 0 && !chosen.over; steps--) await chosen.step();
        alive = alive.filter(({ over }) => !over);
      }
    }
    outcomes.acknowledged += acknowledged.length;
    const last = openDirectoryStore(path);
    await last.write(new Map([['last', seed]]));
    const found = await last.load();
    await last.close();
    expect(
      acknowledged.filter((key) => !found.has(key)),
      `seed ${seed}`,
    ).toEqual([]);
    for (const close of closers.splice(0)) await close().catch(() => {});
  }
  // Both occur, or nothing was proved.
  expect(outcomes.acknowledged).toBeGreaterThan(SCHEDULES);
  expect(outcomes.deposed).toBeGreaterThan(SCHEDULES / 4);
});

/**
 * The scheduler's state in a directory: a journal (journal.ts), and the same in memory.
 *
 *   journal-7        entries and changes
 *   journal-8.new    is being written; nobody reads it
 *
 * A journal has one writer, which made it. A process that begins to write in a directory, or finds that its
 * own journal has grown long, makes the journal of the next number and then removes the others.
 *
 * Two schedulers on one directory cannot both believe that they keep the job. Before a process makes
 * `journal-8` it creates `journal-8.new`, which only one process can do. Then it looks whether `journal-7` is
 * still the newest and as it was read. The writer of `journal-7` looks for higher numbers when a transaction
 * is durable, before anybody is told. So either the writer sees the file `journal-8.new`, or the new process
 * sees the writer's transaction. The one that sees the other gives up.
 */
import { mkdirSync } from 'node:fs';
import { type FileHandle, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { causedBy, describe, KintsugiError } from '../../common/errors.js';
import { systemAdvice } from '../../common/system-errors.js';
import { syncMade } from './folder.js';
import type { Entries, StateStore } from './index.js';
import { changeLine, firstLine, readJournal, type Text } from './journal.js';
import { readLmdb, retireLmdb } from './lmdb.js';
import { syncDirectory } from './sync.js';

const NAME = /^journal-(\d+)(\.new)?$/;
/** A journal is written anew when it has grown by this, and by twice what it began with. */
const LEAST_GROWTH_BYTES = 1 << 20;
/** Another process may replace the journal between a look for it and reading it. */
const READ_ATTEMPTS = 10;

interface WrittenJournal {
  number: number;
  ino: number;
  file: FileHandle;
  /** Transactions behind the first line. */
  transactions: number;
  firstBytes: number;
  grownBytes: number;
}

/** The directory as this process found it, before it wrote anything. */
interface Found {
  /** The highest number in a name; 0: there is none. */
  highest: number;
  /** The journal that was read. */
  journal?: { number: number; ino: number; bytes: number };
}

const isMissing = (error: unknown): boolean => (error as { code?: string }).code === 'ENOENT';

class DirectoryStore implements StateStore {
  /** JSON of the values, by key. */
  private entries = new Map<string, string>();
  private found: Promise<Found> | undefined;
  private written: WrittenJournal | undefined;
  /** Transactions that wait while one is being written. They become one. */
  private waiting: { changes: Text[]; done: Promise<void> } | undefined;
  private last: Promise<void> = Promise.resolve();

  constructor(
    private readonly path: string,
    /** The highest folder that was made for it; its own path: it may have been made just now. */
    private readonly made: string,
    private readonly leastGrowthBytes: number,
  ) {}

  async load(): Promise<Entries> {
    await this.look();
    return new Map([...this.entries].map(([key, text]) => [key, JSON.parse(text) as unknown]));
  }

  write(changes: Entries): Promise<void> {
    // Values are encoded now, because they may change before it is their turn.
    const texts = [...changes].map(([key, value]): Text => [key, JSON.stringify(value)]);
    if (this.waiting) {
      for (const text of texts) this.waiting.changes.push(text);
      return this.waiting.done;
    }
    // After a write that failed all others fail in the same way, because nobody knows what it left in the
    // file.
    const done = this.last.then(() => {
      this.waiting = undefined;
      return this.commit(texts);
    });
    this.waiting = { changes: texts, done };
    this.last = done;
    return done;
  }

  async clearInside(name: string): Promise<void> {
    try {
      for (const one of await this.inside(name)) await rm(join(this.path, one), { recursive: true });
    } catch (error) {
      if (!isMissing(error)) throw unusable(this.path, error);
    }
  }

  async hasInside(name: string): Promise<boolean> {
    try {
      return (await this.inside(name)).length > 0;
    } catch (error) {
      if (isMissing(error)) return false;
      throw unusable(this.path, error);
    }
  }

  private async inside(name: string): Promise<string[]> {
    return (await readdir(this.path)).filter((one) => one.startsWith(name));
  }

  async close(): Promise<void> {
    await this.last.catch(() => {});
    await this.written?.file.close();
    this.written = undefined;
  }

  private name(number: number, suffix: '' | '.new' = ''): string {
    return join(this.path, `journal-${number}${suffix}`);
  }

  /** Numbers of the journals, ascending, and the highest number in any name. */
  private async numbers(): Promise<{ journals: number[]; highest: number }> {
    const names = (await readdir(this.path)).map((name) => NAME.exec(name)).filter((match) => match !== null);
    const journals = names.filter(([, , suffix]) => !suffix).map(([, number]) => Number(number));
    const highest = Math.max(0, ...names.map(([, number]) => Number(number)));
    return { journals: journals.sort((a, b) => a - b), highest };
  }

  /** @throws BAD_ARGUMENT, STORE_FAILED, DEPENDENCY_MISSING */
  private look(): Promise<Found> {
    this.found ??= this.read().catch((error: unknown) => {
      if (error instanceof KintsugiError) throw error;
      throw unusable(this.path, error);
    });
    return this.found;
  }

  private async read(): Promise<Found> {
    for (let attempt = 1; ; attempt++) {
      const { journals, highest } = await this.numbers();
      const number = journals.at(-1);
      if (number === undefined) {
        this.entries = await readLmdb(this.path);
        return { highest };
      }
      const path = this.name(number);
      try {
        const { ino, bytes } = await durableFile(path);
        this.entries = readJournal(path, bytes);
        return { highest, journal: { number, ino, bytes: bytes.length } };
      } catch (error) {
        if (!isMissing(error) || attempt === READ_ATTEMPTS) throw error;
      }
    }
  }

  private async commit(changes: readonly Text[]): Promise<void> {
    const found = await this.look();
    for (const [key, text] of changes) {
      if (text === undefined) this.entries.delete(key);
      else this.entries.set(key, text);
    }
    try {
      const { written } = this;
      const most = Math.max(this.leastGrowthBytes, 2 * (written?.firstBytes ?? 0));
      if (written && written.grownBytes < most) await this.append(written, changes);
      else await this.begin((written?.number ?? found.highest) + 1, found);
      await this.demandLead();
    } catch (error) {
      if (error instanceof KintsugiError) throw error;
      // A successor removes this one's files, so the failure may only mean that there is one.
      const { journals } = await this.numbers().catch(() => ({ journals: [] }));
      if ((journals.at(-1) ?? 0) > ((this.written ?? found.journal)?.number ?? 0)) throw this.deposed();
      const text = `cannot write to "${this.path}": ${describe(error)}`;
      throw new KintsugiError('STORE_FAILED', text, { cause: error });
    }
  }

  private async append(written: WrittenJournal, changes: readonly Text[]): Promise<void> {
    const line = changeLine(++written.transactions, changes);
    await written.file.appendFile(line);
    await written.file.datasync();
    written.grownBytes += line.length;
  }

  /** A journal of this number with all entries. */
  private async begin(number: number, found: Found): Promise<void> {
    const claim = this.name(number, '.new');
    const file = await open(claim, 'wx').catch((error: unknown) => {
      throw (error as { code?: string }).code === 'EEXIST' ? this.deposed() : error;
    });
    try {
      await this.demandUnchanged(found);
      const line = firstLine(this.entries);
      await file.appendFile(line);
      await file.sync();
      await rename(claim, this.name(number));
      await syncDirectory(this.path);
      // A journal whose folder is gone after a loss of power is lost. Not everybody may read what is above.
      if (!this.written) await syncMade(this.path, this.made).catch(() => {});
      const { ino } = await file.stat();
      const old = this.written;
      this.written = { number, ino, file, transactions: 0, firstBytes: line.length, grownBytes: 0 };
      await old?.file.close();
    } catch (error) {
      await file.close();
      await rm(claim, { force: true });
      throw error;
    }
    await this.removeBelow(number);
  }

  /** Checks that the entries come from the newest journal and that nobody has written to it meanwhile. */
  private async demandUnchanged(found: Found): Promise<void> {
    const { written } = this;
    const bytes = written && written.firstBytes + written.grownBytes;
    const known = written ? { ...written, bytes } : found.journal;
    if ((await this.numbers()).journals.at(-1) !== known?.number) throw this.deposed();
    if (!known) return;
    const { ino, size } = await stat(this.name(known.number));
    if (ino !== known.ino || size !== known.bytes) throw this.deposed();
  }

  /** Checks that the next process would read the journal of this one. */
  private async demandLead(): Promise<void> {
    const { number, ino } = this.written!;
    // A listing may miss a file that is renamed meanwhile. The second one has its final name.
    for (let listing = 0; listing < 2; listing++) {
      const highest = await this.numbers().then((names) => names.highest, zeroIfMissing);
      if (highest > number) throw this.deposed();
    }
    const own = await stat(this.name(number)).catch(() => undefined);
    if (own?.ino !== ino) throw new Error(`journal-${number} was removed or replaced`);
  }

  private deposed(): KintsugiError {
    return new KintsugiError('DEPOSED', `another scheduler keeps the job in "${this.path}"`);
  }

  /**
   * Removes older files, journals first: the name of a higher number may go only when the files have gone
   * that it is compared with.
   */
  private async removeBelow(number: number): Promise<void> {
    const names = (await readdir(this.path)).map((name) => NAME.exec(name)).filter((match) => match !== null);
    const below = names.filter(([, other]) => Number(other) < number);
    const journals = below.filter(([, , suffix]) => !suffix);
    const claims = below.filter(([, , suffix]) => suffix);
    for (const [name] of [...journals, ...claims]) await rm(join(this.path, name), { force: true });
    await retireLmdb(this.path);
  }
}

/**
 * A process that was killed may not have synced what it wrote. So the file is synced before anything builds
 * on it.
 */
async function durableFile(path: string): Promise<{ ino: number; bytes: Buffer }> {
  const file = await open(path, 'r');
  try {
    const { ino } = await file.stat();
    const bytes = await file.readFile();
    await file.sync();
    return { ino, bytes };
  } finally {
    await file.close();
  }
}

function zeroIfMissing(error: unknown): number {
  if (isMissing(error)) return 0;
  throw error;
}

const unusable = (path: string, error: unknown): KintsugiError =>
  // A volume of another user is no bad argument: it may be mended.
  causedBy(
    error,
    systemAdvice(error) === undefined ? 'BAD_ARGUMENT' : 'STORE_FAILED',
    `cannot use "${path}" for the scheduler's state`,
  );

/**
 * `leastGrowthBytes`: by how much a journal grows before it is written anew.
 * @throws BAD_ARGUMENT when the path is no directory, STORE_FAILED when the process has no right to it,
 * SYSTEM_LIMIT
 */
export function openDirectoryStore(path: string, leastGrowthBytes = LEAST_GROWTH_BYTES): StateStore {
  try {
    const made = mkdirSync(path, { recursive: true });
    return new DirectoryStore(path, made ?? path, leastGrowthBytes);
  } catch (error) {
    throw unusable(path, error);
  }
}

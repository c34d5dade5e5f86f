/**
 * Files that are written beside a run, for people who look at them. When one cannot be written, because the
 * disk is full or the directory is gone, that is told once, and the run goes on. Each write is tried: there
 * may be room again.
 */
import { closeSync, fstatSync, ftruncateSync, openSync, writeFileSync } from 'node:fs';
import { describe } from '../../common/errors.js';

export class Aside {
  private told = false;

  /** `tell` is told that `what` is not complete, and why, the first time. */
  constructor(
    private readonly what: string,
    private readonly tell: (text: string) => void,
  ) {}

  write(work: () => void): void {
    try {
      work();
    } catch (error) {
      if (this.told) return;
      this.told = true;
      this.tell(`${this.what} is not complete: ${describe(error)}`);
    }
  }
}

/** All of it or nothing, because half a record would hide those behind it. @throws what the system says */
export function appendWhole(path: string, bytes: Uint8Array | string): void {
  const file = openSync(path, 'a');
  try {
    const { size } = fstatSync(file);
    try {
      writeFileSync(file, bytes);
    } catch (error) {
      cut(file, size);
      throw error;
    }
  } finally {
    closeSync(file);
  }
}

function cut(file: number, size: number): void {
  try {
    ftruncateSync(file, size);
  } catch {
    // Not a file of a disk, such as a pipe.
  }
}

/** Appends texts to the file of a flag, if the flag was given. */
export function appender(
  flag: string,
  path: string | undefined,
  tell: (text: string) => void,
): (text: string) => void {
  const aside = new Aside(`${flag} ${path}`, tell);
  return (text) => {
    if (path !== undefined) aside.write(() => appendWhole(path, text));
  };
}

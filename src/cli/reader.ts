/** `kintsugi reader`: reads data files for the program that has started it. */
import { fstatSync } from 'node:fs';
import { Socket } from 'node:net';
import type { Command } from 'commander';
import { KintsugiError } from '../common/errors.js';
import { ProgramReader } from '../training/reading/program.js';
import { stopSignal } from './lifetime.js';

async function run(): Promise<void> {
  const stopped = stopSignal();
  if (!fstatSync(0).isSocket())
    throw new KintsugiError('BAD_ARGUMENT', 'a program such as Python starts a reader, and is its input');
  const reader = new ProgramReader(new Socket({ fd: 0 }));
  await Promise.race([stopped, reader.closed]);
}

export function registerReader(program: Command): void {
  program
    .command('reader')
    .description('Read data files for a program on this machine, such as Python, that starts it.')
    .action(run);
}

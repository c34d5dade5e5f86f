#!/usr/bin/env node
/**
 * The command line. Commands are thin: flags in, one call, output. Whatever goes wrong ends here, in one line
 * with a code: `kintsugi: CODE: message`, exit 2 for everything that has a code of its own and exit 1 for a
 * bug.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Command, CommanderError } from 'commander';
import { describe, KintsugiError } from '../errors.js';
import { PACKAGE_ROOT } from '../package-root.js';
import { registerBench } from './bench.js';
import { registerDemo } from './demo.js';
import { RunFailure } from './failure.js';
import { registerLoad } from './load.js';
import { registerLocal } from './local.js';
import { registerPs } from './ps.js';
import { registerSave } from './save.js';
import { registerScale } from './scale.js';
import { registerScheduler } from './scheduler.js';
import { registerScrub } from './scrub.js';
import { registerStatus } from './status.js';
import { registerWorker } from './worker.js';

function version(): string {
  const manifest = readFileSync(join(PACKAGE_ROOT, 'package.json'), 'utf8');
  return (JSON.parse(manifest) as { version: string }).version;
}

export function createProgram(): Command {
  const program = new Command('kintsugi')
    .description('A parameter server for embedding tables that loses machines without losing training.')
    .version(version())
    .exitOverride()
    .configureOutput({ writeErr: () => {} })
    .showHelpAfterError(false)
    .addHelpText(
      'after',
      '\nEvery flag is listed by "kintsugi COMMAND --help". Errors end in one line with a code, exit 2.',
    );
  registerScheduler(program);
  registerPs(program);
  registerWorker(program);
  registerLocal(program);
  registerStatus(program);
  registerScale(program);
  registerSave(program);
  registerScrub(program);
  registerLoad(program);
  registerDemo(program);
  registerBench(program);
  return program;
}

function fail(error: unknown): void {
  if (error instanceof CommanderError) {
    if (error.exitCode === 0) return;
    const message =
      error.code === 'commander.help' ? 'a command is needed; see kintsugi --help' : error.message;
    return fail(new KintsugiError('BAD_ARGUMENT', message.replace(/^error: /, '')));
  }
  const known = error instanceof KintsugiError && error.code !== 'INTERNAL';
  const code = error instanceof KintsugiError ? error.code : 'INTERNAL';
  process.stderr.write(`kintsugi: ${code}: ${describe(error)}\n`);
  if (!known && process.env.KINTSUGI_DEBUG === '1' && error instanceof Error)
    process.stderr.write(`${error.stack}\n`);
  process.exitCode = known && !(error instanceof RunFailure) ? 2 : 1;
}

/** A thing left open (a socket that redials, a model's threads) must not keep a finished command alive. */
function leave(): void {
  process.stdout.write('', () => process.stderr.write('', () => process.exit()));
}

process.on('uncaughtException', (error) => {
  fail(error);
  leave();
});

createProgram().parseAsync(process.argv).catch(fail).finally(leave);

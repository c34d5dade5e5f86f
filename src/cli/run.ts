/**
 * The command line. Commands are thin: flags in, one call, output. Whatever goes wrong ends here, in one line
 * with a code: `kintsugi: CODE: message`, exit 2 for everything that has a code of its own and exit 1 for a
 * bug.
 */
import { CommanderError } from 'commander';
import { describe, KintsugiError } from '../errors.js';
import { RunFailure } from './failure.js';
import { createProgram } from './program.js';

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

/**
 * Whoever closes standard output has read what it wanted, as `head` has: the command ends, without a word and
 * as well as it went until then. Output that is lost for another reason is an error.
 */
function endOutput(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EPIPE' && process.exitCode === undefined)
    fail(new RunFailure('BAD_ARGUMENT', `standard output cannot be written: ${describe(error)}`));
  process.stderr.write('', () => process.exit());
}

process.stdout.on('error', (error) => {
  // The command sees to it.
  if (process.stdout.listenerCount('error') === 1) endOutput(error);
});

/** A thing left open (a socket that redials, a model's threads) must not keep a finished command alive. */
function leave(): void {
  process.stdout.write('', () => {
    // Of what was written last, the stream knows before it tells.
    const { errored } = process.stdout;
    if (errored && process.stdout.listenerCount('error') === 1) endOutput(errored);
    else process.stderr.write('', () => process.exit());
  });
}

process.on('uncaughtException', (error) => {
  // What breaks while the process ends adds nothing to the reason that was given.
  if (process.exitCode === undefined) fail(error);
  leave();
});

async function main(): Promise<void> {
  const program = await createProgram(process.argv[2]);
  await program.parseAsync(process.argv);
}

main().catch(fail).finally(leave);

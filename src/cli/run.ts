/**
 * The command line. Commands are thin: flags in, one call, output. Every error ends here in one line,
 * `kintsugi: CODE: message`. Exit 2 means bad input or a refusal, exit 1 a failed run or a bug.
 */
import { CommanderError } from 'commander';
import { causedBy, codeOf, describe, KintsugiError } from '../common/errors.js';
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
  const code = codeOf(error, 'INTERNAL');
  process.stderr.write(`kintsugi: ${code}: ${describe(error)}\n`);
  if (!known && process.env.KINTSUGI_DEBUG === '1' && error instanceof Error)
    process.stderr.write(`${error.stack}\n`);
  process.exitCode = known && !(error instanceof RunFailure) ? 2 : 1;
}

/**
 * A reader that closes standard output, as `head` does, has read what it wanted: the command ends without a
 * word, and keeps its exit code. Output that is lost for another reason is an error.
 */
function endOutput(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EPIPE' && process.exitCode === undefined)
    fail(RunFailure.of(causedBy(error, 'BAD_ARGUMENT', 'standard output cannot be written')));
  process.stderr.write('', () => process.exit());
}

process.stdout.on('error', (error) => {
  // The command has a handler of its own.
  if (process.stdout.listenerCount('error') === 1) endOutput(error);
});

/** A thing left open (a socket that redials, a model's threads) must not keep a finished command alive. */
function leave(): void {
  process.stdout.write('', () => {
    // `errored` is set before 'error' is emitted, so look here.
    const { errored } = process.stdout;
    if (errored && process.stdout.listenerCount('error') === 1) endOutput(errored);
    else process.stderr.write('', () => process.exit());
  });
}

process.on('uncaughtException', (error) => {
  // An error while the process ends must not hide the first one.
  if (process.exitCode === undefined) fail(error);
  leave();
});

async function main(): Promise<void> {
  const program = await createProgram(process.argv[2]);
  await program.parseAsync(process.argv);
}

main().catch(fail).finally(leave);

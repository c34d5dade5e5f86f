/** `kintsugi supervise`: a role that is started again when it crashes. */
import { hostname } from 'node:os';
import { Argument, type Command } from 'commander';
import { withoutFlags } from '../common/arguments.js';
import { type SharedFlags, withLogFormat } from './flags.js';
import { supervise } from './processes.js';
import { integer } from './values.js';

interface SuperviseFlags extends SharedFlags {
  crashes: number;
}

const ROLES = ['scheduler', 'ps', 'worker', 'replica'] as const;
const DEFAULT_CRASHES = 10;

async function run(role: string, args: string[], flags: SuperviseFlags): Promise<void> {
  // Roles write their records for the supervisor.
  const own = withoutFlags(args, ['--log-format']);
  const most = flags.crashes === 0 ? undefined : flags.crashes;
  await supervise(flags, `${hostname()}-${process.pid}`, [{ name: role, args: [role, ...own] }], most);
}

export function registerSupervise(program: Command): void {
  const command = program
    .command('supervise')
    .description(
      'Run a role, and start it again when it crashes; SIGTERM and SIGINT end it as they end the role.',
    )
    .addArgument(new Argument('<role>', 'what to run').choices(ROLES))
    .argument('[flags...]', 'its flags')
    .allowUnknownOption()
    .option(
      '--crashes <n>',
      'end after so many crashes in a row, none of which lived for a minute; 0 = never',
      integer('--crashes', 0),
      DEFAULT_CRASHES,
    );
  withLogFormat(command).action(run);
}

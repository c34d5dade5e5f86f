/** `kintsugi restart`: restarts PS one after the other, with complete redundancy all the time. */
import { type Command, Option } from 'commander';
import { KintsugiError } from '../common/errors.js';
import { bytesText, timeText } from '../fleet/local/text.js';
import { type RestartedNode, restart } from '../library/tools/restart.js';
import { type ConnectFlags, withClient } from './connected.js';
import { RunFailure } from './failure.js';
import { withScheduler } from './flags.js';
import { duration } from './values.js';

interface RestartFlags extends ConnectFlags {
  rolling: boolean;
  timeout: number;
  json: boolean;
}

function line({ name, back, shardsMoved, bytesMoved, drainMs, awayMs }: RestartedNode): string {
  const moved = `${shardsMoved} shards (${bytesText(bytesMoved)}) moved in ${timeText(drainMs)}`;
  const as = back === name ? '' : ` as ${back}`;
  return `${name}: ${moved}, back${as} after ${timeText(awayMs)}`;
}

async function run(nodes: string[], flags: RestartFlags): Promise<void> {
  if (flags.rolling === nodes.length > 0)
    throw new KintsugiError('BAD_ARGUMENT', 'restart needs names of PS, or --rolling for all');
  const onRestarted = (node: RestartedNode) => {
    if (!flags.json) process.stdout.write(`${line(node)}\n`);
  };
  const options = { timeoutMs: flags.timeout, onRestarted, ...(nodes.length > 0 && { nodes }) };
  const all = await withClient(flags, (client) => restart(client, options)).catch((error: unknown) => {
    if (error instanceof KintsugiError && error.code === 'TIMEOUT') throw RunFailure.of(error);
    throw error;
  });
  process.stdout.write(flags.json ? `${JSON.stringify(all)}\n` : `${all.length} PS were restarted\n`);
}

export function registerRestart(program: Command): void {
  withScheduler(
    program
      .command('restart')
      .description(
        'Restart PS of a running job one after the other, with complete redundancy: each is emptied first.',
      )
      .argument('[nodes...]', 'names, or ids of "kintsugi status --json" that are nobody\'s name'),
  )
    .option('--rolling', 'restart all', false)
    .addOption(
      new Option('--timeout <time>', 'for each step: to empty a PS, and until it is back')
        .argParser(duration('--timeout'))
        .default(60_000, '60s'),
    )
    .option('--json', 'print the result as JSON', false)
    .action(run);
}

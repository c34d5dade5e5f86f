/** `kintsugi load DIR`: loads what `save` wrote into a running job, of any size and any code. */
import type { Command } from 'commander';
import { load } from '../tools/load.js';
import { type ConnectFlags, withClient } from './connected.js';
import { withScheduler } from './flags.js';

async function run(directory: string, flags: ConnectFlags): Promise<void> {
  await withClient(flags, (client) => load(client, directory));
  process.stdout.write(`loaded ${directory}\n`);
}

export function registerLoad(program: Command): void {
  withScheduler(
    program
      .command('load')
      .description(
        'Load saved tables into a running job; it may have another number of nodes and another code.',
      )
      .argument('<directory>', 'what "kintsugi save" wrote'),
  ).action(run);
}

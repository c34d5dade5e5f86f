/** `kintsugi save DIR`: writes every table of a running job, with optimizer state. */
import type { Command } from 'commander';
import { save } from '../tools/save.js';
import { type ConnectFlags, withClient } from './connected.js';
import { withScheduler } from './flags.js';

interface Flags extends ConnectFlags {
  partial: boolean;
}

async function run(directory: string, flags: Flags): Promise<void> {
  const { lost } = await withClient(flags, (client) => save(client, directory, { partial: flags.partial }));
  const without = lost > 0 ? `, without ${lost} shards of tables that are beyond repair` : '';
  process.stdout.write(`saved to ${directory}${without}\n`);
}

export function registerSave(program: Command): void {
  withScheduler(
    program
      .command('save')
      .description(
        'Save every table of a running job with its optimizer state, as safetensors files and a manifest.',
      )
      .argument('<directory>', 'must not exist, or be empty'),
  )
    .option('--partial', 'leave out shards that are beyond repair, instead of failing', false)
    .action(run);
}

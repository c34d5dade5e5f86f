/** `kintsugi save PLACE`: writes every table of a running job, with optimizer state. */
import type { Command } from 'commander';
import { save } from '../library/tools/save.js';
import { absolutePlace } from './checkpoint-flags.js';
import { type ConnectFlags, withClient } from './connected.js';
import { withScheduler } from './flags.js';

interface SaveFlags extends ConnectFlags {
  partial: boolean;
}

async function run(place: string, flags: SaveFlags): Promise<void> {
  const url = absolutePlace(place);
  const { lost } = await withClient(flags, (client) => save(client, url, { partial: flags.partial }));
  const without = lost > 0 ? `, without ${lost} shards that are beyond repair` : '';
  process.stdout.write(`saved to ${place}${without}\n`);
}

export function registerSave(program: Command): void {
  withScheduler(
    program
      .command('save')
      .description('Save every table of a running job with its optimizer state, as checkpoint 1 of a place.')
      .argument('<place>', 'directory or s3://bucket/prefix; must not exist, or be empty'),
  )
    .option('--partial', 'leave out shards that are beyond repair', false)
    .action(run);
}

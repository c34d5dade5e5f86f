/** `kintsugi load PLACE`: loads the rows of a checkpoint into a running job, of any size and any code. */
import type { Command } from 'commander';
import { load } from '../library/tools/load.js';
import { placeAndNumber } from './checkpoint-flags.js';
import { type ConnectFlags, withClient } from './connected.js';
import { withScheduler } from './flags.js';

async function run(place: string, flags: ConnectFlags): Promise<void> {
  const { url, number } = placeAndNumber(place);
  const { lost } = await withClient(flags, (client) => load(client, url, { number }));
  const without = lost > 0 ? `, without ${lost} shards that it lacks: their rows begin anew` : '';
  process.stdout.write(`loaded ${place}${without}\n`);
}

export function registerLoad(program: Command): void {
  withScheduler(
    program
      .command('load')
      .description(
        'Load the tables of a checkpoint into a running job, which may have other nodes and another code.',
      )
      .argument(
        '<place>',
        'what "kintsugi save" wrote, or a place of checkpoints or exports; with @N, number N',
      ),
  ).action(run);
}

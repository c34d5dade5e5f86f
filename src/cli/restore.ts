/** `kintsugi restore`: loads lost shards of a running job from a checkpoint. */
import type { Command } from 'commander';
import { KintsugiError } from '../common/errors.js';
import { countText, timeText } from '../fleet/local/text.js';
import type { RestoredLost } from '../library/client/client.js';
import { asFailure, placeAndNumber } from './checkpoint-flags.js';
import { type ConnectFlags, withClient } from './connected.js';
import { withScheduler } from './flags.js';
import { hint } from './hints.js';

interface RestoreFlags extends ConnectFlags {
  onlyLost: boolean;
  json: boolean;
}

async function run(text: string, flags: RestoreFlags): Promise<void> {
  if (!flags.onlyLost) {
    const command = hint(['restore', text, '--only-lost'], flags);
    const whole = `a whole job begins with a checkpoint: kintsugi scheduler --restore ${text}`;
    throw new KintsugiError('BAD_ARGUMENT', `restore needs --only-lost: ${command}; ${whole}`);
  }
  const { url, number } = placeAndNumber(text);
  const restored = await withClient(flags, (client) =>
    client
      .restore(url, { onlyLost: true, number })
      .catch((error: unknown) => Promise.reject(asFailure(error))),
  );
  if (flags.json) process.stdout.write(`${JSON.stringify(restored)}\n`);
  else process.stdout.write(`${lines(restored).join('\n')}\n`);
}

function lines({ number, agoMs, shards }: RestoredLost): string[] {
  if (shards.length === 0) return ['nothing is lost'];
  const each = shards.map(
    ({ pool, shard, rows }) => `${pool} shard ${shard}: ${countText(rows)} rows of checkpoint ${number}`,
  );
  return [...each, `these shards are as they were ${timeText(agoMs)} ago; all others went on`];
}

export function registerRestore(program: Command): void {
  withScheduler(
    program
      .command('restore')
      .description(
        'Load the shards that a running job has lost from a checkpoint, and wait until they serve.',
      )
      .argument('<place[@number]>', 'directory or s3://bucket/prefix, and the number (default: the newest)'),
  )
    .option('--only-lost', 'only what is beyond repair; needed', false)
    .option('--json', 'print the result as JSON', false)
    .action(run);
}

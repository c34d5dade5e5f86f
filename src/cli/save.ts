/** `kintsugi save DIR`: writes every table of a running job, with optimizer state. */
import type { Command } from 'commander';
import { connect } from '../client.js';
import { saveJob } from '../tools/save.js';
import { clientTlsOf, type SharedFlags, tokenOf, withScheduler } from './flags.js';

interface Flags extends SharedFlags {
  scheduler: string;
  connectTimeout: number;
  partial: boolean;
}

async function run(directory: string, flags: Flags): Promise<void> {
  const client = await connect(flags.scheduler, {
    token: tokenOf(flags),
    tls: clientTlsOf(flags),
    timeoutMs: flags.connectTimeout,
  });
  try {
    const { lost } = await saveJob(client, directory, { partial: flags.partial });
    const without = lost > 0 ? `, without ${lost} shards of tables that are beyond repair` : '';
    process.stdout.write(`saved to ${directory}${without}\n`);
  } finally {
    await client.close();
  }
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

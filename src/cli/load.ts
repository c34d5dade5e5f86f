/** `kintsugi load DIR`: loads what `save` wrote into a running job, of any size and any code. */
import type { Command } from 'commander';
import { connect } from '../client.js';
import { loadJob } from '../tools/load.js';
import { clientTlsOf, type SharedFlags, tokenOf, withScheduler } from './flags.js';

interface Flags extends SharedFlags {
  scheduler: string;
  connectTimeout: number;
}

async function run(directory: string, flags: Flags): Promise<void> {
  const client = await connect(flags.scheduler, {
    token: tokenOf(flags),
    tls: clientTlsOf(flags),
    timeoutMs: flags.connectTimeout,
  });
  try {
    await loadJob(client, directory);
    process.stdout.write(`loaded ${directory}\n`);
  } finally {
    await client.close();
  }
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

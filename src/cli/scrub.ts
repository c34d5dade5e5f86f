/** `kintsugi scrub`: checks the parity equation on every block of a running job, without stopping it. */
import type { Command } from 'commander';
import { connect } from '../client.js';
import { scrub } from '../tools/scrub.js';
import { clientTlsOf, type SharedFlags, tokenOf, withScheduler } from './flags.js';

interface Flags extends SharedFlags {
  scheduler: string;
  connectTimeout: number;
  repair: boolean;
  json: boolean;
}

async function run(flags: Flags): Promise<void> {
  const client = await connect(flags.scheduler, {
    token: tokenOf(flags),
    tls: clientTlsOf(flags),
    timeoutMs: flags.connectTimeout,
  });
  try {
    const report = await scrub(client, { repair: flags.repair });
    const { blocksExpected, blocksChecked, blocksUnprotected, mismatched, wrong, repaired } = report;
    if (flags.json) process.stdout.write(`${JSON.stringify(report)}\n`);
    else {
      for (const { g, index, mismatched: blocks } of wrong) {
        process.stdout.write(`parity ${index} of group ${g}: ${blocks} blocks were wrong\n`);
      }
      const counts = `${blocksChecked} of ${blocksExpected} blocks checked, ${mismatched} wrong, ${blocksUnprotected} unprotected`;
      process.stdout.write(`${counts}${repaired > 0 ? `, ${repaired} parities built anew` : ''}\n`);
    }
    if (mismatched > 0) process.exitCode = 1;
  } finally {
    await client.close();
  }
}

export function registerScrub(program: Command): void {
  withScheduler(
    program
      .command('scrub')
      .description(
        'Check the parity equation on every block of a running job; exit 1 when blocks are wrong.',
      ),
  )
    .option('--repair', 'build wrong parities anew', false)
    .option('--json', 'print the report as JSON', false)
    .action(run);
}

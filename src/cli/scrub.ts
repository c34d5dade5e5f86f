/** `kintsugi scrub`: checks the parity equation on every block of a running job, without stopping it. */
import type { Command } from 'commander';
import { scrub } from '../library/tools/scrub.js';
import { type ConnectFlags, withClient } from './connected.js';
import { withScheduler } from './flags.js';

interface ScrubFlags extends ConnectFlags {
  repair: boolean;
  json: boolean;
}

async function run(flags: ScrubFlags): Promise<void> {
  const report = await withClient(flags, (client) => scrub(client, { repair: flags.repair }));
  const { blocksExpected, blocksChecked, blocksUnprotected, mismatched, wrong, repaired } = report;
  if (flags.json) process.stdout.write(`${JSON.stringify(report)}\n`);
  else {
    for (const { g, index, mismatched: blocks } of wrong) {
      process.stdout.write(`parity ${index} of group ${g}: ${blocks} blocks were wrong\n`);
    }
    const counts =
      `${blocksChecked} of ${blocksExpected} blocks checked, ${mismatched} wrong, ` +
      `${blocksUnprotected} unprotected`;
    process.stdout.write(`${counts}${repaired > 0 ? `, ${repaired} parities built anew` : ''}\n`);
  }
  if (mismatched > 0) process.exitCode = 1;
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

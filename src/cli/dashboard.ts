/** `kintsugi dashboard`: a page that shows a running job. */
import type { Command } from 'commander';
import { startDashboard } from '../fleet/dashboard/server.js';
import type { ConnectFlags } from './connected.js';
import { clientTlsOf, tokenOf, withScheduler } from './flags.js';
import { reachFlags } from './hints.js';
import { stopSignal } from './lifetime.js';
import { integer } from './values.js';

interface DashboardFlags extends ConnectFlags {
  port: number;
}

export const DEFAULT_DASHBOARD_PORT = 7080;

async function run(flags: DashboardFlags): Promise<void> {
  const stopped = stopSignal();
  const dashboard = await startDashboard({
    scheduler: flags.scheduler,
    port: flags.port,
    token: tokenOf(flags),
    tls: clientTlsOf(flags),
    connectTimeoutMs: flags.connectTimeout,
    flags: reachFlags(flags.scheduler, flags),
  });
  process.stdout.write(`${dashboard.url}\n`);
  try {
    await Promise.race([stopped, dashboard.failed]);
  } finally {
    await dashboard.close();
  }
}

export function registerDashboard(program: Command): void {
  withScheduler(
    program
      .command('dashboard')
      .description('Serve a page on loopback that shows a running job; it ends with SIGINT or SIGTERM.'),
  )
    .option(
      '--port <n>',
      'port on 127.0.0.1; 0 takes a free one',
      integer('--port', 0, 65_535),
      DEFAULT_DASHBOARD_PORT,
    )
    .action(run);
}

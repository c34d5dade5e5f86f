/** `kintsugi gateway`: a client of a running job for programs of other languages on the same machine. */
import { rmdirSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Command } from 'commander';
import { tuneV8 } from '../roles/v8.js';
import { Gateway } from '../training/gateway/gateway.js';
import { clientTlsOf, loggerOf, type SharedFlags, tokenOf, withLogFormat, withScheduler } from './flags.js';
import { LIFELINE_ENV, launcherGone, stopSignal } from './lifetime.js';

const GOODBYE_MS = 2000;

/** Removes the directory that the launcher made for the socket, unless it holds something else. */
function removeDirectory(directory: string): void {
  try {
    rmdirSync(directory);
  } catch {
    // The directory is gone already, or not empty.
  }
}

interface GatewayFlags extends SharedFlags {
  scheduler: string;
  connectTimeout: number;
  socket: string;
}

async function run(flags: GatewayFlags): Promise<void> {
  tuneV8();
  const stopped = Promise.race([stopSignal(), launcherGone()]);
  const log = loggerOf(flags, { role: 'gateway' });
  const gateway = await Gateway.open({
    scheduler: flags.scheduler,
    socket: flags.socket,
    client: { token: tokenOf(flags), tls: clientTlsOf(flags), connectTimeoutMs: flags.connectTimeout, log },
    log,
  });
  // The program that started the gateway waits for this line. If it is gone, the gateway ends in order.
  process.stdout.write(`${flags.socket}\n`);
  await stopped;
  // The gateway tells the job that its clients are gone. A job that does not answer finds out by itself.
  const late = new Promise<void>((resolve) => setTimeout(resolve, GOODBYE_MS).unref());
  await Promise.race([gateway.close(), late]);
  if (process.env[LIFELINE_ENV] === 'stdin') removeDirectory(dirname(flags.socket));
  log.info('gateway.stopped');
}

export function registerGateway(program: Command): void {
  const command = withScheduler(
    program
      .command('gateway')
      .description('Speak the protocol for programs on this machine, such as Python, over a Unix socket.'),
  ).requiredOption('--socket <path>', 'Unix socket to make, for its owner only');
  withLogFormat(command).action(run);
}

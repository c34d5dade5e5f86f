/** `kintsugi gateway`: a client of a running job for programs of other languages on the same machine. */
import { rmdirSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Command } from 'commander';
import { Gateway } from '../gateway/gateway.js';
import { tuneV8 } from '../runtime/v8.js';
import { clientTlsOf, loggerOf, type SharedFlags, tokenOf, withLogFormat, withScheduler } from './flags.js';
import { LIFELINE_ENV, launcherGone, stopSignal } from './lifetime.js';

const GOODBYE_MS = 2000;

/** The launcher made it for the socket alone. One that holds something else stays. */
function removeDirectory(directory: string): void {
  try {
    rmdirSync(directory);
  } catch {
    // Gone already, or not empty.
  }
}

interface Flags extends SharedFlags {
  scheduler: string;
  connectTimeout: number;
  socket: string;
}

async function run(flags: Flags): Promise<void> {
  tuneV8();
  const stopped = Promise.race([stopSignal(), launcherGone()]);
  const log = loggerOf(flags, { role: 'gateway' });
  const gateway = await Gateway.open({
    scheduler: flags.scheduler,
    socket: flags.socket,
    client: { token: tokenOf(flags), tls: clientTlsOf(flags), connectTimeoutMs: flags.connectTimeout, log },
    log,
  });
  // Whoever has started it waits for this line, or is gone: then this one ends in order, too.
  process.stdout.write(`${flags.socket}\n`);
  await stopped;
  // The job is told that its clients are gone; if it does not listen, it finds out by itself.
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
  ).requiredOption('--socket <path>', 'Unix socket to make; only its owner may open it');
  withLogFormat(command).action(run);
}

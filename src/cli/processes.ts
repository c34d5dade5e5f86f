/** `kintsugi ps --processes N`: what each of the N processes is told, and how they end together. */
import { availableParallelism, hostname } from 'node:os';
import { KintsugiError } from '../errors.js';
import { Supervisor } from '../local/supervisor.js';
import { formatAddress, parseAddress } from '../runtime/address.js';
import { textOf } from '../runtime/log.js';
import { RunFailure } from './failure.js';
import { loggerOf, type SharedFlags } from './flags.js';
import { followLauncher, stopSignal } from './lifetime.js';

export interface ProcessesFlags extends SharedFlags {
  processes: number;
  listen: string;
  advertise?: string;
  hostLabel?: string;
  name?: string;
  memory: number;
}

/** What was given to `kintsugi ps`, without the number of processes. */
function given(argv: readonly string[]): string[] {
  const args = argv.slice(argv.indexOf('ps') + 1);
  return args.filter((arg, i) => !/^--processes(=|$)/.test(arg) && args[i - 1] !== '--processes');
}

/** The same host, and the i-th port from there on; 0 stays 0. @throws BAD_ARGUMENT */
function nthAddress(flag: string, address: string, i: number): string {
  const { host, port } = parseAddress(address);
  if (port === 0) return address;
  if (port + i <= 65_535) return formatAddress({ host, port: port + i });
  throw new KintsugiError('BAD_ARGUMENT', `${flag} ${address} leaves no port for process ${i}`);
}

/** Name and arguments of each process. The last of two equal flags holds. @throws BAD_ARGUMENT */
export function processesOf(
  flags: ProcessesFlags,
  argv: readonly string[],
): { name: string; args: string[] }[] {
  const count = flags.processes === 0 ? availableParallelism() : flags.processes;
  const base = flags.name ?? `${hostname()}-${process.pid}`;
  const args = ['ps', ...given(argv), '--host-label', flags.hostLabel ?? hostname()];
  // The flag is for all of them together: they share a machine.
  if (flags.memory > 0) args.push('--memory', String(Math.max(1, Math.floor(flags.memory / count))));
  return Array.from({ length: count }, (_, i) => {
    const own = ['--name', `${base}-${i}`, '--listen', nthAddress('--listen', flags.listen, i)];
    if (flags.advertise !== undefined && /:\d+$/.test(flags.advertise))
      own.push('--advertise', nthAddress('--advertise', flags.advertise, i));
    return { name: `${base}-${i}`, args: [...args, ...own] };
  });
}

/** Until all have left the job, or a signal comes. @throws what one was refused for at its start */
export async function runProcesses(flags: ProcessesFlags): Promise<void> {
  followLauncher();
  const stopped = stopSignal();
  const log = loggerOf(flags, { role: 'supervisor', name: flags.name ?? `${hostname()}-${process.pid}` });
  const text = flags.logFormat === 'text' || (flags.logFormat === undefined && process.stderr.isTTY);
  const supervisor = new Supervisor({
    processes: processesOf(flags, process.argv),
    // The processes of `kintsugi local` speak without TLS; these as they were told.
    env: { KINTSUGI_TLS_CA: process.env.KINTSUGI_TLS_CA ?? '' },
    onEvent: (_, line) => process.stderr.write(text ? textOf(JSON.parse(line)) : `${line}\n`),
    onLine: (line, name) => log.warn('process.said', { process: name, line }),
    log,
  });
  try {
    const signal = await Promise.race([stopped, supervisor.ended]);
    await supervisor.stop(signal === 'SIGTERM' ? 'SIGTERM' : 'SIGINT').catch((error: unknown) => {
      throw error instanceof KintsugiError ? new RunFailure(error.code, error.message) : error;
    });
  } catch (error) {
    // What the others hold is not given up with the one that was refused.
    await supervisor.stop('SIGTERM').catch(() => {});
    throw error;
  }
}

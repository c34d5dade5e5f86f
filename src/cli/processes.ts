/** `kintsugi ps --processes N`: the arguments of each process, and how they end together. */
import { availableParallelism, hostname } from 'node:os';
import { withoutFlags } from '../common/arguments.js';
import { KintsugiError } from '../common/errors.js';
import { Supervisor } from '../fleet/local/supervisor.js';
import { formatAddress, parseAddress } from '../net/address.js';
import { textOf } from '../net/log.js';
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

/** Flags that each process has with a value of its own, and the number of processes. */
const OWN = ['processes', 'host-label', 'memory', 'name', 'listen', 'advertise', 'log-format'];

/** The arguments of `kintsugi ps` that all processes have. */
const given = (argv: readonly string[]): string[] =>
  withoutFlags(
    argv.slice(argv.indexOf('ps') + 1),
    OWN.map((name) => `--${name}`),
  );

/** The same host with the port i higher; port 0 stays 0. @throws BAD_ARGUMENT */
function nthAddress(flag: string, address: string, i: number): string {
  const { host, port } = parseAddress(address);
  if (port === 0) return address;
  if (port + i <= 65_535) return formatAddress({ host, port: port + i });
  throw new KintsugiError('BAD_ARGUMENT', `${flag} ${address} leaves no port for process ${i}`);
}

/** Name and arguments of each process. @throws BAD_ARGUMENT */
export function processesOf(
  flags: ProcessesFlags,
  argv: readonly string[],
): { name: string; args: string[] }[] {
  const count = flags.processes === 0 ? availableParallelism() : flags.processes;
  const base = flags.name ?? `${hostname()}-${process.pid}`;
  const args = ['ps', ...given(argv), '--host-label', flags.hostLabel ?? hostname()];
  // --memory is for all processes together, because they share a machine. Each is told, also of none.
  const memory = flags.memory > 0 ? Math.max(1, Math.floor(flags.memory / count)) : 0;
  args.push('--memory', String(memory));
  return Array.from({ length: count }, (_, i) => {
    const own = ['--name', `${base}-${i}`, '--listen', nthAddress('--listen', flags.listen, i)];
    const { advertise } = flags;
    if (advertise !== undefined)
      own.push('--advertise', /:\d+$/.test(advertise) ? nthAddress('--advertise', advertise, i) : advertise);
    return { name: `${base}-${i}`, args: [...args, ...own] };
  });
}

/** Runs until all have left the job or a signal comes. @throws the reason why one was refused at its start */
export const runProcesses = (flags: ProcessesFlags): Promise<void> =>
  supervise(flags, flags.name ?? `${hostname()}-${process.pid}`, processesOf(flags, process.argv));

/**
 * Runs until all have ended or a signal comes.
 * @param name of the supervisor, in its log records
 * @throws the reason why one was refused; the death of one that has crashed `maxCrashes` times in a row
 */
export async function supervise(
  flags: SharedFlags,
  name: string,
  processes: readonly { name: string; args: string[] }[],
  maxCrashes?: number,
): Promise<void> {
  followLauncher();
  const stopped = stopSignal();
  const log = loggerOf(flags, { role: 'supervisor', name });
  const text = flags.logFormat === 'text' || (flags.logFormat === undefined && process.stderr.isTTY);
  const supervisor = new Supervisor({
    processes,
    maxCrashes,
    // The processes of `kintsugi local` speak without TLS. These speak TLS when the environment says so.
    env: { KINTSUGI_TLS_CA: process.env.KINTSUGI_TLS_CA ?? '' },
    onEvent: (_, line) => process.stderr.write(text ? textOf(JSON.parse(line)) : `${line}\n`),
    onLine: (line, who) => log.warn('process.said', { process: who, line }),
    log,
  });
  try {
    const signal = await Promise.race([stopped, supervisor.ended]);
    await supervisor.stop(signal === 'SIGTERM' ? 'SIGTERM' : 'SIGINT').catch((error: unknown) => {
      throw error instanceof KintsugiError ? RunFailure.of(error) : error;
    });
  } catch (error) {
    // The other processes hold shards, so they drain even though one was refused.
    await supervisor.stop('SIGTERM').catch(() => {});
    throw error;
  }
}

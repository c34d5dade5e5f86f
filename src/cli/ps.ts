/** `kintsugi ps`: a node that holds shards. */
import { hostname } from 'node:os';
import { type Command, Option } from 'commander';
import { DEFAULT_POLICY, type Policy } from '../core/shared/policy.js';
import { KintsugiError } from '../errors.js';
import { RESTART_EXIT } from '../runtime/departure.js';
import type { Logger } from '../runtime/log.js';
import { machineId } from '../runtime/machine.js';
import { type RunningPs, startPs } from '../runtime/ps.js';
import { rehearse } from '../runtime/rehearsal.js';
import { tuneV8 } from '../runtime/v8.js';
import { RunFailure } from './failure.js';
import {
  duration,
  integer,
  loggerOf,
  metricsTokenOf,
  nodeTokenOf,
  roleTlsOf,
  type SharedFlags,
  size,
  tokenOf,
  withCertificate,
  withLogFormat,
  withMetricsToken,
  withNodeToken,
  withScheduler,
} from './flags.js';
import { failure, followLauncher, stopSignal } from './lifetime.js';
import { withLimits } from './limits.js';
import { runProcesses } from './processes.js';

interface Flags extends SharedFlags {
  scheduler: string;
  connectTimeout: number;
  listen: string;
  advertise?: string;
  hostLabel?: string;
  name?: string;
  standby: boolean;
  memory: number;
  recoveryRate: number;
  moveRate: number;
  drainTimeout: number;
  metricsPerShard: boolean;
  requireRedundancy: boolean;
  limit: Partial<Policy>;
  processes?: number;
}

/**
 * Nothing is lost when it fails: the job recovers what this node held, but its redundancy is spent meanwhile.
 */
async function leave(ps: RunningPs, timeoutMs: number, log: Logger): Promise<void> {
  log.info('ps.draining', { timeoutMs });
  await ps.drain(timeoutMs).catch((error: unknown) => {
    throw error instanceof KintsugiError ? new RunFailure(error.code, error.message) : error;
  });
  log.info('ps.drained');
}

async function run({ processes, ...flags }: Flags): Promise<void> {
  if (processes !== undefined) return runProcesses({ ...flags, processes });
  followLauncher();
  tuneV8();
  const stopped = stopSignal();
  const name = flags.name ?? `${hostname()}-${process.pid}`;
  const log = loggerOf(flags, { role: 'ps', name });
  const { ended, end } = failure();
  rehearse();
  const starting = startPs({
    scheduler: flags.scheduler,
    name,
    listen: flags.listen,
    advertise: flags.advertise,
    hostLabel: flags.hostLabel ?? hostname(),
    machine: machineId(),
    standby: flags.standby,
    token: tokenOf(flags),
    nodeToken: nodeTokenOf(flags),
    metricsToken: metricsTokenOf(flags),
    metricsPerShard: flags.metricsPerShard,
    tls: roleTlsOf(flags),
    memoryBytes: flags.memory,
    policy: {
      ...flags.limit,
      recoveryRate: flags.recoveryRate,
      moveRate: flags.moveRate,
      requireRedundancy: flags.requireRedundancy,
    },
    connectTimeoutMs: flags.connectTimeout,
    log,
    onStale: end,
    onFailed: (error) => end(new RunFailure(error.code, error.message, { cause: error })),
  });
  const ps = await Promise.race([starting, stopped]);
  // It has not joined, so it holds nothing. Its process ends, whatever still dials.
  if (typeof ps === 'string') return log.info('ps.stopped');
  try {
    const cause = await Promise.race([stopped, ended, ps.left]);
    // SIGINT is a person who wants it to end now; SIGTERM is a machine that goes away in an orderly manner.
    if (cause === 'SIGTERM' && flags.drainTimeout > 0)
      await Promise.race([leave(ps, flags.drainTimeout, log), ended]);
    else if (typeof cause === 'object' && cause.restart) process.exitCode = RESTART_EXIT;
  } finally {
    await ps.close();
  }
  log.info('ps.stopped');
}

export function registerPs(program: Command): void {
  const command = withScheduler(
    program.command('ps').description('Run a PS node: it holds shards of tables and parity.'),
  )
    .option('--listen <host:port>', 'address to listen on; port 0 takes a free one', '127.0.0.1:0')
    .option('--advertise <host[:port]>', 'address that others dial (default: the one it listens on)')
    .option(
      '--host-label <label>',
      'failure domain, also ZONE/HOST: shards of a group go to different ones, and to different zones ' +
        'first (default: the host name)',
    )
    .option(
      '--name <name>',
      'name of the node; a new process with the name replaces the old (default: host name and process id)',
    )
    .option(
      '--processes <n>',
      'run n PS of one host label, started again when they crash; 0 = one per core; --name and a port ' +
        'other than 0 are counted up; --memory is for all together',
      integer('--processes', 0, 1024),
    )
    .option('--standby', 'join without shards, to take over when a node is lost', false)
    .addOption(
      new Option('--memory <size>', 'limit for tables and parity; 0 = none')
        .argParser(size('--memory'))
        .default(0, '0, no limit'),
    )
    .option(
      '--recovery-rate <size>',
      'bytes per second that a shard recovers at in the background; 0 = as fast as leaves room for requests',
      size('--recovery-rate'),
      0,
    )
    .option(
      '--move-rate <size>',
      'bytes per second that planned moves bring to this node; 0 = as fast as leaves room for requests',
      size('--move-rate'),
      0,
    )
    .addOption(
      new Option(
        '--drain-timeout <time>',
        'at SIGTERM, hand everything over to other nodes in this time, and give up when nothing comes ' +
          'further for so long; 0s = end at once, as at SIGINT',
      )
        .argParser(duration('--drain-timeout'))
        .default(30_000, '30s'),
    )
    .option('--metrics-per-shard', '/metrics tells requests and bytes of each data shard, too', false)
    .option('--require-redundancy', 'refuse pushes while a group has no parity at all', false);
  withLimits(command, DEFAULT_POLICY, ['recoveryRate', 'moveRate']);
  withLogFormat(withMetricsToken(withNodeToken(withCertificate(command)))).action(run);
}

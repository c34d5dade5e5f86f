/** `kintsugi ps`: a node that holds shards. */
import { hostname } from 'node:os';
import { type Command, Option } from 'commander';
import { KintsugiError } from '../common/errors.js';
import { DEFAULT_POLICY, type Policy } from '../core/shared/policy.js';
import type { Logger } from '../net/log.js';
import { machineId } from '../net/machine.js';
import { RESTART_EXIT } from '../roles/ps/departure.js';
import { type RunningPs, startPs } from '../roles/ps/ps.js';
import { rehearse } from '../roles/ps/rehearsal.js';
import { optimizeLater, tuneV8 } from '../roles/v8.js';
import { RunFailure } from './failure.js';
import {
  loggerOf,
  metricsTokenOf,
  nodeTokenOf,
  roleTlsOf,
  type SharedFlags,
  tokenOf,
  withCertificate,
  withLogFormat,
  withMetricsToken,
  withNodeToken,
  withScheduler,
} from './flags.js';
import { failure, followLauncher, stopSignal } from './lifetime.js';
import { withLimits } from './limits.js';
import { sizeOrAuto, usualMemory } from './memory.js';
import { runProcesses } from './processes.js';
import { duration, integer, part, size } from './values.js';

interface PsFlags extends SharedFlags {
  scheduler: string;
  connectTimeout: number;
  listen: string;
  advertise?: string;
  hostLabel?: string;
  name?: string;
  standby: boolean;
  memory?: number;
  recoveryRate: number;
  moveRate: number;
  backgroundShare: number;
  drainTimeout: number;
  metricsPerShard: boolean;
  requireRedundancy: boolean;
  limit: Partial<Policy>;
  processes?: number;
}

/**
 * Hands all shards over to other nodes. When that fails, nothing is lost: the job recovers what this node
 * held, but has less redundancy meanwhile.
 */
async function leave(ps: RunningPs, timeoutMs: number, log: Logger): Promise<void> {
  log.info('ps.draining', { timeoutMs });
  await ps.drain(timeoutMs).catch((error: unknown) => {
    throw error instanceof KintsugiError ? RunFailure.of(error) : error;
  });
  log.info('ps.drained');
}

async function run({ processes, memory = usualMemory(), ...flags }: PsFlags): Promise<void> {
  if (processes !== undefined) return runProcesses({ ...flags, memory, processes });
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
    memoryBytes: memory,
    policy: {
      ...flags.limit,
      recoveryRate: flags.recoveryRate,
      moveRate: flags.moveRate,
      backgroundShare: flags.backgroundShare,
      requireRedundancy: flags.requireRedundancy,
    },
    connectTimeoutMs: flags.connectTimeout,
    pulses: true,
    log,
    onStale: end,
    onDisturbed: optimizeLater,
    onFailed: (error) => end(RunFailure.of(error)),
  });
  const ps = await Promise.race([starting, stopped]);
  // This PS has not joined, so it holds nothing. Its process ends even while a connection is being made.
  if (typeof ps === 'string') return log.info('ps.stopped');
  try {
    const cause = await Promise.race([stopped, ended, ps.left]);
    // SIGINT comes from a person who wants an end now, SIGTERM from a machine that goes away in order.
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
      'failure domain, HOST or ZONE/HOST, which a group spreads over (default: the host name)',
    )
    .option(
      '--name <name>',
      'name of the node; a new process replaces the old one (default: host name and process id)',
    )
    .option(
      '--processes <n>',
      'run n PS and start them again when they crash; 0 = one per core; --name and the port count up, ' +
        '--memory is for all together',
      integer('--processes', 0, 1024),
    )
    .option('--standby', 'join without shards, to take over from a lost node', false)
    .addOption(
      new Option(
        '--memory <size>',
        'limit for tables and parity; auto: what the limit of the container leaves (default: ' +
          '$KINTSUGI_MEMORY, else 0, no limit)',
      ).argParser(sizeOrAuto('--memory')),
    )
    .option(
      '--recovery-rate <size>',
      'bytes per second at which a shard recovers; 0 = what requests leave',
      size('--recovery-rate'),
      0,
    )
    .option(
      '--move-rate <size>',
      'bytes per second that moves bring to this node; 0 = what requests leave',
      size('--move-rate'),
      0,
    )
    .option(
      '--background-share <part>',
      'of the requests that it serves, what recovery, moves and checkpoints may cost without a rate',
      part('--background-share'),
      DEFAULT_POLICY.backgroundShare,
    )
    .addOption(
      new Option(
        '--drain-timeout <time>',
        'at SIGTERM, hand everything over in this time; without progress for so long, end; 0s = end at once',
      )
        .argParser(duration('--drain-timeout'))
        .default(30_000, '30s'),
    )
    .option('--metrics-per-shard', '/metrics tells of each data shard, too', false)
    .option('--require-redundancy', 'pushes wait while their group has no parity at all', false);
  withLimits(command, DEFAULT_POLICY, ['recoveryRate', 'moveRate', 'backgroundShare']);
  withLogFormat(withMetricsToken(withNodeToken(withCertificate(command)))).action(run);
}

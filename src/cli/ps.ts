/** `kintsugi ps`: a node that holds shards. */
import { hostname } from 'node:os';
import { type Command, Option } from 'commander';
import { DEFAULT_POLICY, type Policy } from '../core/policy.js';
import { KintsugiError } from '../errors.js';
import { startPs } from '../runtime/ps.js';
import { rehearse } from '../runtime/rehearsal.js';
import {
  loggerOf,
  roleTlsOf,
  type SharedFlags,
  size,
  tokenOf,
  withCertificate,
  withLogFormat,
  withScheduler,
} from './flags.js';
import { followLauncher, stopSignal } from './lifetime.js';
import { withLimits } from './limits.js';

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
  requireRedundancy: boolean;
  limit: Partial<Policy>;
}

async function run(flags: Flags): Promise<void> {
  followLauncher();
  const stopped = stopSignal();
  const name = flags.name ?? `${hostname()}-${process.pid}`;
  const log = loggerOf(flags, { role: 'ps', name });
  let stale: (error: Error) => void = () => {};
  const replaced = new Promise<never>((_, reject) => {
    stale = reject;
  });
  replaced.catch(() => {});
  rehearse();
  const ps = await startPs({
    scheduler: flags.scheduler,
    name,
    listen: flags.listen,
    advertise: flags.advertise,
    hostLabel: flags.hostLabel ?? hostname(),
    standby: flags.standby,
    token: tokenOf(flags),
    tls: roleTlsOf(flags),
    memoryBytes: flags.memory,
    policy: {
      ...flags.limit,
      recoveryRate: flags.recoveryRate,
      requireRedundancy: flags.requireRedundancy,
    },
    connectTimeoutMs: flags.connectTimeout,
    log,
    onStale: () => stale(new KintsugiError('STALE_NODE', `a newer process has taken the name "${name}"`)),
  });
  try {
    await Promise.race([stopped, replaced]);
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
      'failure domain: shards of a group go to different ones (default: the host name)',
    )
    .option(
      '--name <name>',
      'name of the node; a new process with the name replaces the old (default: host name and process id)',
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
    .option('--require-redundancy', 'refuse pushes while a group has no parity at all', false);
  withLimits(command, DEFAULT_POLICY, ['recoveryRate']);
  withLogFormat(withCertificate(command)).action(run);
}

/** `kintsugi replica`: follows shards of a running job and answers pulls. */
import { hostname } from 'node:os';
import { type Command, Option } from 'commander';
import { KintsugiError } from '../common/errors.js';
import { DEFAULT_REPLICA_POLICY, type ReplicaPolicy } from '../core/replica/replica.js';
import { MOST_LIFE } from '../engine/policies.js';
import { servedRows } from '../protocol/saving.js';
import { startReplica } from '../roles/replica/replica.js';
import { tuneV8 } from '../roles/v8.js';
import {
  loggerOf,
  metricsTokenOf,
  pullTokenOf,
  roleTlsOf,
  type SharedFlags,
  tokenOf,
  withCertificate,
  withLogFormat,
  withMetricsToken,
  withScheduler,
} from './flags.js';
import { failure, followLauncher, stopSignal } from './lifetime.js';
import { withLimits } from './limits.js';
import { ages, duration, integer } from './values.js';

interface ReplicaFlags extends SharedFlags {
  scheduler: string;
  connectTimeout: number;
  listen: string;
  advertise?: string;
  name?: string;
  share: [part: number, of: number];
  tables?: string[];
  minFrequency: number;
  maxAge: ReturnType<ReturnType<typeof ages>>;
  maxLag: number;
  pullTokenFile?: string;
  limit: Partial<ReplicaPolicy>;
}

/** Parses "2/3". */
function shareOf(text: string): [part: number, of: number] {
  const match = /^(\d{1,6})\/(\d{1,6})$/.exec(text);
  const [part, of] = [Number(match?.[1]), Number(match?.[2])];
  if (match && part >= 1 && part <= of) return [part, of];
  throw new KintsugiError('BAD_ARGUMENT', `--share must be i/n with i from 1 to n, not "${text}"`);
}

function tablesOf(text: string): string[] {
  const names = text.split(',').map((name) => name.trim());
  if (names.every((name) => name !== '')) return [...new Set(names)];
  throw new KintsugiError('BAD_ARGUMENT', `--tables must be names with commas between, not "${text}"`);
}

async function run(flags: ReplicaFlags): Promise<void> {
  followLauncher();
  tuneV8();
  const stopped = stopSignal();
  const name = flags.name ?? `${hostname()}-${process.pid}`;
  const log = loggerOf(flags, { role: 'replica', name });
  const { ended, end } = failure();
  const starting = startReplica({
    scheduler: flags.scheduler,
    name,
    listen: flags.listen,
    advertise: flags.advertise,
    token: tokenOf(flags),
    pullToken: pullTokenOf(flags),
    metricsToken: metricsTokenOf(flags),
    tls: roleTlsOf(flags),
    share: flags.share,
    tables: flags.tables,
    served: servedRows(flags.minFrequency, flags.maxAge.maxAge, flags.maxAge.maxAgeSeconds),
    maxLagMs: flags.maxLag === 0 ? undefined : flags.maxLag,
    policy: flags.limit,
    connectTimeoutMs: flags.connectTimeout,
    log,
    onStale: end,
  });
  const replica = await Promise.race([starting, stopped]);
  if (typeof replica === 'string') return log.info('replica.stopped');
  try {
    await Promise.race([stopped, ended]);
  } finally {
    await replica.close();
  }
  log.info('replica.stopped');
}

export function registerReplica(program: Command): void {
  const command = withScheduler(
    program
      .command('replica')
      .description('Follow shards of a running job and answer pulls from them; pushes never wait for it.'),
  )
    .option('--listen <host:port>', 'address to listen on; port 0 takes a free one', '127.0.0.1:0')
    .option('--advertise <host[:port]>', 'address that others dial (default: the one it listens on)')
    .option('--name <name>', 'name in logs and metrics (default: host name and process id)')
    .addOption(
      new Option('--share <i/n>', 'hold every n-th shard, from the i-th on')
        .argParser(shareOf)
        .default([1, 1], '1/1'),
    )
    .option('--tables <name,...>', 'serve these tables (default: all)', tablesOf)
    .addOption(
      new Option('--min-frequency <n>', 'serve only rows that were seen n times, of tables with a policy')
        .argParser(integer('--min-frequency', 0, MOST_LIFE))
        .default(0, '0, all'),
    )
    .addOption(
      new Option(
        '--max-age <steps|time>',
        'only rows of them last seen so long ago: 2000, 24h where ttls are times, or 2000,24h',
      )
        .argParser(ages('--max-age'))
        .default({ maxAge: 0, maxAgeSeconds: 0 }, '0, all'),
    )
    .addOption(
      new Option('--max-lag <time>', 'refuse pulls of older rows (STALE_REPLICA); 0s = any age')
        .argParser(duration('--max-lag'))
        .default(1000, '1s'),
    )
    .option(
      '--pull-token-file <file>',
      'file with the bearer token of POST /pull (default: $KINTSUGI_PULL_TOKEN, else loopback only)',
    );
  withLimits(command, DEFAULT_REPLICA_POLICY);
  withLogFormat(withMetricsToken(withCertificate(command))).action(run);
}

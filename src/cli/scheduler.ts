/** `kintsugi scheduler`: the role that makes the map of a job. */
import { randomUUID } from 'node:crypto';
import { type Command, Option } from 'commander';
import { KintsugiError } from '../common/errors.js';
import { parseCode, poolsFor } from '../core/placement/job.js';
import { DEFAULT_SCHEDULER_POLICY, type SchedulerPolicy } from '../core/scheduler/scheduler.js';
import {
  FOREIGN_CHOICES,
  type ForeignChoice,
  isForeignChoice,
  type JobOwner,
} from '../roles/scheduler/owner.js';
import { removeState } from '../roles/scheduler/removal.js';
import { startScheduler } from '../roles/scheduler/scheduler.js';
import { tuneV8 } from '../roles/v8.js';
import { openDirectoryStore } from '../stores/decisions/directory.js';
import { DEFAULT_LEASE_MS, openEtcdStore } from '../stores/decisions/etcd/store.js';
import { MemoryStore, type StateStore } from '../stores/decisions/index.js';
import {
  type CheckpointFlags,
  checkPlace,
  PLACE_TRIED_ENV,
  placeAndNumber,
  planOf,
  withCheckpoint,
  withRestore,
} from './checkpoint-flags.js';
import { RunFailure } from './failure.js';
import {
  DEFAULT_CODE,
  DEFAULT_SCHEDULER,
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
  withTls,
  withToken,
} from './flags.js';
import { failure, followLauncher, stopSignal } from './lifetime.js';
import { withLimits } from './limits.js';
import { duration, integer } from './values.js';

interface SchedulerFlags extends SharedFlags, CheckpointFlags {
  listen: string;
  ps?: number;
  code: string;
  groups?: number;
  dir?: string;
  store?: string;
  storeCa?: string;
  storeCert?: string;
  storeKey?: string;
  storeLease: number;
  advertise?: string;
  jobUid?: string;
  foreignState?: ForeignChoice;
  mustResume?: true;
  removeState?: string | true;
  balanceJoining: boolean;
  limit: Partial<SchedulerPolicy>;
}

/** Leases of etcd count in seconds. */
function leaseTime(text: string): number {
  const ms = duration('--store-lease')(text);
  if (ms < 1000 || ms % 1000 > 0)
    throw new KintsugiError('BAD_ARGUMENT', `--store-lease must be whole seconds, not "${text}"`);
  return ms;
}

/** The store that keeps the job. */
function storeOf(flags: SchedulerFlags): StateStore {
  const url = flags.store ?? (process.env.KINTSUGI_STORE || undefined);
  const { storeCa: caFile, storeCert: certFile, storeKey: keyFile, storeLease: leaseMs } = flags;
  if (url === undefined) {
    if (caFile ?? certFile ?? keyFile)
      throw new KintsugiError('BAD_ARGUMENT', 'certificates for the store need --store etcds://...');
    return flags.dir === undefined ? new MemoryStore() : openDirectoryStore(flags.dir);
  }
  if (flags.dir !== undefined)
    throw new KintsugiError('BAD_ARGUMENT', 'the job is kept in --dir or in --store, not in both');
  return openEtcdStore(url, { caFile, certFile, keyFile, leaseMs });
}

/** Removes the state of the job from `--store`, and from the places below it that are named. */
async function remove(flags: SchedulerFlags, places: string | true): Promise<void> {
  const url = flags.store ?? (process.env.KINTSUGI_STORE || undefined);
  const owner = ownerOf(flags);
  if (url === undefined || owner === undefined)
    throw new KintsugiError('BAD_ARGUMENT', '--remove-state needs --store and --job-uid');
  const inside = places === true ? [] : places.split(',').filter((place) => place !== '');
  const log = loggerOf(flags, { role: 'scheduler', name: 'scheduler' });
  for (const place of ['', ...inside.map((name) => `/${name}`)])
    await removeState(storeOf({ ...flags, store: `${url.replace(/\/$/, '')}${place}` }), owner.uid, log);
}

/** The job that this scheduler is for; undefined: nobody has said. @throws BAD_ARGUMENT */
function ownerOf({ jobUid, foreignState }: SchedulerFlags): JobOwner | undefined {
  const uid = jobUid ?? (process.env.KINTSUGI_JOB_UID || undefined);
  if (uid === undefined && foreignState !== undefined)
    throw new KintsugiError('BAD_ARGUMENT', '--foreign-state needs --job-uid');
  const foreign = foreignState ?? (process.env.KINTSUGI_FOREIGN_STATE || 'refuse');
  if (!isForeignChoice(foreign))
    throw new KintsugiError('BAD_ARGUMENT', `KINTSUGI_FOREIGN_STATE is one of ${FOREIGN_CHOICES.join(', ')}`);
  return uid === undefined ? undefined : { uid, foreign };
}

/** Whether somebody knows that the job has begun. @throws BAD_ARGUMENT */
function mustResumeOf({ mustResume }: SchedulerFlags): boolean {
  const told = process.env.KINTSUGI_MUST_RESUME || 'no';
  if (told !== 'yes' && told !== 'no')
    throw new KintsugiError('BAD_ARGUMENT', `KINTSUGI_MUST_RESUME is yes or no, not "${told}"`);
  return mustResume ?? told === 'yes';
}

async function run(flags: SchedulerFlags): Promise<void> {
  followLauncher();
  tuneV8();
  if (flags.removeState !== undefined) return remove(flags, flags.removeState);
  const stopped = stopSignal();
  const code = parseCode(flags.code);
  const nodes = flags.ps ?? code.k + code.r;
  const pools = poolsFor(code, nodes, flags.groups);
  const groups = flags.groups !== undefined;
  const checkpoint = planOf(flags);
  await checkPlace(checkpoint?.url);
  const token = tokenOf(flags);
  const nodeToken = nodeTokenOf(flags);
  const tls = roleTlsOf(flags);
  const log = loggerOf(flags, { role: 'scheduler', name: 'scheduler' });
  const owner = ownerOf(flags);
  const mustResume = mustResumeOf(flags);
  const store = storeOf(flags);
  const { ended: failed, end } = failure();
  const starting = startScheduler({
    listen: flags.listen,
    advertise: flags.advertise,
    token,
    nodeToken,
    metricsToken: metricsTokenOf(flags),
    tls,
    store,
    job: randomUUID(),
    owner,
    mustResume,
    nodes,
    pools,
    policy: { ...flags.limit, balanceJoining: flags.balanceJoining },
    checkpoint,
    placeTried: process.env[PLACE_TRIED_ENV] === 'yes',
    restore: flags.restore === undefined ? undefined : { ...placeAndNumber(flags.restore), groups },
    log,
    onFailed: (error) => end(RunFailure.of(error)),
  });
  const scheduler = await Promise.race([starting, stopped]);
  // This scheduler has decided nothing yet. Its process ends without waiting for a place or a store.
  if (typeof scheduler === 'string') return log.info('scheduler.stopped');
  // A scheduler that failed has closed itself, and its process ends whatever is still open.
  const signal = await Promise.race([stopped, failed]);
  if (signal === 'SIGTERM') await Promise.race([scheduler.finish(), failed]);
  await scheduler.close();
  log.info('scheduler.stopped');
}

export function registerScheduler(program: Command): void {
  const command = program
    .command('scheduler')
    .description('Run the scheduler of a job: membership, placement, repair.')
    .option('--listen <host:port>', 'address to listen on', DEFAULT_SCHEDULER)
    .option('--ps <n>', 'PS that the job waits for at its start (default: k+r)', integer('--ps', 1, 4096))
    .option('--code <k+r>', 'data and parity shards of a group, or "none"', DEFAULT_CODE)
    .option(
      '--groups <n>',
      'groups of the job, fixed for its life (default: so that a PS has 4 to 16 data shards)',
      integer('--groups', 1),
    )
    .option('--no-balance-joining', 'a PS that joins gets nothing until "scale" or "rebalance" asks for it')
    .option(
      '--dir <directory>',
      'keep the job here; one that is here is resumed, whatever the flags say (default: in memory)',
    );
  command
    .option(
      '--store <url>',
      'keep the job in etcd: etcd://[user:password@]host:2379,host2:2379/prefix, or etcds:// for TLS; of ' +
        'several schedulers there one leads (default: $KINTSUGI_STORE, else --dir)',
    )
    .option('--store-ca <file>', 'authorities that verify certificates of etcd (default: public ones)')
    .option('--store-cert <file>', 'certificate (PEM) that etcd asks for')
    .option('--store-key <file>', 'private key (PEM) of --store-cert')
    .addOption(
      new Option('--store-lease <time>', 'another scheduler leads so long after the leader died')
        .argParser(leaseTime)
        .default(DEFAULT_LEASE_MS, '3s'),
    )
    .option(
      '--job-uid <id>',
      'the job that this is, as its state says from then on: the state of another one is refused (default: ' +
        '$KINTSUGI_JOB_UID, else any state is resumed)',
    )
    .addOption(
      new Option(
        '--foreign-state <choice>',
        'the state of another job: refuse it, adopt it, or discard it and begin anew (default: ' +
          '$KINTSUGI_FOREIGN_STATE, else refuse)',
      ).choices(FOREIGN_CHOICES),
    )
    .option(
      '--must-resume',
      'the job has begun: end where its state is gone, and begin nothing anew (default: ' +
        '$KINTSUGI_MUST_RESUME is yes)',
    )
    .option(
      '--remove-state [places]',
      'instead of anything else, remove what --store has of --job-uid, also in these places below it ' +
        '(comma-separated); the state of another job stays',
    )
    .option('--advertise <host[:port]>', 'address that others dial (default: the one it listens on)');
  withRestore(withCheckpoint(command));
  withLimits(command, DEFAULT_SCHEDULER_POLICY);
  withLogFormat(withTls(withMetricsToken(withCertificate(withNodeToken(withToken(command)))))).action(run);
}

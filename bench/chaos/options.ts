/** What `bench chaos` can be told. */
import { randomBytes } from 'node:crypto';
import { absolutePlace } from '../../src/cli/checkpoint-flags.js';
import { duration } from '../../src/cli/flags.js';
import { parseCode, poolsFor } from '../../src/runtime/job.js';
import {
  bad,
  COMMON_FLAGS,
  type Completed,
  completed,
  type Flags,
  type Given,
  LOG_FLAG,
  number,
  numberOrZero,
  QUIET_FLAG,
  teller,
  whole,
} from '../common/flags.js';

export interface ChaosOptions {
  minutes: number;
  seed: number;
  ps: number;
  code: string;
  groups: number | undefined;
  clients: number;
  /** Processes that follow the shards, and whose answers the clients audit. */
  replicas: number;
  sharedRows: number;
  /** Milliseconds between two pushes of a client. */
  pauseMs: number;
  /** Milliseconds between two faults. */
  faultPauseMs: [least: number, most: number];
  /** As of `ps`: a slow recovery is hit by more further faults. */
  recoveryRate: string | undefined;
  /** How many schedulers run, and the etcd that they use; undefined: one, on its disk. */
  schedulers: number;
  store: string | undefined;
  /**
   * A place of this run alone, and how checkpoints are made there: then every process is killed now and
   * then. Undefined: neither.
   */
  checkpoint: { url: string; every: string; barrier: boolean } | undefined;
  /** Milliseconds after which every process is killed: evenly distributed between these. */
  killAllPauseMs: [least: number, most: number];
  /** With certificates, and with two tokens, that are made on the spot. */
  tls: boolean;
  token: boolean;
  /** Roles and clients are on machines of their own: network namespaces. */
  network: boolean;
  smoke: boolean;
  /** Faults that a run of this length should see. */
  faultGoal: number;
  json: string | undefined;
  /** Append every record of every role here. */
  log: string | undefined;
  tell(text: string): void;
}

/** 200 faults in five minutes. */
const FAULTS_PER_MINUTE = 40;
/** Machines that vanish or are parted stay so for seconds. */
const NETWORK_FAULTS_PER_MINUTE = 20;
/** While a job is restored nothing else happens to it. */
const FAULTS_PER_MINUTE_WITH_RESTARTS = 20;
export const CHAOS_FLAGS = {
  ...COMMON_FLAGS,
  ...QUIET_FLAG,
  ...LOG_FLAG,
  minutes: { value: 'n', help: 'how long faults happen', standard: '5', smoke: '0.25' },
  seed: { value: 'n', help: 'of faults and pushes', standard: '1' },
  ps: { value: 'n', help: 'PS', standard: '6' },
  code: { value: 'k+r', help: 'code of the job', standard: '3+2' },
  groups: { value: 'n', help: 'groups of the job (default: as of "kintsugi scheduler")' },
  clients: { value: 'n', help: 'clients that push', standard: '3' },
  replicas: { value: 'n', help: 'replicas, whose answers the clients audit', standard: '0' },
  rows: { value: 'n', help: 'rows that the clients share', standard: '20000' },
  pause: { value: 'ms', help: 'between two pushes of a client', standard: '8' },
  recoveryRate: { value: 'size', help: 'as of "kintsugi ps"; a slow recovery is hit by more faults' },
  schedulers: { value: 'n', help: 'schedulers, of which one leads; several need --store', standard: '1' },
  store: { value: 'url', help: 'etcd for the scheduler, which runs already: etcd://host:2379/prefix' },
  checkpoint: {
    value: 'place',
    help: 'directory or s3://bucket/prefix; all is killed now and then, and restored',
  },
  every: { value: 'time', help: 'with --checkpoint: a checkpoint so often', standard: '3s', smoke: '500ms' },
  barrier: { help: 'with --checkpoint: each is of one instant' },
  network: {
    help: 'every role and client on a machine of its own, which may vanish (root)',
  },
  tls: { help: 'with certificates that are made on the spot' },
  token: { help: 'with tokens, one of clients and one of nodes, that are made on the spot' },
} as const satisfies Flags;

/** @throws BAD_ARGUMENT, NOT_ENOUGH_NODES */
export function parseChaosOptions(given: Given<typeof CHAOS_FLAGS>): ChaosOptions {
  const flags = completed(CHAOS_FLAGS, given);
  const { groups, smoke = false, network = false, tls = false, recoveryRate, json, log, store } = flags;
  // Who listens at other addresses than loopback asks for a token.
  const token = network || flags.token === true;
  const minutes = number(flags, 'minutes');
  const checkpoint = checkpointOf(flags);
  if (checkpoint && network) throw bad('--checkpoint and --network do not go together');
  const restarts = checkpoint !== undefined;
  const perMinute = network
    ? NETWORK_FAULTS_PER_MINUTE
    : restarts
      ? FAULTS_PER_MINUTE_WITH_RESTARTS
      : FAULTS_PER_MINUTE;
  const options: ChaosOptions = {
    minutes,
    seed: whole(flags, 'seed', 0),
    ps: whole(flags, 'ps', 1),
    code: flags.code,
    groups: groups === undefined ? undefined : whole({ groups }, 'groups', 1),
    clients: whole(flags, 'clients', 1),
    replicas: whole(flags, 'replicas', 0),
    sharedRows: whole(flags, 'rows', 1),
    pauseMs: numberOrZero(flags, 'pause'),
    faultPauseMs: [100, 1900],
    // A short run must at least have seen some.
    faultGoal: smoke ? 3 : Math.floor(minutes * perMinute),
    checkpoint,
    killAllPauseMs: smoke ? [1000, 4000] : [5000, 40_000],
    schedulers: whole(flags, 'schedulers', 1),
    ...{ network, smoke, tls, token, recoveryRate, json, log, store },
    tell: teller(flags),
  };
  if (options.replicas > 0 && options.checkpoint)
    throw bad('--replicas and --checkpoint do not go together: a replica does not outlive its job');
  if (options.schedulers > 1 && store === undefined)
    throw bad('several schedulers need --store etcd://host:2379/prefix');
  if (network && /\/\/(.*@)?(127\.|localhost|\[::1\])/.test(store ?? ''))
    throw bad('machines of their own cannot reach etcd at a loopback address; give another one of this host');
  poolsFor(parseCode(options.code), options.ps, options.groups);
  return options;
}

function checkpointOf({
  checkpoint,
  every,
  barrier = false,
}: Completed<typeof CHAOS_FLAGS>): ChaosOptions['checkpoint'] {
  if (checkpoint === undefined) {
    if (barrier) throw bad('--barrier needs --checkpoint');
    return undefined;
  }
  duration('--every')(every);
  // What an earlier run has left there is none of this one's.
  return { url: `${absolutePlace(checkpoint)}/chaos-${randomBytes(4).toString('hex')}`, every, barrier };
}

/** Options of `bench chaos`. */
import { randomBytes } from 'node:crypto';
import { absolutePlace } from '../../src/cli/checkpoint-flags.js';
import { duration } from '../../src/cli/values.js';
import { parseCode, poolsFor } from '../../src/core/placement/job.js';
import { bad, LOG_FLAG, type OptionsOf, optionSpec, QUIET_FLAG, whole } from '../common/flags.js';

/** 200 faults in five minutes. */
const FAULTS_PER_MINUTE = 40;
/** Lower, because machines that vanish or are parted stay so for seconds. */
const NETWORK_FAULTS_PER_MINUTE = 20;
/** Lower, because no fault happens to a job that is being restored. */
const FAULTS_PER_MINUTE_WITH_RESTARTS = 20;

/** Milliseconds between two events, evenly distributed between these. */
type Pause = [least: number, most: number];

export const CHAOS_OPTIONS = optionSpec(
  {
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
    overload: {
      value: 'x',
      help: 'attacks as of "bench overload" meanwhile, at this scale (0: none)',
      standard: '0',
    },
    pause: { value: 'ms', help: 'between two pushes of a client', standard: '8' },
    recoveryRate: { value: 'size', help: 'as of "kintsugi ps"; a slow recovery is hit by more faults' },
    schedulers: { value: 'n', help: 'schedulers, of which one leads; several need --store', standard: '1' },
    store: { value: 'url', help: 'etcd for the scheduler, which runs already: etcd://host:2379/prefix' },
    checkpoint: {
      value: 'place',
      help: 'directory or s3://bucket/prefix; all is killed now and then, and restored',
    },
    every: {
      value: 'time',
      help: 'with --checkpoint: a checkpoint so often',
      standard: '3s',
      smoke: '500ms',
    },
    barrier: { help: 'with --checkpoint: each is of one instant' },
    network: {
      help: 'every role and client on a machine of its own, which may vanish (root)',
    },
    tls: { help: 'with certificates that are made on the spot' },
    token: { help: 'with tokens, one of clients and one of nodes, that are made on the spot' },
  },
  (flags) => {
    const { code, groups, smoke = false, network = false, tls = false, recoveryRate, store } = flags.texts;
    const minutes = flags.number('minutes');
    const checkpoint = checkpointOf(flags.texts);
    if (checkpoint && network) throw bad('--checkpoint and --network do not go together');
    const restarts = checkpoint !== undefined;
    const perMinute = network
      ? NETWORK_FAULTS_PER_MINUTE
      : restarts
        ? FAULTS_PER_MINUTE_WITH_RESTARTS
        : FAULTS_PER_MINUTE;
    const faultPauseMs: Pause = [100, 1900];
    /** Pause after which every process is killed. */
    const killAllPauseMs: Pause = smoke ? [1000, 4000] : [5000, 40_000];
    const options = {
      minutes,
      seed: flags.whole('seed', 0),
      ps: flags.whole('ps', 1),
      code,
      groups: groups === undefined ? undefined : whole({ groups }, 'groups', 1),
      clients: flags.whole('clients', 1),
      /** Processes that follow the shards, and whose answers the clients audit. */
      replicas: flags.whole('replicas', 0),
      sharedRows: flags.whole('rows', 1),
      /** Scale of attacks as of `bench overload`; 0: none. */
      overload: flags.numberOrZero('overload'),
      /** Milliseconds between two pushes of a client. */
      pauseMs: flags.numberOrZero('pause'),
      faultPauseMs,
      /** Faults that a run of this length should see; a short one must at least have seen some. */
      faultGoal: smoke ? 3 : Math.floor(minutes * perMinute),
      /** How checkpoints are made; then every process is killed now and then. Undefined: neither. */
      checkpoint,
      killAllPauseMs,
      /** Number of schedulers, and the etcd that they use; without it there is one, on its disk. */
      schedulers: flags.whole('schedulers', 1),
      store,
      /** Every role and every client is on a machine of its own: a network namespace. */
      network,
      /** Certificates, and two tokens, are made on the spot. */
      tls,
      /** Always with `network`: a role that listens at other addresses than loopback asks for a token. */
      token: network || flags.texts.token === true,
      /** Rate as of `ps`: a slow recovery is hit by more further faults. */
      recoveryRate,
    };
    if (options.replicas > 0 && options.checkpoint)
      throw bad('--replicas and --checkpoint do not go together: a replica does not outlive its job');
    if (options.overload > 0 && (options.checkpoint || options.tls || options.token))
      throw bad('--overload goes together with none of --checkpoint, --tls, --token and --network');
    if (options.schedulers > 1 && store === undefined)
      throw bad('several schedulers need --store etcd://host:2379/prefix');
    if (network && /\/\/(.*@)?(127\.|localhost|\[::1\])/.test(store ?? ''))
      throw bad(
        'machines of their own cannot reach etcd at a loopback address; give another one of this host',
      );
    poolsFor(parseCode(options.code), options.ps, options.groups);
    return options;
  },
);
export type ChaosOptions = OptionsOf<typeof CHAOS_OPTIONS>;

export interface ChaosCheckpoints {
  /** A place of this run alone. */
  url: string;
  every: string;
  barrier: boolean;
}

function checkpointOf(flags: {
  readonly checkpoint?: string | undefined;
  readonly every: string;
  readonly barrier?: boolean | undefined;
}): ChaosCheckpoints | undefined {
  const { checkpoint, every, barrier = false } = flags;
  if (checkpoint === undefined) {
    if (barrier) throw bad('--barrier needs --checkpoint');
    return undefined;
  }
  duration('--every')(every);
  // A folder of its own, so that nothing of an earlier run is taken for this one's.
  return { url: `${absolutePlace(checkpoint)}/chaos-${randomBytes(4).toString('hex')}`, every, barrier };
}

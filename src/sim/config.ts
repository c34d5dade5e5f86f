/**
 * One schedule's parameters, drawn from its seed; a caller can pin any of them. A profile makes one kind of
 * trouble frequent that chance alone makes rare.
 */
import type { LearnerName } from './learners.js';
import type { Random } from './random.js';
import { withTables } from './tables.js';

/**
 * `mixed`: a little of all. `absent`: nodes are away from the scheduler for long while they talk to everybody
 * else, so they are given up and do not know it. `ghosts`: messages come a second time, very late. `moves`:
 * planned moves all the time, and losses in the middle of them. `losses`: losses of two nodes at a time,
 * under traffic, where the code can bear it. `elastic`: the number of nodes is changed, nodes are drained,
 * the rest is balanced, and some changes time out. `data`: workers train a data set, and some die. `saves`:
 * as `data`, with checkpoints all the time.
 */
export type Profile = 'mixed' | 'absent' | 'ghosts' | 'moves' | 'losses' | 'elastic' | 'data' | 'saves';

export interface SimConfig {
  profile: Profile;
  k: number;
  r: number;
  groups: number;
  spares: number;
  clients: number;
  /** Pushes per client. */
  pushes: number;
  /** Number of faults before everything heals. */
  faults: number;
  /** Chance of a fault per step. */
  faultRate: number;
  /** True: only faults after which every group lacks at most r seats. */
  guarded: boolean;
  /** Chance that a step is a tick of an actor rather than a delivery. */
  tickRate: number;
  /** Chance that a dirty node flushes at once rather than at a later step. */
  flushRate: number;
  /** Protocol timers, in steps. */
  retry: number;
  /** Chance that a message comes twice. */
  duplicate: number;
  /** Chance that a change of the map does not reach one of its receivers. */
  lostDiffs: number;
  /** Steps from one checkpoint to the next; 0: there are none. */
  saveEvery: number;
  /** True: checkpoints show one instant. */
  saveBarrier: boolean;
  /** Chance per step that every process is killed, and the job is restored from a checkpoint. */
  killAll: number;
  /**
   * True: shards are restored as if the job had others, without numbers, from a checkpoint of one instant.
   */
  reshape: boolean;
  /** True: lost shards are loaded from a checkpoint into the running job. */
  reload: boolean;
  /** `Policy.checkpointBytes` of the nodes. */
  saveBytes: number;
  /** Chance that the system refuses memory to a shard that is taken over; drawn from its own seed. */
  refusals: number;
  refusalSeed: number;
  /** Chance per look that a dead process is started again. */
  restartRate: number;
  /** Number of zones of the nodes; 0: each node is a zone of its own. */
  zones: number;
  /** Seed of the times at which connections of clients are called slow; 0: never. */
  slow: number;
  /** Seed of small limits for answers, and of clients that do not take them; 0: neither. */
  answers: number;
  /** Seed of turns with room for few rows and bytes; 0: turns have the default room. */
  turns: number;
  /** Seed of the pulses of nodes, and of the times at which nodes are busy; 0: there are neither. */
  busy: number;
  /** Seed of the settings that users set; 0: nobody sets any. */
  settings: number;
  /** Seed of the policies that users set; 0: nobody sets any. */
  policies: number;
  /** Seed of the users who drop a table and create it again; 0: nobody does. */
  drops: number;
  /** Seed of the readers of evictions, and of small limits for them; 0: nobody reads any. */
  evictions: number;
  /** True: some pushes delete rows. */
  deletions: boolean;
  /** True: rows of a table go by themselves. */
  expiry: boolean;
  /** Rows of a table make room for others. */
  crowds: boolean;
  /** The same in a table whose rows have scores. */
  scores: boolean;
  /** Rows of a table go by the seconds of the job. */
  seconds: boolean;
  /** True: keys of two tables have no row at first. */
  filters: boolean;
  /** True: one of the nodes that die never comes back. A spare takes its place. */
  gone: boolean;
  /** Chance that an endpoint crashes right at the delivery of a message of the kind in `focus`. */
  hot: number;
  /** Kind of message for `hot`. */
  focus: string;
  /** Chance that the crash at such a message hits any node rather than an endpoint. */
  bystander: number;
  /**
   * Longest delay of doubled messages and of the remains of broken connections, in retry times; 0: they come
   * soon.
   */
  haunting: number;
  /** Longest time that a node stays away from the scheduler, in retry times. */
  absence: number;
  /** True: messages of some connections crawl. */
  lag: boolean;
  /** Chance of a planned move per step. */
  moveRate: number;
  /** Chance per step that somebody asks for more nodes, fewer, others or better balance. */
  changeRate: number;
  /** True: nodes that join a running job get their share unasked. */
  balanceJoining: boolean;
  requireRedundancy: boolean;
  /** Chance per step that the scheduler's disk finishes a write. */
  diskRate: number;
  /** Tables beside the main one of the pool `embedding` (tables.ts). */
  extra: string;
  /** Tables beside the main one of the pool `mirrored`. */
  mirroredExtra: string;
  /** Groups of the pool `mirrored`; 0: the job has no such pool. */
  mirrored: number;
  /** Workers that train a data set; 0: there is no data set. */
  workers: number;
  /** Clients that follow shards and push nothing. */
  replicas: number;
  /** Ranges of one epoch. */
  ranges: number;
  epochs: number;
  /** Batches that a worker may be ahead of the slowest; 0: any number. */
  staleness: number;
}

const HOT_KINDS = [
  'open',
  'openAck',
  'start',
  'startAck',
  'delta',
  'applied',
  'recover',
  'equation',
  'install',
  'want',
  'content',
  'lacking',
  'mapDiff',
  'push',
  'pushAck',
  'heartbeat',
];

/** Kinds of messages while a move hands over, and while its bytes are fetched. */
const MOVE_KINDS = [
  'mapDiff',
  'mapDiff',
  'open',
  'openAck',
  'start',
  'startAck',
  'want',
  'content',
  'heartbeat',
  'delta',
];

/** Kinds of messages while a range goes to another worker. */
const DATA_KINDS = ['push', 'pushAck', 'delta', 'applied', 'mapDiff'];

/** Kinds of messages while a checkpoint is made or restored. */
const SAVE_KINDS = ['saveShards', 'shardSaved', 'loadShard', 'shardLoaded', 'delta', 'applied', 'mapDiff'];

/** Tables beside the main one, in half of the schedules none; the optimizer of those with an a is drawn. */
const EXTRAS = ['', '', '', '', 'i1', 'a7', 'a64', 'i7 a1', 'i1 a7 a64'];

/** Letters of optimizers (learners.ts): Adagrad in half of the schedules. */
const OPTIMIZERS: readonly LearnerName[] = ['a', 'a', 'a', 'm', 'w', 'f'];

const TROUBLES: readonly Profile[] = ['mixed', 'mixed', 'absent', 'ghosts', 'moves', 'losses', 'elastic'];
/** A schedule with a data set takes twice as long as others; ranges seldom change hands in the middle. */
const PROFILES: readonly Profile[] = [...TROUBLES, ...TROUBLES, 'data', 'data'];
/** Number of schedules per one of the profile `saves`. */
const SAVES_ONE_IN = 16;

/** The parameters that a profile draws in another way than `mixed`. */
function drawProfile(random: Random, profile: Profile): Partial<SimConfig> {
  switch (profile) {
    case 'mixed':
      return {};
    case 'absent':
      return {
        absence: 30,
        faults: 2 + random.below(7),
        clients: 2 + random.below(2),
        pushes: 4 + random.below(7),
        flushRate: random.pick([0.5, 0.15]),
        lag: true,
        retry: random.pick([25, 60]),
        haunting: random.pick([0, 10]),
      };
    case 'ghosts':
      return {
        haunting: random.pick([5, 20, 60]),
        duplicate: random.pick([0.05, 0.2]),
        clients: 2 + random.below(2),
        flushRate: random.pick([1, 0.5, 0.15]),
        lag: true,
        faults: 3 + random.below(7),
        restartRate: random.pick([0.1, 0.5]),
        retry: random.pick([25, 60]),
        k: 1 + random.below(3),
        r: 1 + random.below(2),
        spares: random.below(2),
      };
    case 'moves':
      return {
        moveRate: random.pick([0.02, 0.05, 0.1]),
        spares: 1 + random.below(3),
        k: 1 + random.below(3),
        r: 1 + random.below(2),
        hot: random.pick([0, 0.03, 0.1]),
        focus: random.pick(MOVE_KINDS),
        bystander: 0.7,
        lag: true,
        faults: 1 + random.below(6),
        haunting: random.pick([0, 0, 20]),
      };
    case 'elastic':
      return {
        changeRate: random.pick([0.005, 0.02]),
        balanceJoining: random.chance(0.7),
        moveRate: random.pick([0, 0, 0.01]),
        spares: 1 + random.below(4),
        k: 1 + random.below(3),
        r: 1 + random.below(2),
        groups: 1 + random.below(3),
        clients: 1 + random.below(2),
        hot: random.pick([0, 0, 0.03, 0.1]),
        focus: random.pick(MOVE_KINDS),
        bystander: 0.5,
        lag: true,
        faults: 1 + random.below(6),
      };
    case 'data':
      return {
        workers: 1 + random.below(3),
        ranges: 2 + random.below(3),
        clients: 1 + random.below(2),
        pushes: 1 + random.below(3),
        faults: 3 + random.below(7),
        faultRate: random.pick([0.004, 0.01, 0.025]),
        hot: random.pick([0, 0, 0.03]),
        focus: random.pick(DATA_KINDS),
        bystander: 0.3,
      };
    case 'saves':
      return {
        workers: random.below(3),
        ranges: 2 + random.below(3),
        clients: 1 + random.below(2),
        pushes: 2 + random.below(6),
        faults: 2 + random.below(7),
        faultRate: random.pick([0.004, 0.01, 0.025]),
        moveRate: random.pick([0, 0.01, 0.05]),
        hot: random.pick([0, 0.03]),
        focus: random.pick(SAVE_KINDS),
        lag: true,
        saveEvery: random.pick([10, 40, 150]),
        killAll: random.pick([0, 0.002, 0.006]),
      };
    case 'losses':
      return {
        k: 2 + random.below(3),
        r: 2 + random.below(2),
        groups: 1,
        clients: 2 + random.below(2),
        pushes: 4 + random.below(7),
        faults: 2 + random.below(6),
        guarded: true,
        hot: random.pick([0.02, 0.1]),
        bystander: 0.4,
        haunting: random.pick([0, 10]),
      };
  }
}

type Drawn =
  | 'saveEvery'
  | 'saveBytes'
  | 'saveBarrier'
  | 'killAll'
  | 'refusals'
  | 'refusalSeed'
  | 'reshape'
  | 'reload';

function drawSaves(random: Random): Pick<SimConfig, Drawn> {
  return {
    saveEvery: random.chance(0.08) ? random.pick([20, 150]) : 0,
    saveBytes: random.pick([1 << 20, 1 << 20, 30_000]),
    killAll: random.pick([0, 0.002]),
    saveBarrier: random.chance(0.3),
    refusals: random.pick([0, 0, 0, 0.1, 0.4]),
    refusalSeed: random.below(1 << 30),
    reshape: random.chance(0.5),
    reload: random.chance(0.7),
  };
}

/** Number of clients that ask for rows all the time, and whose sockets take nothing from nodes. */
export function silentClients({ answers }: Pick<SimConfig, 'answers'>): number {
  return answers % 2;
}

/** `saves`: randomness for checkpoints and later additions, so that other schedules stay the same. */
export function drawConfig(random: Random, saves: Random, pinned: Partial<SimConfig>): SimConfig {
  const picked = random.pick(PROFILES);
  const profile = pinned.profile ?? (saves.below(SAVES_ONE_IN) === 0 ? 'saves' : picked);
  const saving = drawSaves(saves);
  const letter = saves.pick(OPTIMIZERS);
  const extraTables = () => random.pick(EXTRAS).replaceAll('a', letter);
  const drawn: SimConfig = {
    profile,
    k: 1 + random.below(4),
    r: 1 + random.below(3),
    groups: random.chance(0.8) ? 1 : 2,
    spares: random.chance(0.25) ? 0 : 1 + random.below(2),
    clients: 1 + random.below(3),
    pushes: 2 + random.below(7),
    faults: random.below(9),
    faultRate: random.pick([0.004, 0.01, 0.025, 0.06]),
    guarded: random.chance(0.7),
    tickRate: random.pick([0.08, 0.2, 0.4]),
    flushRate: random.pick([1, 0.5, 0.15]),
    retry: random.pick([25, 60, 150]),
    duplicate: random.chance(0.3) ? 0.05 : 0,
    restartRate: random.pick([0.02, 0.1, 0.5]),
    gone: false,
    zones: 0,
    slow: 0,
    answers: 0,
    turns: 0,
    busy: 0,
    settings: 0,
    policies: 0,
    drops: 0,
    evictions: 0,
    deletions: false,
    expiry: false,
    crowds: false,
    scores: false,
    seconds: false,
    filters: false,
    hot: random.pick([0, 0, 0.02, 0.1]),
    focus: random.pick(HOT_KINDS),
    bystander: 0.1,
    haunting: random.pick([0, 0, 5]),
    absence: 8,
    lag: random.chance(0.3),
    moveRate: random.pick([0, 0.01, 0.05]),
    requireRedundancy: false,
    diskRate: random.pick([0.5, 0.1, 0.02]),
    changeRate: random.pick([0, 0, 0.005]),
    balanceJoining: random.chance(0.3),
    extra: extraTables(),
    mirroredExtra: extraTables(),
    mirrored: random.pick([0, 0, 0, 1]),
    workers: random.chance(0.06) ? 1 + random.below(2) : 0,
    replicas: 0,
    ranges: 1 + random.below(3),
    epochs: random.chance(0.3) ? 2 : 1,
    staleness: random.pick([0, 0, 1, 3]),
    lostDiffs: random.pick([0, 0, 0.05, 0.3]),
    ...saving,
  };
  const config = { ...drawn, ...drawProfile(random, profile), ...pinned };
  return { ...config, extra: withTables(config.extra, config) };
}

/** One schedule's parameters, drawn from its seed; a caller can pin any of them. */
import type { Random } from './random.js';

export interface SimConfig {
  k: number;
  r: number;
  groups: number;
  spares: number;
  clients: number;
  /** Pushes per client. */
  pushes: number;
  /** Faults that are injected before everything heals. */
  faults: number;
  /** Chance of a fault per step. */
  faultRate: number;
  /** Only faults that keep at most r members of every group lacking. */
  guarded: boolean;
  /** Chance that a step is a tick of somebody rather than a delivery. */
  tickRate: number;
  /** Chance that a dirty node flushes at once rather than at a later step. */
  flushRate: number;
  /** Protocol timers, in steps. */
  retry: number;
  duplicate: number;
  restartRate: number;
  /** Chance that an endpoint crashes right at the delivery of a message of the kind in `focus`. */
  hot: number;
  focus: string;
  lag: boolean;
  /** Chance of a planned move per step. */
  moveRate: number;
  requireRedundancy: boolean;
  /** Chance per step that the scheduler's disk finishes a write. */
  diskRate: number;
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
  'map',
  'push',
  'pushAck',
  'heartbeat',
];

export function drawConfig(random: Random, pinned: Partial<SimConfig>): SimConfig {
  const drawn: SimConfig = {
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
    hot: random.pick([0, 0, 0.02, 0.1]),
    focus: random.pick(HOT_KINDS),
    lag: random.chance(0.3),
    moveRate: random.pick([0, 0.01, 0.05]),
    requireRedundancy: false,
    diskRate: random.pick([0.5, 0.1, 0.02]),
  };
  return { ...drawn, ...pinned };
}

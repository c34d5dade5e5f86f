/**
 * The report of a local run, from collected events: pure functions, so that they can be tested without processes. All times
 * are counted from the SIGKILL on the launcher's monotonic clock; what did not happen is null.
 */
import type { NodeStatus } from '../protocol/messages.js';
import { numberOf, type RoleEvent } from './events.js';
import type { ProgressPoint } from './throughput.js';
import { Throughput } from './throughput.js';

const WINDOW_MS = 1000;
/** Caches, code and connections warm up in the first second: it says nothing about steady throughput. */
const WARM_UP_MS = 1000;
/** Ratios of fewer windows than this would be noise. */
const MIN_WINDOWS = 3;

/** A data shard at a moment. */
export interface ShardAt {
  group: number;
  member: number;
  gen: number;
}

/** A SIGKILL that was sent, with what the process held then. */
export interface KillRecord {
  role: string;
  name: string;
  /** Incarnation of the node; 0 for a scheduler. */
  inc: number;
  mono: number;
  shards: ShardAt[];
}

export interface Failure {
  node: string;
  atSeconds: number;
  detectedMs: number | null;
  keysReadyMs: number | null;
  firstServedMs: number | null;
  redundantMs: number | null;
  blocksLost: number;
  blocksDecodedOnDemand: number;
  windows: number;
  steadySamplesPerSecond: number | null;
  minThroughputRatio: number | null;
  meanThroughputRatio: number | null;
}

export interface PushCheck {
  acked: number;
  lost: number | null;
  duplicated: number | null;
}

export interface ParityCheck {
  blocksExpected: number;
  blocksChecked: number;
  blocksUnprotected: number;
  mismatched: number;
}

export interface Report {
  samples: number;
  seconds: number;
  samplesPerSecond: number;
  trainLoss: number | null;
  testAuc: number | null;
  testLogLoss: number | null;
  digest: string;
  rows: number;
  pushes: PushCheck;
  parity: ParityCheck;
  redundancy: string;
  failures: Failure[];
  nodes: { id: string; host: string; dataShards: number; parityShards: number; bytes: number }[];
}

/** Progress of the workers, from their events. */
export function progressPoints(events: readonly RoleEvent[]): ProgressPoint[] {
  const points: ProgressPoint[] = [];
  for (const event of events) {
    const starts = event.event === 'worker.training';
    if (!starts && event.event !== 'worker.progress' && event.event !== 'worker.done') continue;
    points.push({ mono: event.mono, worker: event.name, samples: starts ? 0 : numberOf(event, 'samples') });
  }
  return points;
}

/** What was trained, and how fast: from the first worker's start to the last one's end. */
export function trainingSummary(events: readonly RoleEvent[]) {
  const starts = events.filter((event) => event.event === 'worker.training').map((event) => event.mono);
  const done = events.filter((event) => event.event === 'worker.done');
  const samples = done.reduce((sum, event) => sum + numberOf(event, 'samples'), 0);
  const seconds = done.length === 0 ? 0 : (Math.max(...done.map((event) => event.mono)) - Math.min(...starts)) / 1000;
  let lossSum = 0;
  for (const event of done) if (event.trainLoss !== null) lossSum += numberOf(event, 'trainLoss') * numberOf(event, 'samples');
  return {
    samples,
    seconds,
    samplesPerSecond: seconds > 0 ? samples / seconds : 0,
    trainLoss: samples > 0 ? lossSum / samples : null,
  };
}

/** The first event of every lost shard in a generation after the lost one; undefined where there is none. */
function firstPerShard(events: readonly RoleEvent[], name: string, kill: KillRecord): (RoleEvent | undefined)[] {
  return kill.shards.map(({ group, member, gen }) =>
    events.find(
      (event) =>
        event.event === name &&
        event.mono >= kill.mono &&
        event.group === group &&
        event.member === member &&
        numberOf(event, 'gen') > gen,
    ),
  );
}

/** The durable map without the dead process: it was noticed, or a newer process of the same name was there first. */
function detection(events: readonly RoleEvent[], kill: KillRecord): RoleEvent | undefined {
  return events.find((event) => {
    if (event.event !== 'map.durable' || event.mono < kill.mono || event.lostName(kill)) return false;
    return false;
  });
}

const since = (kill: KillRecord, event: RoleEvent | undefined): number | null => (event ? event.mono - kill.mono : null);

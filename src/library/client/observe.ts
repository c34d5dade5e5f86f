/**
 * Looking at a running job: the status, and the counters of the scheduler and of every node, at once.
 */
import { KintsugiError } from '../../common/errors.js';
import { checkSwitch, type OptionKeys } from '../../common/options.js';
import { monotonicMs } from '../../net/log.js';
import type { PeerId } from '../../protocol/map.js';
import type { JobStatus } from '../../protocol/messages.js';
import type { NodeTelemetry, SchedulerTelemetry, WorkerTelemetry } from '../../protocol/telemetry.js';
import { eachAtMost } from './concurrent.js';
import type { Session } from './session.js';

/** Options of {@link Client.observe}. */
export interface ObserveOptions {
  /** Counters of each data shard, too. Default: false. */
  shards?: boolean | undefined;
  /** Milliseconds after which a node that has not answered is left out. Default: 2,000. */
  timeoutMs?: number | undefined;
}

export const OBSERVE_OPTIONS = {
  shards: checkSwitch,
  timeoutMs: true,
} satisfies OptionKeys<ObserveOptions>;

/** A PS that has answered. */
export interface ObservedNode {
  id: PeerId;
  /** Incarnation: another number is another process, whose counters begin at 0. */
  inc: number;
  name: string;
  /** Failure domain of the node. */
  host: string;
  telemetry: NodeTelemetry;
}

/** A job at one moment, about: nodes answer within milliseconds of each other. */
export interface JobSnapshot {
  /** Milliseconds of a clock that only runs forward. */
  at: number;
  status: JobStatus;
  scheduler: SchedulerTelemetry;
  nodes: ObservedNode[];
  /** Workers that have reported of late. */
  workers: WorkerTelemetry[];
  /** Names of living nodes that have not answered in time. */
  missing: string[];
}

const TIMEOUT_MS = 2000;
/** Nodes that are asked at the same time. */
const AT_ONCE = 64;

/** @throws UNREACHABLE (the scheduler does not answer in time), CLOSED */
export async function observe(session: Session, options: ObserveOptions): Promise<JobSnapshot> {
  const { shards = false, timeoutMs = TIMEOUT_MS } = options;
  const [status, reply] = await Promise.all([
    session.status(timeoutMs),
    session.ask((id) => ({ t: 'observe', id }), timeoutMs),
  ]);
  if (reply.t !== 'observed' || !reply.scheduler)
    throw new KintsugiError('INTERNAL', `unexpected answer "${reply.t}"`);
  const alive = status.nodes.filter((node) => node.alive);
  const found = new Map<PeerId, NodeTelemetry>();
  await eachAtMost(AT_ONCE, alive, async ({ id }) => {
    const telemetry = await ask(session, id, shards, timeoutMs);
    if (telemetry) found.set(id, telemetry);
  });
  return {
    at: monotonicMs(),
    status,
    scheduler: reply.scheduler,
    nodes: alive.flatMap(({ id, inc, name, host }) => {
      const telemetry = found.get(id);
      return telemetry ? [{ id, inc, name, host, telemetry }] : [];
    }),
    workers: reply.scheduler.workers,
    missing: alive.filter(({ id }) => !found.has(id)).map(({ name }) => name),
  };
}

/** Undefined: it does not answer in time. */
async function ask(
  session: Session,
  node: PeerId,
  shards: boolean,
  timeoutMs: number,
): Promise<NodeTelemetry | undefined> {
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), timeoutMs);
  try {
    const query = { to: { node }, message: { t: 'observe' as const, id: 0, shards } };
    const read = (message: { t: string; node?: NodeTelemetry }) => message.node;
    return await session.query(query, (message) => read(message as { t: string; node?: NodeTelemetry }), {
      signal: stop.signal,
    });
  } catch (error) {
    if (error instanceof KintsugiError && error.code === 'ABORTED') return undefined;
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

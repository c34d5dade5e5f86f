/** Snapshots that are made up. */
import type { JobSnapshot } from '../../../src/library/client/observe.js';
import type { JobStatus } from '../../../src/protocol/messages.js';
import type { Histogram, NodeTelemetry, OpTelemetry } from '../../../src/protocol/telemetry.js';
import { DURATION_BOUNDS_SECONDS } from '../../../src/protocol/telemetry.js';

interface Given {
  pulls?: number;
  /** Rows of the table "items". */
  rows?: number;
  limitBytes?: number;
  shards?: [g: number, m: number, requests: number][];
}

/** A histogram with so many durations below a millisecond. */
function histogram(count: number): Histogram {
  const counts = new Array<number>(DURATION_BOUNDS_SECONDS.length + 1).fill(0);
  counts[3] = count;
  return { counts, sumSeconds: count * 0.0005 };
}

const op = (requests: number): OpTelemetry => ({
  requests,
  rows: requests * 10,
  failed: {},
  duration: histogram(requests),
});

export function nodeTelemetry(seconds: number, { pulls = 0, rows = 0, limitBytes = 0, shards = [] }: Given) {
  const telemetry: NodeTelemetry = {
    ...{ upSeconds: seconds + 100, cpuSeconds: seconds / 2, rssBytes: 1 << 27 },
    memory: {
      limitBytes,
      usedBytes: 1 << 20,
      partBytes: {
        ...{ data: 1 << 20, parity: 0, snapshots: 0, files: 0, deltas: 0, sinkLogs: 0, outgoing: 0 },
        ...{ waiting: 0, answers: 0, received: 0, readers: 0, evicted: 0 },
      },
      unaccountedBytes: 0,
    },
    ops: { pull: op(pulls), push: op(0) },
    commit: histogram(0),
    tables: rows > 0 ? [{ name: 'items', rows, pulledRows: pulls * 10, pushedRows: 0 }] : [],
    ...{ dataShards: 1, parityShards: 1, recoveringShards: 0, uncommittedBytes: 0, sinkLagBytes: 0 },
    ...{ parkedRequests: 0, parkedBytes: 0, movedBlocks: 0 },
    recoveredBlocks: { demand: 0, background: 0 },
    sentBytes: { answers: 0, deltas: 0, recovery: 0, replicas: 0, other: 0 },
    paceBytes: { recovery: 0, moves: 0, saves: 0 },
    shards: shards.map(([g, m, requests]) => ({ g, m, requests, rows: 1, bytes: 100 })),
  };
  return telemetry;
}

/** The telemetries are those of the nodes of the status, in their order. */
export function snapshot(at: number, status: JobStatus, nodes: NodeTelemetry[]): JobSnapshot {
  return {
    at,
    status,
    scheduler: { upSeconds: 100, cpuSeconds: 1, rssBytes: 1, workers: [], runs: [] },
    nodes: nodes.map((telemetry, index) => {
      const { id, inc, name, host } = status.nodes[index]!;
      return { id, inc, name, host, telemetry };
    }),
    workers: [],
    missing: [],
  };
}

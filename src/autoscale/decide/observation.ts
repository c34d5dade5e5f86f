/**
 * What the autoscaler is shown: counters that only grow, as the job's processes count them, at one instant.
 * Two observations and the time between them give every rate.
 */

export interface PsSeen {
  id: string;
  /** Processor seconds since its start. A PS is one thread. */
  cpu: number;
  /** Bytes that count against its limit, now. */
  bytes: number;
  /** 0: no limit. */
  limit: number;
}

export interface WorkerSeen {
  /** Of its process. */
  id: string;
  /** What it is called, also by whoever started it. */
  name: string;
  samples: number;
  /** Seconds in which it read, pulled, computed and pushed. */
  busy: number;
  /** Seconds in which there was nothing to train. */
  idle: number;
}

export interface Observation {
  /** Seconds. Only differences matter. */
  at: number;
  /** Samples of the whole job, those of workers that are gone included. */
  samples: number;
  /** PS that serve, in the order in which they joined. */
  ps: readonly PsSeen[];
  workers: readonly WorkerSeen[];
  /** How many are wanted and not there yet. */
  pendingPs: number;
  pendingWorkers: number;
  /** Shards move, or something is recovered. */
  changing: boolean;
}

/** What is done, with the numbers that it was decided by. */
export type Decision = {
  reason: string;
  numbers: Readonly<Record<string, number>>;
} & (
  | { kind: 'ps'; from: number; to: number }
  | { kind: 'workers'; from: number; to: number }
  | { kind: 'rebalance' }
  | { kind: 'replace'; worker: string; name: string }
);

/** A decision that was taken. */
export interface Taken {
  at: number;
  decision: Decision;
}

/** Everything that `decide` knows. The caller keeps the last `policy.remember` seconds of both. */
export interface History {
  /** Ascending in time; the last one is now. */
  seen: readonly Observation[];
  taken: readonly Taken[];
}

/**
 * Input of the autoscaler at one instant: counters of the job's processes, which only grow. Two observations
 * and the time between them give every rate.
 */

export interface PsSeen {
  id: string;
  /** Processor seconds since its start. A PS is one thread. */
  cpu: number;
  /** Bytes that count against its limit, now. */
  bytes: number;
  /** 0: no limit. */
  limit: number;
  /** True: its event loop turns late, for long; it has more to do than it can. Absent: it does not. */
  overloaded?: boolean;
}

export interface WorkerSeen {
  /** Id of its process; a process that is started again has another one. */
  id: string;
  /** Name of the worker, which a provider knows, too. */
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
  /** PS, and workers, that are wanted and not there yet. */
  pendingPs: number;
  pendingWorkers: number;
  /** Shards move, or something is recovered. */
  changing: boolean;
}

/** A change of the job, with its reason and the numbers that it was decided by. */
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
export interface TakenTime {
  at: number;
  decision: Decision;
}

/** Everything that `decide` knows. The caller keeps the last `policy.remember` seconds of both. */
export interface History {
  /** Ascending in time; the last one is now. */
  seen: readonly Observation[];
  taken: readonly TakenTime[];
}

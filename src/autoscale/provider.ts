/** Who has the processes: what an autoscaler needs of the place where a job runs. */

/**
 * Carries decisions out. Everything resolves when it is done and rejects when it cannot be; a job that is
 * only partly changed is seen at the next look. PS are named as the job names them, workers as they name
 * themselves.
 */
export interface Provider {
  /** Workers that run or are about to, those included that have not reported yet. */
  readonly workers: number;
  /** Until `count` PS serve: starts processes, or has the job empty some, which end by themselves. */
  scalePs(count: number): Promise<void>;
  /** Starts workers, or has some end after their batch. */
  scaleWorkers(count: number): Promise<void>;
  /** Starts another worker, and ends this one, which may hang. */
  replaceWorker(name: string): Promise<void>;
  /** Evens out what the PS hold. */
  rebalance(): Promise<void>;
}

/** The processes of a job, as an autoscaler needs them. */

/**
 * Carries decisions out. Each method resolves when the change is done, and rejects when it cannot be done. A
 * job that is only partly changed is seen at the next look. PS have the names that the job gives them,
 * workers those that they give themselves.
 */
export interface Provider {
  /** Workers that run or are about to, those included that have not reported yet. */
  readonly workers: number;
  /** Starts PS, or has the job empty some, which end by themselves. Resolves when `count` PS serve. */
  scalePs(count: number): Promise<void>;
  /** Starts workers, or has some end after their batch. */
  scaleWorkers(count: number): Promise<void>;
  /** Starts another worker, and ends this one, which may hang. */
  replaceWorker(name: string): Promise<void>;
  /** Evens out what the PS hold. */
  rebalance(): Promise<void>;
  /**
   * True: a change is under way that somebody else has begun, or a process before this one. Decisions wait
   * for its end, because they would be made by counts that are about to change.
   */
  readonly busy?: boolean;
  /** Carries out what a process before this one has left of a decision. Called once, before any other. */
  takeOver?(): Promise<void>;
}

/** The cost of keeping data: parity, mirrors and checkpoints, as shares of what the job is worth. */

/** Cost of failures for a job that goes back to its newest checkpoint. */
export interface CheckpointCost {
  /** Seconds between checkpoints that lose the least (Young). */
  interval: number;
  /** Seconds that writing one takes. */
  write: number;
  /** Seconds that a failure costs: half an interval again, restart and restore. */
  lostPerFailure: number;
  /** Share of the job's time that is lost to writing, repeating and restarting. */
  share: number;
}

/**
 * `between`: seconds between failures of any machine of the job. Writing for w seconds costs (1 - share) x w.
 * With that cost C and M between failures, the best interval is sqrt(2 C M).
 */
export function checkpointCost(given: {
  bytes: number;
  between: number;
  writeBytes: number;
  shareMeanwhile: number;
  restoreBytes: number;
  restart: number;
}): CheckpointCost {
  const write = given.bytes / given.writeBytes;
  const cost = write * (1 - given.shareMeanwhile);
  const interval = Math.max(write, Math.sqrt(2 * cost * given.between));
  const lostPerFailure = interval / 2 + given.restart + given.bytes / given.restoreBytes;
  const share = Math.min(1, cost / Math.max(interval, 1e-9) + lostPerFailure / given.between);
  return { interval, write, lostPerFailure, share };
}

/** How long workers may be silent, and what is done about ranges that fail. */
export interface SamplesPolicy {
  /** A lease that is not reported on for so long is lost. */
  leaseMs: number;
  /** A worker whose connection closed and that does not come back has lost its leases after this time. */
  reconnectMs: number;
  /** The same for workers that a restarted scheduler has not heard from. */
  silentMs: number;
  /** Failures at one batch after which its range is set aside. */
  maxRangeFailures: number;
  /** Reported batches of a range that may be not durable yet. */
  maxUnsavedBatches: number;
}

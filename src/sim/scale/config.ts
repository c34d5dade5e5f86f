/** Sizes and use of the job of the scale simulation. */

export interface ScaleConfig {
  ps: number;
  workers: number;
  groups: number;
  /** Data shards and parities of a group. */
  k: number;
  r: number;
  psPerHost: number;
  tables: number;
  /** Rows of each table in each shard of the real PS. */
  rows: number;
  /** Time in which a worker trains a batch. */
  batchMs: number;
  /** Batches of a range. */
  rangeBatches: number;
  /** Length of the phases, in milliseconds of virtual time. */
  steadyMs: number;
  leasesMs: number;
  movesMs: number;
  /** Leases a second that the workers ask for together, in the phase of leases. */
  leaseRate: number;
  /** Processor time of the scheduler after which a phase ends early, in milliseconds. */
  budgetMs: number;
}

/** Most PS of one host, which are lost together. There are k+r hosts or more, so no group loses two seats. */
const HOST_SIZE = 16;

export function scaleConfig(
  sizes: Pick<ScaleConfig, 'ps' | 'workers' | 'groups'>,
  changes: Partial<ScaleConfig> = {},
): ScaleConfig {
  const [k, r] = [4, 1];
  const psPerHost = Math.max(1, Math.min(HOST_SIZE, Math.floor(sizes.ps / (k + r))));
  return {
    ...sizes,
    ...{ k, r, psPerHost, tables: 64, rows: 64 },
    ...{ batchMs: 1000, rangeBatches: 32 },
    ...{ steadyMs: 60_000, leasesMs: 10_000, movesMs: 20_000, leaseRate: 5000 },
    budgetMs: 60_000,
    ...changes,
  };
}

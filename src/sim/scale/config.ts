/** What a job of the scale simulation consists of, and how it is used. */

export interface ScaleConfig {
  ps: number;
  workers: number;
  groups: number;
  /** Data shards and parities of a group. */
  k: number;
  r: number;
  psPerHost: number;
  tables: number;
  /** Of each table in each shard of the real PS. */
  rows: number;
  /** A worker trains a batch in this time. */
  batchMs: number;
  /** Batches of a range. */
  rangeBatches: number;
  /** Length of the phases, in milliseconds of virtual time. */
  steadyMs: number;
  leasesMs: number;
  movesMs: number;
  /** Leases a second that the workers ask for together, in the phase of leases. */
  leaseRate: number;
  /** A phase ends early when the scheduler has used so much processor time, in milliseconds. */
  budgetMs: number;
}

/** PS of one host are lost together. There are at least k+r hosts, so that no group loses two members. */
export const HOST_SIZE = 16;

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

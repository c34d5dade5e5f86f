/** What this software does per second of a processor: measured, by the command that stands beside it. */
import { KintsugiError } from '../errors.js';

export interface Rates {
  /** Processor seconds of a PS for a row of 256 bytes in a pull. `kintsugi bench pull`: rows per server core. */
  pullRow: number;
  /** In a push, without redundancy. `kintsugi bench push`: rows per server core. */
  pushRow: number;
  /**
   * For a row of a delta, at its owner and at one parity together. Not measured by itself: such a row leaves
   * one PS and is taken by another one, so it counts as two rows of a push.
   */
  parityRow: number;
  /** For one shard's section of a pull or a push. `kintsugi bench overhead --jobs pushes,light`, mode none. */
  section: number;
  /** For one shard's delta to one parity and its acknowledgement. The same, mode 4+1 against none. */
  deltaMessage: number;
  /** Bytes of lost rows and parities built again by a processor second. `bench recovery --modes 4+1/idle`. */
  recoveryBytes: number;
  /** Seconds from a loss until it is known. `kintsugi bench vanish`: the longest wait of one machine. */
  detection: number;
  /** Seconds from a loss that is known until every shard serves again. `kintsugi bench recovery`: back. */
  serving: number;
  /** Bytes per second of a job that a checkpoint is written at. `kintsugi bench checkpoint --parts full`. */
  checkpointBytes: number;
  /** Share of the throughput while a checkpoint is written. `kintsugi bench checkpoint --parts beside`. */
  checkpointShare: number;
  /** Bytes per second of a job that a restore reads. `kintsugi bench checkpoint --parts restore`. */
  restoreBytes: number;
  /** Seconds until the processes of a new job are up. `kintsugi bench recovery`: checkpoint, without bytes. */
  restart: number;
  /** Resident bytes of a PS without rows. `kintsugi bench tables`, before the first table. */
  processBytes: number;
}

/**
 * Measured on two shared cores of an AMD EPYC (bench/README.md). `section` and `deltaMessage` are those of
 * one client that pushes alone; more clients share frames and batches, so they are high for large jobs.
 */
export const DEFAULT_RATES: Readonly<Rates> = {
  pullRow: 1 / 13.3e6,
  pushRow: 1 / 14.1e6,
  parityRow: 2 / 14.1e6,
  section: 145e-6,
  deltaMessage: 205e-6,
  recoveryBytes: 146e6,
  detection: 1,
  serving: 0.3,
  checkpointBytes: 0.45e9,
  checkpointShare: 0.7,
  restoreBytes: 0.2e9,
  restart: 5,
  processBytes: 100 * 2 ** 20,
};

/** The default rates with those of `given` in their place. @throws BAD_ARGUMENT for unknown or impossible ones */
export function ratesWith(given: object): Rates {
  const rates: Rates = { ...DEFAULT_RATES };
  for (const [name, value] of Object.entries(given) as [string, unknown][]) {
    if (!Object.hasOwn(DEFAULT_RATES, name))
      throw new KintsugiError(
        'BAD_ARGUMENT',
        `there is no rate "${name}"; see ${Object.keys(rates).join(', ')}`,
      );
    const most = name === 'checkpointShare' ? 1 : Number.MAX_VALUE;
    if (typeof value !== 'number' || !(value > 0) || value > most)
      throw new KintsugiError('BAD_ARGUMENT', `rate ${name} must be a number above 0, not ${String(value)}`);
    rates[name as keyof Rates] = value;
  }
  return rates;
}

/** What this software does per second of a processor: measured, by the command that stands beside it. */
import { KintsugiError } from '../errors.js';

/** Processor seconds are those of all PS together, in a job that is busy. */
export interface Rates {
  /** Processor seconds for a row of 64 values in a pull. */
  pullRow: number;
  /** In a push with Adagrad, without redundancy. */
  pushRow: number;
  /** What one parity adds to a row of a push, at the owner and at the parity. */
  parityRow: number;
  /** For one shard's part of a pull or a push. */
  section: number;
  /** What one parity adds to one shard's part of a push. */
  deltaMessage: number;
  /** Share of the time of a row that does not grow with its bytes. */
  rowFixed: number;
  /** Processor seconds of a client for a row of 64 values that it pulls and pushes. */
  clientRow: number;
  /** For one shard's part of a pull or a push. */
  clientSection: number;
  /** Processors that a PS takes when nothing happens. */
  idle: number;
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
  /** Seconds until a new job's processes are up. `kintsugi bench recovery`: checkpoint, without bytes. */
  restart: number;
  /** Resident bytes of a PS without rows. */
  processBytes: number;
}

/**
 * Measured on two shared cores of an AMD EPYC. The first six and the last: the processor time of 5 PS with 4
 * data shards each, while one client has eight requests of 256 or of 4,096 rows of dim 64 under way. The
 * others by the benchmarks that their lines name (bench/README.md).
 */
export const DEFAULT_RATES: Readonly<Rates> = {
  pullRow: 0.25e-6,
  pushRow: 0.26e-6,
  parityRow: 0.47e-6,
  section: 20e-6,
  deltaMessage: 10e-6,
  rowFixed: 0.5,
  clientRow: 0.35e-6,
  clientSection: 15e-6,
  idle: 0.05,
  recoveryBytes: 146e6,
  detection: 1,
  serving: 0.3,
  checkpointBytes: 0.45e9,
  checkpointShare: 0.7,
  restoreBytes: 0.2e9,
  restart: 5,
  processBytes: 111 * 2 ** 20,
};

/** The default rates, those of `given` in their place. @throws BAD_ARGUMENT for unknown or impossible ones */
export function ratesWith(given: object): Rates {
  const rates: Rates = { ...DEFAULT_RATES };
  for (const [name, value] of Object.entries(given) as [string, unknown][]) {
    if (!Object.hasOwn(DEFAULT_RATES, name))
      throw new KintsugiError(
        'BAD_ARGUMENT',
        `there is no rate "${name}"; see ${Object.keys(rates).join(', ')}`,
      );
    const most = name === 'checkpointShare' || name === 'rowFixed' ? 1 : Number.MAX_VALUE;
    if (typeof value !== 'number' || !(value > 0) || value > most)
      throw new KintsugiError('BAD_ARGUMENT', `rate ${name} must be a number above 0, not ${String(value)}`);
    rates[name as keyof Rates] = value;
  }
  return rates;
}

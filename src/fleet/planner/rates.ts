/** Rates of this software per second of a processor: measured, by the command that stands beside each. */
import { KintsugiError } from '../../common/errors.js';

/** Processor seconds are those of all PS together, in a job that is busy. */
export interface PlannerRates {
  /** Processor seconds for a row of 64 values in a pull. */
  pullRow: number;
  /** The same in a push with Adagrad, without redundancy. */
  pushRow: number;
  /** Processor seconds that one parity adds to a row of a push, at the owner and at the parity. */
  parityRow: number;
  /** Processor seconds for one shard's part of a pull or a push. */
  section: number;
  /** Processor seconds that one parity adds to one shard's part of a push. */
  deltaMessage: number;
  /** Share of the time of a row in a pull or push that does not grow with its bytes. */
  rowFixed: number;
  /** The same share of what a parity adds to a row. */
  parityFixed: number;
  /** Processor seconds of a client for a row of 64 values that it pulls and pushes. */
  clientRow: number;
  /** Share of that which does not grow with its bytes. */
  clientFixed: number;
  /** Processor seconds of a client for one shard's part of a pull or a push. */
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
 * Measured on two cores of an AMD EPYC. Those of rows, sections and of an idle PS are medians of three runs
 * of `kintsugi plan --measure`, on a machine that did nothing else. The others are of the benchmarks that
 * their lines name (bench/README.md).
 */
export const DEFAULT_RATES: Readonly<PlannerRates> = {
  pullRow: 0.19e-6,
  pushRow: 0.19e-6,
  parityRow: 0.6e-6,
  section: 18e-6,
  deltaMessage: 34e-6,
  rowFixed: 0.03,
  parityFixed: 0.01,
  clientRow: 0.6e-6,
  clientFixed: 0.08,
  clientSection: 21e-6,
  idle: 0.04,
  recoveryBytes: 146e6,
  detection: 1,
  serving: 0.3,
  checkpointBytes: 0.45e9,
  checkpointShare: 0.7,
  restoreBytes: 0.2e9,
  restart: 5,
  processBytes: 111 * 2 ** 20,
};

const SHARES: ReadonlySet<string> = new Set(['checkpointShare', 'rowFixed', 'parityFixed', 'clientFixed']);

/** The default rates, those of `given` in their place. @throws BAD_ARGUMENT for unknown or impossible ones */
export function ratesWith(given: object): PlannerRates {
  const rates: PlannerRates = { ...DEFAULT_RATES };
  for (const [name, value] of Object.entries(given) as [string, unknown][]) {
    if (!Object.hasOwn(DEFAULT_RATES, name))
      throw new KintsugiError(
        'BAD_ARGUMENT',
        `there is no rate "${name}"; see ${Object.keys(rates).join(', ')}`,
      );
    const most = SHARES.has(name) ? 1 : Number.MAX_VALUE;
    if (typeof value !== 'number' || !(value > 0) || value > most)
      throw new KintsugiError('BAD_ARGUMENT', `rate ${name} must be a number above 0, not ${String(value)}`);
    rates[name as keyof PlannerRates] = value;
  }
  return rates;
}

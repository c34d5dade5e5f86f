/**
 * The keys of training steps: as skewed as those of click logs, where a rank's frequency falls with one over
 * the rank. Ranks are spread over the table, so that rows which are hot do not lie side by side in blocks:
 * what a step needs of a lost shard is scattered over it, which is the hard case for recovery on demand.
 */
import { seededRandom } from '../../../src/fleet/local/kills.js';

/** The table that is trained. */
export const TABLE = 'bench';

export class KeyStream {
  private readonly random: () => number;
  private readonly step: bigint;

  constructor(
    private readonly rows: number,
    private readonly batch: number,
    seed = 1,
  ) {
    this.random = seededRandom(seed);
    this.step = stepFor(rows);
  }

  /** Distinct keys; fewer than `batch` when some came twice. */
  next(): BigUint64Array {
    const chosen = new Set<number>();
    const scale = Math.log(this.rows);
    for (let i = 0; i < this.batch; i++) {
      chosen.add(Math.min(this.rows - 1, Math.floor(Math.exp((this.random() / 2 ** 32) * scale)) - 1));
    }
    const rows = BigInt(this.rows);
    return BigUint64Array.from(chosen, (rank) => (BigInt(rank) * this.step) % rows);
  }
}

/** A step without a common factor with the number of rows: ranks and keys are one to one. */
function stepFor(rows: number): bigint {
  let step = Math.max(1, Math.floor(rows * 0.6180339887));
  while (gcd(step, rows) !== 1) step++;
  return BigInt(step);
}

function gcd(a: number, b: number): number {
  return b === 0 ? a : gcd(b, a % b);
}

/**
 * How long until data is lost: a Markov chain over the members of a group that are lost at once. Failures
 * come at the rate 1/MTBF for each node, independently, and repairs one after the other at 1/repair.
 */

/**
 * Mean time, in the unit of `mtbf` and `repair`, until more than `r` of `nodes` are lost at once, from the
 * state in which all are there. Exact for the chain: with j lost, the next failure comes at the rate
 * (nodes - j) / mtbf, and for j > 0 a repair at 1 / repair. The time to come from j to j + 1 lost is
 *   h(0) = mtbf / nodes,   h(j) = (1 + h(j - 1) / repair) / ((nodes - j) / mtbf),
 * and the mean time to loss is h(0) + ... + h(r).
 */
export function meanTimeToLoss(nodes: number, r: number, mtbf: number, repair: number): number {
  let step = 0;
  let sum = 0;
  for (let lost = 0; lost <= r; lost++) {
    if (lost >= nodes) return Number.POSITIVE_INFINITY;
    step = ((lost === 0 ? 1 : 1 + step / repair) * mtbf) / (nodes - lost);
    sum += step;
  }
  return sum;
}

/**
 * Mean time to loss of a job: a lower bound. A loss needs r + 1 members of one group. So it is no sooner than
 * that of a group divided by the number of groups (the union bound), and no sooner than r + 1 losses among
 * all PS at once.
 */
export function jobMeanTimeToLoss(
  ps: number,
  { k, r, groups }: { k: number; r: number; groups: number },
  mtbf: number,
  repair: number,
): number {
  const byGroups = meanTimeToLoss(k + r, r, mtbf, repair) / groups;
  return Math.max(byGroups, meanTimeToLoss(ps, r, mtbf, repair));
}

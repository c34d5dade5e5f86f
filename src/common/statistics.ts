/** Figures of measured numbers: the typical one, and where they go. */

/** Median of the values: of an even number of them the mean of the middle two, and 0 of none. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (sorted.length % 2 === 1) return sorted[middle]!;
  return ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2;
}

/** Mean of the values; 0 of none. */
export function mean(values: readonly number[]): number {
  return sumOf(values, (value) => value) / Math.max(1, values.length);
}

export function sumOf<T>(list: readonly T[], of: (item: T) => number): number {
  return list.reduce((total, item) => total + of(item), 0);
}

/** Most points that go into a slope: its work grows with their square. */
const MOST_POINTS = 30;

/**
 * The median of the slopes between all pairs of points (Theil-Sen): up to 29 % of the points may be anything.
 * 0 of fewer than two points.
 */
export function theilSen(points: readonly (readonly [x: number, y: number])[]): number {
  const every = Math.ceil(points.length / MOST_POINTS);
  const kept = points.filter((_, i) => (points.length - 1 - i) % every === 0);
  const slopes: number[] = [];
  for (let i = 0; i < kept.length; i++) {
    for (let j = i + 1; j < kept.length; j++) {
      const run = kept[j]![0] - kept[i]![0];
      if (run > 0) slopes.push((kept[j]![1] - kept[i]![1]) / run);
    }
  }
  return slopes.length === 0 ? 0 : median(slopes);
}

/**
 * Throughput from progress reports. Between two reports of a worker its rate is taken as constant, so that
 * windows of any width can be compared.
 */

export interface ProgressPoint {
  mono: number;
  worker: string;
  /** Samples that this worker has trained so far. */
  samples: number;
}

export class Throughput {
  private readonly series: { mono: number; samples: number }[][];

  constructor(points: readonly ProgressPoint[]) {
    const byWorker = new Map<string, { mono: number; samples: number }[]>();
    for (const { worker, mono, samples } of [...points].sort((a, b) => a.mono - b.mono)) {
      const known = byWorker.get(worker);
      if (known) known.push({ mono, samples });
      else byWorker.set(worker, [{ mono, samples }]);
    }
    this.series = [...byWorker.values()];
  }

  /** Samples of all workers up to a moment. */
  samplesAt(mono: number): number {
    return this.series.reduce((sum, points) => sum + interpolate(points, mono), 0);
  }

  /** Samples per second between two moments. */
  rate(from: number, to: number): number {
    return to > from ? ((this.samplesAt(to) - this.samplesAt(from)) / (to - from)) * 1000 : 0;
  }

  /** Rates of whole windows from `from` on that end before `to`. */
  windows(from: number, to: number, widthMs: number): number[] {
    const rates: number[] = [];
    for (let start = from; start + widthMs <= to; start += widthMs)
      rates.push(this.rate(start, start + widthMs));
    return rates;
  }
}

function interpolate(points: readonly { mono: number; samples: number }[], mono: number): number {
  let low = 0;
  let high = points.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle]!.mono <= mono) low = middle + 1;
    else high = middle;
  }
  const before = points[low - 1];
  const after = points[low];
  if (!before) return 0;
  if (!after) return before.samples;
  return (
    before.samples + ((after.samples - before.samples) * (mono - before.mono)) / (after.mono - before.mono)
  );
}

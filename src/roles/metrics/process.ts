/**
 * Metrics of the process itself: those of prom-client, but for the dear ones. Its event loop histogram wakes
 * the process 100 times a second and takes 0.4 ms to read, and its heap sizes walk all array buffers. What
 * stands for them here has the same names.
 */
import { getHeapStatistics } from 'node:v8';
import { collectDefaultMetrics, Registry } from 'prom-client';
import { mean } from '../../common/statistics.js';
import type { Metric } from './declared.js';
import { commonText, type Labels, MetricText, type Reading } from './text.js';

const SAMPLE_MS = 100;
/** Samples that are kept: those of the newest 15 s, whoever scrapes and how often. */
const KEPT = 150;
/** In milliseconds: prom-client's own timer never comes. */
const NEVER = 2 ** 31 - 1;

const LAG = 'Lateness of a timer of 100 ms over the newest 15 s';
const OWN = {
  nodejs_eventloop_lag_seconds: { kind: 'gauge', help: 'Lateness of the newest timer of 100 ms.' },
  nodejs_eventloop_lag_min_seconds: { kind: 'gauge', help: `${LAG}: the least.` },
  nodejs_eventloop_lag_max_seconds: { kind: 'gauge', help: `${LAG}: the most.` },
  nodejs_eventloop_lag_mean_seconds: { kind: 'gauge', help: `${LAG}: the mean.` },
  nodejs_eventloop_lag_stddev_seconds: { kind: 'gauge', help: `${LAG}: the standard deviation.` },
  nodejs_eventloop_lag_p50_seconds: { kind: 'gauge', help: `${LAG}: the median.` },
  nodejs_eventloop_lag_p90_seconds: { kind: 'gauge', help: `${LAG}: what 90 % did not exceed.` },
  nodejs_eventloop_lag_p99_seconds: { kind: 'gauge', help: `${LAG}: what 99 % did not exceed.` },
  nodejs_heap_size_total_bytes: { kind: 'gauge', help: 'Size of the heap of JavaScript.' },
  nodejs_heap_size_used_bytes: { kind: 'gauge', help: 'What of it is used.' },
  nodejs_external_memory_bytes: { kind: 'gauge', help: 'Memory outside of it that its objects hold.' },
} as const satisfies Record<string, Metric>;

/** How late a timer is: what keeps the event loop from anything else keeps it from the timer, too. */
export class Lateness {
  /** In seconds. */
  private readonly samples: number[] = [];
  private next = 0;
  private newest = 0;

  add(seconds: number): void {
    this.newest = Math.max(0, seconds);
    this.samples[this.next] = this.newest;
    this.next = (this.next + 1) % KEPT;
  }

  read(): { now: number; min: number; max: number; mean: number; stddev: number; of(part: number): number } {
    const sorted = this.samples.toSorted((a, b) => a - b);
    const middle = mean(sorted);
    const variance = mean(sorted.map((each) => (each - middle) ** 2));
    const of = (part: number): number => sorted[Math.max(0, Math.ceil(part * sorted.length) - 1)] ?? 0;
    return { now: this.newest, min: of(0), max: of(1), mean: middle, stddev: Math.sqrt(variance), of };
  }
}

let lateness: Lateness | undefined;

/** Roles of one process share the timer. It is there from the first scrape on. */
function sampled(): Lateness {
  if (lateness) return lateness;
  const begun = new Lateness();
  let due = performance.now() + SAMPLE_MS;
  const sample = () => {
    const now = performance.now();
    begun.add((now - due) / 1000);
    due = now + SAMPLE_MS;
  };
  setInterval(sample, SAMPLE_MS).unref();
  lateness = begun;
  return begun;
}

/** Text of the metrics of the process, made anew at each call. */
export function processText(labels: Labels): () => Promise<string> {
  const registry = new Registry();
  registry.setDefaultLabels(labels);
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: NEVER });
  for (const name of Object.keys(OWN)) registry.removeSingleMetric(name);
  const common = commonText(labels);
  const written = Object.entries(OWN).map(
    ([name, metric]) => [name, new MetricText(name, metric, common)] as const,
  );
  const lag = sampled();
  return async () => {
    const now: Readonly<Record<string, Reading>> = readings(lag);
    const own = written.map(([name, metric]) => metric.text(now[name]));
    return `${own.join('\n')}\n${await registry.metrics()}`;
  };
}

function readings(lag: Lateness): Record<keyof typeof OWN, number> {
  const { now, min, max, mean, stddev, of } = lag.read();
  const heap = getHeapStatistics();
  return {
    nodejs_eventloop_lag_seconds: now,
    nodejs_eventloop_lag_min_seconds: min,
    nodejs_eventloop_lag_max_seconds: max,
    nodejs_eventloop_lag_mean_seconds: mean,
    nodejs_eventloop_lag_stddev_seconds: stddev,
    nodejs_eventloop_lag_p50_seconds: of(0.5),
    nodejs_eventloop_lag_p90_seconds: of(0.9),
    nodejs_eventloop_lag_p99_seconds: of(0.99),
    nodejs_heap_size_total_bytes: heap.total_heap_size,
    nodejs_heap_size_used_bytes: heap.used_heap_size,
    nodejs_external_memory_bytes: heap.external_memory,
  };
}

/**
 * What /metrics tells. All numbers are read once for each scrape, and nothing is kept or counted here. The
 * metrics of the process itself (prom-client's) begin with the first scrape, so that a role that nobody
 * scrapes pays nothing for them.
 */
import { collectDefaultMetrics, type Metric as PromMetric, Registry } from 'prom-client';
import { DURATION_BOUNDS_SECONDS, type Histogram } from '../../protocol/telemetry.js';
import { METRICS, type Metric, type MetricName, type MetricRole } from './declared.js';

export type Labels = Readonly<Record<string, string | number>>;
/**
 * The values of a metric now: one, one for each value of its only label, or one for each of these labels.
 * Undefined: it has none now.
 */
export type Reading =
  | number
  | Histogram
  | ReadonlyMap<string, number>
  | readonly (readonly [Labels, number | Histogram])[]
  | undefined;
export type Readings<R extends MetricRole> = { readonly [N in MetricName<R>]: Reading };

interface Value {
  value: number;
  labels: Labels;
  metricName?: string;
}

/** A metric of the registry whose values are read, and not set. */
class ReadMetric {
  readonly aggregator = 'sum';

  constructor(
    readonly name: string,
    readonly help: string,
    readonly type: Metric['kind'],
    private readonly read: () => Value[],
  ) {}

  get(): Promise<object> {
    const { name, help, type, aggregator } = this;
    return Promise.resolve({ name, help, type, aggregator, values: this.read() });
  }

  reset(): void {}
}

/** Answers with the text of a scrape. `read` is called once for each. */
export function scraper<R extends MetricRole>(
  role: R,
  name: string,
  read: () => Partial<Readings<R>>,
): { type: string; text(): Promise<string> } {
  const registry = new Registry();
  registry.setDefaultLabels({ role, name });
  let now: Partial<Record<string, Reading>> = {};
  for (const [metric, declared] of Object.entries<Metric>(METRICS[role])) {
    const values = (as: string) => () => valuesOf(as, now[metric], declared.labels ?? []);
    const { help, kind, was } = declared;
    register(registry, new ReadMetric(metric, help, kind, values(metric)));
    if (was)
      register(registry, new ReadMetric(was, `Until the next release: ${metric}.`, 'gauge', values(was)));
  }
  let begun = false;
  return {
    type: registry.contentType,
    text: () => {
      if (!begun) collectDefaultMetrics({ register: registry });
      begun = true;
      now = read();
      return registry.metrics();
    },
  };
}

function register(registry: Registry, metric: ReadMetric): void {
  registry.registerMetric(metric as unknown as PromMetric);
}

function valuesOf(name: string, reading: Reading, labels: readonly string[]): Value[] {
  if (reading === undefined) return [];
  if (typeof reading === 'number') return [{ value: reading, labels: {} }];
  if (reading instanceof Map)
    return [...reading].map(([label, value]) => ({ value, labels: { [labels[0]!]: label } }));
  const rows = Array.isArray(reading) ? reading : [[{}, reading]];
  return rows.flatMap(([each, value]: [Labels, number | Histogram]) =>
    typeof value === 'number' ? [{ value, labels: each }] : buckets(name, each, value),
  );
}

/** Prometheus' buckets have everything up to their bound. */
function buckets(name: string, labels: Labels, { counts, sumSeconds }: Histogram): Value[] {
  const values: Value[] = [];
  let total = 0;
  for (const [i, count] of counts.entries()) {
    total += count;
    const le = DURATION_BOUNDS_SECONDS[i] ?? '+Inf';
    values.push({ value: total, labels: { ...labels, le }, metricName: `${name}_bucket` });
  }
  values.push({ value: sumSeconds, labels, metricName: `${name}_sum` });
  values.push({ value: total, labels, metricName: `${name}_count` });
  return values;
}

/** Prometheus text. A scrape is some hundred lines of each process, so nothing but strings is made. */
import { DURATION_BOUNDS_SECONDS, type Histogram } from '../../protocol/telemetry.js';
import type { Metric } from './declared.js';

export const CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

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

const BOUNDS = [...DURATION_BOUNDS_SECONDS.map(String), '+Inf'];

/** A metric as it is told; `common`: labels that all its values have after their own. */
export class MetricText {
  private readonly head: string;
  /** The labels of a value without labels of its own. */
  private readonly alone: string;
  /** Name of the label by whose values a reading is split. */
  private readonly label: string;

  constructor(
    private readonly name: string,
    { help, kind, labels = [] }: Metric,
    private readonly common: string,
  ) {
    this.head = `# HELP ${name} ${escaped(help)}\n# TYPE ${name} ${kind}\n`;
    this.alone = `{${common}}`;
    this.label = labels[0] ?? '';
  }

  /** Lines of the metric, each with its end. */
  text(reading: Reading): string {
    const { head, name, alone } = this;
    if (reading === undefined) return head;
    if (typeof reading === 'number') return `${head}${name}${alone} ${numeral(reading)}\n`;
    if (reading instanceof Map) {
      let text = head;
      for (const [value, number] of reading) text += this.line('', { [this.label]: value }, number);
      return text;
    }
    if (!Array.isArray(reading)) return head + this.buckets({}, reading as Histogram);
    let text = head;
    for (const [labels, value] of reading as readonly (readonly [Labels, number | Histogram])[])
      text += typeof value === 'number' ? this.line('', labels, value) : this.buckets(labels, value);
    return text;
  }

  private line(suffix: string, labels: Labels, value: number): string {
    return `${this.name}${suffix}{${labelsText(labels)}${this.common}} ${numeral(value)}\n`;
  }

  /** Prometheus' buckets have everything up to their bound. */
  private buckets(labels: Labels, { counts, sumSeconds }: Histogram): string {
    const { name, common } = this;
    const bucket = `${name}_bucket{${labelsText(labels)}le="`;
    const end = `",${common}} `;
    let text = '';
    let total = 0;
    for (const [i, count] of counts.entries()) {
      total += count;
      text += `${bucket}${BOUNDS[i]}${end}${total}\n`;
    }
    return text + this.line('_sum', labels, sumSeconds) + this.line('_count', labels, total);
  }
}

/** The labels as `name="value",`, each with its comma. */
function labelsText(labels: Labels): string {
  let text = '';
  for (const label in labels) text += `${label}="${labelValue(labels[label]!)}",`;
  return text;
}

/** Labels that all values have, as {@link MetricText} takes them. */
export const commonText = (labels: Labels): string => labelsText(labels).slice(0, -1);

function labelValue(value: string | number): string | number {
  return typeof value === 'number' ? value : escaped(value).replaceAll('"', '\\"');
}

const SPECIAL = /[\\\n]/;

function escaped(text: string): string {
  return SPECIAL.test(text) ? text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n') : text;
}

function numeral(value: number): string {
  if (Number.isFinite(value)) return String(value);
  if (Number.isNaN(value)) return 'NaN';
  return value > 0 ? '+Inf' : '-Inf';
}

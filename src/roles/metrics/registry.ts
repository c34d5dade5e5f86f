/**
 * The text of /metrics. All numbers are read once for each scrape, and nothing is kept or counted here. The
 * metrics of the process itself begin with the first scrape, so that a role that nobody scrapes pays nothing
 * for them.
 */
import { METRICS, type Metric, type MetricName, type MetricRole } from './declared.js';
import { processText } from './process.js';
import { CONTENT_TYPE, commonText, MetricText, type Reading } from './text.js';

export type { Labels, Reading } from './text.js';
export type Readings<R extends MetricRole> = { readonly [N in MetricName<R>]: Reading };

/** Answers with the text of a scrape. `read` is called once for each. */
export function scraper<R extends MetricRole>(
  role: R,
  name: string,
  read: () => Partial<Readings<R>>,
): { type: string; text(): Promise<string> } {
  const labels = { role, name };
  const common = commonText(labels);
  const written = Object.entries<Metric>(METRICS[role]).flatMap(([metric, declared]) => {
    const { was } = declared;
    const own = [metric, new MetricText(metric, declared, common)] as const;
    if (was === undefined) return [own];
    const help = `Until the next release: ${metric}.`;
    return [own, [metric, new MetricText(was, { ...declared, kind: 'gauge', help }, common)] as const];
  });
  let ofProcess: (() => Promise<string>) | undefined;
  return {
    type: CONTENT_TYPE,
    text: async () => {
      ofProcess ??= processText(labels);
      const now: Partial<Record<string, Reading>> = read();
      const parts = written.map(([metric, each]) => each.text(now[metric]));
      parts.push(await ofProcess());
      return parts.join('\n');
    },
  };
}

/** The text of a scrape: kinds, labels and buckets, of every metric that is declared. */
import { expect, it } from 'vitest';
import { Durations } from '../../src/core/shared/meter.js';
import { METRICS, type Metric, type MetricRole } from '../../src/roles/metrics/declared.js';
import { Lateness } from '../../src/roles/metrics/process.js';
import { scraper } from '../../src/roles/metrics/registry.js';
import { COUNTING, client, cluster, firstKeys, redundant } from './support.js';

/** Metric -> its kind, and the lines of its values. */
function parse(text: string): Map<string, { kind: string; lines: string[] }> {
  const found = new Map<string, { kind: string; lines: string[] }>();
  let last = { kind: '', lines: [] as string[] };
  for (const line of text.trimEnd().split('\n')) {
    const type = /^# TYPE (\S+) (\S+)$/.exec(line);
    if (type) {
      last = { kind: type[2]!, lines: [] };
      found.set(type[1]!, last);
    } else if (!line.startsWith('#') && line !== '') last.lines.push(line);
  }
  return found;
}

async function scraped(address: string) {
  return parse(await (await fetch(`http://${address}/metrics`)).text());
}

/** Metrics of a quiet job without workers, checkpoints and losses that have no value. */
const WITHOUT = new Set([
  'kintsugi_workers',
  'kintsugi_run_samples_total',
  'kintsugi_dataset_samples_total',
  'kintsugi_dataset_redone_samples_total',
  'kintsugi_dataset_ranges',
  'kintsugi_goodput',
  'kintsugi_checkpoint_number',
  'kintsugi_checkpoint_age_seconds',
  'kintsugi_checkpoint_seconds',
  'kintsugi_checkpoint_bytes',
  'kintsugi_checkpoint_failing',
  'kintsugi_refused_messages_total',
  'kintsugi_shard_requests_total',
  'kintsugi_shard_bytes',
  'kintsugi_table_removed_rows_total',
  'kintsugi_table_dropped_gradients_total',
]);

it('every metric of scheduler and PS has its kind and a value, and the process has its own', async () => {
  const job = await cluster({ code: '2+1' });
  const trainer = await client(job.address);
  const table = await trainer.createTable({ name: 't', ...COUNTING });
  await table.push(firstKeys(100), new Float32Array(200).fill(1));
  await table.pull(firstKeys(100));
  await redundant(trainer, 3);
  const addresses: [MetricRole, string][] = [
    ['scheduler', job.address],
    ['ps', job.nodes[0]!.address],
  ];
  for (const [role, address] of addresses) {
    const found = await scraped(address);
    for (const [name, { kind }] of Object.entries<Metric>(METRICS[role])) {
      expect([name, found.get(name)?.kind]).toEqual([name, kind]);
      if (!WITHOUT.has(name)) expect([name, found.get(name)!.lines.length]).not.toEqual([name, 0]);
    }
    expect(found.get('process_cpu_seconds_total')?.lines.length).toBe(1);
  }
});

it('labels say what a number is of', async () => {
  const job = await cluster({ code: '2+1' });
  const trainer = await client(job.address);
  const table = await trainer.createTable({ name: 't', ...COUNTING });
  await redundant(trainer, 3);
  await table.pull(firstKeys(100));
  const rows = async () => {
    let sum = 0;
    for (const { address } of job.nodes) {
      const { lines } = (await scraped(address)).get('kintsugi_request_rows_total')!;
      const mine = lines.find((line) => line.includes('op="pull",table="t"'));
      sum += Number(mine?.split(' ').at(-1));
    }
    return sum;
  };
  const before = await rows();
  await table.pull(firstKeys(100));
  // A pull that is answered late is asked again, and counts again.
  expect((await rows()) - before).toBeGreaterThanOrEqual(100);
  const scheduler = await scraped(job.address);
  expect(scheduler.get('kintsugi_redundancy')!.lines.filter((line) => line.endsWith(' 1'))).toEqual([
    'kintsugi_redundancy{state="full",role="scheduler",name="scheduler"} 1',
  ]);
  const up = scheduler.get('kintsugi_node_up')!.lines.map((line) => /node="([^"]+)".* (\d)$/.exec(line));
  expect(up.map((match) => match?.slice(1))).toEqual([
    ['ps-0', '1'],
    ['ps-1', '1'],
    ['ps-2', '1'],
  ]);
});

it('buckets of durations have everything up to their bound', async () => {
  const commits = new Durations();
  commits.add(0.05, 3);
  commits.add(30_000);
  const { text } = scraper('ps', 'ps-0', () => ({ kintsugi_push_commit_duration_seconds: commits.read() }));
  const { lines, kind } = parse(await text()).get('kintsugi_push_commit_duration_seconds')!;
  const where = (le: string) => `{le="${le}",role="ps",name="ps-0"}`;
  const name = 'kintsugi_push_commit_duration_seconds';
  expect(kind).toBe('histogram');
  expect(lines).toContain(`${name}_bucket${where('0.0001')} 3`);
  expect(lines).toContain(`${name}_bucket${where('10')} 3`);
  expect(lines).toContain(`${name}_bucket${where('+Inf')} 4`);
  expect(lines).toContain(`${name}_count{role="ps",name="ps-0"} 4`);
});

it('labels and numbers are written as Prometheus reads them', async () => {
  const hostile = 'a"b\\c\nd';
  const { text } = scraper('worker', hostile, () => ({
    kintsugi_loss: Number.NaN,
    kintsugi_samples_total: Number.POSITIVE_INFINITY,
    kintsugi_wait_seconds_total: new Map([[hostile, 1e-7]]),
  }));
  const found = parse(await text());
  const common = 'role="worker",name="a\\"b\\\\c\\nd"';
  expect(found.get('kintsugi_loss')!.lines).toEqual([`kintsugi_loss{${common}} NaN`]);
  expect(found.get('kintsugi_samples_total')!.lines).toEqual([`kintsugi_samples_total{${common}} +Inf`]);
  expect(found.get('kintsugi_wait_seconds_total')!.lines).toEqual([
    `kintsugi_wait_seconds_total{for="a\\"b\\\\c\\nd",${common}} 1e-7`,
  ]);
  for (const name of ['nodejs_heap_size_used_bytes', 'nodejs_gc_duration_seconds', 'process_open_fds'])
    for (const line of found.get(name)!.lines) expect(line).toContain(common);
});

it('the lag of the event loop is that of the newest samples', () => {
  const lateness = new Lateness();
  expect(lateness.read()).toMatchObject({ now: 0, min: 0, max: 0, mean: 0, stddev: 0 });
  for (let i = 0; i < 1000; i++) lateness.add(7);
  for (let i = 1; i <= 150; i++) lateness.add(i / 100);
  const read = lateness.read();
  expect(read).toMatchObject({ now: 1.5, min: 0.01, max: 1.5 });
  expect(read.mean).toBeCloseTo(0.755, 9);
  expect(read.stddev).toBeCloseTo(Math.sqrt((150 ** 2 - 1) / 12) / 100, 9);
  expect([0.5, 0.9, 0.99].map(read.of)).toEqual([0.75, 1.35, 1.49]);
  // A timer never comes early enough to count.
  lateness.add(-1e-4);
  expect(lateness.read()).toMatchObject({ now: 0, min: 0 });
});

it('a name of the release before is told once more', async () => {
  const { text } = scraper('worker', 'w', () => ({ kintsugi_samples_total: 7 }));
  const found = parse(await text());
  expect(found.get('kintsugi_samples_total')).toMatchObject({ kind: 'counter' });
  expect(found.get('kintsugi_samples')!.lines).toEqual(['kintsugi_samples{role="worker",name="w"} 7']);
});

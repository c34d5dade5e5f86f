/**
 * The dashboard and the alerts that deploy/ has for Prometheus and Grafana, held against a job in which a PS
 * dies and the number of PS changes: every expression has data, and alerts of a lost redundancy fire and
 * resolve.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { METRICS } from '../../src/roles/metrics/declared.js';
import { writeDemoData } from '../../src/training/loop/demo-data.js';
import { kintsugi } from '../cli/support.js';
import { COUNTING, client, cluster, firstKeys } from '../roles/support.js';
import { PRESENT, Prometheus, promtool } from './prometheus.js';

interface Panel {
  title: string;
  type: string;
  targets?: { expr: string }[];
}
interface Dashboard {
  panels: Panel[];
  annotations: { list: { expr: string }[] };
}

const read = (name: string): string => readFileSync(new URL(`../../deploy/${name}`, import.meta.url), 'utf8');
const dashboard = JSON.parse(read('grafana.json')) as Dashboard;
const panels = dashboard.panels.filter(({ type }) => type !== 'row');
const expressions = [
  ...panels.flatMap(({ title, targets = [] }) => targets.map(({ expr }): [string, string] => [title, expr])),
  ...dashboard.annotations.list.map(({ expr }): [string, string] => ['annotation', expr]),
];

it('grafana.json is what its script writes', async () => {
  const script = (await import(new URL('../../deploy/grafana.mjs', import.meta.url).href)) as {
    text: string;
  };
  expect(read('grafana.json')).toBe(script.text);
  expect(dashboard.panels.filter(({ type }) => type === 'row').map(({ title }) => title)).toEqual([
    'Job',
    'Training',
    'PS',
    'Recovery',
    'Data',
  ]);
});

it('every metric that the dashboard and the alerts name is declared', () => {
  const declared = new Set(Object.values(METRICS).flatMap((metrics) => Object.keys(metrics)));
  const text = `${expressions.map(([, expr]) => expr).join('\n')}\n${read('alerts.yml')}`;
  const named = new Set([...text.matchAll(/\bkintsugi_[a-z_]+/g)].map(([name]) => name));
  expect(named.size).toBeGreaterThan(30);
  const unknown = [...named].filter(
    (name) => !declared.has(name) && !declared.has(name.replace(/_(bucket|sum|count)$/, '')),
  );
  expect(unknown).toEqual([]);
});

describe.skipIf(!PRESENT)('beside a job in which a PS dies and one more comes', () => {
  const EVERY_MS = 250;
  let directory = '';
  let prometheus: Prometheus;
  let span: [from: number, to: number];

  /** Addresses that are scraped, by the log of the roles. */
  function addresses(log: string): Set<string> {
    const found = new Set<string>();
    if (!existsSync(log)) return found;
    for (const line of readFileSync(log, 'utf8').split('\n')) {
      const match = /"event":"(?:scheduler|ps|worker)\.ready".*?"address":"([^"]+)"/.exec(line);
      if (match) found.add(match[1]!);
    }
    return found;
  }

  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'kintsugi-deploy-'));
    // The same rules, without their patience.
    const rules = read('alerts.yml').replaceAll(/^( +for:) .*$/gm, '$1 0s');
    prometheus = await Prometheus.start(join(directory, 'prometheus'), rules, EVERY_MS);
    const train = join(directory, 'train.tsv');
    await writeDemoData({ train, rows: 40_000, keys: 5000, seed: 1 });
    const log = join(directory, 'log');
    const timer = setInterval(() => prometheus.scrape(addresses(log)), EVERY_MS);
    const from = Date.now() / 1000;
    const job = ['--ps', '3', '--code', '2+1', '--workers', '2', '--dim', '8', '--memory', '512MiB'];
    const model = ['--bottom', '16-8', '--top', '16-1', '--batch', '32', '--epochs', '3', '--quiet'];
    const faults = ['--kill', 'ps@20%', '--respawn', '3s', '--scale', 'ps=4@60%'];
    const place = [
      '--checkpoint',
      join(directory, 'checkpoints'),
      '--every',
      '2s',
      '--log',
      log,
      '--metrics-per-shard',
    ];
    const end = await kintsugi(['local', '--data', train, ...job, ...model, ...faults, ...place]);
    clearInterval(timer);
    expect([end.stderr, end.code]).toEqual(['', 0]);
    span = [from, Date.now() / 1000];
  }, 600_000);
  afterAll(async () => {
    await prometheus?.stop();
    rmSync(directory, { recursive: true, force: true });
  });

  it('every expression of the dashboard has data', async () => {
    const without: string[] = [];
    for (const [title, expr] of expressions) {
      const concrete = expr.replaceAll('$__rate_interval', '2s').replaceAll('$instance', '.*');
      const series = await prometheus.range(concrete, ...span, 0.5);
      if (!series.some(({ values }) => values.length > 0)) without.push(`${title}: ${concrete}`);
    }
    expect(without).toEqual([]);
  });

  it('an alert of lost redundancy fires after the loss, and resolves', async () => {
    const alerts = 'ALERTS{alertname="KintsugiNotRedundant", alertstate="firing"}';
    const fired = (await prometheus.range(alerts, ...span, 0.25)).flatMap(({ values }) => values);
    expect(fired.length).toBeGreaterThan(0);
    const [[first], [last]] = [fired[0]!, fired.at(-1)!];
    const full = (await prometheus.range('kintsugi_redundancy{state="full"} == 1', ...span, 0.25)).flatMap(
      ({ values }) => values.map(([at]) => at),
    );
    expect(full.some((at) => at < first)).toBe(true);
    expect(full.some((at) => at > last)).toBe(true);
    const others =
      'ALERTS{alertname=~"KintsugiUnrecoverable|KintsugiCheckpointFailing", alertstate="firing"}';
    expect(await prometheus.range(others, ...span, 0.25)).toEqual([]);
  });

  it('a loss was counted, and so was what it cost', async () => {
    const [losses] = await prometheus.range('max(kintsugi_node_losses_total)', ...span, 0.5);
    expect(losses!.values.at(-1)![1]).toBe(1);
    const [recovered] = await prometheus.range('min(kintsugi_recovery_duration_seconds_count)', ...span, 0.5);
    // Recoveries of each phase were counted.
    expect(recovered!.values.at(-1)![1]).toBeGreaterThan(0);
  });
});

describe.skipIf(!PRESENT)('promtool', () => {
  it('finds no fault in the alerts', () => {
    promtool(['check', 'rules', new URL('../../deploy/alerts.yml', import.meta.url).pathname]);
  });

  it('finds no fault in what scheduler and PS tell', async () => {
    const job = await cluster({ code: '2+1' });
    const trainer = await client(job.address);
    const table = await trainer.createTable({ name: 't', ...COUNTING });
    await table.push(firstKeys(100), new Float32Array(200).fill(1));
    for (const address of [job.address, job.nodes[0]!.address]) {
      const text = await (await fetch(`http://${address}/metrics`)).text();
      // Without those of prom-client, and the names of the release before.
      const own = text
        .split('\n\n')
        .filter((block) => block.includes('# HELP kintsugi_') && !block.includes('Until the next release:'));
      promtool(['check', 'metrics'], `${own.join('\n\n')}\n`);
    }
  });
});

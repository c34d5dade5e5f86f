/** Debian's Prometheus beside a job: scrapes what a file names, evaluates rules, answers questions. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from '../free-port.js';

const has = (tool: string): boolean => spawnSync(tool, ['--version'], { stdio: 'ignore' }).status === 0;

export const PRESENT = has('prometheus') && has('promtool');
if (!PRESENT) console.error('LEFT OUT: prometheus is not installed (Debian: apt-get install prometheus)');

/** The output of promtool; throws where it finds a fault. */
export function promtool(args: string[], input = ''): string {
  const done = spawnSync('promtool', args, { encoding: 'utf8', input });
  if (done.status !== 0) throw new Error(`promtool ${args.join(' ')}: ${done.stdout}${done.stderr}`);
  return done.stdout;
}

export interface Series {
  metric: Record<string, string>;
  values: [seconds: number, value: number][];
}

export class Prometheus {
  private constructor(
    private readonly process: ChildProcess,
    private readonly address: string,
    private readonly targetsFile: string,
  ) {}

  /** `every`: milliseconds between scrapes, and between evaluations. */
  static async start(directory: string, rules: string, every: number): Promise<Prometheus> {
    const targets = join(directory, 'targets.json');
    const config = join(directory, 'prometheus.yml');
    mkdirSync(directory, { recursive: true });
    writeFileSync(targets, '[]');
    writeFileSync(join(directory, 'rules.yml'), rules);
    writeFileSync(
      config,
      [
        'global:',
        ...['scrape_interval', 'scrape_timeout', 'evaluation_interval'].map((of) => `  ${of}: ${every}ms`),
        'rule_files: [rules.yml]',
        'scrape_configs:',
        '  - job_name: kintsugi',
        '    file_sd_configs: [{ files: [targets.json], refresh_interval: 1s }]',
        '',
      ].join('\n'),
    );
    promtool(['check', 'config', config]);
    const address = `127.0.0.1:${await freePort()}`;
    const args = [`--config.file=${config}`, `--storage.tsdb.path=${join(directory, 'data')}`];
    const prometheus = spawn('prometheus', [...args, `--web.listen-address=${address}`], { stdio: 'pipe' });
    let said = '';
    await new Promise<void>((resolve, reject) => {
      prometheus.stderr.on('data', (data: Buffer) => {
        said += data;
        if (said.includes('Server is ready')) resolve();
      });
      // Later it does nothing: the promise is settled.
      prometheus.once('exit', () => reject(new Error(`prometheus ended: ${said}`)));
    });
    return new Prometheus(prometheus, address, targets);
  }

  scrape(addresses: Iterable<string>): void {
    // Renamed into its place, so that it is never read half-written.
    writeFileSync(`${this.targetsFile}.new`, JSON.stringify([{ targets: [...addresses] }]));
    renameSync(`${this.targetsFile}.new`, this.targetsFile);
  }

  /** Values of an expression in a span of time; steps that are no numbers are left out. */
  async range(expr: string, from: number, to: number, stepSeconds: number): Promise<Series[]> {
    const asked = { query: expr, start: `${from}`, end: `${to}`, step: `${stepSeconds}` };
    const url = `http://${this.address}/api/v1/query_range?${new URLSearchParams(asked)}`;
    const answer = (await (await fetch(url)).json()) as {
      status: string;
      error?: string;
      data: { result: { metric: Record<string, string>; values: [number, string][] }[] };
    };
    if (answer.status !== 'success') throw new Error(`${expr}: ${answer.error}`);
    return answer.data.result.map(({ metric, values }) => ({
      metric,
      values: values
        .map(([at, value]): [number, number] => [at, Number(value)])
        .filter(([, value]) => Number.isFinite(value)),
    }));
  }

  async stop(): Promise<void> {
    const ended = once(this.process, 'exit');
    this.process.kill('SIGKILL');
    await ended;
  }
}

/**
 * `kintsugi bench rolling`: every PS of a job under load is restarted, one after the other. Each status that
 * is taken meanwhile must say that redundancy is complete, and no request may be refused.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { type Processes, psName } from '../../src/fleet/local/processes.js';
import { bytesText, countText, timeText } from '../../src/fleet/local/text.js';
import { type Client, connect } from '../../src/library/client/client.js';
import { restart } from '../../src/library/tools/restart.js';
import { rebalance } from '../../src/library/tools/scaling.js';
import { monotonicMs } from '../../src/net/log.js';
import { withJob } from '../common/job.js';
import { BenchReport } from '../common/report.js';
import { RollingLoad } from './load.js';
import type { RollingOptions } from './options.js';

const STATUS_MS = 20;
/** A PS drains and is up again in at most so many times of what it was given. */
const STEP = 1.5;

/** Counts statuses until it is told to stop. */
class RollingWatch {
  statuses = 0;
  readonly notFull: string[] = [];
  private running = true;

  constructor(private readonly client: Client) {}

  async run(): Promise<void> {
    while (this.running) {
      const { redundancy, reasons } = await this.client.status();
      this.statuses++;
      if (redundancy !== 'full') this.notFull.push(`${redundancy}: ${reasons.join('; ')}`);
      await pause(STATUS_MS);
    }
  }

  stop(): void {
    this.running = false;
  }
}

/** Restart of a PS: bytes that it handed over, and its duration. */
interface Step {
  name: string;
  bytes: number;
  ms: number;
}

async function byCommand(client: Client, options: RollingOptions): Promise<Step[]> {
  const { timeoutMs, tell } = options;
  const all = await restart(client, {
    timeoutMs,
    onRestarted: ({ name, bytesMoved, drainMs, awayMs }) =>
      tell(`${name}: ${bytesText(bytesMoved)} in ${timeText(drainMs)}, away for ${timeText(awayMs)}`),
  });
  return all.map(({ name, bytesMoved, drainMs, awayMs }) => ({
    name,
    bytes: bytesMoved,
    ms: drainMs + awayMs,
  }));
}

async function bySignal(client: Client, cluster: Processes, options: RollingOptions): Promise<Step[]> {
  const steps: Step[] = [];
  for (let index = 0; index < options.ps; index++) {
    const [name, begun] = [psName(index), monotonicMs()];
    const { code } = await cluster.terminate(name);
    if (code !== 0) options.tell(`${name} was not drained: exit ${code}`);
    await cluster.startPs(index);
    const { scaling } = await client.status();
    const bytes = scaling.changes.findLast(({ leaving }) => leaving.includes(name))?.bytesMoved ?? 0;
    steps.push({ name, bytes, ms: monotonicMs() - begun });
    options.tell(`${name}: ${bytesText(bytes)} in ${timeText(monotonicMs() - begun)}`);
  }
  await rebalance(client, { timeoutMs: options.timeoutMs });
  return steps;
}

async function story(client: Client, cluster: Processes, options: RollingOptions, report: BenchReport) {
  const { dim, batch, tell } = options;
  const table = await client.createTable({
    ...{ name: 'items', dim, optimizer: { kind: 'sgd', lr: -1 }, initializer: { kind: 'zeros' } },
  });
  const load = new RollingLoad(client, table, batch);
  const rows = await load.fill(options.bytes);
  const { nodes } = await client.status();
  const held = nodes.reduce((sum, { bytes }) => sum + bytes, 0) / nodes.length;
  tell(`${countText(rows)} rows, ${bytesText(held)} a PS`);
  const watch = new RollingWatch(client);
  const running = Promise.all([load.run(), watch.run()]);
  const calm = options.calmSeconds * 1000;
  const first = monotonicMs();
  await pause(calm);
  const begun = monotonicMs();
  const steps = options.sigterm ? await bySignal(client, cluster, options) : await byCommand(client, options);
  const ended = monotonicMs();
  await pause(calm);
  const last = monotonicMs();
  load.stop();
  watch.stop();
  await running;
  const [before, meanwhile, after] = [
    load.between(first, begun),
    load.between(begun, ended),
    load.between(ended, last),
  ];
  Object.assign(report.parameters, { rows, bytes: Math.round(held) });
  for (const step of steps)
    report.add({
      name: step.name,
      unit: '(MiB; s)',
      values: { moved: step.bytes / 2 ** 20, took: step.ms / 1000 },
    });
  report.add({ name: 'all', unit: '(s)', values: { took: (ended - begun) / 1000 } });
  const spans = { before, meanwhile, after };
  for (const [name, { perSecond, slowestMs }] of Object.entries(spans))
    report.add({
      name,
      unit: '(a step is a push and a pull)',
      values: { 'steps/s': perSecond, 'keys/s': perSecond * batch, 'slowest ms': slowestMs },
    });
  report.parameters.statuses = watch.statuses;
  report.details = { steps, spans, notFull: watch.notFull.slice(0, 20), refused: load.refused.slice(0, 20) };
  const slowest = Math.max(...steps.map(({ ms }) => ms)) / options.timeoutMs;
  report.atMost('slowest restart of a PS, of its time', slowest, STEP);
  report.exactly('statuses in which redundancy is not full', watch.notFull.length, 0);
  report.exactly('requests refused', load.refused.length, 0);
  report.exactly('rows that are wrong', await load.wrongRows(), 0);
}

/** @throws BAD_ARGUMENT, TIMEOUT when a PS does not come back */
export async function run(options: RollingOptions): Promise<void> {
  const { mode, ps, dim, batch, sigterm } = options;
  const report = new BenchReport('rolling', options);
  Object.assign(report.parameters, {
    ps,
    code: mode.code,
    dim,
    batch,
    timeoutMs: options.timeoutMs,
    sigterm,
  });
  await withJob({ ps, mode }, async (cluster) => {
    const client = await connect(cluster.address);
    await story(client, cluster, options, report);
    await client.close();
  });
  report.finish();
}

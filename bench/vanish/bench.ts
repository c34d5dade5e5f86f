/**
 * `kintsugi bench vanish`: machines of a job vanish under load, one or two at once, and return. How long do
 * pushes and pulls wait? And is a process that is stopped, or gets little time, taken for one of them?
 */

import { spawn } from 'node:child_process';
import { appendFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { KintsugiError } from '../../src/common/errors.js';
import type { Client } from '../../src/library/client/client.js';
import { checkPushes } from '../../src/library/tools/audit.js';
import { Lan, type LanRole } from '../common/lan.js';
import { whyNoMachines } from '../common/machines.js';
import { BenchReport } from '../common/report.js';
import { median } from '../common/statistics.js';
import type { VanishOptions } from './options.js';
import { Requests } from './requests.js';

const POLL_MS = 50;
/** Requests are watched for so long after a fault. */
const WATCH_MS = 2500;
/** A machine returns after 1 to 20 s. */
const LEAST_AWAY_MS = 1000;
const MOST_AWAY_MS = 20_000;
/** Without shards after so long it has been forgotten. */
const BACK_MS = 60_000;

class Vanish {
  /** Waits in milliseconds. */
  readonly one: number[] = [];
  readonly two: number[] = [];
  readonly back: number[] = [];
  stopped = Number.NaN;
  busy = Number.NaN;
  wronglyLost = 0;
  private client!: Client;
  private requests!: Requests;

  constructor(
    private readonly lan: Lan,
    private readonly options: VanishOptions,
  ) {}

  async run(): Promise<{ lost: number; duplicated: number }> {
    const { options, lan } = this;
    this.client = await lan.connect({ audit: true });
    this.requests = await Requests.begin(this.client, options.rows);
    await this.whole();
    this.stopped = await this.spared('stopped', () => this.stop());
    this.busy = await this.spared('busy', () => this.starve());
    for (let n = 0; n < options.times; n++)
      this.one.push(await this.vanish([lan.ps[n % lan.ps.length]!], this.awayMs(n)));
    for (let n = 0; n < options.pairs; n++) {
      const pair = [lan.ps[(2 * n) % lan.ps.length]!, lan.ps[(2 * n + 1) % lan.ps.length]!];
      this.two.push(await this.vanish(pair, 0));
    }
    this.requests.stop();
    await this.requests.longestWait(0);
    return checkPushes(this.client, [{ client: this.client.id, counts: this.client.pushCounts() }]);
  }

  /** Mostly soon, sometimes late: a run of 20 that all stay away for long takes too long. */
  private awayMs(n: number): number {
    return n % 7 === 6 && !this.options.smoke ? MOST_AWAY_MS : LEAST_AWAY_MS + (n % 5) * 1000;
  }

  private async vanish(roles: readonly LanRole[], awayMs: number): Promise<number> {
    const { machines } = this.lan;
    for (const { machine } of roles) machines.unplug(machine);
    const wait = await this.requests.longestWait(WATCH_MS);
    await pause(Math.max(0, awayMs - WATCH_MS));
    for (const { machine } of roles) machines.plug(machine);
    const at = performance.now();
    await this.whole();
    this.back.push(performance.now() - at);
    this.options.tell(`${roles.map(({ name }) => name).join(', ')}: ${wait.toFixed(0)} ms`);
    return wait;
  }

  /** The longest wait during something after which nobody may be lost. */
  private async spared(what: string, work: () => Promise<number>): Promise<number> {
    const count = (): number => this.lan.events.filter(({ event }) => event === 'node.lost').length;
    const before = count();
    const wait = await work();
    await this.whole();
    this.wronglyLost += count() - before;
    this.options.tell(`${what}: ${wait.toFixed(0)} ms, ${count() - before} lost`);
    return wait;
  }

  private async stop(): Promise<number> {
    const [{ child }] = this.lan.ps as [LanRole];
    child.signal('SIGSTOP');
    const waited = this.requests.longestWait(this.options.stoppedMs);
    await pause(this.options.stoppedMs);
    child.signal('SIGCONT');
    return waited;
  }

  private async starve(): Promise<number> {
    const endless = ['-e', 'for (;;) {}'];
    const all = Array.from({ length: this.options.busy }, () => spawn(process.execPath, endless));
    try {
      return await this.requests.longestWait(this.options.smoke ? 500 : 10_000);
    } finally {
      for (const each of all) each.kill('SIGKILL');
    }
  }

  /** Redundant, nothing moves, everybody is alive, and everybody holds something. */
  private async whole(): Promise<void> {
    const until = performance.now() + BACK_MS;
    while (performance.now() < until) {
      const { redundancy, nodes, scaling } = await this.client.status();
      const moving = scaling.changes.some(({ state }) => state === 'running');
      const entries = this.client.clusterMap.groups.flatMap(({ data, sinks }) => [...data, ...sinks]);
      const held = nodes.every(({ id, alive }) => alive && entries.some(({ node }) => node === id));
      if (redundancy === 'full' && !moving && held) return;
      await pause(POLL_MS);
    }
    throw new KintsugiError('TIMEOUT', 'the job is not whole again, or a machine that is back has no shards');
  }
}

/** @throws BAD_ARGUMENT (also where no machines can be made), TIMEOUT, INTERNAL when pushes were lost */
export async function run(options: VanishOptions): Promise<void> {
  const why = whyNoMachines();
  if (why !== undefined) throw new KintsugiError('BAD_ARGUMENT', `bench vanish: ${why}`);
  const { ps, code, log } = options;
  const onEvent = (_: unknown, line: string): void => {
    if (log !== undefined) appendFileSync(log, `${line}\n`);
  };
  const lan = await Lan.start({ ps, code, onEvent });
  try {
    const vanish = new Vanish(lan, options);
    const { lost, duplicated } = await vanish.run();
    const report = new BenchReport('vanish', options);
    Object.assign(report.parameters, { ps, code, rows: options.rows, times: options.times });
    const values = {
      'one vanishes, median': median(vanish.one),
      'one vanishes, worst': Math.max(...vanish.one),
      'two vanish, worst': Math.max(0, ...vanish.two),
      [`stopped for ${options.stoppedMs / 1000} s`]: vanish.stopped,
      [`beside ${options.busy} busy processes`]: vanish.busy,
      'back until it has shards, worst': Math.max(...vanish.back),
    };
    report.add({ name: 'longest wait of a push or pull', unit: 'ms', values });
    report.atMost('one vanishes: median wait in ms', values['one vanishes, median']!, 1500);
    report.atMost('one vanishes: worst wait in ms', values['one vanishes, worst']!, 2000);
    report.atMost('two vanish: worst wait in ms', values['two vanish, worst']!, 3000);
    report.exactly('living processes that were given up', vanish.wronglyLost, 0);
    report.exactly('lost or repeated pushes', lost + duplicated, 0);
    report.details = { one: vanish.one, two: vanish.two, back: vanish.back };
    report.finish();
    if (lost + duplicated > 0) throw new KintsugiError('INTERNAL', 'pushes were lost or repeated');
  } finally {
    await lan.close();
  }
}

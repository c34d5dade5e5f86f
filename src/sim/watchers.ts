/**
 * Watchers observe the job: nodes are asked for their counters, and workers report. A question changes
 * nothing, counters only grow, and the answer is a valid message. Watchers draw from randomness of their own,
 * and answers and reports take no part in the traffic, so the schedules are the same with and without them.
 */
import type { PsNode } from '../core/node/node.js';
import type { PeerId } from '../protocol/map.js';
import type { NodeTelemetry, OpTelemetry, WorkerReport } from '../protocol/telemetry.js';
import type { SimulatedCluster } from './cluster.js';
import type { Control } from './control.js';
import { DROPPED_TABLE } from './droppers.js';
import { Random } from './random.js';
import { Violation } from './violation.js';

/** Chance per step. */
const RATE = 0.004;

export class Watchers {
  private readonly random: Random;
  /** Process -> name and value of the counters in its newest answer. */
  private readonly counted = new WeakMap<PsNode, Map<string, number>>();
  private readonly reported = new Map<PeerId, number>();

  constructor(
    private readonly cluster: SimulatedCluster,
    private readonly control: Control,
    seed: number,
  ) {
    this.random = new Random(seed + 0x7e1e);
  }

  strike(): void {
    if (!this.random.chance(RATE)) return;
    const from = this.random.pick(this.cluster.clients).id;
    if (from === undefined) return;
    if (this.random.chance(0.5)) this.observe(from);
    else this.report(from);
  }

  private observe(from: PeerId): void {
    const { node, name } = this.random.pick(this.cluster.nodes);
    if (!node) return;
    const message = { t: 'observe' as const, id: 1, shards: this.random.chance(0.5) };
    const effects = node.step({ kind: 'message', from, role: 'client', message, parts: [] });
    const [answer, ...others] = effects;
    if (answer?.kind !== 'send' || answer.message.t !== 'observed' || answer.to !== from || others.length > 0)
      throw new Violation(`${name} was asked for its counters, and answers ${JSON.stringify(effects)}`);
    const told = this.cluster.network.wire.passed(answer.message) as typeof answer.message;
    this.cluster.count('observed');
    if (told.node) this.check(name, node, told.node);
  }

  private check(name: string, node: PsNode, told: NodeTelemetry): void {
    for (const [op, { requests, duration }] of Object.entries(told.ops)) {
      const answered = duration.counts.reduce((sum, count) => sum + count, 0);
      if (answered > requests)
        throw new Violation(`${name} has answered ${answered} of ${requests} of ${op}`);
    }
    const before = this.counted.get(node);
    const now = new Map(countersOf(told));
    this.counted.set(node, now);
    for (const [counter, value] of now)
      if (!(value >= (before?.get(counter) ?? 0)))
        throw new Violation(`${counter} of ${name} was ${before?.get(counter)}, and is ${value}`);
  }

  /** Reports as a worker: the samples of its run grow with those of the report, also when it is gone. */
  private report(from: PeerId): void {
    const { scheduler } = this.control;
    if (!scheduler) return;
    const { now } = this.cluster;
    const samples = (this.reported.get(from) ?? 0) + this.random.below(100);
    this.reported.set(from, samples);
    const report: WorkerReport = {
      ...{ name: `worker-${from}`, run: 'train', samples, batches: samples, upSeconds: now / 1000 },
      ...{ cpuSeconds: 0, rssBytes: 0, phaseSeconds: { read: 0, pull: 0, compute: 0, push: 0 } },
      ...{ idleSeconds: 0, productiveSeconds: 0, stalenessBatches: 0, over: this.random.chance(0.1) },
    };
    const message = this.cluster.network.wire.passed({ t: 'workerReport', report });
    if (message.t !== 'workerReport') throw new Violation('a report is none');
    const sum = () => scheduler.workers.telemetry(now).runs.reduce((all, run) => all + run.samples, 0);
    const before = sum();
    scheduler.workers.onReport(from, message.report, now);
    this.cluster.count('workerReport');
    if (sum() < before) throw new Violation(`workers had trained ${before} samples, and now ${sum()}`);
  }
}

function* countersOf({ ops, commit, tables, recoveredBlocks, movedBlocks }: NodeTelemetry) {
  const op = (name: string, { requests, rows, failed, duration }: OpTelemetry): [string, number][] => [
    [`requests of ${name}`, requests],
    [`rows of ${name}`, rows],
    ...Object.entries(failed).map(([code, count]): [string, number] => [`${code} of ${name}`, count]),
    ...duration.counts.map((count, i): [string, number] => [`durations ${i} of ${name}`, count]),
  ];
  yield* op('pull', ops.pull);
  yield* op('push', ops.push);
  for (const [i, count] of commit.counts.entries()) yield [`commits ${i}`, count] as [string, number];
  for (const { name, pulledRows, pushedRows } of tables) {
    // Another table of the name counts from 0.
    if (name === DROPPED_TABLE) continue;
    yield [`pulled rows of ${name}`, pulledRows] as [string, number];
    yield [`pushed rows of ${name}`, pushedRows] as [string, number];
  }
  for (const [source, count] of Object.entries(recoveredBlocks))
    yield [`blocks by ${source}`, count] as [string, number];
  yield ['moved blocks', movedBlocks] as [string, number];
}

/**
 * Simulated workers: each leases a range, trains its batches, reports them and hands the range back, with the
 * messages and the rhythm of the real one (src/training/loop/feed.ts).
 */
import type { Message } from '../../protocol/messages.js';
import type { DatasetSpec } from '../../protocol/samples.js';
import { UNBOUNDED } from '../../protocol/samples.js';
import type { Random } from '../random.js';

const NAME = 'train';
const SPEC: DatasetSpec = {
  files: [{ name: 'train.tsv', size: 1 << 20, rangeBytes: 1 }],
  ...{ batch: 2048, epochs: 64, seed: 1, shuffle: false, staleness: UNBOUNDED },
};

export interface SimWorker {
  readonly index: number;
  link: number;
  id: number;
  /** Number of its last question. */
  asked: number;
  range: { number: number; lease: number; done: number } | undefined;
  /** Time at which its next batch is durable. */
  nextAt: number;
  /** Batches that the worker has made durable. */
  clock: number;
}

export class ScaleWorkers {
  readonly all: SimWorker[] = [];
  /** Ranges that were handed out. */
  leases = 0;
  batchMs: number;
  rangeBatches: number;

  constructor(
    pace: { batchMs: number; rangeBatches: number },
    private readonly random: Random,
    private readonly send: (worker: SimWorker, message: Message) => void,
  ) {
    this.batchMs = pace.batchMs;
    this.rangeBatches = pace.rangeBatches;
  }

  add(): SimWorker {
    const index = this.all.length;
    const worker = { index, link: 0, id: 0, asked: 0, range: undefined, nextAt: 0, clock: 0 };
    this.all.push(worker);
    return worker;
  }

  receive(worker: SimWorker, message: Message, now: number): void {
    switch (message.t) {
      case 'welcome':
        worker.id = message.id;
        return this.send(worker, { t: 'openDataset', id: ++worker.asked, name: NAME, spec: SPEC });
      case 'datasetOpened':
        return this.acquire(worker);
      case 'acquired': {
        const { range, done, id } = message;
        if (!range) return;
        this.leases++;
        worker.range = { number: range.number, lease: id, done };
        worker.nextAt = now + this.random.below(2 * this.batchMs);
        return;
      }
      case 'rangeLost':
        worker.range = undefined;
        return this.acquire(worker);
      case 'released':
        return this.acquire(worker);
    }
  }

  private acquire(worker: SimWorker): void {
    this.send(worker, { t: 'acquire', id: ++worker.asked, name: NAME, clock: worker.clock });
  }

  /** Sends the messages of workers in this turn. */
  turn(now: number): void {
    for (const worker of this.all) if (worker.range && now >= worker.nextAt) this.batch(worker, now);
  }

  /** Reports that a batch is durable, and that the push of the next one begins. */
  private batch(worker: SimWorker, now: number): void {
    const range = worker.range!;
    range.done++;
    worker.clock++;
    worker.nextAt = now + this.batchMs;
    const { number, lease, done } = range;
    const place = { name: NAME, number, lease, done, clock: worker.clock };
    if (done < this.rangeBatches) {
      this.send(worker, { t: 'rangeProgress', ...place, begun: done });
      this.send(worker, { t: 'rangeProgress', ...place, begun: done + 1 });
      return;
    }
    worker.range = undefined;
    this.send(worker, { t: 'rangeProgress', ...place, begun: done });
    const { clock: _, ...ended } = place;
    const id = ++worker.asked;
    const samples = SPEC.batch * done;
    this.send(worker, { t: 'release', id, ...ended, outcome: 'finished', begun: done, samples, redone: 0 });
  }
}

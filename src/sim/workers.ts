/**
 * Workers that train a data set: each leases a range, pushes its batches under the session of the range,
 * reports and hands it back, and may die at any step. The pushes of a batch depend on its range alone, so
 * another worker makes the same pushes; to the oracle a range is a writer of its own.
 */
import { listSections } from '../core/client/client.js';
import type { DurableState } from '../core/scheduler/scheduler.js';
import type { SavedDataset, SavedSamples } from '../protocol/checkpoints.js';
import type { PeerId } from '../protocol/map.js';
import { locate, SCHEDULER, shardCount } from '../protocol/map.js';
import type { Message, MessageOf } from '../protocol/messages.js';
import { type DatasetSpec, type SampleRange, UNBOUNDED } from '../protocol/samples.js';
import type { ClientActor } from './actors.js';
import type { SimulatedCluster } from './cluster.js';
import { type Oracle, type SavedShardRows, shardOf } from './oracle.js';
import { checkExact, checkRanges, differences, type PushMasks } from './saved-ranges.js';
import { RANGES, type SimulatedSections, type Store } from './sections.js';
import type { AnswerEffect } from './sides.js';
import { Violation } from './violation.js';

const NAME = 'samples';
/** Bytes of a full range; the last one of a file has fewer. */
const RANGE_BYTES = 40;
/** Samples of a batch; a sample is a byte here. */
const BATCH = 10;
/** Batches of one worker that are under way at once. */
const WINDOW = 2;
/** Number of the process that stands for range 0. Processes of clients have smaller numbers. */
const FIRST_PROCESS = 100_000;

/** One shard's part of a batch. */
interface BatchItem {
  g: number;
  m: number;
  section: Uint8Array;
}

/** A range with all its pushes. */
interface SimulatedRange {
  writer: number;
  /** Ticket of all its pushes, for the oracle's doubts. */
  ticket: number;
  range: SampleRange;
  batches: BatchItem[][];
}

interface HeldLease extends SimulatedRange {
  id: number;
  session: PeerId;
  /** Batches that are durable, from the first one on. */
  done: number;
  /** Batches from `done` on that have ended. */
  settled: Set<number>;
  /** The next batch to begin. */
  next: number;
  failure: { batch: number; code: 'UNRECOVERABLE' | 'TIMEOUT'; message: string } | undefined;
}

type WorkerQuestion = MessageOf<'openDataset' | 'acquire' | 'release' | 'advance'>;

interface Worker {
  /** The question that the worker waits for; undefined: none. */
  asked: WorkerQuestion | undefined;
  askedAt: number;
  nextId: number;
  opened: boolean;
  /** No range is left. */
  over: boolean;
  lease: HeldLease | undefined;
  tickets: Map<number, { lease: HeldLease; batch: number }>;
  /** Batches that this process has made durable. */
  clock: number;
  /** The process may begin a batch while it has begun no more than this. */
  until: number;
}

function newWorker(until: number): Worker {
  return {
    ...{ asked: undefined, askedAt: 0, nextId: 1, opened: false, over: false, lease: undefined },
    ...{ tickets: new Map(), clock: 0, until },
  };
}

type SimulatedDataset = DurableState['datasets'][number];

function savedOf(samples: SavedSamples | undefined): SavedDataset | undefined {
  return samples?.datasets.find(({ name }) => name === NAME);
}

/** Batches that are durable or under way. Batches of a range that was lost are neither. */
function begunBy({ clock, tickets }: Worker): number {
  return clock + tickets.size;
}

export class SimulatedWorkers {
  private readonly spec: DatasetSpec;
  private readonly workers = new Map<number, Worker>();
  private readonly ranges = new Map<number, SimulatedRange>();
  private stores: readonly Store[] = [];
  /** Differences of the checkpoint that the job was restored from. */
  private before: PushMasks = new Map();

  constructor(
    private readonly cluster: SimulatedCluster,
    private readonly sections: SimulatedSections,
    private readonly oracle: Oracle,
    /** Number of a process -> session; here those of ranges. */
    private readonly sessions: Map<number, PeerId>,
    private readonly newTicket: () => number,
  ) {
    const { ranges, epochs, staleness } = cluster.config;
    this.spec = {
      files: [{ name: 'day', size: ranges * RANGE_BYTES - 7, rangeBytes: RANGE_BYTES }],
      batch: BATCH,
      epochs,
      seed: 1,
      shuffle: true,
      staleness: staleness === 0 ? UNBOUNDED : staleness,
    };
  }

  private worker(index: number): Worker {
    let worker = this.workers.get(index);
    if (!worker) {
      worker = newWorker(this.spec.staleness === UNBOUNDED ? UNBOUNDED : -1);
      this.workers.set(index, worker);
    }
    return worker;
  }

  /** Forgets a worker whose process is another one. */
  restart(index: number): void {
    this.workers.delete(index);
  }

  // ---- turns

  turn(index: number, actor: ClientActor, stores: readonly Store[]): void {
    if (actor.id === undefined || actor.core.map.tables.length === 0) return;
    this.stores = stores;
    const worker = this.worker(index);
    const { random, retry, now } = this.cluster;
    const { lease, asked } = worker;
    if (asked && now - worker.askedAt > retry * 4) this.send(index, worker, asked);
    if (lease) {
      if (random.chance(0.6)) this.report(index, worker, lease);
      this.work(index, actor, worker, lease);
    } else if (asked || worker.over) return;
    else if (!worker.opened)
      this.ask(index, worker, (id) => ({ t: 'openDataset', id, name: NAME, spec: this.spec }));
    else this.ask(index, worker, (id) => ({ t: 'acquire', id, name: NAME, clock: worker.clock }));
  }

  private ask(index: number, worker: Worker, question: (id: number) => WorkerQuestion): void {
    worker.asked = question(worker.nextId++);
    this.send(index, worker, worker.asked);
  }

  private send(index: number, worker: Worker, question: WorkerQuestion): void {
    worker.askedAt = this.cluster.now;
    this.cluster.transmit(index, SCHEDULER, question, []);
  }

  private work(index: number, actor: ClientActor, worker: Worker, lease: HeldLease): void {
    if (worker.asked) return;
    const { failure, batches } = lease;
    const underWay = lease.next - lease.done - lease.settled.size;
    if (failure && underWay === 0) this.release(index, worker, lease, { outcome: 'failed', ...failure });
    else if (lease.done === batches.length) this.release(index, worker, lease, { outcome: 'finished' });
    else if (failure || lease.next === batches.length || underWay >= WINDOW || actor.hold) return;
    else if (begunBy(worker) > worker.until)
      this.ask(index, worker, (id) => ({ t: 'advance', id, name: NAME, clock: begunBy(worker) }));
    else {
      this.begin(index, actor, worker, lease);
      if (this.cluster.random.chance(0.7)) this.work(index, actor, worker, lease);
    }
  }

  private begin(index: number, actor: ClientActor, worker: Worker, lease: HeldLease): void {
    const batch = lease.next++;
    const ticket = this.newTicket();
    worker.tickets.set(ticket, { lease, batch });
    const items = lease.batches[batch]!;
    this.cluster.count('batches');
    const effects = actor.core.step({
      kind: 'push',
      ticket,
      lists: listSections(items),
      client: lease.session,
    });
    this.cluster.runClient(index, effects);
  }

  private report(index: number, worker: Worker, { id: lease, range, done, next }: HeldLease): void {
    const { clock } = worker;
    const progress = { name: NAME, number: range.number, lease, done, begun: next, clock };
    this.cluster.transmit(index, SCHEDULER, { t: 'rangeProgress', ...progress }, []);
  }

  private release(
    index: number,
    worker: Worker,
    { id: lease, range, session, done, next }: HeldLease,
    outcome: Pick<MessageOf<'release'>, 'outcome' | 'batch' | 'code' | 'message'>,
  ): void {
    const samples = range.end - range.begin;
    const counts = { done, begun: next, samples, redone: 0 };
    const what = { name: NAME, number: range.number, lease, session, ...counts };
    this.ask(index, worker, (id) => ({ t: 'release', id, ...what, ...outcome }));
  }

  // ---- answers

  /** True if the message was for a worker. */
  received(index: number, actor: ClientActor, message: Message): boolean {
    const worker = this.worker(index);
    if (message.t === 'rangeLost') {
      const { lease } = worker;
      if (lease?.range.number === message.number && lease.id === message.lease)
        this.leave(index, actor, worker);
      return true;
    }
    const { asked } = worker;
    switch (message.t) {
      case 'datasetOpened':
      case 'acquired':
      case 'released':
      case 'advanced':
        break;
      default:
        return false;
    }
    if (asked?.id !== message.id) return true;
    worker.asked = undefined;
    if (message.t === 'datasetOpened') {
      if (message.code) throw new Violation(`the data set cannot be opened: ${message.message}`);
      worker.opened = true;
    } else if (message.t === 'advanced') worker.until = message.until;
    else if (message.t === 'released') this.leave(index, actor, worker);
    else if (message.range) this.take(index, actor, worker, message, message.range);
    else worker.over = true;
    if (worker.over && !this.complete) throw new Violation(`worker ${index} was told that no range is left`);
    return true;
  }

  private take(
    index: number,
    actor: ClientActor,
    worker: Worker,
    { id, session, done, begun }: MessageOf<'acquired'>,
    range: SampleRange,
  ): void {
    const known = this.rangeAt(range);
    const { number, epoch, file, begin, end } = known.range;
    if (epoch !== range.epoch || file !== range.file || begin !== range.begin || end !== range.end)
      throw new Violation(`range ${number} is not what it was`);
    this.cluster.count(begun > done ? 'rangeRedone' : done > 0 ? 'rangeResumed' : 'rangeLeased');
    this.sessions.set(FIRST_PROCESS + number, session);
    worker.lease = { ...known, id, session, done, settled: new Set(), next: done, failure: undefined };
    const counts = new Map<string, { g: number; m: number; count: number }>();
    for (const { g, m } of known.batches.slice(0, done).flat()) {
      const count = (counts.get(`${g}/${m}`)?.count ?? 0) + 1;
      counts.set(`${g}/${m}`, { g, m, count });
    }
    if (counts.size === 0) return;
    const effects = actor.core.step({ kind: 'skip', client: session, items: [...counts.values()] });
    this.cluster.runClient(index, effects);
  }

  /** Gives up the range and its pushes under way; another worker may resume it. */
  private leave(index: number, actor: ClientActor, worker: Worker): void {
    const { lease } = worker;
    if (!lease) return;
    worker.lease = undefined;
    worker.asked = undefined;
    this.cluster.runClient(index, actor.core.step({ kind: 'leave', client: lease.session }));
  }

  /** True if the push was one of a worker's. */
  settled(index: number, actor: ClientActor, effect: AnswerEffect & { kind: 'done' }): boolean {
    const worker = this.worker(index);
    const batch = worker.tickets.get(effect.ticket);
    if (!batch) return false;
    worker.tickets.delete(effect.ticket);
    const { lease } = batch;
    if (lease === worker.lease) this.onBatch(index, actor, worker, lease, batch.batch, effect.error);
    return true;
  }

  private onBatch(
    index: number,
    actor: ClientActor,
    worker: Worker,
    lease: HeldLease,
    batch: number,
    error: { code: string; message: string } | undefined,
  ): void {
    const { cluster } = this;
    lease.settled.add(batch);
    if (error?.code === 'SESSION_EXPIRED') {
      if (cluster.control.isOpen(lease.session))
        throw new Violation(`the session of range ${lease.range.number} was said to have ended`);
      this.leave(index, actor, worker);
    } else if (error) {
      if (!cluster.overwhelmed)
        throw new Violation(`a batch failed though at most r lacked: ${error.message}`);
      lease.failure ??= { batch, code: 'UNRECOVERABLE', message: error.message };
    } else {
      worker.clock++;
      while (!lease.failure && lease.settled.delete(lease.done)) lease.done++;
      this.acknowledge(lease);
    }
  }

  private acknowledge({ batches, done, writer }: HeldLease): void {
    const counts = new Map<number, number>();
    for (const { g, m } of batches.slice(0, done).flat())
      counts.set(shardOf(g, m), (counts.get(shardOf(g, m)) ?? 0) + 1);
    for (const [shard, count] of counts)
      if (count > this.oracle.acknowledged(writer, shard)) this.oracle.acknowledge(writer, shard, count);
  }

  // ---- ranges and their batches

  /** A range as it was first leased, with all its pushes. */
  private rangeAt(range: SampleRange): SimulatedRange {
    const known = this.ranges.get(range.number);
    if (known) return known;
    const cut: SimulatedRange = {
      writer: RANGES + range.number,
      ticket: this.newTicket(),
      range,
      batches: [],
    };
    for (let batch = 0; batch * BATCH < range.end - range.begin; batch++)
      cut.batches.push(this.stores.flatMap((store) => this.cutBatch(store, cut, batch)));
    this.ranges.set(range.number, cut);
    return cut;
  }

  /** The shards that a batch touches and its pushes there, which depend on the range alone. */
  private cutBatch(store: Store, { writer, ticket, range }: SimulatedRange, batch: number): BatchItem[] {
    const items: BatchItem[] = [];
    for (let shard = 0; shard < shardCount(store.pool); shard++) {
      const { group: g, member: m } = locate(store.pool, shard);
      const draw = range.number * 5 + batch * 3 + g * 7 + m * 11;
      if (draw % 3 === 0) continue;
      const shared = this.sections.sharedKey(store.pool, shard, draw % 4);
      const amount = 1 + (draw % 5);
      const process = FIRST_PROCESS + range.number;
      const number = this.oracle.begin(writer, shardOf(g, m), { ticket, shared, amount, process });
      const section = this.sections.push(
        store,
        shard,
        { owner: writer, process },
        { number, shared, amount },
      );
      items.push({ g, m, section });
    }
    return items;
  }

  /** The job is restored from a checkpoint: its open ranges keep their sessions. */
  rewind(samples: SavedSamples | undefined, shards: readonly SavedShardRows[]): void {
    this.before = differences(savedOf(samples), shards, [...this.ranges.values()]);
    for (const [process, session] of this.sessions)
      if (process >= FIRST_PROCESS || session >= (samples?.nextPeer ?? 0)) this.sessions.delete(process);
    for (const { number, session } of savedOf(samples)?.open ?? [])
      this.sessions.set(FIRST_PROCESS + number, session);
  }

  checkSaved(samples: SavedSamples, shards: readonly SavedShardRows[]): void {
    const sessionOf = (number: number) => this.sessions.get(FIRST_PROCESS + number);
    checkRanges(savedOf(samples), shards, [...this.ranges.values()], sessionOf, this.before);
  }

  checkInstant(samples: SavedSamples, shards: readonly SavedShardRows[]): void {
    checkExact(savedOf(samples), shards, [...this.ranges.values()], this.before);
  }

  /** Progress of a worker's range, if it has one. */
  progress(index: number): MessageOf<'held'>['ranges'] {
    const worker = this.workers.get(index);
    if (!worker?.lease) return [];
    const { id: lease, range, done, next: begun } = worker.lease;
    return [{ name: NAME, number: range.number, lease, done, begun, clock: worker.clock }];
  }

  // ---- at rest

  private get onDisk(): SimulatedDataset | undefined {
    return this.cluster.control.disk.datasets.find(({ name }) => name === NAME);
  }

  private get total(): number {
    return Math.ceil(this.spec.files[0]!.size / RANGE_BYTES) * this.spec.epochs;
  }

  private get complete(): boolean {
    const state = this.onDisk;
    return state !== undefined && state.next === this.total && state.open.size === 0;
  }

  /** True if every range is finished or set aside, and every worker knows it. */
  get finished(): boolean {
    const { workers } = this.cluster.config;
    if (workers === 0) return true;
    return this.complete && [...this.workers.values()].filter(({ over }) => over).length === workers;
  }

  /**
   * Compares the scheduler's ranges with the trained ones. A range that was set aside, or is still open in a
   * job that has lost shards, may have been applied in part.
   */
  check(whole: boolean): void {
    const state = this.onDisk;
    if (!state) return;
    const aside = new Set(state.setAside.map(({ number }) => number));
    const open = new Set(state.open.keys());
    const samples = new Array<number>(this.spec.epochs).fill(0);
    const seen = new Set<string>();
    let finished = 0;
    for (const { ticket, range } of this.ranges.values()) {
      const { number, epoch, begin, end } = range;
      if (seen.has(`${epoch}/${begin}`)) throw new Violation(`range ${number} has the samples of another`);
      seen.add(`${epoch}/${begin}`);
      if (aside.has(number) || open.has(number)) this.oracle.doubt(ticket);
      else {
        finished++;
        samples[epoch] = samples[epoch]! + end - begin;
      }
    }
    if (aside.size > 0) this.cluster.count('rangeSetAside', aside.size);
    if (!whole) return;
    this.cluster.count('rangeFinished', finished);
    if (finished + aside.size !== this.total || state.finished !== finished)
      throw new Violation(`${state.finished} ranges are called finished, ${finished} are`);
    if (samples.some((count, epoch) => count !== state.samples[epoch]))
      throw new Violation(
        `${state.samples.join(', ')} samples are called trained, ${samples.join(', ')} were`,
      );
  }

  describe(): string[] {
    return [...this.workers].map(([index, { asked, lease, over }]) => {
      const range = lease ? `range ${lease.range.number} done ${lease.done}` : 'no range';
      return `worker ${index}: ${range}, asked ${asked?.t ?? 'nothing'}${over ? ', over' : ''}`;
    });
  }
}

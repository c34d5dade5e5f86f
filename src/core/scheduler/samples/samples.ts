/**
 * Hands out samples to workers. A data set is a queue of ranges. A worker leases a range, reports its
 * batches and hands it back. The batches of a range are pushed under a session of the range, with numbers. A
 * batch that is done again has the same number, so no shard applies it twice. Losing a worker, a lease or a
 * report costs work and never a sample.
 *
 * Which ranges are open and finished is durable before a worker is told. Reports of batches become durable
 * with the next decision, or after `maxUnsavedBatches`. Deadlines, connections and clocks are soft state.
 */
import type { ErrorCode } from '../../../common/errors.js';
import { datasetDifference, datasetProblem, onlyKnownDataset } from '../../../protocol/dataset-rules.js';
import type { PeerId } from '../../../protocol/map.js';
import type { Message, MessageOf } from '../../../protocol/messages.js';
import { type SetAside, UNBOUNDED } from '../../../protocol/samples.js';
import { asideKey, cursorKey, datasetKey, epochKey, fileKey, openKey } from '../entries.js';
import type { Ledger } from '../ledger.js';
import { Cut } from './cut.js';
import type { Doubt } from './doubts.js';
import {
  delay,
  firstFree,
  isComplete,
  type LiveDataset,
  newLive,
  placeOf,
  report,
  statusOf,
} from './live.js';
import type { SamplesPolicy } from './policy.js';
import { grow, nextPiece } from './ranges.js';
import { roomProblem } from './room.js';
import { type DatasetState, isExact, newDataset, type OpenRange, orphans } from './state.js';

const EXPIRED = 'its lease expired';

/** Messages of clients about samples. */
export type SamplesMessage = MessageOf<
  'openDataset' | 'extendDataset' | 'acquire' | 'rangeProgress' | 'release' | 'advance' | 'datasetStatus'
>;

type RangeFailure = Pick<MessageOf<'release'>, 'batch' | 'code' | 'message'>;

export class Samples {
  /** Data sets by name. */
  readonly live = new Map<string, LiveDataset>();
  /** Worker without a connection -> milliseconds at which its leases are lost. */
  private readonly absent = new Map<PeerId, number>();
  /** Milliseconds of the newest tick; 0 before the first one. */
  private time = 0;
  /** True: no range is handed out. */
  private paused = false;
  /** Copy of the queue for the checkpoint under way; undefined: there is none. */
  private cut: Cut | undefined;

  constructor(
    private readonly ledger: Ledger,
    private readonly policy: SamplesPolicy,
  ) {
    for (const state of ledger.state.datasets) {
      this.add(state);
      // After a restart every worker has time to come back; from the first tick on.
      for (const { worker } of state.open.values())
        if (worker !== 0) this.absent.set(worker, Number.POSITIVE_INFINITY);
    }
    for (const id of orphans(ledger.state)) ledger.endSession(id);
  }

  private add(state: DatasetState): LiveDataset {
    const live = newLive(this.live.size, state, this.policy.leaseMs);
    this.live.set(state.name, live);
    return live;
  }

  receive(from: PeerId, message: SamplesMessage): void {
    switch (message.t) {
      case 'openDataset':
        return this.open(from, message);
      case 'extendDataset':
        return this.extend(from, message);
      case 'acquire':
        return this.acquire(from, message);
      case 'rangeProgress':
        return this.progress(from, message);
      case 'release':
        return this.release(from, message);
      case 'advance':
        return this.advance(from, message);
      case 'datasetStatus': {
        const live = this.live.get(message.name);
        const status = live && { status: statusOf(live) };
        return this.answer(from, { t: 'datasetReply', id: message.id, ...status });
      }
    }
  }

  private answer(to: PeerId, message: Message): void {
    this.ledger.afterwards({ kind: 'send', to, message, parts: [] });
  }

  private event(name: string, fields: Record<string, unknown>): void {
    this.ledger.now({ kind: 'event', name, fields });
  }

  // ---- connections and time

  /** A connection of this client is there (again). */
  attached(worker: PeerId): void {
    this.absent.delete(worker);
  }

  closed(worker: PeerId): void {
    for (const live of this.live.values()) {
      live.waiting.delete(worker);
      live.clocks.stop(worker);
      this.grant(live);
    }
    if (this.isAwaited(worker)) this.absent.set(worker, this.time + this.policy.reconnectMs);
  }

  /** The session of the worker is over, and with it its id. */
  ended(worker: PeerId): void {
    for (const live of this.live.values()) {
      live.waiting.delete(worker);
      live.clocks.forget(worker);
      this.grant(live);
    }
  }

  /** The worker has a range, or lost one and may come back. */
  private isAwaited(worker: PeerId): boolean {
    return [...this.live.values()].some(({ holders, doubts }) => holders.has(worker) || doubts.has(worker));
  }

  /** `slept`: milliseconds in which this process did not run. They do not count towards deadlines. */
  tick(now: number, slept: number): void {
    const first = this.time === 0;
    this.time = now;
    if (first) this.recall();
    for (const [worker, until] of this.absent) {
      if (slept > 0) this.absent.set(worker, until + slept);
      else if (now >= until) this.lostWorker(worker);
    }
    for (const live of this.live.values()) {
      if (slept > 0) delay(live, slept);
      else if (now >= live.dueAt) this.loseLate(live, now);
    }
  }

  /** Thousands of leases are looked at once in the time of one, and not at every tick. */
  private loseLate(live: LiveDataset, now: number): void {
    this.confirm(live, live.doubts.takeOverdue(now));
    live.dueAt = Number.POSITIVE_INFINITY;
    for (const range of [...live.state.open.values()]) {
      const deadline = live.deadlines.get(range.number);
      if (deadline === undefined || range.worker === 0) continue;
      if (now >= deadline) this.lose(live, range, EXPIRED);
      else live.dueAt = Math.min(live.dueAt, deadline);
    }
    live.dueAt = Math.min(live.dueAt, live.doubts.dueAt);
  }

  private keep(live: LiveDataset, number: number): void {
    const deadline = this.time + this.policy.leaseMs;
    live.deadlines.set(number, deadline);
    live.dueAt = Math.min(live.dueAt, deadline);
  }

  private recall(): void {
    for (const worker of this.absent.keys()) this.absent.set(worker, this.time + this.policy.silentMs);
    for (const live of this.live.values())
      for (const { number, worker } of live.state.open.values()) if (worker !== 0) this.keep(live, number);
  }

  private lostWorker(worker: PeerId): void {
    this.absent.delete(worker);
    this.event('worker.lost', { client: worker });
    for (const live of this.live.values()) {
      this.confirm(live, live.doubts.takeOf(worker));
      for (const range of live.holders.of(worker)) this.lose(live, range, 'its worker was lost');
    }
  }

  // ---- checkpoints

  /**
   * The queue as it is now, for a checkpoint. From now on no session of a range ends, so that shards remember
   * what they hold of it (rule 35).
   */
  beginCut(): Cut {
    this.cut = new Cut(this.ledger.state.datasets);
    this.ledger.holdSessions();
    return this.cut;
  }

  /** While a barrier is closed no range is handed out. */
  pause(paused: boolean): void {
    this.paused = paused;
    if (!paused) for (const live of this.live.values()) this.serve(live);
  }

  /** The scheduler knows for every open range which batches were begun. `told`: its worker has said so. */
  isExact(told: (name: string, range: OpenRange) => boolean): boolean {
    return isExact(this.ledger.state.datasets, told);
  }

  endCut(): void {
    this.cut = undefined;
    this.ledger.releaseSessions();
  }

  // ---- data sets

  private open(from: PeerId, { id, name, spec: given }: MessageOf<'openDataset'>): void {
    const spec = onlyKnownDataset(given);
    const known = this.live.get(name);
    const refuse = (message: string, code: ErrorCode = 'BAD_ARGUMENT') =>
      this.answer(from, { t: 'datasetOpened', id, code, message });
    if (known) {
      const problem = datasetDifference(known.state.spec, spec);
      if (problem) return refuse(`data set "${name}" of this job has ${problem}`);
      return this.answer(from, { t: 'datasetOpened', id, spec: known.state.spec });
    }
    const { datasets } = this.ledger.state;
    const problem = datasetProblem(spec);
    if (problem) return refuse(problem);
    const noRoom = roomProblem(datasets, spec);
    if (noRoom) return refuse(noRoom.message, noRoom.code);
    const state = newDataset(name, spec);
    datasets.push(state);
    const { plan, index } = this.add(state);
    this.ledger.touch(datasetKey(index));
    this.ledger.touch(cursorKey(index));
    this.event('dataset.opened', { name, ranges: plan.total, epochs: spec.epochs });
    this.answer(from, { t: 'datasetOpened', id, spec });
  }

  private extend(from: PeerId, { id, name, sizes }: MessageOf<'extendDataset'>): void {
    const live = this.live.get(name);
    const growth = live?.state.growth;
    if (!live || growth?.length !== sizes.length) {
      const message = `data set "${name}" does not follow ${sizes.length} files`;
      return this.answer(from, { t: 'datasetExtended', id, sizes: [], code: 'BAD_ARGUMENT', message });
    }
    for (const file of grow(growth, sizes)) this.ledger.touch(fileKey(live.index, file));
    this.answer(from, { t: 'datasetExtended', id, sizes: growth.map(({ size }) => size) });
    this.serve(live);
  }

  // ---- leases

  private acquire(from: PeerId, { id, name, clock }: MessageOf<'acquire'>): void {
    const live = this.live.get(name);
    if (!live) return this.answer(from, { t: 'acquired', id, session: 0, done: 0, begun: 0, leaseMs: 0 });
    // The request was repeated: its answer was lost or is still under way.
    const mine = live.holders.of(from).find((range) => range.lease === id);
    if (mine) return this.tell(live, mine);
    live.clocks.saw(from, clock);
    live.waiting.set(from, id);
    this.serve(live);
  }

  /** Hands out ranges to waiting workers: lost and returned ranges first, in their order. */
  private serve(live: LiveDataset): void {
    const { holders, waiting } = live;
    for (const [worker, request] of this.paused ? [] : waiting) {
      const range = firstFree(live, this.policy.maxRangeFailures) ?? this.fresh(live);
      if (!range) break;
      waiting.delete(worker);
      holders.give(range, worker);
      range.lease = request;
      this.keep(live, range.number);
      live.saved.set(range.number, range.done);
      live.clocks.start(worker);
      this.touchRange(live, range.number);
      this.tell(live, range);
    }
    this.grant(live);
    if (!isComplete(live)) return;
    for (const [worker, id] of waiting)
      this.answer(worker, { t: 'acquired', id, session: 0, done: 0, begun: 0, leaseMs: 0 });
    waiting.clear();
  }

  /** The next range that nobody has had. */
  private fresh({ index, state, plan, holders }: LiveDataset): OpenRange | undefined {
    const piece = state.growth && nextPiece(state.spec, state.growth);
    if (state.growth ? !piece : state.next >= plan.total) return undefined;
    const fresh = { worker: 0, lease: 0, done: 0, begun: 0, failures: 0, failedAt: -1 };
    const number = state.next++;
    const range = { number, ...(piece && { piece }), session: this.ledger.openSession(), ...fresh };
    state.open.set(number, range);
    holders.give(range, 0);
    this.cut?.handedOut(index, range);
    this.ledger.touch(cursorKey(index));
    if (piece) this.ledger.touch(fileKey(index, piece.file));
    return range;
  }

  private tell(live: LiveDataset, range: OpenRange): void {
    const { session, worker, lease, done, begun } = range;
    const { leaseMs } = this.policy;
    const where = live.plan.at(range.number, range.piece);
    this.answer(worker, { t: 'acquired', id: lease, range: where, session, done, begun, leaseMs });
  }

  private progress(from: PeerId, message: MessageOf<'rangeProgress'>): void {
    const { name, number, lease, done, begun, clock } = message;
    const live = this.live.get(name);
    const range = live?.state.open.get(number);
    if (!live || range?.worker !== from || range.lease !== lease) {
      this.answer(from, { t: 'rangeLost', name, number, lease });
      return;
    }
    report(live, range, done, begun);
    this.keep(live, number);
    if (range.done - (live.saved.get(number) ?? 0) >= this.policy.maxUnsavedBatches) {
      live.saved.set(number, range.done);
      this.touchRange(live, number);
    }
    live.clocks.saw(from, clock);
    live.clocks.start(from);
    this.grant(live);
  }

  private release(from: PeerId, message: MessageOf<'release'>): void {
    const { id, name, number, lease, session, outcome, done, begun } = message;
    const live = this.live.get(name);
    const range = live?.state.open.get(number);
    if (live && range) {
      const mine = range.worker === from && range.lease === lease;
      // A worker that was given up may have finished. Its batches have the same numbers, and all are durable.
      if (outcome === 'finished' && (mine || session === range.session)) this.finish(live, range, message);
      else if (mine) {
        report(live, range, done, begun);
        if (outcome === 'failed') this.fail(live, range, message);
        else this.free(live, range);
      } else if (session === range.session && live.doubts.settle(number, from, lease)) {
        // The worker was only stopped, or slow, unless it says that the batch has failed.
        report(live, range, done, begun);
        this.touchRange(live, number);
        if (outcome === 'failed') this.blame(live, range, message);
      }
      this.serve(live);
    }
    this.answer(from, { t: 'released', id });
  }

  private finish(live: LiveDataset, range: OpenRange, { samples, redone }: MessageOf<'release'>): void {
    const { index, state, plan } = live;
    const { epoch } = plan.at(range.number, range.piece);
    state.finished++;
    state.samples[epoch] = (state.samples[epoch] ?? 0) + samples;
    state.redone += redone;
    this.ledger.touch(cursorKey(index));
    this.ledger.touch(epochKey(index, epoch));
    this.forget(live, range);
    if (state.growth || state.finished + state.setAside.length !== plan.total) return;
    const trained = state.samples.reduce((all, each) => all + each, 0);
    this.event('dataset.complete', { name: state.name, samples: trained, redone: state.redone });
  }

  /** Removes a range from the queue and ends its session. */
  private forget(live: LiveDataset, range: OpenRange): void {
    const { state } = live;
    live.holders.drop(range);
    state.open.delete(range.number);
    this.touchRange(live, range.number);
    live.deadlines.delete(range.number);
    live.saved.delete(range.number);
    live.doubts.forget(range.number);
    this.stopIfIdle(live, range.worker);
    this.ledger.endSession(range.session);
  }

  private free(live: LiveDataset, range: OpenRange): void {
    const { worker } = range;
    live.holders.give(range, 0);
    this.touchRange(live, range.number);
    live.deadlines.delete(range.number);
    this.stopIfIdle(live, worker);
  }

  /** A worker without a range does not hold others back. */
  private stopIfIdle(live: LiveDataset, worker: PeerId): void {
    if (!live.holders.has(worker)) live.clocks.stop(worker);
  }

  private lose(live: LiveDataset, range: OpenRange, reason: string): void {
    const { worker, number, lease, done } = range;
    this.answer(worker, { t: 'rangeLost', name: live.state.name, number, lease });
    this.event('range.lost', { name: live.state.name, range: number, client: worker, done, reason });
    if (reason === EXPIRED && live.doubts.add(range, this.time)) this.takeBack(live, range);
    else this.fail(live, range, { batch: done, code: 'TIMEOUT', message: reason });
    this.serve(live);
  }

  /** Nobody has cleared these leases, so their ranges have failed. */
  private confirm(live: LiveDataset, doubts: readonly Doubt[]): void {
    for (const { number } of doubts) {
      const range = live.state.open.get(number);
      if (!range) continue;
      this.touchRange(live, number);
      this.blame(live, range, { code: 'TIMEOUT', message: EXPIRED });
    }
    if (doubts.length > 0) this.serve(live);
  }

  /** Puts the range back into the queue, or sets it aside when it failed too often at one batch. */
  private fail(live: LiveDataset, range: OpenRange, failure: RangeFailure): void {
    this.takeBack(live, range);
    this.blame(live, range, failure);
  }

  /** Frees a range whose worker may have begun more batches than it has reported. */
  private takeBack(live: LiveDataset, range: OpenRange): void {
    range.partial = true;
    this.free(live, range);
  }

  private blame(live: LiveDataset, range: OpenRange, failure: RangeFailure): void {
    const { batch = range.done, code = 'INTERNAL', message = '' } = failure;
    range.failures = range.failedAt === batch ? range.failures + 1 : 1;
    range.failedAt = batch;
    if (range.failures < this.policy.maxRangeFailures) return;
    const aside: SetAside = { ...placeOf(live, range), batch, attempts: range.failures, code, message };
    this.ledger.touch(asideKey(live.index, live.state.setAside.push(aside) - 1));
    this.forget(live, range);
    this.event('range.setAside', { ...aside });
  }

  private touchRange({ index }: LiveDataset, number: number): void {
    this.ledger.touch(openKey(index, number));
  }

  // ---- bounded staleness

  private advance(from: PeerId, { id, name, clock }: MessageOf<'advance'>): void {
    const live = this.live.get(name);
    if (!live) return this.answer(from, { t: 'advanced', id, until: UNBOUNDED });
    live.clocks.ask(from, id, clock);
    this.grant(live);
  }

  private grant({ clocks }: LiveDataset): void {
    for (const { worker, id, until } of clocks.granted()) this.answer(worker, { t: 'advanced', id, until });
  }
}

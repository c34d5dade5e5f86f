/**
 * Changes that are to be done in time. While one runs, nodes that take in moves are told how fast they must
 * go: the bytes that are left in the time that is left, with a margin. A change is taken back when no change
 * at all has made progress for its timeout, not when its own timeout is over: changes share the moves that
 * run at once, so one of them may wait for another.
 *
 * All of it is soft state. A message that is lost makes the moves slower until the next one; after a restart
 * of the scheduler the time of a change begins anew.
 */

import { BLOCK_BYTES } from '../../../protocol/blocks.js';
import type { PeerId } from '../../../protocol/map.js';
import type { Change } from '../state.js';

/** The rate is so much higher than what is left needs: a move also takes time in which nothing is copied. */
const MARGIN = 2;
/** Moves aim at this part of the time. The rest is for what cannot be planned, such as a busy machine. */
const AIM = 0.75;
/** At least so much time is left, also when the time of a change is up and it comes further. */
const LEAST_MS = 1000;

/** The target of a move that has not ended. */
export interface ChangeUnderWay {
  sid: number;
  node: PeerId;
  /** Which seat goes to which node: the same for every attempt at this move. */
  what: string;
  /** Bytes that are copied for it in all. */
  work: number;
  /** Bytes of that which are copied after the target is complete. */
  after: number;
}

type Timed = Pick<Change, 'id' | 'timeoutMs'>;

export class Deadlines {
  /** Running change -> milliseconds at which this process first saw it. */
  private readonly since = new Map<number, number>();
  /** Milliseconds of the last progress of any change. */
  private progressAt = Number.NEGATIVE_INFINITY;
  /**
   * By `what`: the least amount that was ever left. A move that was dropped and begins again is progress only
   * when less than this is left.
   */
  private readonly least = new Map<string, number>();
  /** Sid of a target -> blocks that it lacks, by its last report. */
  private readonly blocks = new Map<number, number>();

  /**
   * `running`: all of them. `slept`: milliseconds in which this process did not run: they count for no
   * change.
   */
  tick(now: number, running: readonly Timed[], slept = 0): void {
    this.progressAt += slept;
    for (const [id, at] of this.since) this.since.set(id, at + slept);
    for (const id of this.since.keys())
      if (!running.some((change) => change.id === id)) this.since.delete(id);
    for (const { id } of running) if (!this.since.has(id)) this.since.set(id, now);
    if (running.some(({ timeoutMs }) => timeoutMs > 0)) return;
    this.least.clear();
    this.blocks.clear();
  }

  /** True: no change has made progress for the timeout of this one. */
  isOver({ id, timeoutMs }: Timed, now: number): boolean {
    const since = Math.max(this.since.get(id) ?? now, this.progressAt);
    return timeoutMs > 0 && now - since > timeoutMs;
  }

  /** A move is over. If the same seat moves to this node again later, all of it is left to move. */
  arrived(what: string, now: number): void {
    this.least.delete(what);
    this.progressAt = now;
  }

  /** So much is left of `what`; less than ever is progress. */
  left(what: string, amount: number, now: number): void {
    const least = this.least.get(what);
    if (least !== undefined && amount < least) this.progressAt = now;
    this.least.set(what, Math.min(least ?? amount, amount));
  }

  /** The node of this target has told that so many blocks are left. */
  reported({ sid, what }: ChangeUnderWay, blocks: number, now: number): void {
    this.blocks.set(sid, blocks);
    this.left(what, blocks, now);
  }

  /**
   * Bytes per second that each node must take in; empty if no running change has a deadline. `waiting`: bytes
   * of moves that are still to begin for changes that have one.
   */
  paces(
    now: number,
    running: readonly Timed[],
    underWay: readonly ChangeUnderWay[],
    waiting: number,
  ): Map<PeerId, number> {
    const paces = new Map<PeerId, number>();
    const times = running
      .filter(({ timeoutMs }) => timeoutMs > 0)
      .map(({ id, timeoutMs }) => (this.since.get(id) ?? now) + AIM * timeoutMs - now);
    if (times.length === 0) return paces;
    const bytes = underWay.reduce((sum, target) => sum + this.workLeft(target), waiting);
    const perSecond = (MARGIN * bytes * 1000) / Math.max(LEAST_MS, Math.min(...times));
    // Moves that run at once share the work, and a node with several of them gets several shares.
    for (const { node } of underWay) paces.set(node, (paces.get(node) ?? 0) + perSecond / underWay.length);
    for (const [node, pace] of paces) paces.set(node, Math.ceil(pace));
    return paces;
  }

  private workLeft({ sid, work, after }: ChangeUnderWay): number {
    const blocks = this.blocks.get(sid);
    return blocks === undefined ? work : blocks * BLOCK_BYTES + after;
  }
}

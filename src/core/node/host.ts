/**
 * The ground that all parts of a node stand on: identity, time, the newest map, the accounts of memory and
 * traffic, and the answers that are collected over a step. It is made first and knows no other part.
 */
import { type ClusterMap, EMPTY_MAP, type PeerId } from '../../protocol/map.js';
import type { Refusal } from '../../protocol/messages.js';
import type { AnswerMemory, Deferred, OwnerHost, PullOwner } from '../shard/host.js';
import { ContentBytes } from '../shared/content-bytes.js';
import { DeltaBytes } from '../shared/delta-bytes.js';
import { EvictedBytes } from '../shared/evicted-bytes.js';
import { NONE_GONE } from '../shared/gone-tables.js';
import { Meter } from '../shared/meter.js';
import { Outbox } from '../shared/outbox.js';
import { Pace } from '../shared/pace.js';
import type { Policy } from '../shared/policy.js';
import { RateLimit } from '../shared/rate.js';
import { Turn } from '../shared/turn.js';
import { WaitingBytes } from '../shared/waiting-bytes.js';
import { AnswerQueue } from './answer-queue.js';
import type { NodeHooks } from './hooks.js';
import { type PushReply, Replies } from './replies.js';

export class NodeHost implements OwnerHost {
  readonly out = new Outbox();
  readonly pace: Pace;
  readonly meter = new Meter();
  readonly moveRate: RateLimit;
  readonly waiting: WaitingBytes;
  readonly turn: Turn;
  readonly answers: AnswerQueue;
  readonly deltaBytes: DeltaBytes;
  readonly evicted: EvictedBytes;
  readonly contentBytes: ContentBytes;
  readonly replies: Replies;
  private newest: ClusterMap = EMPTY_MAP;
  gone = NONE_GONE;
  /** Milliseconds of the newest tick; 0 before the first one. */
  now = 0;
  seconds = 0;
  /** Owners with an open batch: exactly these are flushed at the end of the turn. */
  private readonly dirty = new Set<Deferred>();
  /** Owners whose waiting requests are served in the next turn. */
  private readonly serving = new Set<Deferred>();

  constructor(
    readonly id: PeerId,
    readonly inc: number,
    readonly policy: Policy,
    private readonly hooks: Pick<NodeHooks, 'discard' | 'answerMemory' | 'contentMemory' | 'disturbed'>,
  ) {
    this.pace = new Pace(policy);
    this.moveRate = new RateLimit(policy.moveRate, this.pace, 'move');
    this.waiting = new WaitingBytes(policy.maxParkedBytes);
    this.turn = new Turn(policy);
    const { waiting, out, turn } = this;
    this.answers = new AnswerQueue({
      ...{ policy, waiting, out, turn, now: () => this.now },
      memory: (bytes) => hooks.answerMemory(bytes),
    });
    this.deltaBytes = new DeltaBytes(policy.maxDeltaBytes);
    this.evicted = new EvictedBytes(policy.maxEvictedBytes);
    this.contentBytes = new ContentBytes(policy.maxDeltaBytes);
    const discard = (bytes: Uint8Array): void => hooks.discard(bytes);
    // A client sends a section again after longer than this.
    const ackWaitMs = policy.retryMs / 2;
    this.replies = new Replies(out, this.meter, policy.maxRowsBytes, discard, ackWaitMs);
  }

  /** The newest map that came. It is replaced, never changed, and its epoch only grows. */
  get map(): ClusterMap {
    return this.newest;
  }

  set map(map: ClusterMap) {
    this.newest = map;
    this.gone = this.gone.by(map);
  }

  /** The newest second, for a heartbeat. */
  get heardTime(): { seconds?: number } {
    return this.seconds > 0 ? { seconds: this.seconds } : {};
  }

  /** A member of a group was lost, or has moved. */
  disturbed(): void {
    this.pace.disturbed(this.now);
    this.hooks.disturbed();
  }

  // ---- for owners

  acknowledge(client: PeerId, g: number, m: number, cseq: number, refused?: Refusal): void {
    this.replies.owed.settle(client, g, m, cseq, refused);
  }

  answer(client: PeerId, id: number, item: number, rows: Uint8Array): void {
    this.replies.answer(client, id, item, rows);
  }

  answerAlone(client: PeerId, id: number, item: number, rows: Uint8Array): void {
    this.replies.answerAlone(client, id, item, rows);
  }

  tell(client: PeerId, message: PushReply): void {
    this.replies.tell(client, message);
  }

  contentMemory(bytes: number): AnswerMemory | undefined {
    return this.hooks.contentMemory(bytes);
  }

  discard(bytes: Uint8Array): void {
    this.hooks.discard(bytes);
  }

  markDirty(owner: Deferred): void {
    this.dirty.add(owner);
  }

  serveLater(owner: Deferred): void {
    this.serving.add(owner);
  }

  // ---- for the node

  get isDirty(): boolean {
    return this.dirty.size > 0;
  }

  flush(): void {
    for (const owner of this.dirty) owner.flush();
    this.flushed();
  }

  /** All owners have been flushed. */
  flushed(): void {
    this.dirty.clear();
  }

  /** Requests wait that may be served now. */
  get needsTurn(): boolean {
    return this.serving.size > 0 || this.answers.needsTurn;
  }

  /** Serving one owner may make room for others, or for the same one again: those are next in a turn. */
  serveOwners(): void {
    for (const owner of [...this.serving]) {
      if (this.turn.isFull) return;
      this.serving.delete(owner);
      owner.serveWaiting();
    }
  }

  /** The ownership is over: its open batch is not flushed, and requests that wait for it are not served. */
  forget(owner: Deferred & { readonly pulls: PullOwner }): void {
    this.dirty.delete(owner);
    this.serving.delete(owner);
    this.answers.forget(owner.pulls);
  }
}

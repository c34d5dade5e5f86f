/**
 * Pulls of a node that wait for room for their answers (answer-bytes.ts). Clients take turns by bytes
 * (deficit round robin), and those of one client go in the order in which they came. A pull that waits for
 * lost rows waits at its shard and holds no room.
 */
import type { PeerId } from '../../protocol/map.js';
import type { AnswerRoom, PullItem, PullOwner } from '../shard/host.js';
import { areEqual } from '../shared/bytes.js';
import type { Outbox } from '../shared/outbox.js';
import type { Policy } from '../shared/policy.js';
import type { Turn } from '../shared/turn.js';
import type { WaitingBytes } from '../shared/waiting-bytes.js';
import { type WaitingEntry, WaitingList } from '../shared/waiting-list.js';
import { AnswerBytes } from './answer-bytes.js';

/** A client's turn allows it so much more: a part of `maxAnswerBytes`, and at least some bytes. */
const QUANTUM = 1 / 64;
const LEAST_QUANTUM = 4096;

interface QueuedPull {
  owner: PullOwner;
  pull: PullItem;
}

/** The waiting pulls of one client. */
interface Line {
  readonly list: WaitingList<QueuedPull>;
  /** Bytes that it may still get in this turn. */
  allowed: number;
}

/** The parts of the node that the queue uses. */
interface AnswerQueueHost {
  readonly policy: Policy;
  readonly waiting: WaitingBytes;
  readonly out: Outbox;
  readonly turn: Turn;
  /** Milliseconds of the newest tick. */
  now(): number;
}

export class AnswerQueue implements AnswerRoom {
  readonly bytes: AnswerBytes;
  /** By client; the first one has the next turn. No line is empty between steps. */
  private readonly lines = new Map<PeerId, Line>();
  /**
   * An answer has waited for `answerStallMs` because of other clients: nothing goes before it any more.
   */
  private reserved = false;
  /** False: nothing that waits has more room than when it was looked at last. */
  private mayServe = false;

  constructor(private readonly host: AnswerQueueHost) {
    this.bytes = new AnswerBytes(host.policy);
  }

  // ---- AnswerRoom

  take(pull: PullItem): boolean {
    const { client, bytes } = pull;
    if (bytes > 0) {
      if (this.reserved || this.lines.has(client)) return false;
      if (this.bytes.obstacle(client, bytes, this.host.now()) !== undefined) return false;
    }
    if (!this.host.turn.takes(pull)) {
      this.mayServe = true;
      return false;
    }
    this.charge(pull);
    return true;
  }

  giveBack({ client, bytes }: PullItem): void {
    this.bytes.giveBack(client, bytes);
  }

  wait(owner: PullOwner, pull: PullItem, section: Uint8Array): boolean {
    const line = this.lines.get(pull.client) ?? this.newLine();
    const isSame = ({ item, parts }: WaitingEntry<QueuedPull>) =>
      item.pull.first === pull.first && item.owner === owner && areEqual(parts[0]!, section);
    const same = line.list.find(isSame);
    if (same) {
      // The client has asked again, and forgets its oldest questions.
      const { at, since } = same.item.pull;
      same.item.pull = { ...pull, at, since };
      return true;
    }
    if (!line.list.add({ owner, pull }, [section], pull.since)) return false;
    this.lines.set(pull.client, line);
    return true;
  }

  // ---- for the node

  /** See `AnswerBytes.report`. */
  report(links: readonly (readonly [client: PeerId, bytes: number])[]): void {
    this.bytes.report(links, this.host.now());
    this.mayServe = true;
  }

  /** Drops what waits for this owner: the shard is elsewhere by now. */
  forget(owner: PullOwner): void {
    for (const [client, { list }] of this.lines) {
      list.retain(({ item }) => item.owner !== owner);
      if (list.length === 0) this.lines.delete(client);
    }
    this.mayServe = true;
  }

  /** The link of a client is closed: its pulls are dropped, and it asks again. */
  gone(client: PeerId): void {
    this.lines.get(client)?.list.takeAll();
    this.lines.delete(client);
    this.bytes.gone(client);
    this.mayServe = true;
  }

  /** Pulls wait, and some may have room. */
  get needsTurn(): boolean {
    return this.mayServe && this.lines.size > 0;
  }

  /** Serves what there is room for, as long as the turn has rows and bytes left. */
  serve(): void {
    if (!this.needsTurn) return;
    this.mayServe = false;
    this.reserved = false;
    for (let round = true; round; ) {
      round = false;
      for (const [client, line] of [...this.lines]) {
        const outcome = this.serveLine(client, line);
        if (outcome === 'stop') return;
        round ||= outcome === 'on';
      }
    }
  }

  /**
   * One turn of a client. `on`: it got something or may get something in its next turn. `blocked`: it can get
   * nothing. `stop`: nobody gets anything in this turn.
   */
  private serveLine(client: PeerId, line: Line): 'on' | 'blocked' | 'stop' {
    let head = line.list.first;
    const quantum = Math.max(LEAST_QUANTUM, this.host.policy.maxAnswerBytes * QUANTUM);
    if (head && line.allowed < head.item.pull.bytes) line.allowed += quantum;
    for (; head; head = line.list.first) {
      const { owner, pull } = head.item;
      const { bytes } = pull;
      const obstacle = this.bytes.obstacle(client, bytes, this.host.now());
      if (obstacle === 'node' && this.isOld(head)) {
        this.reserved = true;
        return 'stop';
      }
      if (obstacle) return 'blocked';
      if (line.allowed < bytes) break;
      if (!this.host.turn.takes(pull)) {
        this.mayServe = true;
        return 'stop';
      }
      line.allowed -= bytes;
      line.list.shift();
      this.charge(pull);
      owner.serveCharged(pull, head.parts[0]!);
    }
    // The client stands behind the others from now on.
    this.lines.delete(client);
    if (line.list.length > 0) this.lines.set(client, line);
    return 'on';
  }

  /** Answers TIMEOUT to what has waited for too long, and hangs up on a client that blocks others. */
  tick(): void {
    const { policy, out } = this.host;
    const now = this.host.now();
    const late = now - policy.parkedPullMs;
    for (const [client, { list }] of this.lines) {
      for (const { item } of list.takeBefore(late)) item.owner.expire(item.pull);
      if (list.length === 0) this.lines.delete(client);
    }
    // Time has passed, so that an answer may have become the next one of all.
    this.mayServe = this.lines.size > 0;
    if (!this.isBlocked) return;
    const client = this.bytes.mostStalled(now);
    if (client === undefined) return;
    const bytes = this.bytes.heldBy(client);
    out.event('client.hungUp', { client, bytes });
    out.hangUp(client);
    this.gone(client);
  }

  /** A pull waits because of what other clients hold. */
  private get isBlocked(): boolean {
    for (const [client, { list }] of this.lines)
      if (list.first && this.bytes.obstacle(client, list.first.item.pull.bytes, this.host.now()) === 'node')
        return true;
    return false;
  }

  private isOld({ since }: WaitingEntry<QueuedPull>): boolean {
    return this.host.now() - since >= this.host.policy.answerStallMs;
  }

  private charge({ client, bytes }: PullItem): void {
    this.bytes.charge(client, bytes, this.host.now());
  }

  private newLine(): Line {
    const { policy, waiting } = this.host;
    const list = new WaitingList<QueuedPull>({
      maxCount: policy.maxParked,
      account: waiting,
      atLimit: 'refuse',
    });
    return { list, allowed: 0 };
  }
}

/**
 * Pulls of a node that wait for room for their answers (answer-bytes.ts). Clients get equal shares of bytes
 * (fair-order.ts), and pulls of one client go in the order in which they came. A pull that waits for lost
 * rows waits at its shard and holds no room.
 *
 * An answer that is larger than a turn of the event loop is gathered in slices, and charged before the first
 * one. One such answer is gathered at a time, so that memory is not held by many that are not ready.
 */
import type { PeerId } from '../../protocol/map.js';
import type { AnswerMemory, AnswerRoom, PullItem, PullOwner } from '../shard/host.js';
import { areEqual } from '../shared/bytes.js';
import { type FairLine, FairLines } from '../shared/fair-lines.js';
import type { Outbox } from '../shared/outbox.js';
import type { Policy } from '../shared/policy.js';
import type { Turn } from '../shared/turn.js';
import type { WaitingBytes } from '../shared/waiting-bytes.js';
import type { WaitingEntry } from '../shared/waiting-list.js';
import { AnswerBytes, HEADER_BYTES, type Obstacle, type Room } from './answer-bytes.js';
import { Slices } from './slices.js';

/** An answer of so many bytes that has waited is a message of its own, and is not copied into a frame. */
const OWN_MEMORY_BYTES = 64 << 10;

interface QueuedPull {
  owner: PullOwner;
  pull: PullItem;
  /** Undefined: no slice of its answer is charged or gathered. */
  gathering?: { readonly slices: Slices; readonly memory: AnswerMemory } | undefined;
}

type Line = FairLine<QueuedPull>;

/** The parts of the node that the queue uses. */
interface AnswerQueueHost {
  readonly policy: Policy;
  readonly waiting: WaitingBytes;
  readonly out: Outbox;
  readonly turn: Turn;
  /** Milliseconds of the newest tick. */
  now(): number;
  /** Memory for a large answer: its frame is built around its rows. */
  memory(bytes: number): AnswerMemory;
}

export class AnswerQueue implements AnswerRoom {
  readonly bytes: AnswerBytes;
  private readonly lines: FairLines<QueuedPull>;
  /**
   * Rooms for which an answer has waited for `answerStallMs` because of other clients: nothing goes before it
   * any more.
   */
  private readonly reserved = new Set<Room>();
  /** The pull whose answer is being gathered in slices. */
  private underWay: QueuedPull | undefined;
  /** False: nothing that waits has more room than when it was looked at last. */
  private mayServe = false;

  constructor(private readonly host: AnswerQueueHost) {
    const { policy, waiting } = host;
    this.bytes = new AnswerBytes(policy);
    // The cost of a pull in the order of clients: bytes of its answer or of its next slice, and no answer is
    // nothing.
    const costOf = ({ pull, gathering }: QueuedPull): number =>
      (gathering?.slices.next?.work.bytes ?? Math.min(pull.bytes, policy.maxTurnBytes)) + HEADER_BYTES;
    this.lines = new FairLines({ maxCount: policy.maxParked, account: waiting }, costOf);
  }

  // ---- AnswerRoom

  take(pull: PullItem): boolean {
    const { client, bytes } = pull;
    if (bytes > 0) {
      if (this.lines.byClient.has(client) || this.reserved.has(this.bytes.roomWith(client, bytes)))
        return false;
      if (this.bytes.obstacle(client, bytes, this.host.now()) !== undefined) return false;
    }
    const { turn } = this.host;
    if (turn.isLarge(pull) || !turn.takes(pull)) {
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
    const isSame = ({ item, parts }: WaitingEntry<QueuedPull>) =>
      item.pull.first === pull.first && item.owner === owner && areEqual(parts[0]!, section);
    const same = this.lines.byClient.get(pull.client)?.list.find(isSame);
    if (same) {
      // The client has asked again, and forgets its oldest questions.
      const { at, since } = same.item.pull;
      same.item.pull = { ...pull, at, since };
      return true;
    }
    return this.lines.add(pull.client, { owner, pull }, [section], pull.since);
  }

  // ---- for the node

  /** See `AnswerBytes.report`. */
  report(links: readonly (readonly [client: PeerId, bytes: number])[]): void {
    this.bytes.report(links, this.host.now());
    this.mayServe = true;
  }

  /** Drops what waits for this owner: the shard is elsewhere by now. */
  forget(owner: PullOwner): void {
    for (const line of this.lines.byClient.values()) {
      line.list.retain(({ item }) => {
        if (item.owner !== owner) return true;
        this.abandon(item);
        return false;
      });
      this.lines.dropEmpty(line);
    }
    this.dropped();
    this.mayServe = true;
  }

  /** The link of a client is closed: its pulls are dropped, and it asks again. */
  gone(client: PeerId): void {
    for (const { item } of this.lines.drop(client)) this.abandon(item);
    this.dropped();
    this.bytes.gone(client);
    this.mayServe = true;
  }

  /** Pulls wait, and some may have room. */
  get needsTurn(): boolean {
    return this.mayServe && this.lines.any;
  }

  /** Serves what there is room for, as long as the turn has rows and bytes left. */
  serve(): void {
    if (!this.needsTurn) return;
    this.mayServe = false;
    this.reserved.clear();
    if (!this.serveOld()) return;
    const { order } = this.lines;
    const blocked: Line[] = [];
    try {
      for (let line = order.first; line; line = order.first) {
        const outcome = this.serveFirst(line);
        if (outcome === 'full') return;
        if (outcome === 'served') continue;
        order.leave(line);
        blocked.push(line);
      }
    } finally {
      for (const line of blocked.reverse()) if (line.list.length > 0) order.comeBack(line);
    }
  }

  /** Serves what has waited for `answerStallMs`, the oldest first. False: the turn has no room for it. */
  private serveOld(): boolean {
    const before = this.host.now() - this.host.policy.answerStallMs;
    const sinceOf = ({ list }: Line) => list.first!.since;
    const old = [...this.lines.byClient.values()].filter((line) => sinceOf(line) <= before);
    for (const line of old.sort((one, other) => sinceOf(one) - sinceOf(other) || one.tag - other.tag)) {
      const { client, bytes } = line.list.first!.item.pull;
      const outcome = this.serveFirst(line);
      if (outcome === 'full') return false;
      if (outcome === 'room') this.reserved.add(this.bytes.roomWith(client, bytes));
    }
    return true;
  }

  /**
   * Serves the first pull of a client, or a slice of it, if it has room. `full`: the turn has none for
   * anybody. `busy`: another answer is gathered in slices.
   */
  private serveFirst(line: Line): 'served' | 'full' | 'busy' | Obstacle {
    const { client, list } = line;
    const head = list.first!;
    const { owner, pull, gathering } = head.item;
    if (gathering) return this.serveSlice(line, head.item, gathering);
    const isLarge = this.host.turn.isLarge(pull);
    if (isLarge && this.underWay) return 'busy';
    if (this.reserved.has(this.bytes.roomWith(client, pull.bytes))) return 'room';
    const obstacle = this.bytes.obstacle(client, pull.bytes, this.host.now());
    if (obstacle) return obstacle;
    if (isLarge) {
      this.bytes.begin(client, pull.bytes, this.host.now());
      const slices = new Slices(head.parts[0]!, pull, this.host.policy);
      const begun = { slices, memory: this.host.memory(pull.bytes) };
      head.item.gathering = begun;
      this.underWay = head.item;
      return this.serveSlice(line, head.item, begun);
    }
    if (!this.host.turn.takes(pull)) {
      this.mayServe = true;
      return 'full';
    }
    this.lines.serve(line);
    this.charge(pull);
    const own = pull.bytes < OWN_MEMORY_BYTES ? undefined : this.host.memory(pull.bytes);
    owner.serveCharged(pull, head.parts[0]!, own);
    return 'served';
  }

  private serveSlice(
    line: Line,
    queued: QueuedPull,
    { slices, memory }: NonNullable<QueuedPull['gathering']>,
  ): 'served' | 'full' {
    const { owner, pull } = queued;
    const slice = slices.next!;
    this.mayServe = true;
    if (!this.host.turn.takes(slice.work)) return 'full';
    const section = line.list.first!.parts[0]!;
    const at = memory.at + slice.at;
    if (!owner.readSlice(pull, section, slice.section, memory.memory, at)) {
      this.abandon(queued);
      this.lines.serve(line);
      return 'served';
    }
    slices.shift();
    if (slices.next) {
      this.lines.served(line);
      return 'served';
    }
    this.lines.serve(line);
    this.underWay = undefined;
    this.bytes.gathered(pull.client, pull.bytes);
    const rows = memory.memory.subarray(memory.at, memory.at + pull.bytes);
    memory.took(rows);
    owner.serveSliced(pull, rows);
    return 'served';
  }

  /** A pull is dropped: what is gathered of its answer is given up. */
  private abandon(queued: QueuedPull): void {
    const { gathering, pull } = queued;
    if (!gathering) return;
    this.underWay = undefined;
    queued.gathering = undefined;
    gathering.memory.drop();
    this.bytes.abandon(pull.client, pull.bytes);
  }

  /** Pulls were dropped: nothing is kept for one that is gone. */
  private dropped(): void {
    if (!this.lines.any) this.reserved.clear();
  }

  /** Answers TIMEOUT to what has waited for too long, and hangs up on a client that blocks others. */
  tick(): void {
    const { policy, out } = this.host;
    const now = this.host.now();
    const late = now - policy.parkedPullMs;
    for (const line of this.lines.byClient.values()) {
      for (const { item } of line.list.takeBefore(late)) {
        this.abandon(item);
        item.owner.expire(item.pull);
      }
      this.lines.dropEmpty(line);
    }
    this.dropped();
    // Time has passed, so that an answer may have become the next one of all.
    this.mayServe = this.lines.any;
    for (const room of this.blockedRooms(now)) {
      const client = this.bytes.mostStalled(room, now);
      if (client === undefined) continue;
      const bytes = this.bytes.heldBy(client);
      out.event('client.hungUp', { client, bytes });
      out.hangUp(client);
      this.gone(client);
    }
  }

  /** Rooms for which a pull waits because of what other clients hold. */
  private blockedRooms(now: number): Set<Room> {
    const rooms = new Set<Room>();
    for (const { client, list } of this.lines.byClient.values()) {
      const { bytes } = list.first!.item.pull;
      if (this.bytes.obstacle(client, bytes, now) === 'room') rooms.add(this.bytes.roomWith(client, bytes));
    }
    return rooms;
  }

  private charge({ client, bytes }: PullItem): void {
    this.bytes.charge(client, bytes, this.host.now());
  }
}

/**
 * How a new owner gets its shard back while it serves (rules 22-26): keys first, then rows; on demand for requests that
 * wait, in the background for the rest. Per-block state (equations, accumulators) lives in the engine; here are lists of
 * blocks that were asked for, bounded in number, repeated by a timer, void when the group changes.
 */
import type { BlockList } from '../native.js';
import { SCHEDULER } from '../protocol/map.js';
import type { MessageOf } from '../protocol/messages.js';
import { bytes } from './effects.js';
import type { Owner, OwnerHost } from './owner.js';
import { RateLimit } from './rate.js';
import type { Follower } from './stream.js';

interface Request {
  blocks: BlockList;
  sentAt: number;
}

const BLOCK_NUMBER = 2 ** 32;
/** Keys are few, and nothing is served before they are back: more of them are under way. */
const KEY_WINDOWS = 8;

export class Recovery {
  /** Confirmed by the scheduler for this version of the group: what is absent stays so. */
  unrecoverable = false;
  private reportedAt = Number.NEGATIVE_INFINITY;
  private requests: Request[] = [];
  /** Blocks asked for because a request waits for them. */
  private demanded = new Set<number>();
  private rotation = 0;
  private blocksLost = 0;
  private blocksOnDemand = 0;
  private readonly rate: RateLimit;

  constructor(
    private readonly owner: Owner,
    private readonly host: OwnerHost,
  ) {
    this.rate = new RateLimit(host.policy.recoveryRate, host.pace);
    this.rotation = owner.member;
  }

  /** The shard is active and knows what it lacks. */
  begin(): void {
    this.blocksLost = this.absent;
    this.pump();
  }

  /** Rule 17: the group changed; sinks have dropped their accumulators. */
  restart(): void {
    this.owner.native.dropEquations();
    this.requests = [];
    this.demanded.clear();
    this.unrecoverable = false;
    this.reportedAt = Number.NEGATIVE_INFINITY;
    if (this.owner.phase === 'ACTIVE') this.pump();
  }

  /** Blocks that a push or a pull waits for. */
  demand(blocks: BlockList): void {
    const fresh: number[] = [];
    for (let i = 0; i < blocks.length; i += 2) {
      const column = blocks[i]!;
      const index = blocks[i + 1]!;
      const number = column * BLOCK_NUMBER + index;
      if (this.demanded.has(number)) continue;
      this.demanded.add(number);
      fresh.push(column, index);
    }
    if (fresh.length === 0) return;
    this.host.pace.take(fresh.length / 2);
    this.ask(Uint32Array.from(fresh));
  }

  onEquation(message: MessageOf<'equation'>, blocks: BlockList, content: Uint8Array): void {
    const { native } = this.owner;
    const parities = this.owner.stream.usableParities;
    const lacking = message.lacking.map(([member]) => member);
    // We asked, and then the block came another way and we sent its content: there is nothing left to solve.
    if (!lacking.includes(this.owner.member)) return;
    const mirror = this.owner.stream.usableMirror;
    if (mirror?.entry.sid === message.sid && !message.ok) {
      // It lost what it had (it was rolled back to before these blocks were included): decode from parities instead.
      mirror.none = true;
      this.askOthers(-1, blocks, parities);
      return;
    }
    if (mirror ? mirror.entry.sid !== message.sid : parities.length === 0) return;
    const solved = native.addEquations(
      message.index,
      Math.max(1, parities.length),
      lacking,
      message.ok,
      blocks,
      content,
    );
    for (const other of solved.others) this.sendInstall(message, other);
    if (solved.installed > 0) this.settled(blocks);
    if (solved.stuck.length > 0) this.report('fewer equations than lost members', solved.stuck.length / 2);
    else if (solved.installed < blocks.length / 2) this.askOthers(message.index, blocks, parities);
    this.pump();
  }

  onInstall(blocks: BlockList, content: Uint8Array): void {
    if (this.owner.native.install(blocks, content) > 0) this.settled(blocks);
    this.pump();
  }

  tick(): void {
    const { now } = this.host;
    this.rate.tick(now);
    const overdue = this.requests.filter((request) => now - request.sentAt > this.host.policy.retryMs);
    if (overdue.length > 0) this.repeat(overdue);
    this.pump();
  }

  /**
   * Rule 26: tells the scheduler. Only it knows whether our view is the newest; until it confirms, requests go on waiting,
   * so that an owner that was cut off does not call lost what lives on elsewhere.
   */
  report(reason: string, blocks: number): void {
    if (this.host.now - this.reportedAt <= this.host.policy.retryMs) return;
    if (this.reportedAt === Number.NEGATIVE_INFINITY) {
      const { group, member, gen } = this.owner;
      this.host.out.event('shard.unrecoverable', { group: group.id, member, gen, blocks, reason });
    }
    this.reportedAt = this.host.now;
    const { group, member, gen } = this.owner;
    this.host.out.send(SCHEDULER, {
      t: 'unrecoverable',
      g: group.id,
      m: member,
      gen,
      v: group.version,
      blocks,
    });
  }

  confirm(): void {
    this.unrecoverable = true;
    this.owner.giveUp();
  }

  stats(): { blocksLost: number; blocksPresent: number; blocksOnDemand: number } {
    const { blocksLost, blocksOnDemand } = this;
    return { blocksLost, blocksPresent: Math.max(0, blocksLost - this.absent), blocksOnDemand };
  }

  private get absent(): number {
    return this.owner.native.absentKeyBlocks + this.owner.native.absentRowBlocks;
  }

  private get outstanding(): number {
    let blocks = 0;
    for (const request of this.requests) blocks += request.blocks.length / 2;
    return blocks;
  }

  /** Asks for the next blocks in the background, keys before rows. */
  private pump(): void {
    const { recoveryWindow, recoveryChunk } = this.host.policy;
    const { native } = this.owner;
    if (this.absent === 0) {
      this.requests = [];
      this.demanded.clear();
      return;
    }
    for (;;) {
      // Nothing is served before the keys are back: no limit holds for them.
      const keysFirst = native.absentKeyBlocks > 0;
      if (!(keysFirst || this.rate.open)) return;
      const window = keysFirst ? KEY_WINDOWS * recoveryWindow : recoveryWindow;
      const absent = keysFirst ? native.absentKeyBlocks : native.absentRowBlocks;
      if (this.outstanding >= Math.min(window, absent)) return;
      const blocks = native.nextAbsent(keysFirst ? 0 : 1, recoveryChunk);
      if (blocks.length === 0) return;
      if (!this.ask(blocks)) return;
      if (!keysFirst) this.rate.take(blocks.length / 2);
      // Fewer than asked for: the cursor went all the way round, everything absent is under way.
      if (blocks.length / 2 < recoveryChunk) return;
    }
  }

  /** False when there is nobody to ask. */
  private ask(blocks: BlockList): boolean {
    const parities = this.owner.stream.usableParities;
    if (parities.length === 0 && !this.owner.stream.usableMirror) {
      this.report('no parity of this shard is left', blocks.length / 2);
      return false;
    }
    this.requests.push({ blocks, sentAt: this.host.now });
    const chosen = this.owner.stream.usableMirror ?? parities[this.rotation++ % parities.length];
    if (chosen) this.owner.sendRecover(chosen, blocks);
    return true;
  }

  /** One equation was not enough: ask the other parities for the same blocks. */
  private askOthers(index: number, blocks: BlockList, parities: Follower[]): void {
    const rest = this.owner.native.filterAbsent(blocks);
    if (rest.length === 0) return;
    for (const follower of parities)
      if (follower.entry.index !== index) this.owner.sendRecover(follower, rest);
  }

  private repeat(overdue: Request[]): void {
    const parities = this.owner.stream.usableParities;
    for (const request of overdue) {
      request.blocks = this.owner.native.filterAbsent(request.blocks);
      request.sentAt = this.host.now;
      if (request.blocks.length === 0) continue;
      const mirror = this.owner.stream.usableMirror;
      for (const follower of mirror ? [mirror] : parities) this.owner.sendRecover(follower, request.blocks);
    }
    this.requests = this.requests.filter((request) => request.blocks.length > 0);
  }

  /** Blocks arrived: forget them in the books. */
  private settled(blocks: BlockList): void {
    for (let i = 0; i < blocks.length && this.demanded.size > 0; i += 2) {
      if (this.demanded.delete(blocks[i]! * BLOCK_NUMBER + blocks[i + 1]!)) this.blocksOnDemand++;
    }
    for (const request of this.requests) request.blocks = this.owner.native.filterAbsent(request.blocks);
    this.requests = this.requests.filter((request) => request.blocks.length > 0);
  }

  private sendInstall(
    message: MessageOf<'equation'>,
    other: { member: number; blocks: BlockList; bytes: Uint8Array },
  ): void {
    const { group } = this.owner;
    const target = group.data[other.member];
    const gen = message.lacking.find(([member]) => member === other.member)?.[1];
    if (!target || target.node === 0 || gen === undefined) return;
    this.host.out.send(target.node, { t: 'install', g: group.id, m: other.member, gen }, [
      bytes(other.blocks),
      other.bytes,
    ]);
  }
}

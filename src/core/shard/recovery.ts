/**
 * How a new owner gets its shard back while it serves (rules 22-26): keys first, then rows; on demand for
 * requests that wait, in the background for the rest. The engine keeps equations and accumulators by block.
 * This file keeps which blocks were asked for: bounded in number, asked for again when they are overdue, and
 * forgotten when the group changes.
 */
import type { BlockList, NativeShard } from '../../native.js';
import { type Group, SCHEDULER } from '../../protocol/map.js';
import type { MessageOf, RecoveryStats } from '../../protocol/messages.js';
import { blockNumber, concat, NO_BLOCKS, without } from '../shared/blocks.js';
import { bytes } from '../shared/bytes.js';
import { takingForeign } from '../shared/engine.js';
import type { CoreHost } from '../shared/host.js';
import { RateLimit, widest } from '../shared/rate.js';
import { PATIENCE, Retry } from '../shared/retry.js';
import type { Follower } from './follower.js';
import { UnderWay } from './underway.js';

/**
 * Blocks in one message on demand, the added background blocks included. For `RIDE_MS` after such a message
 * the background sends none of its own.
 */
const RIDERS = 32;
const RIDE_MS = 100;

/** Whose shard it is. */
export interface RecoveryOwner {
  readonly group: Group;
  readonly member: number;
  readonly gen: number;
  readonly phase: 'RESTORE' | 'FENCE' | 'START' | 'ACTIVE';
  readonly native: NativeShard;
  /** Sinks that had this shard when it was taken over. */
  readonly stream: { readonly usableParities: Follower[]; readonly usableMirror: Follower | undefined };
  sendRecover(follower: Follower, blocks: BlockList): void;
  /** The scheduler confirmed that the shard is beyond repair. */
  giveUp(): void;
}

export class Recovery {
  /** The scheduler has confirmed the loss for this version of the group: absent blocks stay absent. */
  unrecoverable = false;
  /** Reports to the scheduler. */
  private readonly reports: Retry;
  private readonly underWay = new UnderWay();
  /** Blocks that a request waits for. */
  private readonly demanded = new Set<number>();
  private demandedAt = Number.NEGATIVE_INFINITY;
  /** Questions to sinks; when each was asked is kept with its blocks. */
  private readonly asking: Retry;
  private rotation = 0;
  private blocksLost = 0;
  private blocksOnDemand = 0;
  private readonly rate: RateLimit;

  constructor(
    private readonly owner: RecoveryOwner,
    private readonly host: CoreHost,
  ) {
    const { retryMs, recoveryRate } = host.policy;
    this.reports = new Retry({ waitMs: retryMs });
    this.asking = new Retry({ waitMs: retryMs, patience: PATIENCE });
    this.rate = new RateLimit(recoveryRate, host.pace, 'rows');
    this.rotation = owner.member;
  }

  /** The shard is active, and the engine knows which blocks are absent. */
  begin(): void {
    this.blocksLost = this.absent;
    this.pump();
  }

  /** Rule 17: the group changed; sinks have dropped their accumulators. */
  restart(): void {
    this.owner.native.dropEquations();
    this.underWay.clear();
    this.demanded.clear();
    this.unrecoverable = false;
    this.reports.reset();
    if (this.owner.phase === 'ACTIVE') this.pump();
  }

  /**
   * Blocks that a push or a pull waits for. A message with few blocks costs mostly its fixed part, so other
   * absent blocks are added to it, whatever the pace of the background is.
   */
  demand(blocks: BlockList): void {
    for (let i = 0; i < blocks.length; i += 2) this.demanded.add(blockNumber(blocks[i]!, blocks[i + 1]!));
    const fresh = this.underWay.fresh(blocks);
    if (fresh.length === 0) return;
    this.demandedAt = this.host.now;
    const riders = this.riders(fresh);
    this.rate.take(riders.length / 2);
    this.host.pace.take(fresh.length / 2);
    this.ask(concat(fresh, riders));
  }

  private riders(fresh: BlockList): BlockList {
    const most = Math.min(RIDERS, this.rate.reach(this.host.policy).chunk) - fresh.length / 2;
    if (most <= 0 || this.native.absentKeyBlocks > 0 || !this.rate.within) return NO_BLOCKS;
    return without(this.underWay.fresh(this.native.nextAbsent(1, most)), fresh);
  }

  onEquation(message: MessageOf<'equation'>, blocks: BlockList, content: Uint8Array): void {
    const { native } = this.owner;
    const parities = this.owner.stream.usableParities;
    const lacking = message.lacking.map(([member]) => member);
    // After its question this owner got the block in another way and gave its content to the sink. So the
    // equation does not contain this owner's block.
    if (!lacking.includes(this.owner.member)) return;
    const mirror = this.owner.stream.usableMirror;
    if (mirror?.entry.sid === message.sid && !message.ok) {
      // The mirror was rolled back to a position before it included these blocks: decode from parities.
      const absent = takingForeign(() => native.filterAbsent(blocks));
      mirror.none = true;
      this.askOthers(-1, absent, parities);
      return;
    }
    if (mirror ? mirror.entry.sid !== message.sid : parities.length === 0) return;
    const needed = Math.max(1, parities.length);
    const solved = takingForeign(() =>
      native.addEquations(message.index, needed, lacking, message.ok, blocks, content),
    );
    for (const other of solved.others) this.sendInstall(message, other);
    this.asking.answered(this.host.now);
    this.arrived(blocks, solved.installed);
    if (solved.stuck.length > 0) this.report('fewer equations than lost members', solved.stuck.length / 2);
    else if (solved.installed < blocks.length / 2) this.askOthers(message.index, blocks, parities);
    this.pump();
  }

  onInstall(blocks: BlockList, content: Uint8Array): void {
    this.arrived(
      blocks,
      takingForeign(() => this.owner.native.install(blocks, content)),
    );
    this.pump();
  }

  tick(): void {
    const { now } = this.host;
    this.rate.tick(now);
    this.repeat(this.underWay.takeOverdue(this.asking.overdueBefore(now)));
    this.pump();
  }

  /**
   * Rule 26: reports a loss to the scheduler. Requests go on waiting until it confirms that this was found
   * with the newest map: an owner that was cut off may find too few equations although the shard lives on
   * another node by now.
   */
  report(reason: string, blocks: number): void {
    if (!this.reports.overdue(this.host.now)) return;
    if (!this.reports.begun) {
      const { group, member, gen } = this.owner;
      this.host.out.event('shard.unrecoverable', { group: group.id, member, gen, blocks, reason });
    }
    this.reports.asked(this.host.now);
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

  /** Blocks are absent, and answers come. A recovery that is stuck does not hold up others. */
  get decoding(): boolean {
    return this.absent > 0 && this.asking.answering(this.host.now);
  }

  stats(): Omit<RecoveryStats, 'g' | 'm' | 'gen'> {
    const { blocksLost, blocksOnDemand } = this;
    const blocksPresent = Math.max(0, blocksLost - this.absent);
    const { keysReady } = this.owner.native;
    return { blocksLost, blocksPresent, blocksOnDemand, ...(keysReady && { keysReady }) };
  }

  private get absent(): number {
    return this.owner.native.absentKeyBlocks + this.owner.native.absentRowBlocks;
  }

  /** Asks for the next blocks in the background, keys before rows. */
  private pump(): void {
    const { native, underWay } = this;
    if (this.absent === 0) {
      underWay.clear();
      this.demanded.clear();
      return;
    }
    // Nothing is served before the keys are back, so they have no limit.
    const keysFirst = native.absentKeyBlocks > 0;
    const kind = keysFirst ? 0 : 1;
    const absent = keysFirst ? native.absentKeyBlocks : native.absentRowBlocks;
    const reach = keysFirst ? widest(this.host.policy) : this.rate.reach(this.host.policy);
    const window = Math.min(absent, reach.window);
    // Messages on demand carry blocks of the background, too.
    if (!keysFirst && this.host.now - this.demandedAt < RIDE_MS) return;
    // The cursor also passes blocks that are under way, so it goes round at most once.
    for (let swept = 0; swept < absent && underWay.count(kind) < window; ) {
      if (!(keysFirst || this.rate.open)) return;
      const blocks = native.nextAbsent(kind, Math.min(reach.chunk, window - underWay.count(kind)));
      if (blocks.length === 0) return;
      swept += blocks.length / 2;
      const fresh = underWay.fresh(blocks);
      if (fresh.length === 0) continue;
      if (!this.ask(fresh)) return;
      if (!keysFirst) this.rate.take(fresh.length / 2);
    }
  }

  private get native(): NativeShard {
    return this.owner.native;
  }

  /** False when there is nobody to ask. */
  private ask(blocks: BlockList): boolean {
    const parities = this.owner.stream.usableParities;
    if (parities.length === 0 && !this.owner.stream.usableMirror) {
      this.report('no parity of this shard is left', blocks.length / 2);
      return false;
    }
    this.underWay.add(blocks, this.host.now);
    const chosen = this.owner.stream.usableMirror ?? parities[this.rotation++ % parities.length];
    if (chosen) this.owner.sendRecover(chosen, blocks);
    return true;
  }

  /**
   * One equation was not enough: ask the other parities for the same blocks. They are asked only once until
   * the blocks are overdue: the engine drops equations that cannot be solved, so every further answer would
   * look like a first one and cause another round of questions.
   */
  private askOthers(index: number, blocks: BlockList, parities: Follower[]): void {
    const others = parities.filter((follower) => follower.entry.index !== index);
    if (others.length === 0) return;
    const rest = this.underWay.spreads(this.owner.native.filterAbsent(blocks));
    if (rest.length === 0) return;
    for (const follower of others) this.owner.sendRecover(follower, rest);
  }

  /** Asks all who may have them for blocks that are overdue. */
  private repeat(overdue: BlockList[]): void {
    const { usableMirror: mirror, usableParities } = this.owner.stream;
    for (const list of overdue) {
      const blocks = this.native.filterAbsent(list);
      if (blocks.length === 0) continue;
      this.underWay.add(blocks, this.host.now);
      if (!mirror) this.underWay.spreads(blocks);
      for (const follower of mirror ? [mirror] : usableParities) this.owner.sendRecover(follower, blocks);
    }
  }

  /** `installed` of these blocks are present now: they are not under way any more. */
  private arrived(blocks: BlockList, installed: number): void {
    if (installed === 0) return;
    const absent = installed === blocks.length / 2 ? undefined : this.native.filterAbsent(blocks);
    const here = absent && absent.length > 0 ? without(blocks, absent) : blocks;
    this.underWay.remove(here);
    const before = this.blocksOnDemand;
    for (let i = 0; i < here.length && this.demanded.size > 0; i += 2)
      if (this.demanded.delete(blockNumber(here[i]!, here[i + 1]!))) this.blocksOnDemand++;
    const { recoveredBlocks } = this.host.meter;
    recoveredBlocks.demand += this.blocksOnDemand - before;
    recoveredBlocks.background += installed - (this.blocksOnDemand - before);
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

/**
 * The recovery of a shard by its new owner, which serves meanwhile. Rules 22-26: the owner asks parities for
 * lost blocks, which sinks answer with equations; it solves as many as members lack the block, or reports a
 * loss. Keys come first, then rows; blocks that requests wait for on demand, the rest in the background. The
 * engine keeps equations and accumulators by block. This file keeps which blocks were asked for: bounded in
 * number, asked for again when they are overdue, and forgotten when the group changes.
 */
import type { BlockList, NativeShard } from '../../engine/native.js';
import { type Group, SCHEDULER } from '../../protocol/map.js';
import type { MessageOf, RecoveryStats } from '../../protocol/messages.js';
import { blockNumber, concat, NO_BLOCKS, without } from '../shared/blocks.js';
import { bytes } from '../shared/bytes.js';
import { takingForeign } from '../shared/engine.js';
import type { CoreHost } from '../shared/host.js';
import { RateLimit, widest } from '../shared/rate.js';
import { PATIENCE, Retry } from '../shared/retry.js';
import type { Follower } from './follower.js';
import { BlocksUnderWay } from './underway.js';

/**
 * Blocks in one message on demand, with the background blocks that are added to it. For `RIDE_MS` after such
 * a message the background sends none of its own.
 */
const RIDERS = 32;
const RIDE_MS = 100;
/** The most blocks under way on demand, in windows of the background; the share that one request may take. */
const DEMAND_WINDOWS = 2;
const DEMAND_SHARE = 1 / 4;

/** The owner of the shard that is recovered. */
export interface RecoveryOwner {
  readonly group: Group;
  readonly member: number;
  readonly gen: number;
  readonly phase: 'RESTORE' | 'FENCE' | 'START' | 'ACTIVE';
  readonly native: NativeShard;
  /** Sinks that had this shard when it was taken over. */
  readonly stream: {
    readonly seq: number;
    readonly usableParities: Follower[];
    readonly usableMirror: Follower | undefined;
  };
  /** The scheduler confirmed that the shard is beyond repair. */
  giveUp(): void;
}

export class Recovery {
  /** The scheduler has confirmed the loss for this version of the group: absent blocks stay absent. */
  unrecoverable = false;
  /** Reports of a loss to the scheduler; not begun in a version of the group without one. */
  private readonly reports: Retry;
  /** Absent blocks that were asked for and have not come. */
  private readonly underWay = new BlocksUnderWay();
  /** Numbers of absent blocks that a request waits for, or waited for. Empty when nothing is absent. */
  private readonly demanded = new Set<number>();
  /** When blocks were last asked for on demand, in milliseconds. */
  private demandedAt = Number.NEGATIVE_INFINITY;
  /** Answers of sinks, and how long questions wait for them. `underWay` has the time of each question. */
  private readonly asking: Retry;
  /** Number of the next question: it goes to the parities in turn, from another one in each shard. */
  private rotation = 0;
  /** Blocks that were absent when the owner became active. */
  private blocksLost = 0;
  /** Recovered blocks that a request waited for. Only grows. */
  private blocksOnDemand = 0;
  /** Limit of background blocks of rows; keys have none. */
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

  /** Rule 17: sinks drop their accumulators when the group's entry changes, so all blocks are asked again. */
  restart(): void {
    this.owner.native.dropEquations();
    this.underWay.clear();
    this.demanded.clear();
    this.unrecoverable = false;
    this.reports.reset();
    if (this.owner.phase === 'ACTIVE') this.pump();
  }

  /**
   * Asks for blocks that a push or a pull waits for. A message with few blocks costs mostly its fixed part,
   * so other absent blocks are added to it, whatever the pace of the background is.
   *
   * Other nodes hold what this one asks for until it has taken it, so blocks under way are bounded here, too,
   * and no request takes more than a share of the bound at once. Whoever waits demands the rest when blocks
   * arrive.
   */
  demand(blocks: BlockList): void {
    const room = this.demandRoom;
    if (room <= 0) return;
    for (let i = 0; i < blocks.length; i += 2) this.demanded.add(blockNumber(blocks[i]!, blocks[i + 1]!));
    const fresh = this.underWay.fresh(blocks).subarray(0, 2 * room);
    if (fresh.length === 0) return;
    this.demandedAt = this.host.now;
    const riders = this.riders(fresh);
    this.rate.take(riders.length / 2);
    this.host.pace.take(fresh.length / 2);
    this.ask(concat(fresh, riders));
  }

  /** As `demand`, for the blocks that the engine found absent last. */
  demandMissing(): void {
    if (this.demandRoom > 0) this.demand(this.native.missing());
  }

  /** How many blocks a request may ask for now. */
  private get demandRoom(): number {
    const most = DEMAND_WINDOWS * this.host.policy.recoveryWindow;
    return Math.min(most - this.underWay.count(1), Math.ceil(most * DEMAND_SHARE));
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
   * Rule 26: reports to the scheduler that there are too few equations. Requests go on waiting until it
   * confirms that the owner's map was the newest: an owner that was cut off may find too few although the
   * shard lives on another node by now.
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

  /**
   * Blocks are absent, and answers come that help. A recovery that is stuck does not hold up others, nor does
   * one of a shard beyond repair, whose questions are answered for ever.
   */
  get decoding(): boolean {
    return this.absent > 0 && !this.unrecoverable && this.asking.answering(this.host.now);
  }

  stats(): Omit<RecoveryStats, 'g' | 'm' | 'gen'> {
    const { blocksLost, blocksOnDemand } = this;
    const blocksPresent = Math.max(0, blocksLost - this.absent);
    // Before the owner is active, the engine does not know which blocks are absent.
    const keysReady = this.owner.phase === 'ACTIVE' && this.owner.native.keysReady;
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
    // The shard serves nothing before the keys are back, so they have no limit.
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
    if (chosen) this.sendRecover(chosen, blocks);
    return true;
  }

  /**
   * Asks the other parities for blocks that one equation did not solve. Rule 22: they are asked only once
   * until the blocks are overdue. The engine drops equations that cannot be solved, so every further answer
   * would look like a first one and cause another round of questions.
   */
  private askOthers(index: number, blocks: BlockList, parities: Follower[]): void {
    const others = parities.filter((follower) => follower.entry.index !== index);
    if (others.length === 0) return;
    const absent = this.owner.native.filterAbsent(blocks);
    // An answer to a question from before `restart` may come before the blocks are asked for anew.
    const fresh = this.underWay.fresh(absent);
    if (fresh.length > 0) this.underWay.add(fresh, this.host.now);
    const rest = this.underWay.spreads(absent);
    if (rest.length === 0) return;
    for (const follower of others) this.sendRecover(follower, rest);
  }

  /** Asks all sinks that may have them for overdue blocks. */
  private repeat(overdue: BlockList[]): void {
    const { usableMirror: mirror, usableParities } = this.owner.stream;
    for (const list of overdue) {
      const blocks = this.native.filterAbsent(list);
      if (blocks.length === 0) continue;
      this.underWay.add(blocks, this.host.now);
      if (!mirror) this.underWay.spreads(blocks);
      for (const follower of mirror ? [mirror] : usableParities) this.sendRecover(follower, blocks);
    }
  }

  /** Notes that `installed` of these blocks are present now, so they are not under way any more. */
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

  private sendRecover(follower: Follower, blocks: BlockList): void {
    const { group, member, gen, stream, native } = this.owner;
    this.host.out.send(
      follower.entry.node,
      {
        t: 'recover',
        g: group.id,
        m: member,
        sid: follower.entry.sid,
        gen,
        seq: stream.seq,
        v: group.version,
        extents: native.extentsOf(blocks),
      },
      [bytes(blocks)],
    );
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

/**
 * A sink: follows the streams of its group's members and keeps a linear accumulator over their bytes. Kind P
 * sums all members with coefficients. Rules 12-17 say which messages of owners it takes: after an OpenAck it
 * takes nothing of an older generation, and deltas and content only at the position that they name. Rules 23
 * and 24: for a recovery it subtracts the other members from a copy of its bytes, and sends the rest.
 *
 * The bytes are in the engine, positions and logs in member-stream.ts. This file answers the messages of
 * owners and asks them for blocks.
 */
import { invariant, KintsugiError } from '../../common/errors.js';
import { type BlockList, type Extent, type NativeSink, PushStatus } from '../../engine/native.js';
import type { PeerId } from '../../protocol/map.js';
import {
  FOLLOWS,
  followedBy,
  type Group,
  INITIAL_GENERATION,
  isMoveTarget,
  type SinkEntry,
} from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import { bytes, words } from '../shared/bytes.js';
import { Dedup } from '../shared/dedup.js';
import { takingForeign } from '../shared/engine.js';
import type { CoreHost } from '../shared/host.js';
import { RateLimit } from '../shared/rate.js';
import { MemberStream } from './member-stream.js';
import { ParityComparison } from './parity-check.js';

/** Chunks in one repeated Want. */
const REPEATED_CHUNKS = 2;

export class Sink {
  readonly sid: number;
  /** Parity index. A sink that follows one member has the coefficients of parity 0, which are ones. */
  readonly index: number;
  /** True: the sink follows one member, not the whole group. */
  readonly followsOne: boolean;
  /** Deltas that were applied, of all members. Only grows. */
  deltas = 0;
  /**
   * The members whose streams the sink follows, ascending. Their place here is their number in the engine.
   */
  private readonly follows: readonly number[];
  /** Member -> its stream, exactly for the members of `follows`. */
  private readonly members = new Map<number, MemberStream>();
  /** Checks in the order of their questions. Only the first one has accumulators. */
  private readonly checks: ParityComparison[] = [];
  /** Limit of background blocks of this sink, unless it is the target of a planned move. */
  private readonly recoveryRate: RateLimit;
  /** True: the sink is the target of a planned move, so nothing is lost while it is incomplete. */
  moveTarget: boolean;
  /** `complete` as of the last tick, which tells of a change. */
  private wasComplete: boolean;

  constructor(
    private group: Group,
    entry: SinkEntry,
    readonly native: NativeSink,
    private readonly host: CoreHost,
  ) {
    this.sid = entry.sid;
    this.followsOne = FOLLOWS[entry.kind] === 'one';
    this.index = this.followsOne ? 0 : entry.index;
    this.follows = followedBy(group, entry);
    this.moveTarget = isMoveTarget(group, entry);
    this.recoveryRate = new RateLimit(host.policy.recoveryRate, host.pace, 'parity');
    for (const m of this.follows) {
      const generation = entry.init ? INITIAL_GENERATION : 0;
      this.members.set(m, new MemberStream(generation, host));
    }
    this.wasComplete = this.complete;
  }

  get groupId(): number {
    return this.group.id;
  }

  /** For the log: member, promise, generation, applied and trim position. */
  positions(): number[][] {
    return [...this.members].map(([m, { fence, sgen, applied, trim }]) => [m, fence, sgen, applied, trim]);
  }

  get version(): number {
    return this.group.version;
  }

  /** Number of the seat in the group: parities come after the data shards. */
  get seat(): number {
    return this.group.data.length + this.index;
  }

  /** Planned moves have a limit of their own for the whole node: nothing is lost while they last. */
  private get rate(): RateLimit {
    return this.moveTarget ? this.host.moveRate : this.recoveryRate;
  }

  /** Every block of every member is included. */
  get complete(): boolean {
    for (const member of this.members.values()) if (member.sgen === 0) return false;
    return this.native.complete;
  }

  /** Blocks of members that are not included yet; undefined while a stream has not begun. */
  get blocksLeft(): number | undefined {
    let left = 0;
    for (const [m, { sgen }] of this.members) {
      if (sgen === 0) return undefined;
      left += this.native.excludedBlocks(this.engineMember(m));
    }
    return left;
  }

  /** Rule 17: accumulators are soft state of one version of the group, and are dropped when it changes. */
  onGroup(group: Group): void {
    this.group = group;
    const entry = group.sinks.find((sink) => sink.sid === this.sid);
    this.moveTarget = entry !== undefined && isMoveTarget(group, entry);
    this.dropAccumulators();
  }

  /** A new fence, Start or version of the group voids accumulators: recoveries and checks start again. */
  private dropAccumulators(): void {
    this.native.dropAccumulators();
    this.checks[0]?.restart();
  }

  /** Rule 47: the tables are gone, with all that is wanted or collected of them. */
  dropTables(tables: readonly number[]): void {
    this.native.dropAccumulators();
    for (const id of tables) this.native.dropTable(id);
    for (const member of this.members.values()) member.giveUpWanted();
    this.checks[0]?.restartAll();
  }

  close(): void {
    for (const member of this.members.values()) member.close();
    this.native.close();
  }

  // ---- stream

  /** Rule 12: an Open raises the fence to its generation. The answer is a promise to take no older one. */
  onOpen(message: MessageOf<'open'>, from: PeerId): void {
    const member = this.followed(message.m);
    if (message.gen < member.fence) return;
    this.raiseFence(member, message.gen);
    this.host.out.send(from, {
      t: 'openAck',
      g: this.group.id,
      m: message.m,
      sid: this.sid,
      gen: message.gen,
      none: member.sgen === 0,
      sgen: member.sgen,
      applied: member.applied,
      attempt: message.attempt,
    });
  }

  /** Rule 13: a Start sets the position of an empty sink, and rolls any other sink back to the base. */
  onStart(message: MessageOf<'start'>, from: PeerId): void {
    const member = this.followed(message.m);
    if (message.gen < member.fence) return;
    const fresh = member.sgen !== message.gen;
    const engineMember = this.engineMember(message.m);
    if (fresh && member.sgen === 0) this.begin(engineMember, message.extents);
    else if (fresh) member.checkBase(message.base);
    this.raiseFence(member, message.gen);
    if (fresh) {
      this.dropAccumulators();
      if (member.sgen === 0) member.begin(message.base, Dedup.from(message.dedup));
      else member.rollBack(message.base, (delta) => this.apply(engineMember, delta));
      member.sgen = message.gen;
      member.giveUpWanted();
      this.dropAccumulators();
    }
    this.host.out.send(from, {
      t: 'startAck',
      g: this.group.id,
      m: message.m,
      sid: this.sid,
      gen: message.gen,
      applied: member.applied,
      dedup: member.dedupAtApplied().entries(),
      extents: this.native.extents(engineMember),
    });
    // After the answer, so that the owner sends its uncommitted deltas before content that includes them.
    if (fresh) this.pump(message.m);
  }

  private begin(engineMember: number, extents: Extent[]): void {
    takingForeign(() => this.native.start(engineMember, this.host.gone.extents(extents)));
  }

  /** Rule 47: the sender may have an older map, and a delta of the log may be older than a drop. */
  private apply(engineMember: number, delta: Uint8Array): BlockList | number {
    return this.native.apply(engineMember, this.host.gone.delta(delta));
  }

  /** De-duplication state of member m at its applied position. */
  dedupOf(m: number): Dedup {
    return this.member(m).dedupAtApplied();
  }

  /**
   * Rule 14: a delta is applied exactly at the next position, and only of the generation that is followed.
   */
  onDelta(message: MessageOf<'delta'>, delta: Uint8Array, from: PeerId): void {
    const { m, gen, seq } = message;
    const member = this.followed(m);
    if (gen !== member.sgen || gen < member.fence) return;
    if (seq > member.applied + 1) return;
    if (seq === member.applied + 1) {
      const again = this.apply(this.engineMember(m), delta);
      if (again === PushStatus.MEMORY_LIMIT)
        throw new KintsugiError('MEMORY_LIMIT', 'the system refuses memory for a parity');
      if (typeof again === 'number')
        throw new KintsugiError('BAD_FRAME', `a delta was refused with status ${again}`);
      member.append(seq, delta, message.ids);
      this.deltas++;
      if (again.length > 0) this.want(m, again);
    }
    member.trimTo(message.committed);
    this.host.out.send(from, {
      t: 'applied',
      g: this.group.id,
      m,
      sid: this.sid,
      gen,
      applied: member.applied,
      ...(this.host.deltaBytes.full ? { atLimit: true } : {}),
    });
    this.completed();
  }

  /** Trims the log up to the position. Owners send it when there are no further deltas. */
  onCommitted({ m, gen, committed }: MessageOf<'committed'>): void {
    const member = this.followed(m);
    if (gen === member.sgen && gen >= member.fence) member.trimTo(committed);
  }

  /** Rule 15: content is taken only at the position that it is stamped with: elsewhere it is not exact. */
  onContent(message: MessageOf<'content'>, blocks: Uint8Array, content: Uint8Array): void {
    const member = this.followed(message.m);
    if (message.gen !== member.sgen || message.gen < member.fence || message.seq !== member.applied) return;
    // Blocks that were wanted before a drop do not count as wanted any more.
    if (this.host.gone.touches(words(blocks))) return;
    const included = takingForeign(() =>
      this.native.content(this.engineMember(message.m), words(blocks), content),
    );
    if (this.moveTarget) {
      this.host.pace.hear(message.servedRatio);
      this.host.meter.movedBlocks += included;
    }
    member.answered();
    member.cameIn(blocks.byteLength / 8, content.byteLength, included);
    this.completed();
    this.pump(message.m);
  }

  /** Rule 16: a Lacking is taken only at the position and in the version of the group that it names. */
  onLacking(message: MessageOf<'lacking'>, blocks: Uint8Array): void {
    const member = this.followed(message.m);
    if (message.gen !== member.sgen || message.seq !== member.applied || message.v !== this.group.version)
      return;
    if (this.host.gone.touches(words(blocks))) return;
    takingForeign(() => this.native.lacking(this.engineMember(message.m), words(blocks)));
    member.answered();
    this.completed();
  }

  // ---- recovery

  /**
   * Rule 23: makes accumulators, which are our bytes minus the content of every other member. The owner's
   * claim to lack the blocks holds only in the version and at the position that it names.
   */
  onRecover(message: MessageOf<'recover'>, blocks: Uint8Array): void {
    const member = this.followed(message.m);
    if (message.v !== this.group.version || message.seq !== member.applied) return;
    if (message.gen !== member.sgen || message.gen !== member.fence) return;
    const engineMember = this.engineMember(message.m);
    const { gone } = this.host;
    takingForeign(() => this.native.learn(engineMember, gone.extents(message.extents)));
    const created = takingForeign(() => this.native.recover(engineMember, gone.blocks(words(blocks))));
    if (created.length > 0) this.wantFromOthers(message.m, created);
    this.completed();
  }

  /** Starts to check the parity equation on every block; answers `from` when done. */
  onCheck(message: MessageOf<'check'>, from: PeerId): void {
    // A client that repeats its question gets the answer of the check that is under way.
    const known = this.checks.find((check) => check.from === from);
    if (known) {
      known.ids.push(message.id);
      return;
    }
    const check = new ParityComparison(message.id, from, this.native, (blocks) =>
      this.wantFromOthers(-1, blocks),
    );
    // Checks run one at a time: a completed accumulator does not say which check it belongs to.
    this.checks.push(check);
    this.checks[0]?.pump();
    this.finishChecks();
  }

  /** Rule 24: an accumulator with nothing pending is an equation for the members that lack the block. */
  private completed(): void {
    for (const done of this.native.takeCompleted()) {
      if (done.checked) this.checks[0]?.completed(done);
      const lacking = done.lacking.map((engineMember): [number, number] => {
        const m = this.follows[engineMember]!;
        return [m, this.member(m).sgen];
      });
      for (const m of done.requesters.map((engineMember) => this.follows[engineMember]!)) {
        const owner = this.group.data[m];
        if (!owner || owner.node === 0) continue;
        this.host.out.send(
          owner.node,
          {
            t: 'equation',
            g: this.group.id,
            m,
            gen: owner.gen,
            sid: this.sid,
            v: this.group.version,
            index: this.index,
            lacking,
            ok: done.ok,
          },
          [bytes(done.blocks), done.bytes],
        );
      }
    }
    this.finishChecks();
  }

  private finishChecks(): void {
    for (let check = this.checks[0]; check?.done; check = this.checks[0]) {
      this.checks.shift();
      for (const id of check.ids) {
        const answer = { t: 'checked' as const, id, g: this.group.id, sid: this.sid, ...check.result() };
        this.host.out.send(check.from, answer);
      }
      this.checks[0]?.pump();
    }
  }

  // ---- timers

  /** True: wanted blocks were overdue, and `ask` wants them again. */
  tick(): boolean {
    const { now } = this.host;
    let isOverdue = false;
    this.recoveryRate.tick(now);
    for (const m of this.follows) {
      const member = this.member(m);
      if (member.sgen === 0) continue;
      if (member.wanted > 0 && member.wanting.overdue(now)) {
        member.giveUpWanted();
        isOverdue = true;
      } else this.pump(m);
      if (member.pending.overdue(now)) {
        member.pending.asked(now);
        const pending =
          this.native.accumulators > 0
            ? this.native.nextPending(this.engineMember(m), REPEATED_CHUNKS * this.host.policy.recoveryChunk)
            : words(undefined);
        if (pending.length > 0) this.want(m, pending);
      }
    }
    this.checks[0]?.pump();
    this.finishChecks();
    const complete = this.complete;
    if (complete !== this.wasComplete) {
      this.wasComplete = complete;
      this.host.out.event('sink.complete', {
        group: this.group.id,
        sid: this.sid,
        index: this.index,
        complete,
      });
    }
    return isOverdue;
  }

  /** Wants what is not included yet, as far as there is room. */
  ask(): void {
    for (const m of this.follows) this.pump(m);
  }

  /** Wants blocks of a member that are not included yet, a bounded number at a time. */
  private pump(m: number): void {
    const member = this.member(m);
    const giver = this.group.data[m]?.node;
    if (member.sgen === 0 || !giver) return;
    const { window, chunk } = this.rate.reach(this.host.policy);
    const excluded = this.native.excludedBlocks(this.engineMember(m));
    // Near the end the cursor returns blocks that are wanted already. The loop ends when as many are wanted
    // as are excluded.
    while (this.rate.open && member.wanted < Math.min(window, excluded)) {
      const room = this.host.contentBytes.mayAsk(giver, member.blockBytes);
      const most = Math.min(chunk, excluded - member.wanted, room);
      if (most === 0) return;
      const blocks = this.native.nextExcluded(this.engineMember(m), most);
      if (blocks.length === 0) return;
      member.want(giver, blocks.length / 2);
      this.rate.take(blocks.length / 2);
      this.want(m, blocks);
    }
  }

  private want(m: number, blocks: BlockList): void {
    const owner = this.group.data[m];
    if (!owner || owner.node === 0) return;
    const { id: g, version: v } = this.group;
    this.host.out.send(owner.node, { t: 'want', g, m, sid: this.sid, gen: owner.gen, v }, [bytes(blocks)]);
  }

  private wantFromOthers(m: number, blocks: BlockList): void {
    for (const other of this.follows) if (other !== m) this.want(other, blocks);
  }

  // ---- positions

  /** Number of member m in the engine's sink, which has only the members that are followed. */
  private engineMember(m: number): number {
    return this.followsOne ? 0 : m;
  }

  private member(m: number): MemberStream {
    const member = this.members.get(m);
    invariant(member, 'a member that this sink follows', { m, sid: this.sid });
    return member;
  }

  /** The member that a message names. @throws BAD_FRAME */
  private followed(m: number): MemberStream {
    const member = this.members.get(m);
    if (!member) throw new KintsugiError('BAD_FRAME', `sink ${this.sid} does not follow member ${m}`);
    return member;
  }

  private raiseFence(member: MemberStream, gen: number): void {
    if (member.raiseFence(gen)) this.dropAccumulators();
  }
}

/**
 * Changes of the set of serving nodes: more, fewer, others, better balanced. A change is durable and works by
 * planned moves alone (rule 28), so the job stays safe whatever happens to either end of a move. This file
 * decides when moves begin, when emptied nodes leave, and when a change is done or taken back.
 */
import type { ErrorCode } from '../../../common/errors.js';
import {
  type ClusterMap,
  type Group,
  isMoveTarget,
  type NodeEntry,
  nodeNamed,
  type PeerId,
} from '../../../protocol/map.js';
import type { ChangeStatus, MessageOf, ScalingStatus } from '../../../protocol/messages.js';
import { Agenda } from '../../placement/agenda.js';
import { isSwapOf, type PlannedMove, planMoves, type Seat, type Weight } from '../../placement/balance.js';
import type { SchedulerPolicy } from '../../shared/policy.js';
import type { ClusterFacts } from '../facts.js';
import type { Ledger } from '../ledger.js';
import type { Liveness } from '../liveness.js';
import type { Names } from '../names.js';
import type { Placing } from '../placing.js';
import type { Reports } from '../reports.js';
import type { Standing } from '../standing.js';
import type { Change } from '../state.js';
import type { Changes } from './changes.js';
import { Deadlines } from './deadlines.js';
import { NodeEnding } from './ending.js';
import { Moving } from './moving.js';
import { Roster } from './roster.js';

/** Changes that wait for time to pass, and not for an event, are looked at in this interval. */
const LOOK_MS = 250;

type ChangeVerdict = Pick<MessageOf<'changeReply'>, 'change' | 'moves' | 'code' | 'message'>;

const refused = (code: ErrorCode, message: string): ChangeVerdict => ({
  change: 0,
  moves: [],
  code,
  message,
});
const isTimed = ({ timeoutMs }: Change): boolean => timeoutMs > 0;
const accepted = (change: number): ChangeVerdict => ({ change, moves: [] });

export class Scaler {
  private now = 0;
  /** Milliseconds of the last `look`, and of the last `advance`. */
  private lookedAt = Number.NEGATIVE_INFINITY;
  private advancedAt = Number.NEGATIVE_INFINITY;
  private readonly deadlines = new Deadlines();
  private readonly agenda = new Agenda();
  private readonly ending = new NodeEnding();
  /** Moves that are still to begin, as of the last `advance`. */
  private open: readonly PlannedMove[] = [];

  private readonly roster: Roster;
  private readonly moving: Moving;

  constructor(
    private readonly ledger: Ledger,
    private readonly policy: SchedulerPolicy,
    private readonly names: Names,
    liveness: Liveness,
    private readonly reports: Reports,
    private readonly changes: Changes,
    private readonly facts: ClusterFacts,
    placing: Placing,
    private readonly standing: Standing,
  ) {
    this.roster = new Roster(ledger, liveness, facts);
    this.moving = new Moving(ledger, policy, reports, facts, placing, changes);
  }

  /** Running changes and the last ones that ended. */
  get list(): readonly Change[] {
    return this.changes.all;
  }

  // ---- what is asked for

  onMessage(from: PeerId, message: MessageOf<'scale'> | MessageOf<'drain'> | MessageOf<'rebalance'>): void {
    const verdict =
      message.t === 'scale'
        ? this.scale(message)
        : message.t === 'drain'
          ? this.drain(message, from)
          : this.rebalance(message);
    const answer = { t: 'changeReply' as const, id: message.id, ...verdict };
    this.ledger.answer(from, answer);
  }

  private scale({ ps, timeoutMs }: MessageOf<'scale'>): ChangeVerdict {
    const least = this.roster.widest;
    if (this.map.groups.length === 0)
      return refused('NOT_ENOUGH_NODES', 'the job has not started: its PS have not all joined');
    if (ps < least) {
      const text = `${ps} PS are too few: the code of this job needs ${least} different ones for each group`;
      return refused('NOT_ENOUGH_NODES', text);
    }
    const same = this.running.find((change) => change.kind === 'scale' && change.to === ps);
    if (same) return accepted(same.id);
    for (const change of this.running)
      if (change.kind === 'scale' && !change.released) this.cancel(change, 'another number was asked for');
    return accepted(this.changes.begin({ kind: 'scale', to: ps, timeoutMs, leaving: [] }));
  }

  private drain(message: MessageOf<'drain'>, from: PeerId): ChangeVerdict {
    const { node: asked, timeoutMs, change: before, restart } = message;
    const known = this.changes.all.find(
      ({ id, kind, leaving }) => id === before && kind === 'drain' && leaving[0]?.node === from,
    );
    if (known) return known.state === 'cancelled' ? refused('TIMEOUT', known.reason) : accepted(known.id);
    const { nodes } = this.map;
    const node = asked === '' ? nodes.find(({ id }) => id === from) : nodeNamed(nodes, asked);
    if (!node) return refused('BAD_ARGUMENT', `no PS "${asked}" is part of this job`);
    const { id, inc, name } = node;
    const same = this.running.find((change) => change.kind === 'drain' && change.leaving[0]?.node === id);
    if (same) return accepted(same.id);
    const others = this.roster.without(id);
    if (this.facts.holders.has(id) && others < this.roster.widest) {
      const why = `${others} PS would be left, and the code of this job needs ${this.roster.widest}`;
      // A process that asks to be drained itself ends on NOT_ENOUGH_NODES, and its shards are recovered.
      // While its end would lose data the answer is UNRECOVERABLE instead, and the process stays.
      if (asked === '' && this.isNeeded(id))
        return refused('UNRECOVERABLE', `${why}; without ${name}, too, data would be lost now`);
      if (asked === '') this.ending.add(id, this.now + this.policy.silentMs, this.now);
      return refused('NOT_ENOUGH_NODES', `${name} cannot leave: ${why}`);
    }
    const fewer = this.roster.isServing(node) && !restart;
    const to = Math.max(0, fewer ? this.wanted - 1 : this.wanted);
    const leaving = [{ node: id, inc, name }];
    const again = restart ? { restart } : {};
    return accepted(this.changes.begin({ kind: 'drain', to, timeoutMs, leaving, ...again }));
  }

  private isNeeded(id: PeerId): boolean {
    const isLost = (group: Group) => this.reports.isLost(group);
    return this.ending.isNeeded(id, this.map, this.facts.view(), isLost, this.now);
  }

  private rebalance({ dryRun, timeoutMs }: MessageOf<'rebalance'>): ChangeVerdict {
    if (dryRun)
      return {
        change: 0,
        moves: this.newMoves((seat) => this.weigh(seat)).map((move) => this.moving.described(move)),
      };
    const same = this.running.find((change) => change.kind === 'rebalance');
    if (same) return accepted(same.id);
    return accepted(this.changes.begin({ kind: 'rebalance', to: this.wanted, timeoutMs, leaving: [] }));
  }

  /** A new process joined a running job. It gets shards, unless a running change balances anyway. */
  joined(node: NodeEntry): void {
    if (!this.policy.balanceJoining || node.standby) return;
    const serving = this.roster.serving.length;
    const seen = this.running.some(({ kind, to }) => kind !== 'drain' && (kind !== 'scale' || to >= serving));
    const to = Math.max(this.wanted, serving);
    if (!seen) this.changes.begin({ kind: 'join', to, timeoutMs: 0, leaving: [] });
  }

  /** Moves one shard to a given node (rule 28), or swaps it with the seat that the node has (rule 48). */
  move(g: number, member: number | undefined, index: number | undefined, to: PeerId): void {
    const node = this.map.nodes.find((other) => other.id === to);
    if (node && this.map.groups[g]) this.moving.add(g, { member, index, node });
  }

  // ---- what is known

  private get map(): ClusterMap {
    return this.ledger.map;
  }

  private get wanted(): number {
    return this.changes.wanted;
  }

  private get running(): readonly Change[] {
    return this.changes.running;
  }

  private newMoves(weight: (seat: Seat) => Weight, emptyOnly = false): PlannedMove[] {
    const { serving, emptied, present } = this.roster;
    // Where too few serve, standbys take the place of those that leave.
    const nodes = serving.length < this.roster.widest ? present : serving;
    return planMoves({
      groups: this.moving.movable,
      nodes,
      leaving: emptied,
      weight,
      emptyOnly,
      full: this.full,
    });
  }

  /**
   * Nodes that get nothing that is only evened out. A change that has a deadline tries until then; any other
   * would never end.
   */
  private get full(): ReadonlySet<PeerId> {
    return this.running.some(isTimed) ? new Set() : this.moving.full;
  }

  private weigh({ g, kind, index }: Seat): Weight {
    return this.reports.loads.weight(g, kind === 'M' ? index : this.map.groups[g]!.data.length + index);
  }

  // ---- changes

  /**
   * Takes a change back. No further move begins, moves under way are dropped, and shards that have moved stay
   * where they are.
   */
  private cancel(change: Change, reason: string): void {
    this.changes.cancel(change.id, reason);
    this.facts.changed();
    if (this.running.length === 0) this.moving.drop(isMoveTarget);
  }

  // ---- progress

  /** `slept`: milliseconds in which this process did not run. */
  tick(now: number, slept: number): void {
    this.now = now;
    this.deadlines.tick(now, this.running, slept);
    if (this.running.length === 0) return this.moving.forget();
    // `look` has an interval of its own, because events cause steps much more often than paces have to be
    // sent.
    if (now - this.lookedAt >= LOOK_MS) this.look();
    // Moves that arrived since the last step are progress, so they are counted before a change is called
    // late.
    this.arrived();
    for (const change of this.running) if (this.deadlines.isOver(change, now)) this.late(change);
    if (now - this.advancedAt >= LOOK_MS) this.advance();
  }

  /** Counts moves that are over; of a drain that ends now (`ending`) also those that are nearly. */
  private arrived(ending?: number): void {
    for (const way of this.moving.count(ending)) this.deadlines.arrived(way, this.now);
  }

  /** Measures the progress of changes that have a deadline, and tells nodes how fast their moves must go. */
  private look(): void {
    const { deadlines, now, running } = this;
    this.lookedAt = now;
    if (!running.some(isTimed)) return;
    for (const change of running) deadlines.left(`join/${change.id}`, this.missing(change), now);
    for (const { g, m, gen, blocksLost, blocksPresent } of this.reports.recoveries())
      deadlines.left(`recovery/${g}/${m}/${gen}`, blocksLost - blocksPresent, now);
    const timed = new Set(running.filter(isTimed).map(({ id }) => id));
    const waiting = this.open.filter((move) => timed.has(this.causeOf(move) ?? 0));
    const bytes = waiting.reduce((sum, move) => sum + this.moving.work(move), 0);
    for (const [node, bytesPerSecond] of deadlines.paces(now, running, this.moving.targets, bytes))
      this.ledger.now({ kind: 'send', to: node, message: { t: 'movePace', bytesPerSecond }, parts: [] });
  }

  /** A node says how far moves to it are. It speaks only of its own sinks. */
  onProgress(from: PeerId, { items }: MessageOf<'moveProgress'>): void {
    if (!this.running.some(isTimed)) return;
    const left = new Map(items);
    for (const target of this.moving.targets) {
      const blocks = target.node === from ? left.get(target.sid) : undefined;
      if (blocks !== undefined) this.deadlines.reported(target, blocks, this.now);
    }
  }

  private late(change: Change): void {
    const { from, to } = change;
    if (change.released) {
      // The nodes are gone; what was left to do is only balance.
      this.changes.finish(change.id, this.afterwards(change));
      return;
    }
    const missing = this.missing(change);
    const waited = this.waitingFor(change) || `${this.open.length + this.moving.underWay} moves were left`;
    const what = missing > 0 ? `${missing} of ${to} PS have not joined` : waited;
    const reason = `no progress in ${change.timeoutMs / 1000} s: ${what}`;
    this.cancel(change, `${reason}; ${from} PS are wanted as before`);
  }

  /** PS that are wanted when the change is done. A balance asks for no number: another change may have. */
  private afterwards({ kind, to }: Change): number {
    if (kind === 'drain') return Math.min(this.wanted, Math.max(to, this.roster.serving.length));
    if (kind === 'join') return Math.max(this.wanted, this.roster.serving.length);
    return kind === 'rebalance' ? this.wanted : to;
  }

  /** Takes every step of the running changes that is possible now. */
  advance(): void {
    this.advancedAt = this.now;
    this.arrived();
    if (this.running.length === 0) return;
    this.mark();
    const { leaving } = this.facts;
    if (leaving.size > 0) this.moving.drop((_, sink) => leaving.has(sink.node));
    const moves = this.map.groups.length > 0 && this.standing.settled ? this.nextMoves() : undefined;
    for (const move of moves ?? []) {
      if (this.moving.isFull) break;
      const together = move.swap ? moves!.filter((other) => other === move || isSwapOf(move, other)) : [move];
      if (this.moving.begin(together, this.causeOf(move)))
        this.open = this.open.filter((other) => !together.includes(other));
    }
    this.release();
    if (moves?.length === 0 && this.moving.underWay === 0) this.complete();
  }

  /** Nodes beyond the number that was asked for leave, the newest first. */
  private mark(): void {
    const change = this.running.find((other) => other.kind === 'scale' && !other.released);
    if (!change) return;
    const surplus = this.roster.serving.length - change.to;
    if (surplus <= 0) return;
    const newest = this.roster.serving.sort((a, b) => b.id - a.id).slice(0, surplus);
    const marked = newest.map(({ id, inc, name }) => ({ node: id, inc, name }));
    this.changes.update(change.id, { leaving: [...change.leaving, ...marked] });
  }

  /**
   * Moves that are left to begin. Before all nodes of a scale-out are there, moves only empty the nodes that
   * leave.
   */
  private nextMoves(): PlannedMove[] {
    const { running } = this;
    const { leaving } = this.facts;
    const { emptied, serving } = this.roster;
    const balancing = running.some(({ kind }) => kind !== 'drain') && !this.growing;
    // No move may begin yet. A plan that is made now would have to be made again for each node that joins.
    if (!balancing && leaving.size === 0) {
      this.open = [];
      return [];
    }
    const known = [...serving, ...emptied].map(({ id, inc }) => [id, inc]);
    const full = [...this.full];
    const key = JSON.stringify([running.map(({ id }) => id), [...leaving], known, balancing, full]);
    const make = (weight: (seat: Seat) => Weight) => this.newMoves(weight, !balancing);
    const moves = this.agenda.open(key, this.moving.movable, (seat) => this.weigh(seat), make);
    this.open = moves;
    return moves;
  }

  private get growing(): boolean {
    return this.running.some((change) => this.missing(change) > 0);
  }

  /** Nodes that a scale-out waits for. A scale-in whose nodes are gone waits for nobody. */
  private missing({ kind, to, released }: Change): number {
    return kind === 'scale' && !released ? Math.max(0, to - this.roster.serving.length) : 0;
  }

  /** The change that empties the node that it leaves, else the newest one that balances. */
  private causeOf({ from }: PlannedMove): number | undefined {
    const emptying = this.running.find((change) => change.leaving.some(({ node }) => node === from));
    return (emptying ?? this.running.findLast((change) => change.kind !== 'drain'))?.id;
  }

  /**
   * Emptied nodes are told to leave; those of a scale-in all at once, so that until then it can be taken
   * back.
   */
  private release(): void {
    const { holders } = this.facts;
    const holds = (node: PeerId, inc: number) =>
      holders.has(node) && this.map.nodes.some((entry) => entry.id === node && entry.inc === inc);
    for (const change of this.running) {
      if (change.released || change.leaving.length === 0) continue;
      if (change.kind === 'scale' && this.roster.serving.length < change.to) continue;
      if (change.leaving.some(({ node, inc }) => holds(node, inc))) continue;
      for (const each of change.leaving) this.dismiss(each, change.restart);
      this.changes.update(change.id, { released: true });
      if (change.kind !== 'drain') continue;
      this.arrived(change.id);
      this.changes.finish(change.id, this.afterwards(change));
    }
  }

  private dismiss({ node, inc, name }: Change['leaving'][number], restart: boolean | undefined): void {
    if (!this.names.leave(name, inc, restart)) return;
    this.ledger.setMap({ nodes: this.map.nodes.filter((entry) => entry.id !== node) }, 'left', {
      node,
      name,
    });
    this.facts.forget(node);
    this.tellToLeave(node, inc);
    this.tell('node.left', { node, name, inc });
  }

  /** False: the process has not left. */
  private tellToLeave(node: PeerId, inc: number): boolean {
    const goodbye = this.names.goodbye(node, inc);
    if (goodbye) this.ledger.answer(node, goodbye);
    return goodbye !== undefined;
  }

  /** A process that is not part of the job is heard: it has not received its `leave`, or was forgotten. */
  stranger(node: PeerId, inc: number): void {
    if (!this.tellToLeave(node, inc)) this.ledger.answer(node, { t: 'stale', code: 'STALE_NODE' });
  }

  /** Called when the job is balanced, nothing moves and everything is redundant: ends changes. */
  private complete(): void {
    for (const change of this.running) {
      if (change.kind === 'drain') continue;
      const emptied = change.leaving.length === 0 || change.released;
      if (emptied && !this.growing) this.changes.finish(change.id, this.afterwards(change));
    }
  }

  private tell(name: string, fields: Record<string, unknown>): void {
    this.ledger.afterwards({ kind: 'event', name, fields });
  }

  // ---- for people

  status(): ScalingStatus {
    const changes = this.changes.all.map((change): ChangeStatus => {
      const { released, timeoutMs, ...shown } = change;
      const running = change.state === 'running';
      return {
        ...shown,
        reason: running ? this.waitingFor(change) : change.reason,
        leaving: change.leaving.map((entry) => entry.name),
        shardsMoving: running ? this.moving.underWay : 0,
        shardsLeft: running ? this.open.length : 0,
      };
    });
    return { wanted: this.wanted, serving: this.roster.serving.length, changes };
  }

  private waitingFor(change: Change): string {
    if (!this.standing.settled) return 'waiting for redundancy';
    const missing = this.missing(change);
    if (missing > 0) return `waiting for ${missing} PS to join`;
    if (this.open.length > 0 || this.moving.underWay > 0) return '';
    const stay = this.roster.heldBy(change.leaving, this.moving.movable);
    const lost = this.roster.heldBy(change.leaving, this.map.groups) - stay;
    if (lost > 0) return `${lost} shards are beyond repair and cannot move`;
    return stay > 0 ? `waiting for PS that can take ${stay} shards` : '';
  }
}

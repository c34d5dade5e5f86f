/**
 * Planned moves under way (rule 28): how one begins, is taken back, and is counted when it is over. A move
 * begins with a sink on the new node; repair hands over when that sink is complete.
 */
import {
  type ClusterMap,
  type Group,
  hasMove,
  type PeerId,
  type Pool,
  type SinkEntry,
  seatOf,
} from '../../../protocol/map.js';
import type { MoveStatus } from '../../../protocol/messages.js';
import { type PlannedMove, type Seat, seatsOf } from '../../placement/balance.js';
import type { ClusterView } from '../../placement/health.js';
import {
  type MoveRequest,
  movesAtOnce,
  type NewSink,
  sinkForMove,
  sinksForSwap,
  swapTo,
} from '../../placement/moves.js';
import type { SchedulerPolicy } from '../../shared/policy.js';
import type { ClusterFacts } from '../facts.js';
import type { Ledger } from '../ledger.js';
import type { Placing } from '../placing.js';
import type { Reports } from '../reports.js';
import type { Changes } from './changes.js';
import type { ChangeUnderWay } from './deadlines.js';

/** A node counts as full when so many tries in a row have failed; what fails together is one try. */
const FAILED_TRIES = 3;

interface MoveUnderWay extends PlannedMove {
  /** The change that it is for; undefined: none. */
  change: number | undefined;
  /** The move as its event told it when it began. */
  told: MoveStatus;
  /** Ordinal of the moves that began. */
  begun: number;
}

/** Moves to a node that stalled there since one arrived, or since no change ran. */
interface FailedTries {
  count: number;
  /** Moves that had begun when the last one failed: a further try begins later. */
  until: number;
}

export class Moving {
  /** By the sid of the target. Soft state: after a restart the moves go on, and are counted for no change. */
  private readonly moves = new Map<number, MoveUnderWay>();
  private readonly failed = new Map<PeerId, FailedTries>();
  /** Moves that have begun. */
  private begun = 0;

  constructor(
    private readonly ledger: Ledger,
    private readonly policy: SchedulerPolicy,
    private readonly reports: Reports,
    private readonly facts: ClusterFacts,
    private readonly placing: Placing,
    private readonly changes: Changes,
  ) {}

  private get map(): ClusterMap {
    return this.ledger.map;
  }

  /** Groups of which something can move: all but those that are beyond repair. */
  get movable(): Group[] {
    return this.map.groups.filter((group) => !this.reports.isLost(group));
  }

  /** Number of groups in which something moves, but for those that are beyond repair. */
  get underWay(): number {
    let count = 0;
    for (const g of this.facts.index.moving) if (!this.reports.isLost(this.map.groups[g]!)) count++;
    return count;
  }

  get isFull(): boolean {
    return this.underWay >= movesAtOnce(this.map.groups.length, this.policy);
  }

  /** Targets of moves, and mirrors that a new owner takes over from. */
  get targets(): ChangeUnderWay[] {
    return this.movable.flatMap((group) =>
      group.sinks
        .filter((sink) => sink.movesMember !== undefined || !sink.protects)
        .map((sink): ChangeUnderWay => {
          const { sid, node, kind, index } = sink;
          const all = this.work({ g: group.id, kind, index });
          const after = kind === 'M' ? all / 2 : 0;
          const work = sink.movesMember === undefined ? after : all;
          return { sid, node, what: wayOf(group, sink, node), work, after };
        }),
    );
  }

  /**
   * Bytes that are copied for a move: all members' for a parity; for a data shard its own, and once more when
   * the new owner takes them from the mirror beside it.
   */
  work({ g, kind, index }: Seat): number {
    const group = this.map.groups[g]!;
    const { bytes } = this.reports.loads.weight(g, seatOf(group, { kind, index }));
    return bytes * (kind === 'M' ? 2 : group.data.length);
  }

  /** Begins a move, or the two of a swap, for a change. False: they do not fit now. */
  begin(moves: readonly PlannedMove[], change: number | undefined): boolean {
    const view = this.facts.view();
    const group = this.map.groups[moves[0]!.g]!;
    if (hasMove(group) || moves.some(({ to }) => view.avoid?.has(to) || view.leaving?.has(to))) return false;
    const sinks = moves[0]!.swap ? this.swapOf(group, moves, view) : this.single(group, moves[0]!, view);
    if (!sinks) return false;
    const sids = this.addSinks(group, sinks);
    for (const [i, move] of moves.entries()) {
      const told = this.described(move);
      this.moves.set(sids[i]!, { ...move, change, told, begun: ++this.begun });
      this.tell('move.begun', told);
    }
    return true;
  }

  private single(group: Group, { kind, index, to }: PlannedMove, view: ClusterView): NewSink[] | undefined {
    const node = this.map.nodes.find((entry) => entry.id === to);
    const member = kind === 'M' ? index : undefined;
    const sink = node && sinkForMove(group, this.poolOf(group), view, { member, index, node });
    return sink && [sink];
  }

  private swapOf(group: Group, moves: readonly PlannedMove[], view: ClusterView): NewSink[] | undefined {
    const seats = seatsOf(group);
    const here = ({ kind, index, from }: PlannedMove) =>
      seats.some((seat) => seat.kind === kind && seat.index === index && seat.node === from);
    if (moves.length !== 2 || !moves.every(here)) return undefined;
    const indexOf = (wanted: Seat['kind']) => moves.find(({ kind }) => kind === wanted)!.index;
    const seat = { member: indexOf('M'), index: indexOf('P') };
    const sinks = sinksForSwap(group, this.poolOf(group), view, seat);
    return sinks && moves.map(({ kind }) => sinks.find((sink) => sink.kind === kind)!);
  }

  private poolOf({ pool }: Group): Pool {
    return this.map.pools[pool]!;
  }

  /** Adds the sinks that a move or a swap needs; none where it does not fit now. */
  add(g: number, request: MoveRequest): void {
    const group = this.map.groups[g]!;
    const view = this.facts.view();
    const sink = sinkForMove(group, this.poolOf(group), view, request);
    const swap = swapTo(group, request);
    const sinks = sink ? [sink] : swap && sinksForSwap(group, this.poolOf(group), view, swap);
    if (sinks) this.addSinks(group, sinks);
  }

  private addSinks(group: Group, added: readonly NewSink[]): number[] {
    const entries = added.map((sink) => ({ sid: this.ledger.nextSid(), ...sink }));
    const { kind, index, node } = added[0]!;
    const sinks = [...group.sinks, ...entries];
    const why = added.length > 1 ? 'swap' : 'move';
    this.placing.setGroup({ ...group, sinks }, why, { group: group.id, kind, index, node });
    return entries.map(({ sid }) => sid);
  }

  /** Takes back moves that are not over: the sink goes, and the shard stays where it is. */
  drop(which: (group: Group, sink: SinkEntry) => boolean): void {
    const epoch = this.map.epoch + 1;
    let dropped = false;
    const groups = this.map.groups.map((group) => {
      const sinks = group.sinks.filter((sink) => sink.movesMember === undefined || !which(group, sink));
      if (sinks.length === group.sinks.length) return group;
      dropped = true;
      return { ...group, version: epoch, sinks };
    });
    if (!dropped) return;
    this.placing.setGroups(groups, 'moves cancelled');
    this.facts.changed();
  }

  /**
   * Counts moves that ended since the last call. For the drain `ending`, which ends now, it also counts moves
   * whose new owner has not yet taken over all bytes. Returns `wayOf` of the moves that arrived.
   */
  count(ending?: number): string[] {
    const ways: string[] = [];
    for (const [sid, move] of this.moves) {
      const group = this.map.groups[move.g]!;
      const sink = group.sinks.find((entry) => entry.sid === sid);
      const isData = move.kind === 'M';
      const arrived = isData ? group.data[move.index]?.node === move.to : sink !== undefined;
      const open = isData ? !(arrived && move.change === ending) : sink?.movesMember !== undefined;
      if (sink && open) continue;
      this.moves.delete(sid);
      if (!arrived) {
        // A loss in the group also ends moves, and says nothing about the node.
        if (this.facts.view().avoid?.has(move.to)) this.fail(move);
        continue;
      }
      this.failed.delete(move.to);
      ways.push(wayOf(group, move, move.to));
      this.tell('move.done', move.told);
      const change = this.changes.all.find((other) => other.id === move.change);
      if (!change) continue;
      const { id, shardsMoved, bytesMoved } = change;
      this.changes.update(id, { shardsMoved: shardsMoved + 1, bytesMoved: bytesMoved + move.bytes });
    }
    return ways;
  }

  /** Nodes where so many tries have failed, as where the system refuses memory again and again. */
  get full(): ReadonlySet<PeerId> {
    const full = new Set<PeerId>();
    for (const [node, { count }] of this.failed) if (count >= FAILED_TRIES) full.add(node);
    return full;
  }

  private fail({ to, begun }: MoveUnderWay): void {
    const before = this.failed.get(to) ?? { count: 0, until: 0 };
    if (begun <= before.until) return;
    const count = before.count + 1;
    this.failed.set(to, { count, until: this.begun });
    const fields = { node: to, name: this.nameOf(to), tries: count };
    if (count === FAILED_TRIES) this.ledger.afterwards({ kind: 'event', name: 'move.refused', fields });
  }

  /** No change runs: the next one tries all nodes again. */
  forget(): void {
    this.failed.clear();
  }

  private tell(name: string, told: MoveStatus): void {
    this.ledger.afterwards({ kind: 'event', name, fields: { ...told } });
  }

  private nameOf(id: PeerId): string {
    return this.map.nodes.find((node) => node.id === id)?.name ?? `node ${id}`;
  }

  /** The move for people, with the names of nodes. */
  described({ g, kind, index, from, to, bytes }: PlannedMove): MoveStatus {
    const what = kind === 'M' ? 'data' : 'parity';
    return { group: g, kind: what, index, from: this.nameOf(from), to: this.nameOf(to), bytes };
  }
}

/** Text that says which seat goes to which node. */
function wayOf(group: Group, seat: Pick<SinkEntry, 'kind' | 'index'>, node: PeerId): string {
  return `${group.id}/${seatOf(group, seat)}>${node}`;
}

/**
 * The moves of a plan while they are carried out. A plan is made once per request: loads change all the time,
 * and a plan that followed them would move shards back and forth. A new plan is made when a shard is neither
 * where the plan found it nor where the plan puts it, or when only one half of a swap is left.
 */
import type { Group, PeerId } from '../../protocol/map.js';
import { isSwapOf, type PlannedMove, type Seat, seatsOf, type Weight } from './balance.js';

export class Agenda {
  /** Everything that the plan depends on, except loads and the map. Another key drops plan and weights. */
  private key = '';
  /** The plan: key of a seat -> its only move. Undefined: no plan was made under this key. */
  private moves: Map<number, PlannedMove> | undefined;
  /** Key of a seat -> its node when the plan is done; some seats were already moving when it was made. */
  private ends = new Map<number, PeerId>();
  /** Key of a seat -> its weight when it was first read under this key. */
  private readonly weights = new Map<number, Weight>();
  /** Number of a group -> the group as it was when last looked at. */
  private seen: (Group | undefined)[] = [];
  /**
   * Number of a group -> its moves that were left at that look; undefined: the plan does not fit any more.
   */
  private leftOf: (PlannedMove[] | undefined)[] = [];

  /**
   * Moves that are still to begin. A plan moves a seat at most once. When it is done, a further plan is made
   * from the same weights, until one has no moves. `key`: as the field.
   */
  open(
    key: string,
    groups: readonly Group[],
    weigh: (seat: Seat) => Weight,
    make: (weight: (seat: Seat) => Weight) => readonly PlannedMove[],
  ): PlannedMove[] {
    if (key !== this.key) {
      this.key = key;
      this.moves = undefined;
      this.weights.clear();
    }
    const open = this.moves && this.left(groups, this.moves);
    if (open && (open.length > 0 || this.moves?.size === 0)) return open;
    const moves = make((seat) => this.weightOf(seat, weigh));
    this.moves = new Map(moves.map((move) => [seatKey(move), move]));
    this.ends = new Map();
    this.seen = [];
    this.leftOf = [];
    for (const seat of groups.flatMap(seatsOf)) {
      const name = seatKey(seat);
      this.ends.set(name, this.moves.get(name)?.to ?? seat.node);
    }
    return [...moves];
  }

  private weightOf(seat: Seat, weigh: (seat: Seat) => Weight): Weight {
    const name = seatKey(seat);
    const known = this.weights.get(name) ?? weigh(seat);
    this.weights.set(name, known);
    return known;
  }

  /** The moves that are left; undefined if a seat is neither where the plan found it nor where it puts it. */
  private left(groups: readonly Group[], moves: ReadonlyMap<number, PlannedMove>): PlannedMove[] | undefined {
    const open: PlannedMove[] = [];
    for (const group of groups) {
      const { id } = group;
      if (this.seen[id] !== group) {
        this.leftOf[id] = this.leftIn(group, moves);
        this.seen[id] = group;
      }
      const left = this.leftOf[id];
      if (!left) return undefined;
      for (const move of left) open.push(move);
    }
    return open;
  }

  private leftIn(group: Group, moves: ReadonlyMap<number, PlannedMove>): PlannedMove[] | undefined {
    const open: PlannedMove[] = [];
    for (const seat of seatsOf(group)) {
      const name = seatKey(seat);
      if (seat.node === this.ends.get(name)) continue;
      const move = moves.get(name);
      if (seat.node !== move?.from) return undefined;
      open.push(move);
    }
    // A half of a swap that is left has no other half to arrive with.
    const isWhole = (move: PlannedMove) => !move.swap || open.some((other) => isSwapOf(move, other));
    return open.every(isWhole) ? open : undefined;
  }
}

/** One number for a seat: a large job has tens of thousands of them, and a code at most 255 of a kind. */
function seatKey({ g, kind, index }: Seat): number {
  return (g * 2 + (kind === 'P' ? 1 : 0)) * 256 + index;
}

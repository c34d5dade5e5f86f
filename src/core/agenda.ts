/**
 * The moves of a plan, while they are carried out. A plan is made once for what is asked for: loads change all the time, and a
 * plan that followed them would move shards back and forth. It is made anew when something else happens than it says.
 */
import type { Group } from '../protocol/map.js';
import { isSameSeat, type PlannedMove, seatsOf } from './plan.js';

export class Agenda {
  private key = '';
  private moves: readonly PlannedMove[] | undefined;

  /** Moves that are still to begin. `key` names all that the plan depends on, but for loads. */
  open(key: string, groups: readonly Group[], make: () => readonly PlannedMove[]): PlannedMove[] {
    const open = key === this.key ? this.left(groups) : undefined;
    if (open) return open;
    this.key = key;
    this.moves = make();
    return [...this.moves];
  }

  /** Undefined when a shard is neither where it was nor where it was to go, or its place is taken for good. */
  private left(groups: readonly Group[]): PlannedMove[] | undefined {
    const open: PlannedMove[] = [];
    for (const move of this.moves ?? []) {
      const node = seatsOf(groups[move.g]!).find((seat) => isSameSeat(seat, move))?.node;
      if (node === move.from) open.push(move);
      else if (node !== move.to) return undefined;
    }
    const taken = open.some((move) =>
      seatsOf(groups[move.g]!).some(
        (seat) => seat.node === move.to && !open.some((other) => isSameSeat(seat, other)),
      ),
    );
    return taken ? undefined : open;
  }
}

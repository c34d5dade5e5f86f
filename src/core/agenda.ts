/**
 * The moves of a plan, while they are carried out. A plan is made once for what is asked for: loads change all the time, and a
 * plan that followed them would move shards back and forth. It is made anew when something else happens than it says.
 */
import type { Group, PeerId } from '../protocol/map.js';
import { type PlannedMove, type Seat, seatsOf } from './plan.js';

export class Agenda {
  private key = '';
  private moves = new Map<string, PlannedMove>();
  /** Where every shard is when the plan is done; some were on their way when it was made. */
  private ends = new Map<string, PeerId>();

  /** Moves that are still to begin. `key` names all that the plan depends on, but for loads and the map. */
  open(key: string, groups: readonly Group[], make: () => readonly PlannedMove[]): PlannedMove[] {
    const open = key === this.key ? this.left(groups) : undefined;
    if (open) return open;
    const moves = make();
    this.key = key;
    this.moves = new Map(moves.map((move) => [seatKey(move), move]));
    this.ends = new Map();
    for (const seat of groups.flatMap(seatsOf)) {
      const name = seatKey(seat);
      this.ends.set(name, this.moves.get(name)?.to ?? seat.node);
    }
    return [...moves];
  }

  /** Undefined when a shard is neither where it was nor where it is to be in the end. */
  private left(groups: readonly Group[]): PlannedMove[] | undefined {
    const open: PlannedMove[] = [];
    for (const seat of groups.flatMap(seatsOf)) {
      const name = seatKey(seat);
      if (seat.node === this.ends.get(name)) continue;
      const move = this.moves.get(name);
      if (seat.node !== move?.from) return undefined;
      open.push(move);
    }
    return open;
  }
}

function seatKey({ g, kind, index }: Seat): string {
  return `${g}/${kind}${index}`;
}

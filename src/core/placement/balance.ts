/**
 * Which shards move where: a pure function from a map, the nodes that are to hold it and what each shard
 * weighs, to the moves that are left. Nodes that leave are emptied first, then members of a group that share
 * a zone or a host are parted where there are others, then weight is evened out as long as a move is worth
 * it. Moves under way count as done, so that planning again after each step goes on where the last plan was.
 *
 * A thousand nodes make a million pairs, so a pair is looked at again only when something about it changed.
 */
import { type Group, type NodeEntry, type PeerId, parities, seatOf } from '../../protocol/map.js';
import { crowdAt, type Place, Places, placeOf } from './nearness.js';
import { Ranking } from './ranking.js';

/** A place in a group: data shard `index` (M, as the mirror that moves it) or parity `index` (P). */
export interface Seat {
  g: number;
  kind: 'M' | 'P';
  index: number;
}

export interface Weight {
  bytes: number;
  /** Requests or deltas per second, any unit. */
  load: number;
}

export interface PlanInput {
  groups: readonly Group[];
  /** Nodes that share the weight. */
  nodes: readonly NodeEntry[];
  /** Nodes that are to hold nothing. */
  leaving: readonly NodeEntry[];
  weight(seat: Seat): Weight;
  /** Only nodes that leave are emptied; nothing is evened out. */
  emptyOnly?: boolean;
}

export interface PlannedMove extends Seat {
  from: PeerId;
  to: PeerId;
  bytes: number;
}

/** Weights of what is balanced: bytes first, then load, then the number of shards. */
const BYTES = 1;
const LOAD = 0.25;
const COUNT = 0.125;

/** What a shard or a node holds, relative to the average of a node. */
interface WeightShare {
  bytes: number;
  load: number;
  count: number;
}

interface Placed extends Seat {
  node: PeerId;
  bytes: number;
  weightShare: WeightShare;
}

/** Where the seats of a group are, or are going to be when its moves are done. */
export function seatsOf(group: Group): (Seat & { node: PeerId })[] {
  const g = group.id;
  const placed = [
    ...group.data.map(({ node }, index) => ({ g, kind: 'M' as const, index, node })),
    ...parities(group).map(({ node, index }) => ({ g, kind: 'P' as const, index, node })),
  ];
  return placed.map((seat) => {
    const target = group.sinks.find((sink) => sink.movesMember === seatOf(group, seat));
    return { ...seat, node: target?.node ?? seat.node };
  });
}

/** What the planner knows of a node. */
interface Held {
  readonly id: PeerId;
  readonly place: Place;
  weightShare: WeightShare;
  readonly seats: Set<Placed>;
  /**
   * Length of the log of changes when none of its shards could go anywhere; undefined: something about its
   * own shards has changed since.
   */
  stuckAt: number | undefined;
}

const weightOf = ({ weightShare: { bytes, load, count } }: Held): number =>
  BYTES * bytes + LOAD * load + COUNT * count;

class Planner {
  private readonly nodes = new Map<PeerId, Held>();
  /** Nodes that share the weight, in the order of the input. */
  private readonly targets: Held[];
  private readonly targetPlaces: Places;
  private readonly byGroup = new Map<number, Placed[]>();
  /** Targets by weight, ascending. */
  private ranking: Ranking<Held>;
  /** Nodes that got or gave a shard, in the order in which they did. */
  private readonly changes: Held[] = [];
  /**
   * Where each moving shard was, in the order of the moves. Each shard moves at most once, so a move needs
   * only the moves before it, and no moves wait for each other in a circle.
   */
  private readonly origin = new Map<Placed, PeerId>();

  constructor(private readonly input: PlanInput) {
    for (const { id, host } of [...input.nodes, ...input.leaving]) {
      const weightShare = { bytes: 0, load: 0, count: 0 };
      this.nodes.set(id, { id, place: placeOf(host), weightShare, seats: new Set(), stuckAt: undefined });
    }
    this.targets = input.nodes.map(({ id }) => this.nodes.get(id)!);
    this.targetPlaces = new Places(this.targets.map(({ place }) => place));
    const placed = input.groups.flatMap((group) => seatsOf(group));
    const weights = placed.map((seat) => input.weight(seat));
    const perNode = (total: number) => total / Math.max(1, input.nodes.length);
    const bytes = perNode(weights.reduce((sum, weight) => sum + weight.bytes, 0));
    const load = perNode(weights.reduce((sum, weight) => sum + weight.load, 0));
    const count = perNode(placed.length);
    for (const [i, seat] of placed.entries()) {
      const weight = weights[i]!;
      const weightShare = {
        bytes: bytes > 0 ? weight.bytes / bytes : 0,
        load: load > 0 ? weight.load / load : 0,
        count: 1 / count,
      };
      const entry: Placed = { ...seat, bytes: weight.bytes, weightShare };
      const members = this.byGroup.get(seat.g);
      if (members) members.push(entry);
      else this.byGroup.set(seat.g, [entry]);
      // A seat on any other node is left to repair.
      const node = this.nodes.get(seat.node);
      node?.seats.add(entry);
      this.carry(node, weightShare, 1);
    }
    const rank = new Map(this.targets.map((node, i) => [node, i]));
    this.ranking = new Ranking(this.targets, weightOf, (a, b) => rank.get(a)! - rank.get(b)!);
  }

  run(): PlannedMove[] {
    this.empty();
    if (!this.input.emptyOnly) this.even();
    return [...this.origin].map(([{ g, kind, index, node, bytes }, from]) => ({
      g,
      kind,
      index,
      from,
      to: node,
      bytes,
    }));
  }

  private even(): void {
    this.part();
    this.ranking = new Ranking(this.targets, weightOf, (a, b) => a.id - b.id);
    while (this.improve());
  }

  private carry(node: Held | undefined, weightShare: WeightShare, sign: 1 | -1): void {
    if (!node) return;
    const held = node.weightShare;
    held.bytes += sign * weightShare.bytes;
    held.load += sign * weightShare.load;
    held.count += sign * weightShare.count;
  }

  private place(seat: Placed, to: Held): void {
    const from = this.nodes.get(seat.node);
    this.origin.set(seat, seat.node);
    from?.seats.delete(seat);
    this.weigh(from, seat.weightShare, -1);
    seat.node = to.id;
    to.seats.add(seat);
    this.weigh(to, seat.weightShare, 1);
    // The move changes which hosts and zones the group occupies, so the other members of the group may have
    // new targets.
    for (const { node } of this.byGroup.get(seat.g)!) this.unstick(this.nodes.get(node));
  }

  private weigh(node: Held | undefined, weightShare: WeightShare, sign: 1 | -1): void {
    if (!node) return;
    this.ranking.change(node, () => this.carry(node, weightShare, sign));
    this.changes.push(node);
    this.unstick(node);
  }

  private unstick(node: Held | undefined): void {
    if (node) node.stuckAt = undefined;
  }

  /** No other member of its group is there. */
  private fits(seat: Placed, { id }: Held): boolean {
    for (const other of this.byGroup.get(seat.g)!) if (other.node === id) return false;
    return true;
  }

  /** Where the other members of its group are. */
  private *others(seat: Placed): Generator<Place | undefined> {
    for (const other of this.byGroup.get(seat.g)!)
      if (other !== seat) yield this.nodes.get(other.node)?.place;
  }

  /** How near it would be to other members of its group. */
  private crowd(seat: Placed, { place }: Held): number {
    return crowdAt(place, this.others(seat));
  }

  /** The lightest node that fits, among the nodes that are least near to other members of its group. */
  private bestHome(seat: Placed): Held | undefined {
    const least = this.targetPlaces.leastCrowd(this.others(seat));
    let best: { node: Held; crowd: number } | undefined;
    for (const node of this.ranking.ascending) {
      if (!this.fits(seat, node)) continue;
      const crowd = this.crowd(seat, node);
      if (!best || crowd < best.crowd) best = { node, crowd };
      if (crowd === least) break;
    }
    return best?.node;
  }

  /** Heavy shards are placed first; light ones fill the gaps. */
  private empty(): void {
    for (const { id } of this.input.leaving) {
      for (const seat of [...this.nodes.get(id)!.seats].sort((a, b) => b.bytes - a.bytes)) {
        const home = this.bestHome(seat);
        if (home) this.place(seat, home);
      }
    }
  }

  /** Each move brings members of a group further apart, and no other move brings them nearer. */
  private part(): void {
    for (const members of this.byGroup.values()) {
      for (const seat of members) {
        const here = this.nodes.get(seat.node);
        if (!here || this.origin.has(seat)) continue;
        const crowd = this.crowd(seat, here);
        if (crowd === 0 || this.targetPlaces.leastCrowd(this.others(seat)) >= crowd) continue;
        const home = this.bestHome(seat);
        if (home && this.crowd(seat, home) < crowd) this.place(seat, home);
      }
    }
  }

  /**
   * Moves one shard from the heaviest node that can give one to the lightest that can take it. Each move
   * lowers the sum of squares by at least the shard's own square, so this ends.
   */
  private improve(): boolean {
    const lightest = this.lightest();
    const light = this.ranking.ascending;
    for (let i = light.length - 1; i >= 0; i--) {
      const from = light[i]!;
      const able = this.able(from, lightest);
      for (const to of able.length > 0 ? this.targetsFor(from) : []) {
        const seat = from === to ? undefined : this.worthiest(able, from, to);
        if (!seat) continue;
        this.place(seat, to);
        return true;
      }
      from.stuckAt = this.changes.length;
    }
    return false;
  }

  /** The least bytes, load and count of any node. No real node need have all three. */
  private lightest(): WeightShare {
    const least = { bytes: Infinity, load: Infinity, count: Infinity };
    for (const { weightShare } of this.targets) {
      least.bytes = Math.min(least.bytes, weightShare.bytes);
      least.load = Math.min(least.load, weightShare.load);
      least.count = Math.min(least.count, weightShare.count);
    }
    return least;
  }

  /**
   * Shards of a node that would be worth a move to a node of weight `lightest`. A shard that is not among
   * them is worth no move to any node.
   */
  private able({ seats, weightShare }: Held, lightest: WeightShare): Placed[] {
    const able: Placed[] = [];
    for (const seat of seats)
      if (!this.origin.has(seat) && gainOf(seat, weightShare, lightest) !== undefined) able.push(seat);
    return able;
  }

  /**
   * Candidate targets, the lightest first. If no move from this node was possible at the last look, only the
   * nodes that have changed since.
   */
  private targetsFor({ stuckAt }: Held): readonly Held[] {
    if (stuckAt === undefined) return this.ranking.ascending;
    return this.ranking.sorted(new Set(this.changes.slice(stuckAt).filter((node) => this.ranking.has(node))));
  }

  /** The shard whose move lowers the sum of squares most. */
  private worthiest(able: readonly Placed[], from: Held, to: Held): Placed | undefined {
    let best: Placed | undefined;
    let most = 0;
    for (const seat of able) {
      const gain = gainOf(seat, from.weightShare, to.weightShare);
      if (gain === undefined || gain <= most || !this.fits(seat, to)) continue;
      if (this.crowd(seat, to) > this.crowd(seat, from)) continue;
      best = seat;
      most = gain;
    }
    return best;
  }
}

/**
 * Half of the amount by which a move lowers the sum of squared weights. Undefined if that is less than the
 * shard's own square: such a move would mostly swap which node has more. The gain never rises when the target
 * gets heavier.
 */
function gainOf({ weightShare }: Placed, from: WeightShare, to: WeightShare): number | undefined {
  const { bytes, load, count } = weightShare;
  const own = BYTES * bytes ** 2 + LOAD * load ** 2 + COUNT * count ** 2;
  const gain =
    BYTES * bytes * (from.bytes - to.bytes - bytes) +
    LOAD * load * (from.load - to.load - load) +
    COUNT * count * (from.count - to.count - count);
  return 2 * gain < own ? undefined : gain;
}

/** The moves that are left until the nodes that leave are empty and the others are balanced. */
export function plan(input: PlanInput): PlannedMove[] {
  return new Planner(input).run();
}

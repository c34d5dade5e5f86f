/**
 * The plan of moves: a pure function from a map, the nodes that are to hold it and the weights of its seats,
 * to the moves that are left. First, nodes that leave are emptied. Second, seats of a group that share a zone
 * or a host are parted where other zones or hosts are free. Third, weight is evened out as long as a move is
 * worth it. Fourth, in groups with a seat on every node, where nothing can move alone, a data shard and a
 * parity swap their nodes where that spreads data over the nodes. Moves under way count as done, so a plan
 * that is made again after each step continues the last.
 *
 * A thousand nodes make a million pairs, so a pair is looked at again only when something about it changed.
 */
import { type Group, type NodeEntry, type PeerId, parities, seatOf } from '../../protocol/map.js';
import { domainOf, type FailureDomain, FailureDomains, totalNearness } from './nearness.js';
import { Ranking } from './ranking.js';

/** A seat of a group: data shard `index` (M, as the mirror that moves it) or parity `index` (P). */
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
  /** Nodes that get nothing that is only evened out. */
  full?: ReadonlySet<PeerId>;
}

export interface PlannedMove extends Seat {
  from: PeerId;
  to: PeerId;
  bytes: number;
  /** The seat that moves the other way, and neither arrives without the other. Undefined: none. */
  swap?: Seat;
}

/** Weights of what is balanced: bytes first, then load, then the number of shards. */
const BYTES = 1;
const LOAD = 0.25;
const COUNT = 0.125;
/** Weight of the number of data shards, which matters only where seats swap. */
const DATA = 0.25;

/** The weight of a seat, or of all seats of a node, as a part of the average weight of a node. */
interface WeightShare {
  bytes: number;
  load: number;
  count: number;
}

/** A seat, with the node that holds it by the plan so far. */
interface PlacedSeat extends Seat {
  node: PeerId;
  bytes: number;
  weightShare: WeightShare;
}

/** The seats of a group with their nodes, as they are when the moves under way are done. */
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

/** A node with the seats that it holds by the plan so far. */
interface HeldSeats {
  readonly id: PeerId;
  readonly domain: FailureDomain;
  /** Sum over `seats`. */
  weightShare: WeightShare;
  /** Number of data shards among `seats`. */
  data: number;
  readonly seats: Set<PlacedSeat>;
  /**
   * Length of `Planner.changes` when none of the seats could go anywhere; undefined: something about these
   * seats has changed since.
   */
  stuckAt: number | undefined;
}

const weightOf = ({ weightShare: { bytes, load, count } }: HeldSeats): number =>
  BYTES * bytes + LOAD * load + COUNT * count;

class Planner {
  /** All nodes that share the weight or leave. */
  private readonly nodes = new Map<PeerId, HeldSeats>();
  /** Nodes that share the weight, in the order of the input. */
  private readonly targets: HeldSeats[];
  private readonly targetDomains: FailureDomains;
  /** Group -> its seats, also those on other nodes than `nodes`. */
  private readonly byGroup = new Map<number, PlacedSeat[]>();
  /** Targets by weight, ascending. */
  private ranking: Ranking<HeldSeats>;
  /** The nodes that got or gave a seat, in order: two entries for each move. */
  private readonly changes: HeldSeats[] = [];
  /**
   * Seat that moves -> its node before, in the order of the moves. Each seat moves at most once, so a move
   * needs only the moves before it, and no moves wait for each other in a circle.
   */
  private readonly origin = new Map<PlacedSeat, PeerId>();
  /** Seat that swaps -> the one that it swaps with. */
  private readonly swaps = new Map<PlacedSeat, PlacedSeat>();

  constructor(private readonly input: PlanInput) {
    for (const { id, host } of [...input.nodes, ...input.leaving]) {
      const weightShare = { bytes: 0, load: 0, count: 0 };
      const domain = domainOf(host);
      this.nodes.set(id, { id, domain, weightShare, data: 0, seats: new Set(), stuckAt: undefined });
    }
    this.targets = input.nodes.map(({ id }) => this.nodes.get(id)!);
    this.targetDomains = new FailureDomains(this.targets.map(({ domain }) => domain));
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
      const entry: PlacedSeat = { ...seat, bytes: weight.bytes, weightShare };
      const members = this.byGroup.get(seat.g);
      if (members) members.push(entry);
      else this.byGroup.set(seat.g, [entry]);
      // A seat on any other node is left to repair.
      const node = this.nodes.get(seat.node);
      if (node) this.hold(node, entry);
      this.carry(node, weightShare, 1);
    }
    const rank = new Map(this.targets.map((node, i) => [node, i]));
    this.ranking = new Ranking(this.targets, weightOf, (a, b) => rank.get(a)! - rank.get(b)!);
  }

  run(): PlannedMove[] {
    this.empty();
    if (!this.input.emptyOnly) this.even();
    return [...this.origin].map(([seat, from]): PlannedMove => {
      const { node: to, bytes } = seat;
      const swap = this.swaps.get(seat);
      return { ...placeOf(seat), from, to, bytes, ...(swap && { swap: placeOf(swap) }) };
    });
  }

  private even(): void {
    this.part();
    this.ranking = new Ranking(this.targets, weightOf, (a, b) => a.id - b.id);
    while (this.improve());
    this.swap();
  }

  private hold(node: HeldSeats, seat: PlacedSeat): void {
    node.seats.add(seat);
    if (seat.kind === 'M') node.data++;
  }

  private carry(node: HeldSeats | undefined, weightShare: WeightShare, sign: 1 | -1): void {
    if (!node) return;
    const held = node.weightShare;
    held.bytes += sign * weightShare.bytes;
    held.load += sign * weightShare.load;
    held.count += sign * weightShare.count;
  }

  private move(seat: PlacedSeat, to: HeldSeats): void {
    const from = this.nodes.get(seat.node);
    this.origin.set(seat, seat.node);
    if (from?.seats.delete(seat) && seat.kind === 'M') from.data--;
    this.weigh(from, seat.weightShare, -1);
    seat.node = to.id;
    this.hold(to, seat);
    this.weigh(to, seat.weightShare, 1);
    // The move changes which hosts and zones the group occupies, so its other seats may have new targets.
    for (const { node } of this.byGroup.get(seat.g)!) this.unstick(this.nodes.get(node));
  }

  private weigh(node: HeldSeats | undefined, weightShare: WeightShare, sign: 1 | -1): void {
    if (!node) return;
    this.ranking.change(node, () => this.carry(node, weightShare, sign));
    this.changes.push(node);
    this.unstick(node);
  }

  private unstick(node: HeldSeats | undefined): void {
    if (node) node.stuckAt = undefined;
  }

  /** The node has no other seat of the group. */
  private fits(seat: PlacedSeat, { id }: HeldSeats): boolean {
    for (const other of this.byGroup.get(seat.g)!) if (other.node === id) return false;
    return true;
  }

  /** Failure domains of the other seats of the group; undefined for those on unknown nodes. */
  private *others(seat: PlacedSeat): Generator<FailureDomain | undefined> {
    for (const other of this.byGroup.get(seat.g)!)
      if (other !== seat) yield this.nodes.get(other.node)?.domain;
  }

  /** Nearness of the seat to the other seats of its group, if it were on this node. */
  private nearnessAt(seat: PlacedSeat, { domain }: HeldSeats): number {
    return totalNearness(domain, this.others(seat));
  }

  private isFull({ id }: HeldSeats): boolean {
    return this.input.full?.has(id) === true;
  }

  /**
   * The lightest node that fits, among the nodes that are least near to the other seats of the group.
   * `roomy`: nodes that are full are left out.
   */
  private bestHome(seat: PlacedSeat, roomy = false): HeldSeats | undefined {
    const least = this.targetDomains.leastNearness(this.others(seat));
    let best: { node: HeldSeats; near: number } | undefined;
    for (const node of this.ranking.ascending) {
      if ((roomy && this.isFull(node)) || !this.fits(seat, node)) continue;
      const near = this.nearnessAt(seat, node);
      if (!best || near < best.near) best = { node, near };
      if (near === least) break;
    }
    return best?.node;
  }

  /** Empties the nodes that leave. Heavy seats are placed first, and light ones fill the gaps. */
  private empty(): void {
    for (const { id } of this.input.leaving) {
      for (const seat of [...this.nodes.get(id)!.seats].sort((a, b) => b.bytes - a.bytes)) {
        const home = this.bestHome(seat);
        if (home) this.move(seat, home);
      }
    }
  }

  /** Parts the seats of groups: each move brings them further apart, and no other move brings them nearer. */
  private part(): void {
    for (const members of this.byGroup.values()) {
      for (const seat of members) {
        const here = this.nodes.get(seat.node);
        if (!here || this.origin.has(seat)) continue;
        const near = this.nearnessAt(seat, here);
        if (near === 0 || this.targetDomains.leastNearness(this.others(seat)) >= near) continue;
        const home = this.bestHome(seat, true);
        if (home && this.nearnessAt(seat, home) < near) this.move(seat, home);
      }
    }
  }

  /**
   * Moves one seat from the heaviest node that can give one to the lightest that can take it. Each move
   * lowers the sum of squares by at least the seat's own square, so this ends.
   */
  private improve(): boolean {
    const lightest = this.lightest();
    const light = this.ranking.ascending;
    for (let i = light.length - 1; i >= 0; i--) {
      const from = light[i]!;
      const able = this.able(from, lightest);
      for (const to of able.length > 0 ? this.targetsFor(from) : []) {
        const seat = from === to || this.isFull(to) ? undefined : this.worthiest(able, from, to);
        if (!seat) continue;
        this.move(seat, to);
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
   * Seats of a node that would be worth a move to a node of weight `lightest`. Any other seat of the node is
   * worth no move to any node.
   */
  private able({ seats, weightShare }: HeldSeats, lightest: WeightShare): PlacedSeat[] {
    const able: PlacedSeat[] = [];
    for (const seat of seats)
      if (!this.origin.has(seat) && gainOf(seat, weightShare, lightest) !== undefined) able.push(seat);
    return able;
  }

  /**
   * Candidate targets, the lightest first. If no move from this node was possible at the last look, these are
   * only the nodes that have changed since.
   */
  private targetsFor({ stuckAt }: HeldSeats): readonly HeldSeats[] {
    if (stuckAt === undefined) return this.ranking.ascending;
    return this.ranking.sorted(new Set(this.changes.slice(stuckAt).filter((node) => this.ranking.has(node))));
  }

  /** The seat whose move lowers the sum of squares most. */
  private worthiest(able: readonly PlacedSeat[], from: HeldSeats, to: HeldSeats): PlacedSeat | undefined {
    let best: PlacedSeat | undefined;
    let most = 0;
    for (const seat of able) {
      const gain = gainOf(seat, from.weightShare, to.weightShare);
      if (gain === undefined || gain <= most || !this.fits(seat, to)) continue;
      if (this.nearnessAt(seat, to) > this.nearnessAt(seat, from)) continue;
      best = seat;
      most = gain;
    }
    return best;
  }

  /** At most one swap of each group that has one seat on every node: a further plan has further ones. */
  private swap(): void {
    const data = this.targets.reduce((sum, node) => sum + node.data, 0) / this.targets.length;
    for (const members of this.byGroup.values()) {
      if (this.targets.length > members.length || members.some((seat) => this.origin.has(seat))) continue;
      const nodes = new Set(members.map(({ node }) => node));
      if (nodes.size < members.length || this.targets.some(({ id }) => !nodes.has(id))) continue;
      let best: { seats: [PlacedSeat, PlacedSeat]; gain: number } | undefined;
      for (const shard of members) {
        for (const parity of members) {
          const gain = shard.kind === 'M' && parity.kind === 'P' ? this.swapGain(shard, parity, data) : 0;
          if (gain > (best?.gain ?? 0)) best = { seats: [shard, parity], gain };
        }
      }
      if (!best) continue;
      const [shard, parity] = best.seats;
      const [from, to] = [this.nodes.get(shard.node)!, this.nodes.get(parity.node)!];
      this.move(shard, to);
      this.move(parity, from);
      this.swaps.set(shard, parity).set(parity, shard);
    }
  }

  /**
   * Half of the amount by which a swap lowers the sum of squared weights; 0 if that is too little, as for a
   * move. A swap copies more than a move, so it is for a node that has more than half a share of data more
   * than the other one. Bytes and load alone must not get worse: moves would undo what swaps do, without end.
   * `average`: data shards of a node.
   */
  private swapGain(shard: PlacedSeat, parity: PlacedSeat, average: number): number {
    const [from, to] = [this.nodes.get(shard.node), this.nodes.get(parity.node)];
    if (!from || !to || !this.ranking.has(from) || !this.ranking.has(to) || from === to) return 0;
    if (this.isFull(from) || this.isFull(to)) return 0;
    if (from.data - to.data <= average / 2) return 0;
    const bytes = shard.weightShare.bytes - parity.weightShare.bytes;
    const load = shard.weightShare.load - parity.weightShare.load;
    const shifted = { bytes, load, count: 0 };
    const own = squareOf(shifted) + DATA / average ** 2;
    const even = shiftGain(shifted, from.weightShare, to.weightShare);
    const gain = even + (DATA * (from.data - to.data - 1)) / average ** 2;
    return even < 0 || 2 * gain < own ? 0 : gain;
  }
}

/** True: `other` is the move that arrives together with `move`. */
export function isSwapOf({ swap }: PlannedMove, other: Seat): boolean {
  return swap !== undefined && swap.g === other.g && swap.kind === other.kind && swap.index === other.index;
}

function placeOf({ g, kind, index }: Seat): Seat {
  return { g, kind, index };
}

/**
 * Half of the amount by which a move lowers the sum of squared weights. Undefined if that is less than the
 * seat's own square: such a move would mostly swap which node has more. The gain never rises when the target
 * gets heavier.
 */
function gainOf({ weightShare }: PlacedSeat, from: WeightShare, to: WeightShare): number | undefined {
  const gain = shiftGain(weightShare, from, to);
  return 2 * gain < squareOf(weightShare) ? undefined : gain;
}

function squareOf({ bytes, load, count }: WeightShare): number {
  return BYTES * bytes ** 2 + LOAD * load ** 2 + COUNT * count ** 2;
}

/** Half of the amount by which the sum of squared weights falls when so much goes from node to node. */
function shiftGain({ bytes, load, count }: WeightShare, from: WeightShare, to: WeightShare): number {
  return (
    BYTES * bytes * (from.bytes - to.bytes - bytes) +
    LOAD * load * (from.load - to.load - load) +
    COUNT * count * (from.count - to.count - count)
  );
}

/** The moves that are left until the nodes that leave are empty and the others are balanced. */
export function planMoves(input: PlanInput): PlannedMove[] {
  return new Planner(input).run();
}

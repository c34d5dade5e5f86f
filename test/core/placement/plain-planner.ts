/** A slow and plain planner without indexes, with which the real one is compared. */
import { type PlanInput, type PlannedMove, type Seat, seatsOf } from '../../../src/core/placement/balance.js';
import type { NodeEntry, PeerId } from '../../../src/protocol/map.js';

/** Weights of bytes, load and the number of shards. */
const BYTES = 1;
const LOAD = 0.25;
const COUNT = 0.125;
/** Weight of the number of data shards where seats swap. */
const DATA = 0.25;

/** The weight of a seat, or of all seats of a node, as a part of the average weight of a node. */
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

class Planner {
  private readonly hosts = new Map<PeerId, string>();
  private readonly held = new Map<PeerId, WeightShare>();
  private readonly seats = new Map<PeerId, Set<Placed>>();
  private readonly byGroup = new Map<number, Placed[]>();
  /**
   * Seat that moves -> its node before, in the order of the moves. Each seat moves at most once, so a move
   * needs only the moves before it, and no moves wait for each other in a circle.
   */
  private readonly origin = new Map<Placed, PeerId>();
  private readonly swaps = new Map<Placed, Placed>();

  constructor(private readonly input: PlanInput) {
    for (const node of [...input.nodes, ...input.leaving]) {
      this.hosts.set(node.id, node.host);
      this.held.set(node.id, { bytes: 0, load: 0, count: 0 });
      this.seats.set(node.id, new Set());
    }
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
      if (!this.held.has(seat.node)) continue;
      this.seats.get(seat.node)?.add(entry);
      this.carry(seat.node, weightShare, 1);
    }
  }

  run(): PlannedMove[] {
    this.empty();
    this.part();
    this.balance();
    this.swap();
    return [...this.origin].map(([seat, from]) => {
      const { g, kind, index, node: to, bytes } = seat;
      const other = this.swaps.get(seat);
      const swap = other && { g, kind: other.kind, index: other.index };
      return { g, kind, index, from, to, bytes, ...(swap && { swap }) };
    });
  }

  private carry(node: PeerId, weightShare: WeightShare, sign: 1 | -1): void {
    const held = this.held.get(node);
    if (!held) return;
    held.bytes += sign * weightShare.bytes;
    held.load += sign * weightShare.load;
    held.count += sign * weightShare.count;
  }

  private place(seat: Placed, to: PeerId): void {
    this.origin.set(seat, seat.node);
    this.seats.get(seat.node)?.delete(seat);
    this.carry(seat.node, seat.weightShare, -1);
    seat.node = to;
    this.seats.get(to)?.add(seat);
    this.carry(to, seat.weightShare, 1);
  }

  private weightOf(node: PeerId): number {
    const { bytes, load, count } = this.held.get(node)!;
    return BYTES * bytes + LOAD * load + COUNT * count;
  }

  /** True if the node has no other seat of the group. */
  private fits(seat: Placed, node: PeerId): boolean {
    return this.byGroup.get(seat.g)!.every((other) => other.node !== node);
  }

  /** Number of other seats of the group in the zone of `node`, and on its host. */
  private crowd(seat: Placed, node: PeerId): number {
    const host = this.hosts.get(node)!;
    const others = this.byGroup.get(seat.g)!.filter((other) => other !== seat);
    const there = others.flatMap((other) => this.hosts.get(other.node) ?? []);
    const zone = there.filter((other) => other.split('/')[0] === host.split('/')[0]).length;
    return 1000 * zone + there.filter((other) => other === host).length;
  }

  /** The lightest node that fits, in the zone and on the host with the fewest seats of the group. */
  private bestHome(seat: Placed, targets = this.input.nodes): PeerId | undefined {
    let best: { id: PeerId; crowd: number; weight: number } | undefined;
    for (const { id } of targets) {
      if (!this.fits(seat, id)) continue;
      const [crowd, weight] = [this.crowd(seat, id), this.weightOf(id)];
      if (!best || crowd < best.crowd || (crowd === best.crowd && weight < best.weight))
        best = { id, crowd, weight };
    }
    return best?.id;
  }

  /** Empties the nodes that leave. Heavy seats are placed first, and light ones fill the gaps. */
  private empty(): void {
    for (const { id } of this.input.leaving) {
      for (const seat of [...this.seats.get(id)!].sort((a, b) => b.bytes - a.bytes)) {
        const home = this.bestHome(seat);
        if (home !== undefined) this.place(seat, home);
      }
    }
  }

  private get roomy(): readonly NodeEntry[] {
    return this.input.nodes.filter(({ id }) => !this.input.full?.has(id));
  }

  private part(): void {
    for (const members of this.byGroup.values()) {
      for (const seat of members) {
        if (!this.seats.has(seat.node) || this.origin.has(seat)) continue;
        const home = this.bestHome(seat, this.roomy);
        if (home !== undefined && this.crowd(seat, home) < this.crowd(seat, seat.node))
          this.place(seat, home);
      }
    }
  }

  /** Each move lowers the sum of squares by at least the shard's own square, so the loop ends. */
  private balance(): void {
    const ids = this.input.nodes.map((node) => node.id);
    for (;;) {
      const weights = new Map(ids.map((id) => [id, this.weightOf(id)]));
      const light = [...ids].sort((a, b) => weights.get(a)! - weights.get(b)! || a - b);
      const roomy = light.filter((id) => this.roomy.some((node) => node.id === id));
      if (!this.improve([...light].reverse(), roomy)) return;
    }
  }

  private improve(heavy: readonly PeerId[], light: readonly PeerId[]): boolean {
    for (const from of heavy) {
      for (const to of light) {
        if (from === to) continue;
        const seat = this.worthiest(from, to);
        if (!seat) continue;
        this.place(seat, to);
        return true;
      }
    }
    return false;
  }

  /**
   * The seat whose move lowers the sum of squares most. None if a move would only swap which node has more.
   */
  private worthiest(from: PeerId, to: PeerId): Placed | undefined {
    let best: Placed | undefined;
    let most = 0;
    const [a, b] = [this.held.get(from)!, this.held.get(to)!];
    for (const seat of this.seats.get(from)!) {
      if (this.origin.has(seat)) continue;
      const { bytes, load, count } = seat.weightShare;
      const own = BYTES * bytes ** 2 + LOAD * load ** 2 + COUNT * count ** 2;
      const gain =
        BYTES * bytes * (a.bytes - b.bytes - bytes) +
        LOAD * load * (a.load - b.load - load) +
        COUNT * count * (a.count - b.count - count);
      if (2 * gain < own || gain <= most || !this.fits(seat, to)) continue;
      if (this.crowd(seat, to) > this.crowd(seat, from)) continue;
      best = seat;
      most = gain;
    }
    return best;
  }

  /** One swap of data and parity in each group that has a seat on every node. */
  private swap(): void {
    const ids = this.input.nodes.map((node) => node.id);
    const roomy = this.roomy.map((node) => node.id);
    const data = (id: PeerId) => [...this.seats.get(id)!].filter(({ kind }) => kind === 'M').length;
    const average = ids.reduce((sum, id) => sum + data(id), 0) / ids.length;
    for (const members of this.byGroup.values()) {
      if (members.some((seat) => this.origin.has(seat))) continue;
      if (!ids.every((id) => members.some(({ node }) => node === id))) continue;
      if (new Set(members.map(({ node }) => node)).size < members.length) continue;
      const pairs = members
        .filter(({ kind, node }) => kind === 'M' && roomy.includes(node))
        .flatMap((shard) => members.map((parity) => ({ shard, parity })))
        .filter(({ parity }) => parity.kind === 'P' && roomy.includes(parity.node))
        .map(({ shard, parity }) => {
          const [a, b] = [this.held.get(shard.node)!, this.held.get(parity.node)!];
          const bytes = shard.weightShare.bytes - parity.weightShare.bytes;
          const load = shard.weightShare.load - parity.weightShare.load;
          const own = BYTES * bytes ** 2 + LOAD * load ** 2 + DATA / average ** 2;
          const even = BYTES * bytes * (a.bytes - b.bytes - bytes) + LOAD * load * (a.load - b.load - load);
          const gain = even + (DATA * (data(shard.node) - data(parity.node) - 1)) / average ** 2;
          const few = data(shard.node) - data(parity.node) <= average / 2;
          return { shard, parity, gain: few || even < 0 || 2 * gain < own ? 0 : gain };
        });
      const most = Math.max(0, ...pairs.map(({ gain }) => gain));
      const best = most > 0 ? pairs.find(({ gain }) => gain === most) : undefined;
      if (!best) continue;
      const [from, to] = [best.shard.node, best.parity.node];
      this.place(best.shard, to);
      this.place(best.parity, from);
      this.swaps.set(best.shard, best.parity).set(best.parity, best.shard);
    }
  }
}

/** The moves that are left until the nodes that leave are empty and the others are balanced. */
export function plainPlan(input: PlanInput): PlannedMove[] {
  return new Planner(input).run();
}

/**
 * Where shards live: pure functions from a map and what is known of the nodes to a new map (rules 27 and 28). Nodes that
 * are alive are told apart by (id, incarnation), so an entry that names an older incarnation is a lost one.
 */
import type { DataEntry, Group, NodeEntry, PeerId, Pool, SinkEntry } from '../protocol/map.js';
import { INITIAL_GENERATION } from '../protocol/map.js';

/** What the scheduler knows, by the latest reports. */
export interface ClusterView {
  /** Nodes that are alive, in a fixed order. */
  nodes: NodeEntry[];
  alive(id: PeerId, inc: number): boolean;
  full(sid: number): boolean;
  whole(group: number, member: number, gen: number): boolean;
}

/** Orders nodes so that neighbours are on different hosts as far as there are different hosts. */
export function interleaveHosts(nodes: readonly NodeEntry[]): NodeEntry[] {
  const byHost = new Map<string, NodeEntry[]>();
  for (const node of nodes) byHost.set(node.host, [...(byHost.get(node.host) ?? []), node]);
  const queues = [...byHost.values()].sort((a, b) => b.length - a.length);
  const ordered: NodeEntry[] = [];
  for (let round = 0; ordered.length < nodes.length; round++) {
    for (const queue of queues) {
      const node = queue[round];
      if (node) ordered.push(node);
    }
  }
  return ordered;
}

/** The first `count` nodes from `start` on, preferring hosts that are not taken yet. */
function choose(ordered: readonly NodeEntry[], start: number, count: number): NodeEntry[] {
  const chosen: NodeEntry[] = [];
  const rotated = ordered.map((_, i) => ordered[(start + i) % ordered.length]!);
  for (const fresh of [true, false]) {
    for (const node of rotated) {
      if (chosen.length === count) return chosen;
      if (chosen.includes(node) || (fresh && chosen.some((other) => other.host === node.host))) continue;
      chosen.push(node);
    }
  }
  return chosen;
}

/**
 * The first groups of a job. Group g starts at node g, so that data and parity rotate over the nodes; with one group the
 * first k nodes hold data and the next r only parity. All pools rotate alike: a narrower code (the mirrored one) takes the
 * first data node and the parity nodes of the widest code's group of the same number.
 */
export function formGroups(
  pools: readonly Pool[],
  nodes: readonly NodeEntry[],
  epoch: number,
  nextSid: () => number,
): Group[] {
  const ordered = interleaveHosts(nodes);
  const widest = Math.max(...pools.map((pool) => pool.k));
  const groups: Group[] = [];
  for (const [poolIndex, pool] of pools.entries()) {
    for (let g = 0; g < pool.groups; g++) {
      const seats = choose(ordered, g % ordered.length, Math.max(...pools.map((p) => p.k + p.r)));
      const data = seats
        .slice(0, pool.k)
        .map((node): DataEntry => ({ node: node.id, inc: node.inc, gen: INITIAL_GENERATION, init: true }));
      const sinks = seats.slice(widest, widest + pool.r).map(
        (node, index): SinkEntry => ({
          sid: nextSid(),
          kind: 'P',
          index,
          node: node.id,
          inc: node.inc,
          init: true,
        }),
      );
      groups.push({ id: pool.firstGroup + g, pool: poolIndex, version: epoch, data, sinks });
    }
  }
  return groups;
}

/** By the latest reports nobody lacks anything; only then planned cut-overs are done. */
export function isHealthy(group: Group, pool: Pool, view: ClusterView): boolean {
  for (const [m, entry] of group.data.entries()) {
    if (entry.node === 0 || !view.alive(entry.node, entry.inc) || !view.whole(group.id, m, entry.gen))
      return false;
  }
  for (let index = 0; index < pool.r; index++) {
    if (!group.sinks.some((s) => s.kind === 'P' && s.index === index && view.full(s.sid))) return false;
  }
  return true;
}

/** Every member on a node of its own, every parity there once. */
export function isSpread(group: Group, pool: Pool): boolean {
  if (group.sinks.length !== pool.r) return false;
  const nodes = [...group.data, ...group.sinks].map((entry) => entry.node);
  return new Set(nodes).size === nodes.length && !nodes.includes(0);
}

/** Mends one group: entries of dead nodes get new homes, complete replacements take over, doubled-up ones are spread. */
class GroupRepair {
  changed = false;
  private data: DataEntry[];
  private sinks: SinkEntry[];

  constructor(
    private readonly group: Group,
    private readonly pool: Pool,
    private readonly view: ClusterView,
    private readonly load: Map<PeerId, number>,
    private readonly epoch: number,
    private readonly nextSid: () => number,
  ) {
    this.data = [...group.data];
    this.sinks = [...group.sinks];
  }

  run(): Group | undefined {
    this.dropDead();
    this.finishReplacements();
    this.cancelMovesThatBlockRepair();
    this.homeData();
    this.addParities();
    this.spreadParities();
    if (!this.changed) return undefined;
    return { ...this.group, version: this.epoch, data: this.data, sinks: this.sinks };
  }

  private current(): Group {
    return { ...this.group, data: this.data, sinks: this.sinks };
  }

  private dropDead(): void {
    const alive = this.sinks.filter((sink) => this.view.alive(sink.node, sink.inc));
    if (alive.length !== this.sinks.length) this.changed = true;
    this.sinks = alive;
    for (const [m, entry] of this.data.entries()) {
      if (entry.node === 0 || this.view.alive(entry.node, entry.inc)) continue;
      this.data[m] = { node: 0, inc: 0, gen: this.epoch, init: false };
      this.changed = true;
    }
  }

  private sinksOf(index: number): SinkEntry[] {
    return this.sinks.filter((s) => s.kind === 'P' && s.index === index).sort((a, b) => a.sid - b.sid);
  }

  /** Of two parities with one index the older goes when the newer is complete. */
  private finishReplacements(): void {
    for (let index = 0; index < this.pool.r; index++) {
      const [older, newer] = this.sinksOf(index);
      if (!older || !newer || !this.view.full(newer.sid) || !isHealthy(this.current(), this.pool, this.view))
        continue;
      this.sinks = this.sinks.filter((sink) => sink !== older);
      this.changed = true;
    }
  }

  private cancelMovesThatBlockRepair(): void {
    const missing = () => {
      let count = this.data.filter((entry) => entry.node === 0).length;
      for (let index = 0; index < this.pool.r; index++) if (this.sinksOf(index).length === 0) count++;
      return count;
    };
    while (missing() > 0 && !this.freeNode()) {
      const planned = this.sinks.find((s) => s.kind === 'M' || this.sinksOf(s.index)[1] === s);
      if (!planned) return;
      this.sinks = this.sinks.filter((sink) => sink !== planned);
      this.changed = true;
    }
  }

  private homeData(): void {
    for (const [m, entry] of this.data.entries()) {
      if (entry.node !== 0) continue;
      const home = this.freeNode() ?? this.crowdedNode();
      if (!home) continue;
      this.data[m] = { node: home.id, inc: home.inc, gen: this.epoch, init: false };
      this.take(home);
    }
  }

  private addParities(): void {
    for (let index = 0; index < this.pool.r; index++) {
      if (this.sinksOf(index).length > 0) continue;
      this.addSink(index);
    }
  }

  /** A parity that shares its node with another member of the group moves on when a node is free. */
  private spreadParities(): void {
    if (!isHealthy(this.current(), this.pool, this.view)) return;
    for (let index = 0; index < this.pool.r; index++) {
      const [only, second] = this.sinksOf(index);
      if (!only || second) continue;
      const shared = [...this.data, ...this.sinks].some(
        (entry) => entry !== only && entry.node === only.node,
      );
      if (shared) this.addSink(index);
    }
  }

  private addSink(index: number): void {
    const node = this.freeNode();
    if (!node) return;
    this.sinks.push({ sid: this.nextSid(), kind: 'P', index, node: node.id, inc: node.inc, init: false });
    this.take(node);
  }

  private take(node: NodeEntry): void {
    this.load.set(node.id, (this.load.get(node.id) ?? 0) + 1);
    this.changed = true;
  }

  /** A node outside the group: on a host outside it if possible, then the least loaded (a standby has no load). */
  private freeNode(): NodeEntry | undefined {
    const used = new Set([...this.data, ...this.sinks].map((entry) => entry.node));
    const hosts = new Set(this.view.nodes.filter((node) => used.has(node.id)).map((node) => node.host));
    return this.best(
      this.view.nodes.filter((node) => !used.has(node.id)),
      (node) => (hosts.has(node.host) ? 1 : 0),
    );
  }

  /** A node inside the group: rather one with a parity (which can move on) than one with data. */
  private crowdedNode(): NodeEntry | undefined {
    const holders = new Set(this.data.map((entry) => entry.node));
    return this.best(this.view.nodes, (node) => (holders.has(node.id) ? 1 : 0));
  }

  private best(nodes: readonly NodeEntry[], cost: (node: NodeEntry) => number): NodeEntry | undefined {
    const rank = (node: NodeEntry) => cost(node) * 1e6 + (this.load.get(node.id) ?? 0);
    let best: NodeEntry | undefined;
    for (const node of nodes) if (!best || rank(node) < rank(best)) best = node;
    return best;
  }
}

/** Shards per node. */
export function loads(groups: readonly Group[]): Map<PeerId, number> {
  const load = new Map<PeerId, number>();
  for (const group of groups) {
    for (const entry of [...group.data, ...group.sinks])
      load.set(entry.node, (load.get(entry.node) ?? 0) + 1);
  }
  return load;
}

/** New groups for a new epoch, or undefined when nothing has to change. */
export function repair(
  groups: readonly Group[],
  pools: readonly Pool[],
  view: ClusterView,
  epoch: number,
  nextSid: () => number,
): Group[] | undefined {
  const load = loads(groups);
  let changed = false;
  const repaired = groups.map((group) => {
    const next = new GroupRepair(group, pools[group.pool]!, view, load, epoch, nextSid).run();
    if (next) changed = true;
    return next ?? group;
  });
  return changed ? repaired : undefined;
}

/** True when a node is free for a parity that the group misses or that shares its node: the next repair will improve it. */
export function canImprove(group: Group, pool: Pool, view: ClusterView): boolean {
  const used = new Set([...group.data, ...group.sinks].map((entry) => entry.node));
  if (!view.nodes.some((node) => !used.has(node.id))) return false;
  if (new Set(group.sinks.map((sink) => sink.index)).size < pool.r) return true;
  return group.sinks.some((sink) =>
    [...group.data, ...group.sinks].some((e) => e !== sink && e.node === sink.node),
  );
}

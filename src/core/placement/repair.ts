/**
 * Mends the placement: a pure function from a map and the scheduler's knowledge of the nodes to the groups of
 * the next map. Rule 27: a lost shard gets a new home at once, a complete mirror where there is one. Rule 28:
 * a move ends when its target is complete and the group is healthy. A living node is identified by (id,
 * incarnation), so an entry that names an older incarnation is lost.
 */
import type { DataEntry, Group, NodeEntry, PeerId, Pool, SinkEntry } from '../../protocol/map.js';
import { CAPABILITIES, mirrorOf, parities, seatOf, settled } from '../../protocol/map.js';
import { GroupIndex } from './group-index.js';
import { type ClusterView, isHealthy, nodesById } from './health.js';
import { domainOf, totalNearness } from './nearness.js';

/**
 * Repairs one group. Entries of dead nodes get new nodes. A complete target of a move takes over. Seats that
 * share a node are spread.
 */
class GroupRepair {
  /** True when `data` or `sinks` differ from those of the group. */
  changed = false;
  /** Data entries of the next version, by member. Node 0: no home yet. */
  private data: DataEntry[];
  /** Sinks of the next version. */
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
    this.dropHalvesOfSwaps();
    this.finishSwaps();
    this.finishReplacements();
    this.finishMoves();
    this.cancelMovesThatBlockRepair();
    this.homeData();
    this.addParities();
    this.spread();
    if (!this.changed) return undefined;
    return { ...this.group, version: this.epoch, data: this.data, sinks: this.sinks };
  }

  private current(): Group {
    return { ...this.group, data: this.data, sinks: this.sinks };
  }

  private dropDead(): void {
    this.keepSinks((sink) => this.view.alive(sink.node, sink.inc));
    for (const [m, entry] of this.data.entries()) {
      if (entry.node === 0 || this.view.alive(entry.node, entry.inc)) continue;
      const mirror = this.mirrorOf(m);
      if (mirror && this.view.sinkComplete(mirror.sid)) {
        this.promote(m, mirror);
        continue;
      }
      // An incomplete mirror cannot become the owner, and as a sink it would only lack more blocks.
      if (mirror) this.keepSinks((sink) => sink !== mirror);
      this.data[m] = {
        node: 0,
        inc: 0,
        gen: this.epoch,
        init: false,
        ...marksOf(entry),
      };
      this.changed = true;
    }
  }

  private keepSinks(keep: (sink: SinkEntry) => boolean): void {
    const kept = keepSinks(this.current(), keep);
    if (kept === this.sinks) return;
    this.changed = true;
    this.sinks = kept;
  }

  private mirrorOf(m: number): SinkEntry | undefined {
    return mirrorOf(this.current(), m);
  }

  /**
   * The mirror's node becomes the owner. This is an ordinary change of owner; the new owner takes its bytes
   * from the mirror.
   */
  private promote(m: number, mirror: SinkEntry): void {
    const { rewound } = this.data[m]!;
    const home = { node: mirror.node, inc: mirror.inc, gen: this.epoch, init: false };
    this.data[m] = { ...home, ...(rewound && { rewound }) };
    this.sinks = this.sinks.map((sink) => (sink === mirror ? settled(sink) : sink));
    this.changed = true;
  }

  /**
   * Rule 28: the node of a complete mirror becomes the owner when the group is healthy. The mirror goes when
   * that owner is complete.
   */
  private finishMoves(): void {
    for (const [m, entry] of this.data.entries()) {
      const mirror = this.mirrorOf(m);
      if (!mirror || this.swapOf(mirror)) continue;
      if (mirror.node === entry.node) {
        if (this.view.shardComplete(this.group.id, m, entry.gen)) this.keepSinks((sink) => sink !== mirror);
      } else if (this.data.some(({ node }) => node === mirror.node) && this.freeNode()) {
        // A lost member was placed on the mirror's node meanwhile. Two seats would share that node although
        // another one is free.
        this.keepSinks((sink) => sink !== mirror);
      } else if (this.view.sinkComplete(mirror.sid) && isHealthy(this.current(), this.pool, this.view))
        this.promote(m, mirror);
    }
  }

  /** The parity of this index that is in use, and the target of its move. */
  private paritiesOf(index: number): { inUse: SinkEntry | undefined; target: SinkEntry | undefined } {
    const same = this.sinks.filter((sink) => sink.protects && sink.index === index);
    return {
      inUse: same.find((sink) => sink.movesMember === undefined),
      target: same.find((sink) => sink.movesMember !== undefined),
    };
  }

  /**
   * The target of the move in the opposite direction, where there is one (rule 48). Undefined: this is not
   * the target of a move, or its node holds no other seat of the group.
   */
  private swapOf(target: SinkEntry): { partner: SinkEntry | undefined } | undefined {
    if (target.movesMember === undefined) return undefined;
    const seats = [
      ...this.data.map(({ node }, seat) => ({ node, seat })),
      ...parities(this.current()).map((sink) => ({ node: sink.node, seat: seatOf(this.group, sink) })),
    ];
    const given = seats.find(({ node }) => node === target.node);
    const from = seats.find(({ seat }) => seat === target.movesMember)?.node;
    if (!given) return undefined;
    return { partner: this.sinks.find((sink) => sink.movesMember === given.seat && sink.node === from) };
  }

  /**
   * The target of a parity's move is complete, but nothing could take the node of the parity in use, which is
   * not connected or is avoided. Both stay until that node can be used or is lost.
   */
  private standsBy(target: SinkEntry): boolean {
    if (!target.protects || !this.view.sinkComplete(target.sid)) return false;
    const { inUse } = this.paritiesOf(target.index);
    const { nodes, avoid } = this.view;
    return !nodes.some(({ id }) => id === inUse?.node && !avoid?.has(id));
  }

  /** A half that arrived alone would leave two seats on one node. */
  private dropHalvesOfSwaps(): void {
    const half = this.sinks.filter((sink) => {
      const swap = this.swapOf(sink);
      return swap && !swap.partner && !this.standsBy(sink);
    });
    if (half.length > 0) this.keepSinks((sink) => !half.includes(sink));
  }

  /** Rule 48: both seats arrive in one map. */
  private finishSwaps(): void {
    const complete = (sink: SinkEntry) => this.view.sinkComplete(sink.sid);
    for (const [m] of this.data.entries()) {
      const mirror = this.mirrorOf(m);
      const parity = mirror && this.swapOf(mirror)?.partner;
      if (!parity || !complete(mirror) || !complete(parity)) continue;
      if (!isHealthy(this.current(), this.pool, this.view)) continue;
      const { inUse } = this.paritiesOf(parity.index);
      this.keepSinks((sink) => sink !== inUse);
      this.promote(m, mirror);
    }
  }

  /** Rule 28: the old parity of an index goes when the second one is complete and the group is healthy. */
  private finishReplacements(): void {
    for (let index = 0; index < this.pool.r; index++) {
      const { inUse, target } = this.paritiesOf(index);
      if (!target || this.swapOf(target)) continue;
      if (!this.view.sinkComplete(target.sid) || !isHealthy(this.current(), this.pool, this.view)) continue;
      this.keepSinks((sink) => sink !== inUse);
    }
  }

  private cancelMovesThatBlockRepair(): void {
    const missing = () => {
      let count = this.data.filter((entry) => entry.node === 0).length;
      for (let index = 0; index < this.pool.r; index++) if (!this.paritiesOf(index).inUse) count++;
      return count;
    };
    while (missing() > 0 && !this.freeNode()) {
      const target = this.moveToCancel();
      if (!target) return;
      // A swap frees no node, and only gives up the memory that it takes.
      const succeeds = target.protects && this.view.sinkComplete(target.sid) && !this.swapOf(target);
      const { inUse } = this.paritiesOf(target.index);
      const dropped = succeeds && !this.isCompleteBeside(inUse) ? inUse : target;
      this.keepSinks((sink) => sink !== dropped);
    }
  }

  /** A complete parity on the node of a data shard: that node would not become free without it. */
  private isCompleteBeside(parity: SinkEntry | undefined): boolean {
    if (!parity || !this.view.sinkComplete(parity.sid)) return false;
    return this.data.some(({ node }) => node === parity.node);
  }

  /** The target of a move that the group can do without, parities first. */
  private moveToCancel(): SinkEntry | undefined {
    const targets = this.sinks.filter((sink) => sink.movesMember !== undefined && !this.standsBy(sink));
    return targets.find((sink) => sink.protects) ?? targets[0];
  }

  private homeData(): void {
    for (const [m, entry] of this.data.entries()) {
      if (entry.node !== 0) continue;
      const home = this.freeNode() ?? this.leavingNode() ?? this.nodeInside();
      if (!home) continue;
      const holder = { node: home.id, inc: home.inc, gen: this.epoch, init: false };
      this.data[m] = { ...holder, ...marksOf(entry) };
      this.take(home);
    }
  }

  private addParities(): void {
    for (let index = 0; index < this.pool.r; index++) {
      if (this.paritiesOf(index).inUse) continue;
      this.addSink('P', index, false, this.freeNode() ?? this.leavingNode());
    }
  }

  /**
   * A seat that shares its node moves when a node is free: a parity by a second parity, data by a mirror.
   */
  private spread(): void {
    if (!isHealthy(this.current(), this.pool, this.view)) return;
    const settled = () => [...this.data, ...parities(this.current())];
    for (const only of parities(this.current())) {
      if (this.paritiesOf(only.index).target) continue;
      if (settled().some((entry) => entry !== only && entry.node === only.node))
        this.addSink('P', only.index, true);
    }
    for (const [m, entry] of this.data.entries()) {
      const shared = this.data.some((other, i) => i < m && other.node === entry.node);
      if (shared && !this.mirrorOf(m)) this.addSink('M', m, true);
    }
  }

  /** `moves`: the sink is the target of a move of a seat that has a home already. */
  private addSink(kind: 'P' | 'M', index: number, moves: boolean, node = this.freeNode()): void {
    if (!node) return;
    this.sinks.push({
      sid: this.nextSid(),
      kind,
      index,
      node: node.id,
      inc: node.inc,
      init: false,
      ...CAPABILITIES[kind],
      ...(moves && { movesMember: seatOf(this.group, { kind, index }) }),
    });
    this.take(node);
  }

  private take(node: NodeEntry): void {
    this.load.set(node.id, (this.load.get(node.id) ?? 0) + 1);
    this.changed = true;
  }

  /**
   * A node outside the group: the least near to its nodes, then the least loaded (a standby has no load).
   */
  private freeNode(): NodeEntry | undefined {
    return this.outside((node) => !this.view.leaving?.has(node.id));
  }

  /**
   * A node outside the group that is being emptied. It is used where there is no other: until it leaves,
   * redundancy is worth more.
   */
  private leavingNode(): NodeEntry | undefined {
    return this.outside((node) => this.view.leaving?.has(node.id) === true);
  }

  private outside(which: (node: NodeEntry) => boolean): NodeEntry | undefined {
    const { nodes, avoid } = this.view;
    const used = new Set([...this.data, ...this.sinks].map((entry) => entry.node));
    const byId = nodesById(nodes);
    const others = [...used].flatMap((id) => byId.get(id) ?? []).map(({ host }) => domainOf(host));
    return this.best(
      nodes.filter((node) => !used.has(node.id) && !avoid?.has(node.id) && which(node)),
      (node) => totalNearness(domainOf(node.host), others),
    );
  }

  /**
   * A node inside the group. One with a parity is preferred to one with data, because a parity can move
   * later.
   */
  private nodeInside(): NodeEntry | undefined {
    const holders = new Set(this.data.map((entry) => entry.node));
    const roomy = this.view.nodes.filter((node) => !this.view.full?.has(node.id));
    return this.best(roomy, (node) => (holders.has(node.id) ? 1 : 0));
  }

  private best(nodes: readonly NodeEntry[], cost: (node: NodeEntry) => number): NodeEntry | undefined {
    let best: NodeEntry | undefined;
    let least = Number.POSITIVE_INFINITY;
    for (const node of nodes) {
      const rank = cost(node) * 1e6 + (this.load.get(node.id) ?? 0);
      if (rank >= least) continue;
      best = node;
      least = rank;
    }
    return best;
  }
}

/** The marks of a data entry, which stay with the shard whoever owns it. */
function marksOf({ restore, rewound }: DataEntry): Pick<DataEntry, 'restore' | 'rewound'> {
  return { ...(restore && { restore }), ...(rewound && { rewound }) };
}

/**
 * The sinks of a group for which `keep` is true. Where the parity in use is dropped, the target of its move
 * takes its seat, and the move is over. Returns the same list when all are kept.
 */
export function keepSinks(group: Group, keep: (sink: SinkEntry) => boolean): SinkEntry[] {
  const kept = group.sinks.filter(keep);
  if (kept.length === group.sinks.length) return group.sinks;
  const inUse = new Set(parities({ ...group, sinks: kept }).map((sink) => sink.index));
  return kept.map((sink) => {
    if (!sink.protects || inUse.has(sink.index)) return sink;
    inUse.add(sink.index);
    return settled(sink);
  });
}

/**
 * The groups of a new epoch, or undefined when nothing has to change. `index`: one that may have followed
 * earlier versions of these groups.
 */
export function repair(
  groups: readonly Group[],
  pools: readonly Pool[],
  view: ClusterView,
  epoch: number,
  nextSid: () => number,
  index = new GroupIndex(),
): Group[] | undefined {
  const candidates = index.follow(groups, pools).toRepair(view);
  if (candidates.length === 0) return undefined;
  const load = new Map(index.load);
  let repaired: Group[] | undefined;
  for (const g of candidates) {
    const group = groups[g]!;
    const next = new GroupRepair(group, pools[group.pool]!, view, load, epoch, nextSid).run();
    if (!next) continue;
    repaired ??= [...groups];
    repaired[g] = next;
  }
  return repaired;
}

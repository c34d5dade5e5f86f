// Placement under random histories: nodes die, restart, join and report. After every repair the rules of the
// map hold, whatever came before.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { formGroups, interleaveHosts } from '../../../src/core/placement/form.js';
import { GroupIndex } from '../../../src/core/placement/group-index.js';
import { type ClusterView, isSpread, shardsPerNode } from '../../../src/core/placement/health.js';
import { repair } from '../../../src/core/placement/repair.js';
import { EMPTY_MAP, type Group, type NodeEntry, type Pool, parities } from '../../../src/protocol/map.js';
import { checkCapabilities } from '../../../src/sim/capabilities.js';

const node = (id: number, inc: number, host: number): NodeEntry => ({
  id,
  inc,
  name: `ps-${id}`,
  host: `host-${host}`,
  address: `127.0.0.1:${id}`,
  standby: false,
});

/** An index for which repair looks at every group. */
class AllGroups extends GroupIndex {
  constructor(private readonly groups: readonly Group[]) {
    super();
  }

  override toRepair(): number[] {
    return this.groups.map(({ id }) => id);
  }
}

/** A cluster as the scheduler sees it, with reports that may be late and are never wrong. */
class History {
  epoch = 1;
  groups: Group[];
  readonly pools: Pool[];
  readonly alive = new Map<number, NodeEntry>();
  private readonly sinks = new Set<number>();
  private readonly shards = new Set<string>();
  private readonly generations = new Map<string, number>();
  /** Index that follows the groups through all of the history. */
  private readonly index = new GroupIndex();
  private sid = 1;
  private nextId: number;

  constructor(k: number, r: number, spare: number, hosts: number, groups: number) {
    const count = k + r + spare;
    this.pools = [
      { name: 'embedding', k, r, firstGroup: 0, groups },
      { name: 'mirrored', k: 1, r, firstGroup: groups, groups: 1 },
    ];
    for (let id = 1; id <= count; id++) this.alive.set(id, node(id, 1, id % hosts));
    this.nextId = count + 1;
    this.groups = formGroups(this.pools, this.nodes, this.epoch, () => this.sid++);
    for (const group of this.groups) {
      for (const sink of group.sinks) this.sinks.add(sink.sid);
      for (const [m, entry] of group.data.entries()) this.shards.add(`${group.id}/${m}/${entry.gen}`);
    }
    this.check();
  }

  get nodes(): NodeEntry[] {
    return [...this.alive.values()].sort((a, b) => a.id - b.id);
  }

  private get view(): ClusterView {
    return {
      nodes: this.nodes,
      alive: (id, inc) => this.alive.get(id)?.inc === inc,
      sinkComplete: (sid) => this.sinks.has(sid),
      shardComplete: (g, m, gen) => this.shards.has(`${g}/${m}/${gen}`),
    };
  }

  step(what: number, which: number): void {
    const nodes = this.nodes;
    const chosen = nodes[which % Math.max(1, nodes.length)];
    if (what === 0 && nodes.length > 1) this.alive.delete(chosen!.id);
    else if (what === 1 && chosen)
      this.alive.set(chosen.id, { ...chosen, inc: chosen.inc + 1 }); // restarted, empty
    else if (what === 2) {
      this.alive.set(this.nextId, node(this.nextId, 1, which % 5));
      this.nextId++;
    } else this.report(what === 3 ? which : undefined);
    this.repair();
  }

  /** Lets one sink or owner, or all of them, report that they are complete. */
  private report(which: number | undefined): void {
    const sinks = this.groups.flatMap((group) => group.sinks);
    const owners = this.groups.flatMap((group) =>
      group.data.map((entry, m) => [group.id, m, entry] as const),
    );
    for (const [i, sink] of sinks.entries()) {
      if (which === undefined || which % sinks.length === i) this.sinks.add(sink.sid);
    }
    for (const [i, [g, m, entry]] of owners.entries()) {
      if (entry.node !== 0 && (which === undefined || which % owners.length === i))
        this.shards.add(`${g}/${m}/${entry.gen}`);
    }
  }

  repair(): boolean {
    const before = this.groups;
    const first = this.sid;
    const next = repair(before, this.pools, this.view, this.epoch + 1, () => this.sid++, this.index);
    let sid = first;
    expect(repair(before, this.pools, this.view, this.epoch + 1, () => sid++, new AllGroups(before))).toEqual(
      next,
    );
    expect(new Map(this.index.load)).toEqual(shardsPerNode(before));
    if (!next) return false;
    this.epoch++;
    this.groups = next;
    for (const [i, group] of next.entries()) {
      const changed = JSON.stringify(group) !== JSON.stringify(before[i]);
      expect(group.version).toBe(changed ? this.epoch : before[i]!.version);
    }
    this.check();
    return true;
  }

  private check(): void {
    const sids = this.groups.flatMap((group) => group.sinks.map((sink) => sink.sid));
    expect(new Set(sids).size).toBe(sids.length);
    for (const group of this.groups) this.checkGroup(group, this.pools[group.pool]!);
    checkCapabilities({ ...EMPTY_MAP, groups: this.groups });
  }

  private checkGroup(group: Group, pool: Pool): void {
    expect(group.data.length).toBe(pool.k);
    const sinkNodes = group.sinks.map((sink) => sink.node);
    // Two sinks on one node would be lost together without need.
    expect(new Set(sinkNodes).size).toBe(sinkNodes.length);
    for (let m = 0; m < pool.k; m++) {
      expect(group.sinks.filter((sink) => sink.kind === 'M' && sink.index === m).length).toBeLessThan(2);
    }
    for (let index = 0; index < pool.r; index++) {
      expect(group.sinks.filter((sink) => sink.kind === 'P' && sink.index === index).length).toBeLessThan(3);
    }
    for (const sink of group.sinks) {
      expect(sink.index).toBeLessThan(sink.kind === 'P' ? pool.r : pool.k);
      expect(this.alive.get(sink.node)?.inc).toBe(sink.inc);
    }
    for (const [m, entry] of group.data.entries()) {
      // A lost shard is always given a home, in its own group if need be (rule 27).
      expect(this.alive.get(entry.node)?.inc).toBe(entry.inc);
      const key = `${group.id}/${m}`;
      const known = this.generations.get(key) ?? 0;
      expect(entry.gen).toBeGreaterThanOrEqual(known);
      this.generations.set(key, entry.gen);
    }
    const used = new Set([...group.data, ...group.sinks].map((entry) => entry.node));
    const free = this.nodes.some((entry) => !used.has(entry.id));
    const indexes = new Set(parities(group).map((sink) => sink.index));
    // No parity is missing while a node is free for it.
    expect(free && indexes.size < pool.r).toBe(false);
    // A new home is a crowded one only if no node is free; one that was a mirror of the shard is never
    // crowded by it.
    for (const [m, entry] of group.data.entries()) {
      if (entry.gen !== this.epoch || entry.init) continue;
      const others = [...group.data, ...group.sinks].filter(
        (other) => other !== entry && !('kind' in other && other.kind === 'M' && other.index === m),
      );
      expect(free && others.some((other) => other.node === entry.node)).toBe(false);
    }
  }

  /**
   * Reports and repairs everything until nothing changes. Then all seats have nodes of their own, if the
   * nodes suffice.
   */
  settle(): void {
    for (let round = 0; round < 50; round++) {
      this.report(undefined);
      if (this.repair()) continue;
      for (const group of this.groups) {
        const pool = this.pools[group.pool]!;
        expect(isSpread(group, pool)).toBe(this.alive.size >= pool.k + pool.r);
      }
      return;
    }
    throw new Error('repair does not come to rest');
  }
}

const shape = fc.record({
  k: fc.integer({ min: 1, max: 5 }),
  r: fc.integer({ min: 0, max: 3 }),
  spare: fc.integer({ min: 0, max: 3 }),
  hosts: fc.integer({ min: 1, max: 12 }),
  groups: fc.integer({ min: 1, max: 6 }),
});
const steps = fc.array(fc.tuple(fc.nat(4), fc.nat(1000)), { maxLength: 40, size: 'max' });

describe('placement', () => {
  it('keeps the rules of the map under any history', () => {
    fc.assert(
      fc.property(shape, steps, ({ k, r, spare, hosts, groups }, history) => {
        const cluster = new History(k, r, spare, hosts, groups);
        for (const [what, which] of history) cluster.step(what, which);
        cluster.settle();
      }),
      {
        numRuns: 200,
        examples: [
          // A shard was homed on the node of a mirror, whose shard then moved there although another node was
          // free.
          [
            { k: 4, r: 0, spare: 2, hosts: 1, groups: 1 },
            [[0, 771] as [number, number], [0, 373], [0, 991], [0, 0], [2, 0], [4, 0], [1, 0], [2, 0]],
          ],
        ],
      },
    );
  });

  it('forms groups of k + r different nodes, on different hosts where there are enough', () => {
    fc.assert(
      fc.property(shape, ({ k, r, spare, hosts, groups }) => {
        const cluster = new History(k, r, spare, hosts, groups);
        for (const group of cluster.groups) {
          const pool = cluster.pools[group.pool]!;
          expect(isSpread(group, pool)).toBe(true);
          const used = [...group.data, ...group.sinks].map((entry) => cluster.alive.get(entry.node)!.host);
          const different = new Set(cluster.nodes.map((entry) => entry.host)).size;
          if (group.pool === 0) expect(new Set(used).size).toBe(Math.min(different, k + r));
        }
      }),
      { numRuns: 300 },
    );
  });

  it('orders nodes without losing any', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(4), { maxLength: 20 }), (hosts) => {
        const nodes = hosts.map((host, i) => node(i + 1, 1, host));
        const ordered = interleaveHosts(nodes);
        expect(ordered.map((entry) => entry.id).sort((a, b) => a - b)).toEqual(
          nodes.map((entry) => entry.id),
        );
      }),
    );
  });
});

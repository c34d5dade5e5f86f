/**
 * Replicas in a schedule: clients that follow all shards or some. At any moment each of their states equals,
 * bit for bit, that of the owner of the same generation at the same position. A replica lacks no batch that
 * was committed before the age that it reports. When all is quiet they have everything. They draw from
 * randomness of their own.
 */
import { ReplicaCore, type ReplicaInput } from '../core/replica/replica.js';
import type { SendEffect } from '../core/shared/outbox.js';
import type { NativeShard } from '../engine/native.js';
import type { ClusterMap } from '../protocol/map.js';
import { servedRows } from '../protocol/saving.js';
import type { SimulatedCluster } from './cluster.js';
import type { EngineContent, RememberingShard } from './engine.js';
import { lifeOf } from './living.js';
import { Random } from './random.js';
import type { ReplicaSide } from './sides.js';
import { tablesOfPool } from './tables.js';
import { Violation } from './violation.js';

/** Chance that a schedule has replicas. */
const RATE = 0.2;
/** Chance that a replica serves one table only. */
const SOME_TABLES = 0.3;
/** Chances that a replica has thresholds for the rows that it serves (rows of a policy, see learners.ts). */
const THRESHOLDS = 0.5;
/** Chance that a turn of a replica is followed by a look at its states. */
const LOOKS = 0.3;

/** Draws the replicas from randomness of its own, so that schedules are the same with and without them. */
export function replicasOf(seed: number): { replicas: number } {
  const random = new Random(seed + 0x7e91);
  return { replicas: random.chance(RATE) ? 1 + random.below(2) : 0 };
}

/** Committed position of a shard at some time. */
interface Mark {
  at: number;
  seq: number;
}

export class SimulatedReplicas implements ReplicaSide {
  private readonly random: Random;
  private readonly thresholds: Random;
  /** Names of all tables of the job. */
  private readonly tables: string[];
  /** Number of an actor -> its replica. */
  private readonly cores = new Map<number, ReplicaCore>();
  /** "group/member" -> committed positions, ascending. */
  private readonly marks = new Map<string, Mark[]>();
  /** "group/member" -> newest generation that was loaded from a checkpoint: positions begin again with it. */
  private readonly origins = new Map<string, number>();
  /** Content of a replica -> equal content of its owner, and the tables, when they were compared. */
  private readonly same = new WeakMap<EngineContent, { all: EngineContent; tables: ClusterMap['tables'] }>();

  constructor(
    private readonly cluster: SimulatedCluster,
    seed: number,
  ) {
    this.random = new Random(seed + 0x91ca);
    this.thresholds = new Random(seed + 0x5e4d);
    const { nodes, config } = cluster;
    const pools = [tablesOfPool('embedding', config.extra)];
    if (config.mirrored > 0) pools.push(tablesOfPool('mirrored', config.mirroredExtra));
    this.tables = pools.flat().map(({ name }) => name);
    const first = 1 + nodes.length + config.clients + config.workers;
    for (let i = 0; i < config.replicas; i++) this.restart(first + i, true);
  }

  /** Replaces a replica by another process. */
  restart(index: number, first = false): void {
    const { cluster } = this;
    if (!first && !this.cores.has(index)) return;
    this.cores.get(index)?.close();
    const policy = { retryMs: cluster.retry, probeMs: Math.ceil(cluster.retry / 4), fills: 2, fillBlocks: 3 };
    const of = 1 + this.random.below(2);
    const memory = cluster.native.createMemory(0);
    const share = [1 + this.random.below(of), of] as const;
    const tables = this.random.chance(SOME_TABLES) ? [this.random.pick(this.tables)] : undefined;
    const served = servedRows(...this.drawThresholds());
    this.cores.set(index, new ReplicaCore(cluster.native, memory, policy, { share, tables, served }));
  }

  private drawThresholds(): [minFrequency: number, maxAge: number, maxAgeSeconds: number] {
    const { thresholds } = this;
    if (!thresholds.chance(THRESHOLDS)) return [0, 0, 0];
    const [minFrequency, maxAge] = [thresholds.below(4), thresholds.below(4)];
    return [minFrequency, maxAge, maxAge];
  }

  restartAll(): void {
    this.marks.clear();
    this.origins.clear();
    for (const index of [...this.cores.keys()]) this.restart(index);
  }

  /** Steps the replica of an actor; an actor without one has no effects. */
  step(index: number, input: ReplicaInput): SendEffect[] {
    const core = this.cores.get(index);
    if (!core) return [];
    const effects = core.step(input);
    for (const effect of effects)
      if (effect.kind === 'event') this.cluster.log(() => `   r${index} ${JSON.stringify(effect)}`);
    if (input.kind === 'tick') this.look(core);
    return effects.filter((effect) => effect.kind === 'send');
  }

  private get map(): ClusterMap {
    return this.cluster.control.disk.map;
  }

  private *shards(): Generator<[g: number, m: number]> {
    for (const { id, data } of this.map.groups) for (const m of data.keys()) yield [id, m];
  }

  private look(core: ReplicaCore): void {
    this.mark();
    const closely = this.random.chance(LOOKS);
    for (const [g, m] of this.shards()) {
      const position = core.position(g, m);
      if (!position) continue;
      const { gen, seq, lagMs } = position;
      if (gen < (this.origins.get(`${g}/${m}`) ?? 0)) continue;
      const since = core.now - lagMs;
      const needed = (this.marks.get(`${g}/${m}`) ?? []).findLast(({ at }) => at < since);
      if (needed && needed.seq > seq)
        throw new Violation(
          `a replica of ${g}/${m} is at ${seq} and says that it is ${lagMs} old: ${needed.seq} was committed`,
        );
      if (closely) this.compare(core, g, m);
    }
  }

  /** Notes the committed positions of all shards. */
  private mark(): void {
    const at = this.cluster.now;
    for (const [g, m] of this.shards()) {
      const key = `${g}/${m}`;
      const owners = this.cluster.nodes.flatMap(({ node }) => node?.ownerAt(g, m) ?? []);
      for (const { gen, restores, phase } of owners) {
        if (!restores || phase !== 'ACTIVE' || gen <= (this.origins.get(key) ?? 0)) continue;
        this.origins.set(key, gen);
        this.marks.delete(key);
      }
      const current = owners.filter(({ gen }) => gen >= (this.origins.get(key) ?? 0));
      const seq = Math.max(0, ...current.map(({ stream }) => stream.committed));
      const marks = this.marks.get(key) ?? [];
      this.marks.set(key, marks);
      const last = marks.at(-1);
      if (!last || seq > last.seq) marks.push({ at, seq });
    }
  }

  /** True if the replica's state equals the owner's. False: they cannot be compared now. */
  private compare(core: ReplicaCore, g: number, m: number): boolean {
    const state = core.shardAt(g, m)?.state;
    if (!state) return false;
    for (const { node } of this.cluster.nodes) {
      const owner = node?.ownerAt(g, m);
      if (owner?.gen !== state.gen || !owner.complete || owner.native.dirty) continue;
      if (owner.stream.seq !== state.seq) continue;
      // The owner or the replica does not know yet that a table was created or dropped.
      if (idsOf(node!.map) !== idsOf(core.map)) continue;
      this.cluster.count('replica.compared');
      const [all, here] = [contentOf(owner.native), contentOf(state.native)];
      const { tables } = core.map;
      const seen = this.same.get(here);
      // Neither has changed since they were found equal.
      if (seen?.all === all && seen.tables === tables) return true;
      const others = tables.filter(({ id }) => core.leavesOut(id)).map(({ name }) => name);
      const served = [...all].filter(([table]) => !others.includes(table));
      const differs = difference(new Map(served), here);
      if (differs) throw new Violation(`a replica of ${g}/${m} at ${state.gen}:${state.seq}: ${differs}`);
      this.checkServed(core, state.native, here, `a replica of ${g}/${m} at ${state.gen}:${state.seq}`);
      this.same.set(here, { all, tables });
      return true;
    }
    return false;
  }

  /** Readers get exactly the rows of a table with a policy that pass the thresholds of the replica. */
  private checkServed(core: ReplicaCore, native: NativeShard, here: EngineContent, who: string): void {
    for (const { id, name, dim, policy } of core.map.tables) {
      const rows = here.get(name);
      if (!policy || !rows) continue;
      const { minFrequency = 0, maxAge: steps = 0, maxAgeSeconds: seconds = 0 } = core.served;
      const maxAge = policy.clock === 'seconds' ? seconds : steps;
      const least = Math.max(minFrequency, policy.counter ?? 0);
      const keys = BigUint64Array.from(rows.keys());
      const found = new Uint8Array(keys.length);
      native.readValues(id, keys, new Float32Array(keys.length * dim), false, found);
      for (const [i, key] of keys.entries()) {
        const { age, sightings } = lifeOf(rows.get(key)!);
        const isServed = sightings >= least && (maxAge === 0 || age <= maxAge);
        this.cluster.count(isServed ? 'replica.row.served' : 'replica.row.hidden');
        if (isServed !== (found[i] === 1))
          throw new Violation(`${who}: row ${key} of ${name}, of age ${age}, ${sightings} sightings`);
      }
    }
  }

  /** True if every replica has the present state of all its shards. */
  get finished(): boolean {
    for (const core of this.cores.values()) {
      const pools = core.map.pools;
      for (const [g, m] of this.shards()) {
        const group = this.map.groups[g]!;
        const pool = pools[group.pool];
        if (!pool || !core.holds(group.pool, (g - pool.firstGroup) * pool.k + m)) continue;
        if (!this.compare(core, g, m)) return false;
      }
    }
    return true;
  }

  describe(): string[] {
    return [...this.cores.values()].map((core) => {
      const at = [...this.shards()].map(([g, m]) => [g, m, core.position(g, m)]);
      return `replica of map ${core.map.epoch}: ${JSON.stringify(at)}`;
    });
  }

  close(): void {
    for (const core of this.cores.values()) core.close();
  }
}

const idsOf = ({ tables }: ClusterMap): string => tables.map(({ id }) => id).join();

function contentOf(shard: unknown): EngineContent {
  return (shard as RememberingShard).content();
}

/** The first difference of two contents: a key that only one of them has, or another value. */
function difference(owner: EngineContent, replica: EngineContent): string | undefined {
  for (const [table, rows] of owner) {
    const here = replica.get(table) ?? new Map<bigint, Float32Array>();
    if (here.size !== rows.size) return `${here.size} rows of ${table}, the owner has ${rows.size}`;
    for (const [key, row] of rows) {
      const found = here.get(key);
      if (!found) return `row ${key} of ${table} is missing`;
      for (let i = 0; i < row.length; i++)
        if (!Object.is(row[i], found[i])) return `row ${key} of ${table} differs`;
    }
  }
  return undefined;
}

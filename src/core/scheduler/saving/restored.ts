/**
 * The state of a new job that begins with a checkpoint, and the lost shards that a running job loads from
 * one: pure functions of the manifest and the map.
 *
 * A shard of the job is loaded from the shard of the checkpoint that has the same keys. Where the checkpoint
 * has another number of shards, it is loaded from all of those that share keys with it: a shard is a range of
 * hashes, so these are neighbours.
 */
import { KintsugiError } from '../../../common/errors.js';
import { lastingPart } from '../../../engine/optimizers.js';
import type { CheckpointDraft, SavedDataset, SavedShard, SavedTable } from '../../../protocol/checkpoints.js';
import { shardKey } from '../../../protocol/items.js';
import {
  CAPABILITIES,
  type ClusterMap,
  type DataEntry,
  type Group,
  type PeerId,
  type Pool,
  type SinkEntry,
  shardAt,
  shardCount,
} from '../../../protocol/map.js';
import { inOneLine } from '../../../protocol/settings.js';
import { tableProblem } from '../../../protocol/table-rules.js';
import type { DatasetState } from '../samples/state.js';
import { type DurableState, newJob, type ShardToLoad } from '../state.js';

/** The parts of a checkpoint that a restore looks at. */
export type Checkpoint = Pick<
  CheckpointDraft,
  'kind' | 'number' | 'job' | 'barrier' | 'pools' | 'tables' | 'lastTable' | 'samples' | 'shards'
>;

type PoolShape = Omit<Pool, 'firstGroup'>;

function isSameShape(pool: PoolShape, saved: PoolShape): boolean {
  return pool.k === saved.k && pool.groups === saved.groups;
}

/** True: a pool of the checkpoint has other shards in this job, or is missing. */
export function isReshaped(
  pools: readonly PoolShape[],
  { pools: saved }: Pick<Checkpoint, 'pools'>,
): boolean {
  return saved.some((before) => {
    const pool = pools.find(({ name }) => name === before.name);
    return !pool || !isSameShape(pool, before);
  });
}

/** Shards of the checkpoint that have keys of shard `shard` of `count`. */
function sharing(saved: readonly SavedShard[], of: number, shard: number, count: number): SavedShard[] {
  return saved.filter(
    (other) => other.shard * count < (shard + 1) * of && shard * of < (other.shard + 1) * count,
  );
}

/** The files that a shard is loaded from; undefined: the checkpoint has none of its keys. */
function shardToLoad(
  pool: Pool,
  g: number,
  m: number,
  { pools, shards }: Pick<Checkpoint, 'pools' | 'shards'>,
): ShardToLoad | undefined {
  const before = pools.find(({ name }) => name === pool.name);
  if (!before) return undefined;
  const saved = shards.filter((each) => each.pool === pool.name);
  const found = sharing(saved, shardCount(before), shardAt(pool, g, m), shardCount(pool));
  if (found.length === 0) return undefined;
  const parts = found.map(({ group, member, segments }) => ({ group, member, segments }));
  return { g, m, parts, reshaped: !isSameShape(pool, before) };
}

/** @throws BAD_ARGUMENT */
function checkKind({ kind, number }: Checkpoint): void {
  if (kind !== 'full job') throw new KintsugiError('BAD_ARGUMENT', `checkpoint ${number} is an export`);
}

// ---- a new job

/** The sessions that are open in a restored job are those of ranges. */
function restoredDataset(saved: SavedDataset, exact: boolean): DatasetState {
  const { open, samples, setAside, growth, ...rest } = saved;
  const ranges = [...open].sort((a, b) => a.number - b.number);
  return {
    ...{ ...rest, samples: [...samples], setAside: [...setAside] },
    open: new Map(ranges.map((range) => [range.number, { ...range, ...(!exact && { partial: true }) }])),
    ...(growth && { growth: growth.map((file) => ({ ...file })) }),
  };
}

/**
 * The state of a job that goes on from a checkpoint. In as many data shards as it has, every sample counts
 * once: shards know the numbers of pushes that they hold. In other shards, these numbers mean nothing. From a
 * cut of one instant every sample still counts once, because the queue says which batches are in the rows.
 * From any other checkpoint, shards hold some batches that came after the queue was copied, and these are
 * trained again.
 * @throws BAD_ARGUMENT when a pool of the checkpoint is missing, or it is an export
 */
export function restoredJob(
  job: string,
  nodesWanted: number,
  pools: readonly PoolShape[],
  url: string,
  checkpoint: Checkpoint,
): DurableState {
  const { number, barrier, tables, samples } = checkpoint;
  checkKind(checkpoint);
  const missing = tables.find((table) => !pools.some(({ name }) => name === table.pool));
  if (missing) {
    const text = `the job has no pool "${missing.pool}", which checkpoint ${number} has a table in`;
    throw new KintsugiError('BAD_ARGUMENT', text);
  }
  // In fewer shards a filter may be larger than a table of one.
  for (const table of tables) {
    const problem = tableProblem(table, pools);
    if (problem) throw new KintsugiError('BAD_ARGUMENT', problem);
  }
  const state = newJob(job, nodesWanted, [...pools]);
  state.map = { ...state.map, tables: tables.map((table, index) => ({ ...table, id: index + 1 })) };
  state.firstPeer = state.nextPeer = Math.max(1, samples?.nextPeer ?? 1);
  state.datasets = (samples?.datasets ?? []).map((dataset) => restoredDataset(dataset, barrier));
  for (const id of samples?.sessions ?? []) state.sessions.set(id, { id, leased: false });
  const shards = new Map<number, ShardToLoad>();
  for (const pool of state.map.pools) {
    for (let shard = 0; shard < shardCount(pool); shard++) {
      const [g, m] = [pool.firstGroup + Math.floor(shard / pool.k), shard % pool.k];
      const toLoad = shardToLoad(pool, g, m, checkpoint);
      if (toLoad) shards.set(shardKey(g, m), toLoad);
    }
  }
  const again = !barrier && isReshaped(pools, checkpoint);
  state.restore = { url, number, shards, ...(again && { atLeastOnce: true }) };
  return state;
}

// ---- a running job

/** Somebody asks that lost shards are loaded from this checkpoint. `agoMs`: how old its state is. */
export interface RestoreLostInput {
  kind: 'restoreLost';
  from: PeerId;
  id: number;
  url: string;
  agoMs: number;
  checkpoint: Checkpoint;
}

/** A shard that is to be loaded, and what the checkpoint has of it. */
export interface Reloaded extends ShardToLoad {
  pool: string;
  shard: number;
  /** In all of its files: a row that several of them have counts several times. */
  rows: number;
}

export interface Reload {
  groups: Group[];
  shards: Reloaded[];
}

export interface LostInput {
  readonly map: ClusterMap;
  /** Sessions of this job have ids from here on. */
  readonly firstPeer: PeerId;
  /** Shards that are beyond repair, by the newest reports. */
  readonly lost: readonly { g: number; m: number }[];
  isComplete(g: number, m: number, gen: number): boolean;
  nextSid(): number;
}

/**
 * The groups of the next map, in which lost shards are to be loaded, and what is loaded. A lost shard gets a
 * new generation. Its group gets new sinks: what the others have of it is of no use any more.
 * @throws BAD_ARGUMENT when the checkpoint cannot serve this job, or does not have a lost shard; NOT_READY
 * when other shards of these groups are still being recovered, because they may yet be saved
 */
export function reloadLost(
  { map, firstPeer, lost, isComplete, nextSid }: LostInput,
  checkpoint: Checkpoint,
): Reload {
  checkKind(checkpoint);
  checkDrops(map, checkpoint);
  const { number } = checkpoint;
  const shards: Reloaded[] = [];
  const epoch = map.epoch + 1;
  const groups = map.groups.map((group): Group => {
    const isLost = (m: number) => lost.some((each) => each.g === group.id && each.m === m);
    if (!group.data.some((_, m) => isLost(m))) return group;
    const pool = map.pools[group.pool]!;
    checkTables(pool.name, map, checkpoint);
    const data = group.data.map((entry, m): DataEntry => {
      if (!isLost(m)) {
        if (isComplete(group.id, m, entry.gen)) return entry;
        const text = `shard ${m} of group ${group.id} is still being recovered: ask again when it is not`;
        throw new KintsugiError('NOT_READY', text);
      }
      const toLoad = shardToLoad(pool, group.id, m, checkpoint);
      if (!toLoad) {
        const text = `checkpoint ${number} does not have shard ${m} of group ${group.id}`;
        throw new KintsugiError('BAD_ARGUMENT', text);
      }
      const rows = toLoad.parts.flatMap(({ segments }) => segments).reduce((sum, each) => sum + each.rows, 0);
      const below = checkpoint.job !== map.job && { sessionsBelow: firstPeer };
      shards.push({ ...toLoad, ...below, pool: pool.name, shard: shardAt(pool, group.id, m), rows });
      const { node, inc } = entry;
      return { node, inc, gen: epoch, init: false, restore: true, rewound: true };
    });
    const sinks = group.sinks.filter(({ protects, movesMember }) => protects && movesMember === undefined);
    const fresh = ({ kind, index, node, inc }: SinkEntry): SinkEntry => {
      return { sid: nextSid(), kind, index, node, inc, init: false, ...CAPABILITIES[kind] };
    };
    return { ...group, version: epoch, data, sinks: sinks.map(fresh) };
  });
  return { groups, shards };
}

/**
 * Rule 47: files know tables by their names, so rows of a dropped table would come into another one of its
 * name. @throws BAD_ARGUMENT when this job has dropped a table since the checkpoint
 */
function checkDrops({ job, lastTable }: ClusterMap, checkpoint: Checkpoint): void {
  if (lastTable === undefined) return;
  if (checkpoint.job === job && checkpoint.lastTable === lastTable) return;
  const text = `checkpoint ${checkpoint.number} was made before this job dropped a table`;
  throw new KintsugiError('BAD_ARGUMENT', `${text}: take a later one`);
}

/**
 * Tables that were created after the checkpoint do not matter. @throws BAD_ARGUMENT when others are not as
 * they were saved
 */
function checkTables(pool: string, map: ClusterMap, { number, tables }: Checkpoint): void {
  for (const saved of tables) {
    if (saved.pool !== pool) continue;
    const table = map.tables.find(({ name }) => name === saved.name);
    const same =
      table?.pool === pool &&
      table.dim === saved.dim &&
      isSameOptimizer(table, saved) &&
      (table.policy === undefined) === (saved.policy === undefined) &&
      table.policy?.score === saved.policy?.score &&
      table.policy?.clock === saved.policy?.clock;
    if (!same) {
      const text = `this job has no table "${saved.name}" as checkpoint ${number} has it`;
      throw new KintsugiError(
        'BAD_ARGUMENT',
        `${text}: dim, pool or optimizer differ, one of both has no policy, no score or another clock, ` +
          'or it is missing',
      );
    }
  }
}

/** Settings may have changed since, where the state of rows does not depend on them. */
function isSameOptimizer(a: Pick<SavedTable, 'optimizer'>, b: Pick<SavedTable, 'optimizer'>): boolean {
  return inOneLine(lastingPart(a.optimizer)) === inOneLine(lastingPart(b.optimizer));
}

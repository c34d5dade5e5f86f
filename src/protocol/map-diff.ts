/**
 * Changes from one map to the next: the scheduler sends these to every peer, and a whole map only to a peer
 * that joins or does not have the map that a diff changes. Maps and their parts are replaced and never
 * changed in place, so a part that is the same object is unchanged.
 */
import { KintsugiError } from '../common/errors.js';
import type { ClusterMap, Group, NodeEntry, PeerId, TableSpec } from './map.js';
import type { MapDiff, MapMessage } from './membership.js';

/** The message that takes a peer from map `before` to map `after` of the same job. */
export function diffOf(before: ClusterMap, after: ClusterMap): MapDiff | MapMessage {
  const { groups, nodes, tables } = after;
  // Drops of tables are rare, so a diff knows none.
  const isDrop = after.lastTable !== before.lastTable || tables.length < before.tables.length;
  if (isDrop || groups.length < before.groups.length || after.pools !== before.pools)
    return { t: 'map', map: after };
  return {
    t: 'mapDiff',
    from: before.epoch,
    to: after.epoch,
    groups: groups === before.groups ? [] : groups.filter((group, g) => group !== before.groups[g]),
    ...nodeChanges(before.nodes, nodes),
    tables: tables === before.tables ? [] : tables.filter((table, i) => table !== before.tables[i]),
  };
}

function nodeChanges(
  before: readonly NodeEntry[],
  after: readonly NodeEntry[],
): Pick<MapDiff, 'nodes' | 'removed'> {
  if (before === after) return { nodes: [], removed: [] };
  const [known, kept] = [new Set(before), new Set(after.map(({ id }) => id))];
  return {
    nodes: after.filter((node) => !known.has(node)),
    removed: before.filter(({ id }) => !kept.has(id)).map(({ id }) => id),
  };
}

/** A newer map, with the groups that a receiver has to look at. */
export interface MapChange {
  map: ClusterMap;
  /** Groups that are new or have another version. */
  groups: readonly Group[];
}

/**
 * The map of a receiver that has `map` after a message about the map. `known`: it has this map or a newer
 * one. `gap`: it does not have the map that the diff changes, and needs a whole one.
 * @throws BAD_FRAME when the diff cannot be one of this map
 */
export function changeBy(map: ClusterMap, message: MapMessage | MapDiff): MapChange | 'known' | 'gap' {
  if (message.t === 'map') {
    const next = message.map;
    if (next.epoch <= map.epoch) return 'known';
    return { map: next, groups: next.groups.filter(({ version }, g) => version !== map.groups[g]?.version) };
  }
  if (message.to <= map.epoch) return 'known';
  if (message.from !== map.epoch) return 'gap';
  return { map: applied(map, message), groups: message.groups };
}

/** The map after the diff. Its nodes are in no particular order. */
function applied(map: ClusterMap, diff: MapDiff): ClusterMap {
  const { groups, nodes, removed, tables } = diff;
  return {
    ...map,
    epoch: diff.to,
    groups: groups.length === 0 ? map.groups : replaced(map.groups, groups),
    nodes: nodes.length + removed.length === 0 ? map.nodes : mergedNodes(map.nodes, nodes, removed),
    tables: tables.length === 0 ? map.tables : mergedTables(map.tables, tables),
  };
}

function replaced(groups: readonly Group[], changed: readonly Group[]): Group[] {
  const next = [...groups];
  for (const group of changed) {
    if (group.id > next.length)
      throw new KintsugiError('BAD_FRAME', `group ${group.id} of a map of ${next.length} groups`);
    next[group.id] = group;
  }
  return next;
}

/** Changed tables stay in their places, and new ones come behind. */
function mergedTables(before: readonly TableSpec[], changed: readonly TableSpec[]): TableSpec[] {
  const left = new Map(changed.map((table) => [table.id, table]));
  const next = before.map((table) => {
    const other = left.get(table.id);
    left.delete(table.id);
    return other ?? table;
  });
  return [...next, ...left.values()];
}

function mergedNodes(
  before: readonly NodeEntry[],
  changed: readonly NodeEntry[],
  removed: readonly PeerId[],
): NodeEntry[] {
  const nodes = new Map(before.map((node) => [node.id, node]));
  for (const id of removed) nodes.delete(id);
  for (const node of changed) nodes.set(node.id, node);
  return [...nodes.values()];
}

/** True if a shard of the group has another owner than before. */
export function hasNewOwner(before: Group | undefined, { data }: Group): boolean {
  return before?.data.some((entry, m) => entry.gen !== data[m]?.gen) ?? false;
}

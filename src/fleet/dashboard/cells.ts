/** Places and states of all shards: pure functions of the map and of the scheduler's status. */
import type { JobSnapshot } from '../../library/client/observe.js';
import { type FrozenMap, type Group, isInUse, mirrorOf, type PeerId } from '../../protocol/map.js';
import type { JobStatus, NodeStatus, RecoveryStats } from '../../protocol/messages.js';
import {
  CELL_STATES,
  type Cell,
  type HostView,
  type JobView,
  MAX_REASONS,
  type NodeView,
  type RecoveryView,
  type ViewCounts,
} from './view.js';

/** The newest map and the newest status of the job. */
export interface SeenJob {
  map: FrozenMap;
  status: JobStatus;
}

const percentOf = (part: number, all: number): number =>
  all === 0 ? 0 : Math.floor((Math.min(part, all) / all) * 100);

/**
 * Knows which parities are whole. The status names only groups that are not, so what was whole before is
 * remembered.
 */
export class WholeParities {
  private readonly whole = new Set<number>();
  private started = false;

  /** Must be called with each new status, before {@link has}. */
  look({ map, status }: SeenJob): void {
    const flawed = flawedGroups(map, status);
    const present = new Set<number>();
    for (const group of map.groups)
      for (const sink of group.sinks) {
        if (sink.kind !== 'P') continue;
        present.add(sink.sid);
        // At the first look nothing is remembered: in a flawed group a parity that was made with the group
        // counts as whole, and any other one as being built.
        if (!flawed.has(group.id) || (!this.started && sink.init)) this.whole.add(sink.sid);
      }
    for (const sid of this.whole) if (!present.has(sid)) this.whole.delete(sid);
    this.started = map.groups.length > 0;
  }

  has(sid: number): boolean {
    return this.whole.has(sid);
  }
}

/**
 * Progress of parities and mirrors that are being filled. They report how many blocks they lack; the total is
 * the most that was seen.
 */
export class Filling {
  private readonly most = new Map<number, number>();
  private left = new Map<number, number>();

  look({ nodes }: JobSnapshot): void {
    const sinks = nodes.flatMap(({ telemetry }) => telemetry.sinks ?? []);
    this.left = new Map(sinks.flatMap(({ sid, blocksLeft }) => (blocksLeft ? [[sid, blocksLeft]] : [])));
    for (const [sid, left] of this.left) this.most.set(sid, Math.max(left, this.most.get(sid) ?? 0));
    for (const sid of this.most.keys()) if (!this.left.has(sid)) this.most.delete(sid);
  }

  /** Percent of the blocks that are here, 0 to 100; undefined for a sink that reports nothing. */
  percent(sid: number): number | undefined {
    const [left, most] = [this.left.get(sid), this.most.get(sid)];
    return left === undefined || most === undefined ? undefined : percentOf(most - left, most);
  }
}

/** Ids of groups that cannot lose r nodes, by the reasons of the status: "embedding group 3: ...". */
function flawedGroups(map: FrozenMap, { reasons }: JobStatus): Set<number> {
  const first = new Map(map.pools.map((pool) => [pool.name, pool.firstGroup]));
  const flawed = new Set<number>();
  for (const reason of reasons) {
    const match = /^(\S+) group (\d+):/.exec(reason);
    const base = match && first.get(match[1]!);
    if (match && base !== undefined) flawed.add(base! + Number(match[2]));
  }
  return flawed;
}

/** All cells by the id of the node that they are drawn on; 0: no node. */
export function cellsByNode(
  seen: SeenJob,
  parities: WholeParities,
  filling = new Filling(),
): Map<PeerId, Cell[]> {
  const { map, status } = seen;
  const alive = new Map(status.nodes.filter((node) => node.alive).map((node) => [node.id, node]));
  const names = new Map(map.nodes.map((node) => [node.id, node.name]));
  const key = (g: number, m: number, gen: number) => `${g}/${m}/${gen}`;
  const recoveries = new Map(status.recoveries.map((each) => [key(each.g, each.m, each.gen), each]));
  const flawed = flawedGroups(map, status);
  const lost = new Set(status.unrecoverable.map(({ g, m }) => `${g}/${m}`));
  const cells = new Map<PeerId, Cell[]>();
  const put = (node: PeerId, cell: Cell) => {
    const list = cells.get(node);
    if (list) list.push(cell);
    else cells.set(node, [cell]);
  };
  const isUp = (entry: { node: PeerId; inc: number }) => alive.get(entry.node)?.inc === entry.inc;
  const name = (node: PeerId): Pick<Cell, 'other'> => {
    const known = names.get(node);
    return known === undefined ? {} : { other: known };
  };

  for (const group of map.groups) {
    const pool = map.pools[group.pool]!;
    const where = { pool: pool.name, group: group.id - pool.firstGroup };
    for (const [index, entry] of group.data.entries()) {
      const cell: Cell = { kind: 'data', ...where, index, state: 'whole' };
      const recovery = recoveries.get(key(group.id, index, entry.gen));
      if (lost.has(`${group.id}/${index}`)) cell.state = 'lost';
      else if (!isUp(entry)) cell.state = 'waiting';
      else if (recovery && isUnderWay(recovery, flawed.has(group.id)))
        Object.assign(cell, progressOf(recovery));
      else Object.assign(cell, movingTo(group, index, name));
      put(entry.node, cell);
    }
    for (const sink of group.sinks) {
      const cell: Cell = {
        kind: sink.kind === 'P' ? 'parity' : 'mirror',
        ...where,
        index: sink.index,
        state: 'whole',
      };
      const from =
        sink.movesMember === undefined ? undefined : homeOf(group, sink.movesMember, sink.sid)?.node;
      if (!isUp(sink)) cell.state = 'waiting';
      else if (sink.movesMember !== undefined) Object.assign(cell, { state: 'arriving', ...name(from ?? 0) });
      else if (sink.kind === 'P' && !parities.has(sink.sid)) cell.state = 'recovering';
      else if (sink.kind === 'P') Object.assign(cell, movingTo(group, group.data.length + sink.index, name));
      const percent = filling.percent(sink.sid);
      if (percent !== undefined && (cell.state === 'recovering' || cell.state === 'arriving'))
        cell.percent = percent;
      put(sink.node, cell);
    }
  }
  return cells;
}

/**
 * Whether a recovery goes on. The owner knows the missing blocks only when it has the keys; until then it
 * reports 0, and the group is flawed.
 */
const isUnderWay = ({ blocksLost, blocksPresent, keysReady }: RecoveryStats, flawed: boolean): boolean =>
  blocksPresent < blocksLost || (blocksLost === 0 && !keysReady && flawed);

function progressOf({ blocksLost, blocksPresent, blocksOnDemand }: RecoveryStats): Partial<Cell> {
  if (blocksLost === 0) return { state: 'recovering' };
  return {
    state: 'recovering',
    percent: percentOf(blocksPresent, blocksLost),
    demand: percentOf(blocksOnDemand, blocksLost),
  };
}

/** The `moving` state of the member on this seat (data shards first, then parities), if it moves. */
function movingTo(group: Group, seat: number, name: (node: PeerId) => Pick<Cell, 'other'>): Partial<Cell> {
  const target = group.sinks.find((sink) => sink.movesMember === seat);
  // After the cut-over the mirror lies beside the new owner for a moment.
  const isDone = seat < group.data.length && mirrorOf(group, seat)?.node === group.data[seat]!.node;
  return target && !isDone ? { state: 'moving', ...name(target.node) } : {};
}

/** The entry that has this seat now, other than sink `except`. */
function homeOf(group: Group, seat: number, except: number): { node: PeerId } | undefined {
  if (seat < group.data.length) return group.data[seat];
  const index = seat - group.data.length;
  return group.sinks.find((sink) => isInUse(sink) && sink.index === index && sink.sid !== except);
}

// ---- nodes and hosts

const noCounts = (): ViewCounts => ({
  whole: 0,
  recovering: 0,
  moving: 0,
  arriving: 0,
  waiting: 0,
  lost: 0,
});

function add(to: ViewCounts, from: ViewCounts): void {
  for (const state of CELL_STATES) to[state] += from[state];
}

/** Whether a living node has not told this scheduler yet what it holds: the scheduler took the job over. */
const isUnreported = ({ alive, reported }: NodeStatus): boolean => alive && reported === false;

function stateOf(node: NodeStatus, leaving: ReadonlySet<string>): NodeView['state'] {
  if (!node.alive) return 'down';
  if (leaving.has(node.name)) return 'leaving';
  return node.standby ? 'standby' : 'alive';
}

const KINDS: readonly Cell['kind'][] = ['data', 'parity', 'mirror'];

/** Data shards, then parities, then mirrors; each by pool and number. */
function inOrder(a: Cell, b: Cell): number {
  return (
    KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind) ||
    a.pool.localeCompare(b.pool) ||
    a.group - b.group ||
    a.index - b.index
  );
}

/** Name of the host and node on which shards without a node are drawn. */
export const NOWHERE = 'no node';

/** Compares names with numbers by value: "ps-10" comes after "ps-9". */
const byName = new Intl.Collator('en', { numeric: true }).compare;

/** Hosts with their nodes, both by name. */
export function hostsOf(seen: SeenJob, parities: WholeParities, filling?: Filling): HostView[] {
  const { status } = seen;
  const running = status.scaling.changes.filter((change) => change.state === 'running');
  const leaving = new Set(running.flatMap((change) => change.leaving));
  const cells = cellsByNode(seen, parities, filling);
  const hosts = new Map<string, HostView>();
  const known = new Set(status.nodes.map((node) => node.id));
  for (const node of [...status.nodes].sort((a, b) => byName(a.name, b.name))) {
    let host = hosts.get(node.host);
    if (!host) {
      host = { name: node.host, nodes: [], down: 0, counts: noCounts(), rows: 0, bytes: 0 };
      hosts.set(node.host, host);
    }
    const { id, name, address } = node;
    // A node that is down holds nothing, whatever it reported last.
    const holds = node.alive ? node : { rows: 0, bytes: 0 };
    const size = isUnreported(node) ? {} : { rows: holds.rows, bytes: holds.bytes };
    const own = (cells.get(id) ?? []).sort(inOrder);
    host.nodes.push({ id, name, address, state: stateOf(node, leaving), ...size, cells: own });
    for (const cell of own) host.counts[cell.state]++;
    if (!node.alive) host.down++;
    host.rows += size.rows ?? 0;
    host.bytes += size.bytes ?? 0;
  }
  const sorted = [...hosts.values()].sort((a, b) => byName(a.name, b.name));
  const homeless = [...cells].filter(([id]) => !known.has(id)).flatMap(([, own]) => own);
  return homeless.length > 0 ? [...sorted, nowhere(homeless)] : sorted;
}

/** A host with one node for the shards that no node has. */
function nowhere(cells: Cell[]): HostView {
  const counts = noCounts();
  for (const cell of cells) counts[cell.state]++;
  const none = { id: 0, name: NOWHERE, address: '', rows: 0, bytes: 0 };
  return { name: NOWHERE, nodes: [{ ...none, state: 'down', cells }], down: 0, counts, rows: 0, bytes: 0 };
}

export function jobOf({ status }: SeenJob, hosts: readonly HostView[]): JobView {
  const counts = noCounts();
  for (const host of hosts) add(counts, host.counts);
  const sum = (of: (host: HostView) => number) => hosts.reduce((all, host) => all + of(host), 0);
  const unreported = status.nodes.filter(isUnreported).length;
  return {
    job: status.job,
    epoch: status.epoch,
    redundancy: status.redundancy,
    reasons: status.reasons.slice(0, MAX_REASONS),
    warnings: status.warnings,
    pools: status.pools,
    hosts: hosts.filter((host) => host.name !== NOWHERE).length,
    nodes: status.nodes.length,
    nodesAlive: status.nodes.filter((node) => node.alive).length,
    wanted: status.scaling.wanted,
    serving: status.scaling.serving,
    unreported,
    ...(unreported === 0 && { rows: sum((host) => host.rows), bytes: sum((host) => host.bytes) }),
    counts,
  };
}

/** Data shards that are being decoded; those whose blocks are known first. */
export function recoveriesOf({ map, status }: SeenJob): RecoveryView[] {
  const names = new Map(map.nodes.map((node) => [node.id, node.name]));
  const lost = new Set(status.unrecoverable.map(({ g, m }) => `${g}/${m}`));
  const flawed = flawedGroups(map, status);
  const views = status.recoveries.flatMap((each): RecoveryView[] => {
    if (lost.has(`${each.g}/${each.m}`)) return [];
    const group = map.groups[each.g];
    const entry = group?.data[each.m];
    if (!group || !entry || entry.gen !== each.gen || !isUnderWay(each, flawed.has(each.g))) return [];
    const pool = map.pools[group.pool]!;
    return [
      {
        pool: pool.name,
        group: each.g - pool.firstGroup,
        index: each.m,
        node: names.get(entry.node) ?? '',
        blocks: each.blocksLost,
        present: each.blocksPresent,
        onDemand: each.blocksOnDemand,
      },
    ];
  });
  const unknown = (each: RecoveryView): number => (each.blocks > 0 ? 0 : 1);
  return views.sort((a, b) => unknown(a) - unknown(b) || a.group - b.group || a.index - b.index);
}

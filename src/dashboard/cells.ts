/** Which shard is where and how it is: pure functions of the map and of the scheduler's status. */
import type { JobSnapshot } from '../client/observe.js';
import { type ClusterMap, type Group, isInUse, mirrorOf, type PeerId } from '../protocol/map.js';
import type { JobStatus, NodeStatus, RecoveryStats } from '../protocol/messages.js';
import {
  CELL_STATES,
  type Cell,
  type Counts,
  type HostView,
  type JobView,
  MAX_REASONS,
  type NodeView,
  type RecoveryView,
} from './view.js';

/** What the newest map and status say together. */
export interface Seen {
  map: ClusterMap;
  status: JobStatus;
}

const percentOf = (part: number, all: number): number =>
  all === 0 ? 0 : Math.floor((Math.min(part, all) / all) * 100);

/** Which parities are whole. The status names groups that are not, so what was whole before is remembered. */
export class WholeParities {
  private readonly whole = new Set<number>();
  private started = false;

  /** Call it with each new status, before {@link has}. */
  look({ map, status }: Seen): void {
    const flawed = flawedGroups(map, status);
    const present = new Set<number>();
    for (const group of map.groups)
      for (const sink of group.sinks) {
        if (sink.kind !== 'P') continue;
        present.add(sink.sid);
        // What the first look finds in a flawed group was born with it, or is being built.
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
 * How far parities and mirrors are that are being filled. They say how many blocks they lack; how many there
 * were is what was seen at the most.
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

  /** Undefined: nothing is known of it. */
  percent(sid: number): number | undefined {
    const [left, most] = [this.left.get(sid), this.most.get(sid)];
    return left === undefined || most === undefined ? undefined : percentOf(most - left, most);
  }
}

/** Ids of groups that cannot lose r nodes, by the reasons of the status: "embedding group 3: ...". */
function flawedGroups(map: ClusterMap, { reasons }: JobStatus): Set<number> {
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
  seen: Seen,
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

/** Its owner knows what is missing only when it has the keys; until then its group is flawed. */
const isUnderWay = ({ blocksLost, blocksPresent }: RecoveryStats, flawed: boolean): boolean =>
  blocksPresent < blocksLost || (blocksLost === 0 && flawed);

function progressOf({ blocksLost, blocksPresent, blocksOnDemand }: RecoveryStats): Partial<Cell> {
  if (blocksLost === 0) return { state: 'recovering' };
  return {
    state: 'recovering',
    percent: percentOf(blocksPresent, blocksLost),
    demand: percentOf(blocksOnDemand, blocksLost),
  };
}

/** Where the member on this seat (data shards first, then parities) goes, if it moves. */
function movingTo(group: Group, seat: number, name: (node: PeerId) => Pick<Cell, 'other'>): Partial<Cell> {
  const target = group.sinks.find((sink) => sink.movesMember === seat);
  // After the cut-over the mirror lies beside the new owner for a moment.
  const isDone = seat < group.data.length && mirrorOf(group, seat)?.node === group.data[seat]!.node;
  return target && !isDone ? { state: 'moving', ...name(target.node) } : {};
}

/** Who has this seat now. */
function homeOf(group: Group, seat: number, except: number): { node: PeerId } | undefined {
  if (seat < group.data.length) return group.data[seat];
  const index = seat - group.data.length;
  return group.sinks.find((sink) => isInUse(sink) && sink.index === index && sink.sid !== except);
}

// ---- nodes and hosts

const noCounts = (): Counts => ({
  whole: 0,
  recovering: 0,
  moving: 0,
  arriving: 0,
  waiting: 0,
  lost: 0,
});

function add(to: Counts, from: Counts): void {
  for (const state of CELL_STATES) to[state] += from[state];
}

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

/** Where shards are drawn that have no node. */
export const NOWHERE = 'no node';

/** "ps-10" after "ps-9". */
const byName = new Intl.Collator('en', { numeric: true }).compare;

/** Hosts with their nodes, both by name. */
export function hostsOf(seen: Seen, parities: WholeParities, filling?: Filling): HostView[] {
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
    // What a node last said before it went is nothing that it has.
    const { rows, bytes } = node.alive ? node : { rows: 0, bytes: 0 };
    const own = (cells.get(id) ?? []).sort(inOrder);
    host.nodes.push({ id, name, address, state: stateOf(node, leaving), rows, bytes, cells: own });
    for (const cell of own) host.counts[cell.state]++;
    if (!node.alive) host.down++;
    host.rows += rows;
    host.bytes += bytes;
  }
  const sorted = [...hosts.values()].sort((a, b) => byName(a.name, b.name));
  const homeless = [...cells].filter(([id]) => !known.has(id)).flatMap(([, own]) => own);
  return homeless.length > 0 ? [...sorted, nowhere(homeless)] : sorted;
}

/** Shards that no node has, as if they were on one. */
function nowhere(cells: Cell[]): HostView {
  const counts = noCounts();
  for (const cell of cells) counts[cell.state]++;
  const none = { id: 0, name: NOWHERE, address: '', rows: 0, bytes: 0 };
  return { name: NOWHERE, nodes: [{ ...none, state: 'down', cells }], down: 0, counts, rows: 0, bytes: 0 };
}

export function jobOf({ status }: Seen, hosts: readonly HostView[]): JobView {
  const counts = noCounts();
  for (const host of hosts) add(counts, host.counts);
  const sum = (of: (host: HostView) => number) => hosts.reduce((all, host) => all + of(host), 0);
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
    rows: sum((host) => host.rows),
    bytes: sum((host) => host.bytes),
    counts,
  };
}

/** Recoveries that the scheduler still tells of, those under way first. */
export function recoveriesOf({ map, status }: Seen): RecoveryView[] {
  const names = new Map(map.nodes.map((node) => [node.id, node.name]));
  const lost = new Set(status.unrecoverable.map(({ g, m }) => `${g}/${m}`));
  const views = status.recoveries.flatMap((each): RecoveryView[] => {
    if (lost.has(`${each.g}/${each.m}`)) return [];
    const group = map.groups[each.g];
    const entry = group?.data[each.m];
    if (!group || !entry || entry.gen !== each.gen) return [];
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
  const open = (each: RecoveryView): number => (each.present < each.blocks ? 0 : 1);
  return views.sort((a, b) => open(a) - open(b) || a.group - b.group || a.index - b.index);
}

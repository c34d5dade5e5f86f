/**
 * The scheduler: knows who is alive, decides who holds what, and is the only one that makes maps. A decision is durable
 * before anyone sees it (rule 2): effects that depend on it are held back until the runtime says `persisted`.
 *
 * Liveness, fullness and wholeness are soft: after a restart they come back with heartbeats (rule 29).
 */
import type { ErrorCode } from '../errors.js';
import {
  type ClusterMap,
  type Group,
  type NodeEntry,
  type PeerId,
  type Pool,
  SCHEDULER,
  type SinkEntry,
  type TableSpec,
} from '../protocol/map.js';
import type {
  Heartbeat,
  JobStatus,
  Message,
  MessageOf,
  NodeStatus,
  Redundancy,
} from '../protocol/messages.js';
import type { EventEffect, SendEffect } from './effects.js';
import {
  type ClusterView,
  canImprove,
  formGroups,
  isHealthy,
  isSpread,
  lackingMembers,
  loads,
  parities,
  repair,
} from './placement.js';
import { sameTable, tableProblem } from './tables.js';

export interface DurableState {
  map: ClusterMap;
  /** Nodes that must have joined before groups are formed. */
  nodesWanted: number;
  nextPeer: PeerId;
  nextSid: number;
  /** Every node name ever seen, with its id and newest incarnation. */
  names: Record<string, { id: PeerId; inc: number }>;
}

export interface SchedulerPolicy {
  /** A node whose connection closed and that did not come back is dead after this time. */
  reconnectMs: number;
  /** A node that sends nothing is dead after this time. */
  silentMs: number;
  maxTables: number;
  /** A node whose sink stalled gets nothing new for this time. */
  avoidMs: number;
}

export const DEFAULT_SCHEDULER_POLICY: SchedulerPolicy = {
  reconnectMs: 1000,
  silentMs: 5000,
  maxTables: 4096,
  avoidMs: 10_000,
};

export type SchedulerInput =
  | { kind: 'join'; link: number; message: MessageOf<'join'> }
  | { kind: 'attach'; link: number; message: MessageOf<'attach'> }
  | { kind: 'message'; from: PeerId; message: Message }
  | { kind: 'closed'; peer: PeerId; inc: number }
  /** Nobody listens at the node's address: its process is gone. */
  | { kind: 'refused'; node: PeerId; inc: number }
  /** A planned move of data shard `m`, or of parity `index`, to a node that is free for the group. */
  | { kind: 'move'; g: number; member?: number; index?: number; node: PeerId }
  | { kind: 'persisted'; version: number }
  | { kind: 'tick'; now: number };

export type SchedulerEffect =
  | SendEffect
  | EventEffect
  /** Answer on a connection whose peer has no identity yet; `admit` gives it one. */
  | { kind: 'reply'; link: number; message: Message; admit?: { peer: PeerId; inc: number } }
  | { kind: 'broadcast'; message: Message }
  | { kind: 'probe'; node: PeerId; inc: number; address: string }
  | { kind: 'persist'; version: number; state: DurableState };

interface Member {
  inc: number;
  connected: boolean;
  dead: boolean;
  /** Would be given up, if the data could do without it. */
  suspected: boolean;
  heardAt: number;
  closedAt: number;
  heartbeat: Heartbeat | undefined;
}

export class Scheduler {
  private state: DurableState;
  private readonly members = new Map<PeerId, Member>();
  private readonly full = new Set<number>();
  private readonly whole = new Set<string>();
  /** Node -> time until which it gets nothing new. */
  private readonly avoided = new Map<PeerId, number>();
  private readonly unrecoverable = new Map<string, { g: number; m: number; v: number; blocks: number }>();
  private version = 0;
  private changed = false;
  private effects: SchedulerEffect[] = [];
  /** Effects of decisions that are not durable yet. */
  private held: { version: number; effects: SchedulerEffect[] }[] = [];
  private gated: SchedulerEffect[] = [];
  private now = 0;
  private redundancyBefore: Redundancy = 'forming';

  constructor(
    state: DurableState,
    private readonly policy: SchedulerPolicy,
    restarted: boolean,
  ) {
    this.state = state;
    if (restarted) for (const node of state.map.nodes) this.members.set(node.id, this.newMember(node.inc));
    else this.changed = true;
  }

  /** The newest map, durable or not: for tests and status only. */
  get map(): ClusterMap {
    return this.state.map;
  }

  step(input: SchedulerInput): SchedulerEffect[] {
    switch (input.kind) {
      case 'join':
        this.onJoin(input.link, input.message);
        break;
      case 'attach':
        this.onAttach(input.link, input.message);
        break;
      case 'message':
        this.onMessage(input.from, input.message);
        break;
      case 'closed':
        this.onClosed(input.peer, input.inc);
        break;
      case 'refused':
        this.onRefused(input.node, input.inc);
        break;
      case 'move':
        this.move(input.g, input.member, input.index, input.node);
        break;
      case 'persisted':
        this.onPersisted(input.version);
        break;
      case 'tick':
        this.onTick(input.now);
        break;
    }
    this.announceRedundancy();
    this.commit();
    const effects = this.effects;
    this.effects = [];
    return effects;
  }

  // ---- durability

  /** One persist for all decisions of a step; what depends on them waits for it. */
  private commit(): void {
    if (!this.changed) {
      (this.held.at(-1)?.effects ?? this.effects).push(...this.gated);
      this.gated = [];
      return;
    }
    this.changed = false;
    this.version++;
    this.held.push({ version: this.version, effects: this.gated });
    this.gated = [];
    this.effects.push({ kind: 'persist', version: this.version, state: structuredClone(this.state) });
  }

  private onPersisted(version: number): void {
    while (this.held[0] && this.held[0].version <= version) this.effects.push(...this.held.shift()!.effects);
  }

  private setMap(changes: Partial<ClusterMap>, reason: string, fields: Record<string, unknown> = {}): void {
    const map = { ...this.state.map, ...changes, epoch: this.state.map.epoch + 1 };
    this.state.map = map;
    this.changed = true;
    this.gated.push(
      { kind: 'broadcast', message: { t: 'map', map } },
      { kind: 'event', name: 'map.durable', fields: { epoch: map.epoch, reason, ...fields } },
    );
  }

  private nextSid = (): number => this.state.nextSid++;

  // ---- membership

  private newMember(inc: number): Member {
    return {
      inc,
      connected: false,
      dead: false,
      suspected: false,
      heardAt: this.now,
      closedAt: this.now,
      heartbeat: undefined,
    };
  }

  /** Rule 1: a new process gets a new incarnation; a reconnecting one keeps its own unless a newer one exists. */
  private onJoin(link: number, join: MessageOf<'join'>): void {
    const known = this.state.names[join.name];
    if (join.id !== undefined && join.inc !== undefined) {
      if (known?.id !== join.id || known.inc !== join.inc) {
        this.effects.push({ kind: 'reply', link, message: { t: 'stale', code: 'STALE_NODE' } });
        return;
      }
    } else {
      const id = known?.id ?? this.state.nextPeer++;
      this.state.names[join.name] = { id, inc: (known?.inc ?? 0) + 1 };
      this.changed = true;
    }
    const { id, inc } = this.state.names[join.name]!;
    const previous = this.members.get(id);
    const member = previous?.inc === inc ? previous : this.newMember(inc);
    member.connected = true;
    member.dead = false;
    member.heardAt = this.now;
    this.members.set(id, member);
    const entry: NodeEntry = {
      id,
      inc,
      name: join.name,
      host: join.host,
      address: join.address,
      standby: join.standby,
    };
    const listed = this.state.map.nodes.find((node) => node.id === id);
    if (!listed || listed.inc !== inc || listed.address !== join.address) {
      const nodes = [...this.state.map.nodes.filter((node) => node.id !== id), entry];
      nodes.sort((a, b) => a.name.localeCompare(b.name, 'en', { numeric: true }));
      this.setMap({ nodes }, 'join', { node: id, name: join.name, inc });
    }
    this.form();
    this.reconfigure('join');
    this.gated.push({
      kind: 'reply',
      link,
      message: { t: 'welcome', id, inc, map: this.state.map },
      admit: { peer: id, inc },
    });
  }

  private onAttach(link: number, attach: MessageOf<'attach'>): void {
    let id = attach.id;
    const issued = id === undefined || (id > SCHEDULER && id < this.state.nextPeer);
    if (!issued || Object.values(this.state.names).some((name) => name.id === id)) {
      this.effects.push({ kind: 'reply', link, message: { t: 'stale', code: 'SESSION_EXPIRED' } });
      return;
    }
    if (id === undefined) {
      id = this.state.nextPeer++;
      this.changed = true;
    }
    this.gated.push({
      kind: 'reply',
      link,
      message: { t: 'welcome', id, inc: 0, map: this.state.map },
      admit: { peer: id, inc: 0 },
    });
  }

  private onClosed(peer: PeerId, inc: number): void {
    const member = this.members.get(peer);
    if (!member || member.inc !== inc) return;
    member.connected = false;
    member.closedAt = this.now;
    const node = this.state.map.nodes.find((entry) => entry.id === peer);
    if (node) this.effects.push({ kind: 'probe', node: peer, inc, address: node.address });
  }

  private onRefused(node: PeerId, inc: number): void {
    const member = this.members.get(node);
    if (member && member.inc === inc && !member.connected) this.lose(node, 'refused');
  }

  /**
   * A node that did not restart may only be slow: where r members lack already, giving up on it would lose data that it
   * still has, so it is waited for.
   */
  private indispensable(node: PeerId): boolean {
    const { map } = this.state;
    const view = this.view();
    return map.groups.some((group) => {
      const pool = map.pools[group.pool]!;
      const holds = [...group.data, ...group.sinks].some((entry) => entry.node === node);
      return holds && lackingMembers(group, pool, view, node) > pool.r;
    });
  }

  private lose(node: PeerId, reason: string): void {
    const member = this.members.get(node);
    if (!member || member.dead) return;
    if (reason !== 'refused' && this.indispensable(node)) {
      if (!member.suspected) {
        member.suspected = true;
        this.effects.push({
          kind: 'event',
          name: 'node.suspected',
          fields: { node, inc: member.inc, reason },
        });
      }
      return;
    }
    member.dead = true;
    const name = this.state.map.nodes.find((entry) => entry.id === node)?.name;
    this.effects.push({ kind: 'event', name: 'node.lost', fields: { node, name, inc: member.inc, reason } });
    this.reconfigure('lost', { node, name, inc: member.inc });
  }

  private onTick(now: number): void {
    const first = this.now === 0;
    // Time in which this process did not run (stopped, swapped out) is nobody's silence.
    const slept = first ? 0 : Math.max(0, now - this.now - this.policy.reconnectMs);
    this.now = now;
    for (const [id, member] of this.members) {
      member.heardAt = first ? now : member.heardAt + slept;
      member.closedAt = first ? now : member.closedAt + slept;
      if (member.dead) continue;
      if (!member.connected && now - member.closedAt > this.policy.reconnectMs)
        this.lose(id, 'did not reconnect');
      else if (now - member.heardAt > this.policy.silentMs) this.lose(id, 'silent');
    }
  }

  private onMessage(from: PeerId, message: Message): void {
    switch (message.t) {
      case 'heartbeat':
        return this.onHeartbeat(from, message);
      case 'unrecoverable':
        return this.onUnrecoverable(from, message);
      case 'stalled':
        return this.onStalled(message);
      case 'replaceSink': {
        const done = this.replaceSink(message.g, message.sid, 'scrub');
        this.gated.push({
          kind: 'send',
          to: from,
          message: { t: 'sinkReplaced', id: message.id, done },
          parts: [],
        });
        return;
      }
      case 'createTables':
        return this.onCreateTables(from, message);
      case 'status':
        this.effects.push({
          kind: 'send',
          to: from,
          message: { t: 'statusReply', id: message.id, status: this.status() },
          parts: [],
        });
        return;
      default:
        return;
    }
  }

  private onHeartbeat(from: PeerId, heartbeat: Heartbeat): void {
    const member = this.members.get(from);
    if (!member || member.inc !== heartbeat.inc) return;
    member.heardAt = this.now;
    member.heartbeat = heartbeat;
    const revived = member.dead;
    member.dead = false;
    member.suspected = false;
    member.connected = true;
    for (const sid of heartbeat.full) this.full.add(sid);
    for (const entry of heartbeat.whole) this.whole.add(entry.join('/'));
    if (heartbeat.epoch < this.state.map.epoch) {
      this.gated.push({ kind: 'send', to: from, message: { t: 'map', map: this.state.map }, parts: [] });
    }
    this.reconfigure(revived ? 'revived' : 'progress');
  }

  private onUnrecoverable(from: PeerId, report: MessageOf<'unrecoverable'>): void {
    const { g, m, gen, v, blocks } = report;
    if (this.state.map.groups[g]?.version !== v) return;
    this.unrecoverable.set(`${g}/${m}`, { g, m, v, blocks });
    this.gated.push({ kind: 'send', to: from, message: { t: 'confirmedLost', g, m, gen, v }, parts: [] });
  }

  // ---- placement

  /** A sink that its owner cannot reach, or that is too slow, is replaced if the group can do without it meanwhile. */
  private onStalled(report: MessageOf<'stalled'>): void {
    const group = this.state.map.groups[report.g];
    if (group?.version !== report.v || group.data[report.m]?.gen !== report.gen) return;
    const sink = group.sinks.find((entry) => entry.sid === report.sid);
    if (!sink) return;
    const others = { ...group, sinks: group.sinks.filter((entry) => entry !== sink) };
    const pool = this.state.map.pools[group.pool]!;
    if (lackingMembers(others, pool, this.view()) > pool.r) return;
    this.avoided.set(sink.node, this.now + this.policy.avoidMs);
    this.replaceSink(report.g, report.sid, 'stalled');
  }

  /** Drops a sink; repair puts another in its place. */
  private replaceSink(g: number, sid: number, reason: string): boolean {
    const { map } = this.state;
    const group = map.groups[g];
    if (!group?.sinks.some((sink) => sink.sid === sid)) return false;
    const sinks = group.sinks.filter((sink) => sink.sid !== sid);
    this.full.delete(sid);
    this.setGroup({ ...group, sinks }, `replace sink: ${reason}`, { group: g, sid });
    this.reconfigure(reason);
    return true;
  }

  private setGroup(group: Group, reason: string, fields: Record<string, unknown> = {}): void {
    const { map } = this.state;
    const changed = { ...group, version: map.epoch + 1 };
    this.setMap(
      { groups: map.groups.map((other) => (other.id === group.id ? changed : other)) },
      reason,
      fields,
    );
  }

  /** Rule 28: adds the sink that the move needs; repair finishes the move when that is full. */
  private move(g: number, member: number | undefined, index: number | undefined, node: PeerId): void {
    const group = this.state.map.groups[g];
    const entry = this.state.map.nodes.find((other) => other.id === node);
    const pool = group && this.state.map.pools[group.pool];
    if (!group || !pool || !entry || !this.isAlive(node, entry.inc) || !isHealthy(group, pool, this.view()))
      return;
    if ([...group.data, ...group.sinks].some((other) => other.node === node)) return;
    const kind = member === undefined ? 'P' : 'M';
    const number = member ?? index ?? 0;
    const busy = group.sinks.filter((sink) => sink.kind === kind && sink.index === number).length;
    if (busy > (kind === 'P' ? 1 : 0)) return;
    const sink: SinkEntry = { sid: this.nextSid(), kind, index: number, node, inc: entry.inc, init: false };
    this.setGroup({ ...group, sinks: [...group.sinks, sink] }, 'move', {
      group: g,
      kind,
      index: number,
      node,
    });
  }

  private view(): ClusterView {
    return {
      nodes: this.state.map.nodes.filter((node) => this.isPresent(node)),
      alive: (id, inc) => this.isAlive(id, inc),
      full: (sid) => this.full.has(sid),
      whole: (group, member, gen) => this.whole.has(`${group}/${member}/${gen}`),
      avoid: new Set([...this.avoided].filter(([, until]) => until > this.now).map(([node]) => node)),
    };
  }

  private isAlive(id: PeerId, inc: number): boolean {
    const member = this.members.get(id);
    return member !== undefined && !member.dead && member.inc === inc;
  }

  /** Alive and connected: something new can be put there. After a restart most are alive until we know better. */
  private isPresent(node: NodeEntry): boolean {
    return this.isAlive(node.id, node.inc) && this.members.get(node.id)?.connected === true;
  }

  /** Forms the groups once enough nodes have joined. */
  private form(): void {
    const { map, nodesWanted } = this.state;
    if (map.groups.length > 0) return;
    const ready = this.view().nodes.filter((node) => !node.standby);
    if (ready.length < nodesWanted) return;
    const groups = formGroups(map.pools, ready.slice(0, nodesWanted), map.epoch + 1, this.nextSid);
    this.setMap({ groups }, 'formed');
  }

  private reconfigure(reason: string, fields: Record<string, unknown> = {}): void {
    const { map } = this.state;
    if (map.groups.length === 0) return;
    const groups = repair(map.groups, map.pools, this.view(), map.epoch + 1, this.nextSid);
    if (groups) this.setMap({ groups }, reason, fields);
    else if (reason === 'lost') this.setMap({}, reason, fields);
  }

  // ---- tables

  private onCreateTables(from: PeerId, message: MessageOf<'createTables'>): void {
    const reply = (tables: TableSpec[], code?: ErrorCode, text?: string) => {
      const answer: MessageOf<'tablesCreated'> = { t: 'tablesCreated', id: message.id, tables };
      if (code !== undefined) answer.code = code;
      if (text !== undefined) answer.message = text;
      this.gated.push({ kind: 'send', to: from, message: answer, parts: [] });
    };
    const { map } = this.state;
    const tables = [...map.tables];
    const answer: TableSpec[] = [];
    for (const spec of message.specs) {
      const problem = tableProblem(spec, map.pools);
      if (problem) return reply([], 'BAD_ARGUMENT', problem);
      const known = tables.find((table) => table.name === spec.name);
      if (known && !sameTable(known, spec)) {
        return reply([], 'TABLE_EXISTS', `table "${spec.name}" exists with another specification`);
      }
      if (!known && tables.length >= this.policy.maxTables)
        return reply([], 'LIMIT', `at most ${this.policy.maxTables} tables`);
      const table = known ?? { ...spec, id: tables.length + 1 };
      if (!known) tables.push(table);
      answer.push(table);
    }
    if (tables.length > map.tables.length) this.setMap({ tables }, 'tables');
    reply(answer);
  }

  // ---- status

  private redundancy(): { state: Redundancy; reasons: string[] } {
    const { map, nodesWanted } = this.state;
    if (map.groups.length === 0) {
      return {
        state: 'forming',
        reasons: [`${this.view().nodes.length} of ${nodesWanted} nodes have joined`],
      };
    }
    const view = this.view();
    const reasons: string[] = [];
    let state: Redundancy = 'full';
    const worsen = (next: Redundancy) => {
      const order: Redundancy[] = ['full', 'degraded', 'recovering', 'lost'];
      if (order.indexOf(next) > order.indexOf(state)) state = next;
    };
    for (const group of map.groups) {
      const pool = map.pools[group.pool]!;
      const where = `${pool.name} group ${group.id - pool.firstGroup}`;
      const lost = [...this.unrecoverable.values()].find((u) => u.g === group.id && u.v === group.version);
      if (lost) {
        worsen('lost');
        reasons.push(`${where}: shard ${lost.m} is beyond repair`);
      } else if (!this.membersComplete(group)) {
        worsen('recovering');
        reasons.push(`${where}: recovering`);
      } else if (!isSpread(group, pool)) {
        worsen(canImprove(group, pool, view) ? 'recovering' : 'degraded');
        reasons.push(
          `${where}: ${parities(group).length < pool.r ? 'a parity is missing' : 'two members share a node'}`,
        );
      } else if (!isHealthy(group, pool, view)) {
        worsen('recovering');
        reasons.push(`${where}: recovering`);
      }
    }
    return { state, reasons };
  }

  /** Everything that has a home is complete there; sinks of planned moves do not count. */
  private membersComplete(group: Group): boolean {
    for (const [m, entry] of group.data.entries()) {
      if (entry.node === 0 || !this.whole.has(`${group.id}/${m}/${entry.gen}`)) return false;
    }
    return parities(group).every((sink) => this.full.has(sink.sid));
  }

  private announceRedundancy(): void {
    const { state } = this.redundancy();
    if (state === this.redundancyBefore) return;
    this.redundancyBefore = state;
    this.gated.push({ kind: 'event', name: 'redundancy', fields: { state, epoch: this.state.map.epoch } });
  }

  status(): JobStatus {
    const { map } = this.state;
    const { state, reasons } = this.redundancy();
    const load = loads(map.groups);
    const nodes = map.nodes.map((node): NodeStatus => {
      const member = this.members.get(node.id);
      const dataShards = map.groups.flatMap((g) => g.data).filter((entry) => entry.node === node.id).length;
      return {
        id: node.id,
        name: node.name,
        host: node.host,
        address: node.address,
        alive: this.isAlive(node.id, node.inc),
        standby: (load.get(node.id) ?? 0) === 0,
        inc: node.inc,
        dataShards,
        parityShards: (load.get(node.id) ?? 0) - dataShards,
        bytes: member?.heartbeat?.bytes ?? 0,
        rows: member?.heartbeat?.rows ?? 0,
      };
    });
    const recoveries = [...this.members.values()].flatMap((member) => member.heartbeat?.recoveries ?? []);
    return {
      job: map.job,
      epoch: map.epoch,
      redundancy: state,
      reasons,
      nodes,
      pools: map.pools.map((pool) => ({
        name: pool.name,
        code: `${pool.k}+${pool.r}`,
        groups: pool.groups,
        shards: pool.groups * pool.k,
      })),
      tables: map.tables.map(({ name, pool, dim, optimizer }) => ({
        name,
        pool,
        dim,
        optimizer: optimizer.kind,
      })),
      recoveries,
      unrecoverable: [...this.unrecoverable.values()].filter((u) => map.groups[u.g]?.version === u.v),
    };
  }
}

/** The state of a new job. */
export function newJob(job: string, nodesWanted: number, pools: Omit<Pool, 'firstGroup'>[]): DurableState {
  let firstGroup = 0;
  const placed = pools.map((pool) => {
    const withFirst = { ...pool, firstGroup };
    firstGroup += pool.groups;
    return withFirst;
  });
  return {
    map: { epoch: 1, job, pools: placed, groups: [], nodes: [], tables: [] },
    nodesWanted,
    nextPeer: 1,
    nextSid: 1,
    names: {},
  };
}

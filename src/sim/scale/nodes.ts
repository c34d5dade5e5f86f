/**
 * Simulated PS: they hold the seats that the map gives them, and report them with the real code for
 * heartbeats. A recovery or a move is complete after a time.
 */
import { type ReportedOwner, type ReportedSink, Reporter } from '../../core/node/heartbeat.js';
import { DEFAULT_POLICY } from '../../core/shared/policy.js';
import type { ClusterMap, DataEntry, Group, PeerId, SinkEntry } from '../../protocol/map.js';
import { seatOf } from '../../protocol/map.js';
import type { Message, MessageOf } from '../../protocol/messages.js';
import type { Random } from '../random.js';
import type { ScaleConfig } from './config.js';

/** A PS ticks in this interval. */
const TICK_MS = 20;
/** Least and most time of a recovery or of the copy of a move. */
const COPY_MS = [200, 1200] as const;
/** Time in which a new owner takes over from the mirror beside it. */
const TAKEOVER_MS = 60;
const SHARD_BYTES = 64 << 20;
const SHARD_ROWS = 500_000;

type Writable<T> = { -readonly [K in keyof T]: T[K] };

export interface SimNode {
  readonly index: number;
  readonly name: string;
  readonly host: string;
  readonly address: string;
  id: PeerId;
  inc: number;
  up: boolean;
  /** Number of the connection to the scheduler; 0: not connected. */
  link: number;
  /** Epoch of the newest map that the node has. */
  epoch: number;
  owners: Map<string, Writable<ReportedOwner>>;
  sinks: Map<number, Writable<ReportedSink>>;
  heartbeatAt: number;
  sessionsAt: number;
  /** Completeness of a seat has changed since the last heartbeat. */
  news: boolean;
  readonly reporter: Reporter;
}

export class Nodes {
  readonly all: SimNode[] = [];
  map: ClusterMap | undefined;
  /** The newest heartbeat of any node. */
  newest: MessageOf<'heartbeat'> | undefined;
  private readonly byId = new Map<PeerId, SimNode>();
  private copies: { at: number; node: SimNode; what: { complete: boolean } }[] = [];

  constructor(
    private readonly config: ScaleConfig,
    private readonly random: Random,
    private readonly send: (node: SimNode, message: Message) => void,
  ) {}

  add(): SimNode {
    const index = this.all.length;
    const host = Math.floor(index / this.config.psPerHost);
    const node: SimNode = {
      ...{ index, name: `ps-${index + 1}`, host: `host-${host + 1}`, address: addressOf(index) },
      ...{ id: 0, inc: 0, up: true, link: 0, epoch: 0, owners: new Map(), sinks: new Map() },
      ...{ heartbeatAt: Number.POSITIVE_INFINITY, sessionsAt: 0, news: false },
      reporter: new Reporter(DEFAULT_POLICY.heartbeatMs),
    };
    this.all.push(node);
    return node;
  }

  byPeer(id: PeerId): SimNode | undefined {
    return this.byId.get(id);
  }

  join(node: SimNode): MessageOf<'join'> {
    const { name, host, address } = node;
    return { t: 'join', name, host, address, machine: host, standby: false };
  }

  welcome(node: SimNode, { id, inc, map }: MessageOf<'welcome'>, now: number): void {
    Object.assign(node, { id, inc });
    node.reporter.everything();
    this.byId.set(id, node);
    // Every process has a heartbeat rhythm of its own.
    node.heartbeatAt = now + TICK_MS * this.random.below(DEFAULT_POLICY.heartbeatMs / TICK_MS);
    node.sessionsAt = now + this.random.below(DEFAULT_POLICY.sessionCheckMs);
    this.learn(map, now);
    node.epoch = Math.max(node.epoch, map.epoch);
    // A map that names this process may have come before its welcome.
    for (const group of this.map?.groups ?? []) this.hold(undefined, group, now, node);
  }

  die(node: SimNode): void {
    node.up = false;
    node.link = 0;
    node.heartbeatAt = Number.POSITIVE_INFINITY;
    node.owners.clear();
    node.sinks.clear();
  }

  /** Takes a newer map: nodes get and drop seats by it. */
  learn(map: ClusterMap, now: number): void {
    const before = this.map;
    if (before && before.epoch >= map.epoch) return;
    this.map = map;
    for (const group of map.groups) {
      const old = before?.groups[group.id];
      if (old?.version !== group.version) this.hold(old, group, now);
    }
  }

  private hold(old: Group | undefined, group: Group, now: number, only?: SimNode): void {
    const holder = (entry: { node: PeerId; inc: number }): SimNode | undefined => {
      const node = this.byId.get(entry.node);
      return node?.up && node.inc === entry.inc && (!only || node === only) ? node : undefined;
    };
    for (const [m, entry] of old?.data.entries() ?? []) {
      const now = group.data[m];
      if (now?.node !== entry.node || now.gen !== entry.gen)
        this.drop(entry, (n) => n.owners.delete(`${group.id}/${m}`));
    }
    for (const sink of old?.sinks ?? [])
      if (!group.sinks.some(({ sid }) => sid === sink.sid)) this.drop(sink, (n) => n.sinks.delete(sink.sid));
    for (const [m, entry] of group.data.entries()) {
      const node = holder(entry);
      if (node) this.own(node, group, m, entry, now);
    }
    for (const entry of group.sinks) {
      const node = holder(entry);
      if (node) this.follow(node, group, entry, now);
    }
  }

  private drop({ node: id }: { node: PeerId }, drop: (node: SimNode) => void): void {
    const node = this.byId.get(id);
    if (!node) return;
    drop(node);
    node.news = true;
  }

  private own(node: SimNode, group: Group, m: number, { gen, init }: DataEntry, now: number): void {
    const key = `${group.id}/${m}`;
    const known = node.owners.get(key);
    if (known?.gen === gen) return;
    const mirror = group.sinks.find((sink) => sink.kind === 'M' && sink.index === m && sink.node === node.id);
    const blocks = 4096;
    const stats = { g: group.id, m, gen, blocksLost: blocks, blocksPresent: blocks, blocksOnDemand: 0 };
    const owner = {
      ...{ group, member: m, gen, complete: init, requests: 0 },
      native: { rows: SHARD_ROWS + m, bytes: SHARD_BYTES + m } satisfies ReportedOwner['native'],
      recoveryStats: () => (init ? undefined : stats),
    } as unknown as Writable<ReportedOwner>;
    node.owners.set(key, owner);
    node.news = true;
    if (!init) this.complete(node, owner, now + (mirror ? TAKEOVER_MS : this.copyMs()));
  }

  private follow(node: SimNode, group: Group, entry: SinkEntry, now: number): void {
    if (node.sinks.has(entry.sid)) return;
    const sink = {
      ...{ sid: entry.sid, complete: entry.init, followsOne: entry.kind === 'M', groupId: group.id },
      ...{ seat: seatOf(group, entry), deltas: 0, native: { bytes: SHARD_BYTES } },
    };
    node.sinks.set(entry.sid, sink);
    node.news = true;
    if (!entry.init) this.complete(node, sink, now + this.copyMs());
  }

  private copyMs(): number {
    return COPY_MS[0] + this.random.below(COPY_MS[1] - COPY_MS[0]);
  }

  private complete(node: SimNode, what: { complete: boolean }, at: number): void {
    this.copies.push({ at, node, what });
  }

  /** Number of copies that are not complete. */
  get copying(): number {
    return this.copies.length;
  }

  /** Completes copies, and sends the messages of nodes in this turn. */
  turn(now: number): void {
    if (this.copies.some(({ at }) => at <= now)) {
      for (const { at, node, what } of this.copies) {
        if (at > now) continue;
        what.complete = true;
        node.news = true;
      }
      this.copies = this.copies.filter(({ at }) => at > now);
    }
    for (const node of this.all) {
      if (!node.up || node.link === 0 || node.id === 0) continue;
      if (node.news || now >= node.heartbeatAt) this.heartbeat(node, now);
      if (now < node.sessionsAt) continue;
      node.sessionsAt += DEFAULT_POLICY.sessionCheckMs;
      this.send(node, { t: 'sessions' });
    }
  }

  private heartbeat(node: SimNode, now: number): void {
    node.news = false;
    // The node keeps its own rhythm, so that nodes do not fall into step.
    node.heartbeatAt = now + DEFAULT_POLICY.heartbeatMs;
    const owners = [...node.owners.values()];
    const sinks = [...node.sinks.values()];
    for (const owner of owners) owner.requests += 200 + this.random.below(20);
    for (const sink of sinks) sink.deltas += 200 + this.random.below(20);
    const report = node.reporter.report(now, owners, sinks);
    if (!report) return;
    const { inc, epoch } = node;
    const bytes = SHARD_BYTES * (owners.length + sinks.length);
    const heartbeat = { t: 'heartbeat' as const, inc, epoch, bytes, ...report };
    this.newest = heartbeat;
    this.send(node, heartbeat);
  }
}

function addressOf(index: number): string {
  return `10.${index >> 16}.${(index >> 8) & 255}.${index & 255}:7101`;
}

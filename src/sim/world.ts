/**
 * A whole cluster in one process, stepped by one random source: the real scheduler, node and client machines and the real
 * engine on small tables, against a simulated network, clock, disk and crashes. Safety is checked all the time; then
 * everything heals and must complete.
 */
import { auditKeys } from '../audit.js';
import { type ClientEffect, PsClientCore } from '../core/client.js';
import type { Effect } from '../core/effects.js';
import { PsNode } from '../core/node.js';
import { DEFAULT_POLICY, type Policy } from '../core/policy.js';
import {
  type DurableState,
  newJob,
  Scheduler,
  type SchedulerEffect,
  type SchedulerInput,
} from '../core/scheduler.js';
import type { NativeAddon, NativeMemory } from '../native.js';
import {
  type ClusterMap,
  locate,
  type PeerId,
  SCHEDULER,
  type SinkEntry,
  shardCount,
  tableByName,
} from '../protocol/map.js';
import type { Message } from '../protocol/messages.js';
import { drawConfig, type SimConfig } from './config.js';
import { Network, type Packet } from './network.js';
import { Oracle } from './oracle.js';
import { Random } from './random.js';
import { Violation } from './violation.js';

/** 512 floats are 2 KiB a row, two rows a block: many blocks with few rows. */
const DIM = 512;
const SHARED_KEYS = 6;
const MAX_STEPS = 60_000;

export interface Outcome {
  seed: number;
  result: 'complete' | 'unrecoverable' | 'violation';
  message: string;
  steps: number;
  /** More than r members of a group lacked something at some time. */
  overwhelmed: boolean;
  stats: Record<string, number>;
  config: SimConfig;
}

interface NodeActor {
  kind: 'node';
  name: string;
  up: boolean;
  node: PsNode | undefined;
  identity: { id: PeerId; inc: number } | undefined;
  /** Number of its connection to the scheduler; 0 = none. */
  link: number;
  /** It does not come back to the scheduler before this time. */
  awayUntil: number;
}

interface ClientActor {
  kind: 'client';
  core: PsClientCore;
  id: PeerId | undefined;
  link: number;
  left: number;
  nextTicket: number;
  pulls: Map<number, { shard: number; acknowledged: number; keys: BigUint64Array }>;
  pushes: Map<number, number>;
  checks: Map<number, string>;
}

interface Persist {
  version: number;
  state: DurableState;
}

export class World {
  readonly random: Random;
  readonly config: SimConfig;
  private readonly network: Network;
  private readonly memory: NativeMemory;
  private readonly policy: Policy;
  private readonly nodes: NodeActor[] = [];
  private readonly clients: ClientActor[] = [];
  private scheduler: Scheduler | undefined;
  private disk: DurableState;
  private persisting: Persist[] = [];
  private crashSchedulerSoon = false;
  /** Sinks that an owner could not reach. */
  private readonly stalled = new Set<number>();
  private links = new Map<number, { actor: number; peer: PeerId | undefined; inc: number }>();
  private nextLink = 1;
  /** peer id -> actor index; actors are numbered scheduler 0, nodes, clients */
  private readonly actorOf = new Map<PeerId, number>();
  private now = 1;
  private steps = 0;
  private faultsLeft: number;
  private readonly retry: number;
  private partitionUntil = 0;
  private healed = false;
  private refusals: { node: PeerId; inc: number; at: number }[] = [];
  private closings: { peer: PeerId; inc: number; at: number }[] = [];
  private reconnects: { a: number; b: number; at: number }[] = [];
  private readonly oracle: Oracle;
  private overwhelmed = false;
  private unrecoverable = false;
  private phase: 'forming' | 'running' | 'checking' | 'done' = 'forming';
  private ticketCounter = 1;
  readonly transcript: string[] | undefined;
  readonly stats: Record<string, number> = {};

  constructor(
    readonly seed: number,
    pinned: Partial<SimConfig>,
    private readonly native: NativeAddon,
    trace = false,
  ) {
    this.random = new Random(seed);
    this.config = drawConfig(this.random, pinned);
    this.transcript = trace ? [] : undefined;
    const { k, r, groups, spares, clients } = this.config;
    const count = k + r + spares;
    const actors = 1 + count + clients;
    // A timer shorter than the time between two turns of an actor would only make storms of repetition.
    const retry = Math.max(this.config.retry, Math.ceil(actors / this.config.tickRate));
    this.retry = retry;
    this.network = new Network(this.random, actors, this.config.duplicate);
    this.memory = native.createMemory(0);
    this.policy = {
      ...DEFAULT_POLICY,
      retryMs: retry,
      heartbeatMs: Math.ceil(retry / 2),
      parkedPullMs: MAX_STEPS,
      recoveryWindow: 4,
      recoveryChunk: 2,
      sinkStallMs: this.retry * 8,
      requireRedundancy: this.config.requireRedundancy,
    };
    this.faultsLeft = this.config.faults;
    const pools = [{ name: 'embedding', k, r, groups }];
    this.disk = newJob('sim', k + r, pools);
    this.oracle = new Oracle(clients);
    this.startScheduler(false);
    for (let i = 0; i < count; i++) {
      const name = `ps-${i}`;
      this.nodes.push({
        kind: 'node',
        name,
        up: true,
        node: undefined,
        identity: undefined,
        link: 0,
        awayUntil: 0,
      });
    }
    for (let i = 0; i < clients; i++) {
      const core = new PsClientCore({ retryMs: retry, maxRetryMs: retry * 4, wrongOwnerMs: 5 });
      this.clients.push({
        kind: 'client',
        core,
        id: undefined,
        link: 0,
        left: this.config.pushes,
        nextTicket: 1,
        pulls: new Map(),
        pushes: new Map(),
        checks: new Map(),
      });
    }
  }

  run(): Outcome {
    let result: Outcome['result'] = 'complete';
    let message = '';
    try {
      while (this.phase !== 'done') {
        this.step();
        if (this.unrecoverable && this.faultsLeft <= 0 && this.givenUp()) {
          result = 'unrecoverable';
          break;
        }
        if (this.steps > MAX_STEPS) throw new Violation(`no progress: ${this.stuck()}`);
      }
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      result = 'violation';
      message = error instanceof Violation ? error.message : `${error.stack ?? error.message}`;
    }
    for (const actor of this.nodes) actor.node?.close();
    const { seed, steps, overwhelmed, stats, config } = this;
    return { seed, result, message, steps, overwhelmed, stats, config };
  }

  private count(name: string): void {
    this.stats[name] = (this.stats[name] ?? 0) + 1;
  }

  private log(text: () => string): void {
    if (this.transcript) this.transcript.push(`${this.now} ${text()}`);
  }

  // ---- one step

  private step(): void {
    this.steps++;
    // With much in flight the clock goes slower: a machine that is busy does not make its timers faster.
    if (this.random.chance(this.pace())) this.now++;
    this.events();
    if (this.phase === 'running' && this.faultsLeft > 0) {
      if (this.random.chance(this.config.faultRate)) this.fault();
      if (this.random.chance(this.config.moveRate)) this.moveSomething();
    }
    if (this.phase !== 'forming') this.restarts();
    this.disks();
    if (this.steps % 32 === 0) this.advance();
    if (this.random.chance(this.config.tickRate * this.pace()) || !this.deliver()) this.tickSomebody();
  }

  private pace(): number {
    const backlog = this.network.inFlight;
    return backlog > 40 ? 40 / backlog : 1;
  }

  /** Things that were put off: closed connections are noticed, refused ports probed, connections made again. */
  private events(): void {
    const over = this.partitionUntil > 0 && this.now > this.partitionUntil;
    if (over || (this.faultsLeft <= 0 && !this.healed)) {
      this.healed = this.faultsLeft <= 0;
      this.partitionUntil = 0;
      this.network.heal();
      this.log(() => '** HEAL');
    }
    const due = <T extends { at: number }>(list: T[]): [T[], T[]] => [
      list.filter((entry) => entry.at <= this.now),
      list.filter((entry) => entry.at > this.now),
    ];
    const [closed, closings] = due(this.closings);
    this.closings = closings;
    for (const { peer, inc } of closed) {
      const back = [...this.links.values()].some((link) => link.peer === peer && link.inc === inc);
      if (!back) this.stepScheduler({ kind: 'closed', peer, inc });
    }
    const [refused, refusals] = due(this.refusals);
    this.refusals = refusals;
    for (const { node, inc } of refused) {
      const actor = this.nodes[(this.actorOf.get(node) ?? 0) - 1];
      const gone = !actor?.up || actor.identity?.inc !== inc;
      if (gone) this.stepScheduler({ kind: 'refused', node, inc });
    }
    const [again, reconnects] = due(this.reconnects);
    this.reconnects = reconnects;
    for (const { a, b } of again) {
      this.peerUp(a, b);
      this.peerUp(b, a);
    }
  }

  private tickSomebody(): void {
    const index = this.random.below(1 + this.nodes.length + this.clients.length);
    if (index === 0) {
      this.stepScheduler({ kind: 'tick', now: this.now });
      return;
    }
    if (index <= this.nodes.length) {
      const actor = this.nodes[index - 1]!;
      if (!actor.up) return;
      if (actor.link === 0) this.joinNode(index, actor);
      else if (actor.node) this.runNode(index, actor, actor.node.step({ kind: 'tick', now: this.now }));
      return;
    }
    this.tickClient(index, this.clients[index - 1 - this.nodes.length]!);
  }

  private deliver(): boolean {
    const next = this.network.next();
    if (!next) return false;
    const { from, to, packet } = next;
    if (packet.message.t !== 'heartbeat')
      this.log(() => `${from}->${to} ${JSON.stringify(packet.message).slice(0, 300)}`);
    this.receive(from, to, packet);
    const { hot, focus } = this.config;
    if (
      packet.message.t === focus &&
      this.phase === 'running' &&
      this.faultsLeft > 0 &&
      this.random.chance(hot)
    ) {
      const victim = this.random.chance(0.5) ? from : to;
      if (victim >= 1 && victim <= this.nodes.length && this.crash(victim)) this.faultsLeft--;
    }
    return true;
  }

  /** Parts are views that end with the call: what a machine kept without copying turns to garbage. */
  private receive(from: number, to: number, packet: Packet): void {
    const parts = packet.parts.map((part) => part.slice());
    if (to === 0) this.toScheduler(from, packet.message);
    else if (to <= this.nodes.length) {
      const actor = this.nodes[to - 1]!;
      const sender = this.peerOf(from);
      if (actor.up && packet.message.t === 'welcome') this.welcomeNode(to, actor, packet.message);
      else if (actor.up && actor.node && sender !== undefined) {
        const effects = actor.node.step({ kind: 'message', from: sender, message: packet.message, parts });
        for (const part of parts) part.fill(0xa5);
        this.runNode(to, actor, effects);
      }
    } else {
      const actor = this.clients[to - 1 - this.nodes.length]!;
      if (packet.message.t === 'welcome') {
        actor.id = packet.message.id;
        this.actorOf.set(actor.id, to);
        const map: Message = { t: 'map', map: packet.message.map };
        this.runClient(
          to,
          actor,
          actor.core.step({ kind: 'message', from: SCHEDULER, message: map, parts: [] }),
        );
      } else {
        const sender = this.peerOf(from) ?? SCHEDULER;
        const effects = actor.core.step({ kind: 'message', from: sender, message: packet.message, parts });
        this.runClient(to, actor, effects);
      }
    }
  }

  private peerOf(actor: number): PeerId | undefined {
    if (actor === 0) return SCHEDULER;
    if (actor <= this.nodes.length) return this.nodes[actor - 1]!.identity?.id;
    return this.clients[actor - 1 - this.nodes.length]!.id;
  }

  // ---- nodes

  private joinNode(index: number, actor: NodeActor): void {
    if (!this.scheduler || !this.network.connected(0, index)) return;
    if (this.now < actor.awayUntil && this.faultsLeft > 0) return;
    actor.link = this.nextLink++;
    this.links.set(actor.link, { actor: index, peer: undefined, inc: 0 });
    const message: Message = {
      t: 'join',
      name: actor.name,
      host: actor.name,
      address: `${actor.name}:1`,
      standby: false,
      ...actor.identity,
    };
    this.network.send(index, 0, { message, parts: [] });
  }

  private welcomeNode(index: number, actor: NodeActor, welcome: Message & { t: 'welcome' }): void {
    actor.identity = { id: welcome.id, inc: welcome.inc };
    this.actorOf.set(welcome.id, index);
    if (!actor.node) {
      actor.node = new PsNode(welcome.id, welcome.inc, this.native, this.memory, this.policy);
      this.runNode(index, actor, actor.node.step({ kind: 'tick', now: this.now }));
    }
    const message: Message = { t: 'map', map: welcome.map };
    this.runNode(index, actor, actor.node.step({ kind: 'message', from: SCHEDULER, message, parts: [] }));
  }

  private runNode(index: number, actor: NodeActor, effects: Effect[]): void {
    for (const effect of effects) {
      if (effect.kind === 'event') {
        this.count(effect.name);
        this.log(() => `   n${index} ${effect.name} ${JSON.stringify(effect.fields)}`);
      } else this.transmit(index, effect.to, effect.message, effect.parts);
    }
    if (actor.node?.needsFlush && this.random.chance(this.config.flushRate)) {
      this.runNode(index, actor, actor.node.step({ kind: 'flush' }));
    }
  }

  private transmit(from: number, to: PeerId, message: Message, parts: readonly Uint8Array[]): void {
    const target = to === SCHEDULER ? 0 : this.actorOf.get(to);
    if (target === undefined) return;
    if (target === 0 && !this.scheduler) return;
    if (target >= 1 && target <= this.nodes.length && !this.nodes[target - 1]!.up) return;
    if (message.t === 'recover' || message.t === 'install' || message.t === 'lacking') this.count(message.t);
    if (message.t === 'equation') this.count(message.lacking.length > 1 ? 'jointEquations' : 'equations');
    this.network.send(from, target, { message, parts });
  }

  private peerUp(at: number, other: number): void {
    const peer = this.peerOf(other);
    if (peer === undefined || at === 0 || other === 0) return;
    if (at <= this.nodes.length) {
      const actor = this.nodes[at - 1]!;
      if (actor.up && actor.node) this.runNode(at, actor, actor.node.step({ kind: 'peerUp', peer }));
    } else {
      const actor = this.clients[at - 1 - this.nodes.length]!;
      this.runClient(at, actor, actor.core.step({ kind: 'peerUp', peer }));
    }
  }

  // ---- scheduler

  private startScheduler(restarted: boolean): void {
    const policy = {
      reconnectMs: this.retry * 3,
      silentMs: this.retry * 20,
      maxTables: 16,
      avoidMs: this.retry * 10,
    };
    this.scheduler = new Scheduler(structuredClone(this.disk), policy, restarted);
    this.stepScheduler({ kind: 'tick', now: this.now });
  }

  private toScheduler(from: number, message: Message): void {
    if (!this.scheduler) return;
    const actor =
      from <= this.nodes.length ? this.nodes[from - 1] : this.clients[from - 1 - this.nodes.length];
    const link = actor?.link ?? 0;
    if (message.t === 'join') this.stepScheduler({ kind: 'join', link, message });
    else if (message.t === 'attach') this.stepScheduler({ kind: 'attach', link, message });
    else {
      const peer = this.links.get(link)?.peer;
      if (peer !== undefined) this.stepScheduler({ kind: 'message', from: peer, message });
    }
  }

  private stepScheduler(input: SchedulerInput): void {
    if (!this.scheduler) return;
    if (input.kind === 'message' && input.message.t === 'unrecoverable') this.reportedLost(input.message);
    if (input.kind === 'message' && input.message.t === 'stalled') this.stalled.add(input.message.sid);
    for (const effect of this.scheduler.step(input)) this.runScheduler(effect);
  }

  private reportedLost(message: Message & { t: 'unrecoverable' }): void {
    if (this.scheduler?.map.groups[message.g]?.version !== message.v) return;
    if (!this.overwhelmed)
      throw new Violation(`group ${message.g} reported unrecoverable though at most r lacked`);
    this.unrecoverable = true;
  }

  private runScheduler(effect: SchedulerEffect): void {
    switch (effect.kind) {
      case 'send':
        this.transmit(0, effect.to, effect.message, effect.parts);
        return;
      case 'broadcast':
        this.log(() => `   map ${JSON.stringify((effect.message as Message & { t: 'map' }).map.groups)}`);
        for (const link of this.links.values()) {
          if (link.peer !== undefined)
            this.network.send(0, link.actor, { message: effect.message, parts: [] });
        }
        return;
      case 'reply': {
        const link = this.links.get(effect.link);
        if (!link) return;
        if (effect.admit) {
          link.peer = effect.admit.peer;
          link.inc = effect.admit.inc;
        }
        this.network.send(0, link.actor, { message: effect.message, parts: [] });
        return;
      }
      case 'probe':
        this.refusals.push({ node: effect.node, inc: effect.inc, at: this.now + this.random.below(40) });
        return;
      case 'persist':
        this.checkDecision((this.persisting.at(-1)?.state ?? this.disk).map, effect.state.map);
        this.persisting.push({ version: effect.version, state: effect.state });
        if (this.phase === 'running' && this.faultsLeft > 0 && this.random.chance(0.03)) {
          this.crashSchedulerSoon = true;
        }
        return;
      case 'event':
        this.count(effect.name);
        this.log(() => `   scheduler ${effect.name} ${JSON.stringify(effect.fields)}`);
    }
  }

  private disks(): void {
    if (this.crashSchedulerSoon && this.random.chance(0.2)) {
      this.crashSchedulerSoon = false;
      this.faultsLeft--;
      this.crashScheduler();
    }
    if (this.persisting.length === 0 || !this.random.chance(this.config.diskRate)) return;
    const { version, state } = this.persisting.shift()!;
    this.disk = state;
    this.watchLoss();
    this.stepScheduler({ kind: 'persisted', version });
  }

  /** A decision never gives up a complete parity of a living node unless another takes its place, or it had stalled. */
  private checkDecision(before: ClusterMap, after: ClusterMap): void {
    const alive = new Set(
      this.scheduler
        ?.status()
        .nodes.filter((node) => node.alive)
        .map((node) => node.id),
    );
    for (const group of before.groups) {
      const next = after.groups[group.id]!;
      for (const sink of group.sinks) {
        if (sink.kind !== 'P' || next.sinks.some((other) => other.sid === sink.sid)) continue;
        if (!alive.has(sink.node) || this.stalled.has(sink.sid)) continue;
        const replaced = next.sinks.some((other) => other.index === sink.index && this.sinkOf(other)?.full);
        if (this.sinkOf(sink)?.full && !replaced)
          throw new Violation(`parity ${sink.sid} was given up without a successor`);
      }
    }
  }

  private sinkOf(entry: SinkEntry) {
    const actor = this.nodes[(this.actorOf.get(entry.node) ?? 0) - 1];
    return actor?.up && actor.identity?.inc === entry.inc ? actor.node?.sinkAt(entry.sid) : undefined;
  }

  private crashScheduler(): void {
    if (!this.scheduler) return;
    this.count('schedulerCrash');
    this.log(() => '** SCHEDULER CRASH');
    const survived = this.random.below(this.persisting.length + 1);
    if (survived > 0) this.disk = this.persisting[survived - 1]!.state;
    this.persisting = [];
    this.scheduler = undefined;
    this.network.kill(0);
    this.links.clear();
    this.closings = [];
    this.refusals = [];
    for (const actor of [...this.nodes, ...this.clients]) actor.link = 0;
  }

  // ---- clients

  private tickClient(index: number, actor: ClientActor): void {
    if (actor.link === 0) {
      if (!this.scheduler || !this.network.connected(0, index)) return;
      actor.link = this.nextLink++;
      this.links.set(actor.link, { actor: index, peer: undefined, inc: 0 });
      const message: Message = actor.id === undefined ? { t: 'attach' } : { t: 'attach', id: actor.id };
      this.network.send(index, 0, { message, parts: [] });
    }
    if (this.phase === 'running') {
      if (actor.left > 0 && actor.pushes.size < 4 && this.random.chance(0.7)) this.push(index, actor);
      if (this.random.chance(0.2)) this.pull(index, actor);
    }
    this.runClient(index, actor, actor.core.step({ kind: 'tick', now: this.now }));
  }

  private push(index: number, actor: ClientActor): void {
    const { map } = actor.core;
    const pool = map.pools[0];
    const table = tableByName(map, 't');
    if (!pool || !table || map.groups.length === 0 || actor.id === undefined) return;
    actor.left--;
    const own = auditKeys(this.native, pool, index);
    const ticket = this.ticketCounter++;
    const shards = shardCount(pool);
    const items = [];
    for (let shard = 0; shard < shards; shard++) {
      if (!this.random.chance(shards === 1 ? 1 : 0.6)) continue;
      const number = this.oracle.begin(index, shard);
      const shared = this.oracle.sharedKey(this.native, pool, shard, this.random.below(SHARED_KEYS));
      const amount = 1 + this.random.below(5);
      this.oracle.add(shared, amount);
      const keys = BigUint64Array.of(own[shard]!, shared);
      const rows = new Float32Array(2 * DIM);
      rows.fill(2 ** number, 0, DIM);
      rows.fill(amount, DIM);
      const part = { table: table.id, width: DIM, keys, rows, order: Uint32Array.of(0, 1), start: 0, end: 2 };
      const { group, member } = locate(pool, shard);
      items.push({ g: group, m: member, section: this.native.encodeRequest(0, [part]) });
    }
    actor.pushes.set(ticket, items.length);
    this.runClient(index, actor, actor.core.step({ kind: 'push', ticket, items }));
    this.noteAcknowledged(index, actor);
  }

  private pull(index: number, actor: ClientActor): void {
    const { map } = actor.core;
    const pool = map.pools[0];
    const table = tableByName(map, 't');
    if (!pool || !table || map.groups.length === 0 || actor.pulls.size > 3) return;
    const shard = this.random.below(shardCount(pool));
    const keys = BigUint64Array.of(auditKeys(this.native, pool, index)[shard]!);
    const part = { table: table.id, width: DIM, keys, order: Uint32Array.of(0), start: 0, end: 1 };
    const { group, member } = locate(pool, shard);
    const ticket = this.ticketCounter++;
    actor.pulls.set(ticket, { shard, acknowledged: this.oracle.acknowledged(index, shard), keys });
    const section = this.native.encodeRequest(0, [part]);
    this.runClient(
      index,
      actor,
      actor.core.step({ kind: 'pull', ticket, items: [{ g: group, m: member, section }] }),
    );
  }

  private runClient(index: number, actor: ClientActor, effects: ClientEffect[]): void {
    for (const effect of effects) {
      switch (effect.kind) {
        case 'send':
          this.transmit(index, effect.to, effect.message, effect.parts);
          break;
        case 'rows':
          this.onRows(index, actor, effect.ticket, effect.rows);
          break;
        case 'answer':
          this.onChecked(actor, effect.ticket, effect.message);
          break;
        case 'done':
          if (effect.error && !this.overwhelmed) {
            throw new Violation(`a request failed though at most r lacked: ${effect.error.message}`);
          }
          actor.pulls.delete(effect.ticket);
          actor.pushes.delete(effect.ticket);
          break;
        case 'event':
          this.count(effect.name);
      }
    }
    this.noteAcknowledged(index, actor);
  }

  private noteAcknowledged(index: number, actor: ClientActor): void {
    const pool = this.disk.map.pools[0]!;
    for (const { g, m, acknowledged } of actor.core.counts())
      this.oracle.acknowledge(index, g * pool.k + m, acknowledged);
  }

  private onRows(index: number, actor: ClientActor, ticket: number, rows: Uint8Array): void {
    const pull = actor.pulls.get(ticket);
    if (!pull) return;
    const row = new Float32Array(DIM);
    this.native.scatterRows(row, DIM, Uint32Array.of(0), 0, 1, rows, 0);
    this.count('pulls');
    this.oracle.checkOwnRow(index, pull.shard, row, pull.acknowledged);
  }

  // ---- faults

  private fault(): void {
    this.faultsLeft--;
    const kind = this.random.below(20);
    const victim = 1 + this.random.below(this.nodes.length);
    if (kind < 8) {
      this.crash(victim);
      if (this.random.chance(0.25)) this.crash(1 + this.random.below(this.nodes.length));
    } else if (kind < 10) this.breakScheduler(victim);
    else if (kind < 13) this.breakConnections();
    else if (kind < 16) this.partition(victim);
    else if (kind < 17) this.crashScheduler();
    else if (kind < 19) this.moveSomething();
    else if (this.config.lag) this.lagLinks(victim);
  }

  /** Kills a node's process, unless the schedule is guarded and the loss would be more than the code restores. */
  private crash(index: number): boolean {
    const actor = this.nodes[index - 1]!;
    if (!actor.up || (this.config.guarded && this.maxLacking(index) > this.config.r)) return false;
    this.count('crash');
    this.log(() => `** CRASH n${index} ${JSON.stringify(actor.identity)}`);
    actor.up = false;
    actor.node?.close();
    actor.node = undefined;
    this.network.kill(index);
    this.closeLink(actor);
    actor.identity = undefined;
    this.watchLoss();
    return true;
  }

  private closeLink(actor: NodeActor): void {
    const link = this.links.get(actor.link);
    this.links.delete(actor.link);
    actor.link = 0;
    if (link?.peer !== undefined) {
      this.closings.push({ peer: link.peer, inc: link.inc, at: this.now + this.random.below(30) });
    }
  }

  /** A node loses its connection to the scheduler; it may be suspected before it comes back. */
  private breakScheduler(index: number): void {
    const actor = this.nodes[index - 1]!;
    if (!actor.up || (this.config.guarded && this.maxLacking(index) > this.config.r)) return;
    this.count('schedulerLinkBreak');
    this.log(() => `** BREAK n${index}-scheduler`);
    this.network.cut(index, 0, true);
    this.network.cut(0, index, false);
    this.closeLink(actor);
    // Long enough, often, to be given up while it still talks to all others.
    actor.awayUntil = this.now + this.random.below(this.retry * 8);
  }

  private breakConnections(): void {
    const actors = 1 + this.nodes.length + this.clients.length;
    for (let i = 1 + this.random.below(3); i > 0; i--) {
      const a = 1 + this.random.below(actors - 1);
      const b = 1 + this.random.below(actors - 1);
      if (a === b) continue;
      this.count('break');
      this.log(() => `** BREAK ${a}-${b}`);
      this.network.cut(a, b, true);
      this.network.cut(b, a, true);
      this.reconnects.push({ a, b, at: this.now + this.random.below(60) });
    }
  }

  private partition(victim: number): void {
    if (this.config.guarded && this.maxLacking(victim) > this.config.r) return;
    this.count('partition');
    const actors = 1 + this.nodes.length + this.clients.length;
    const side = Array.from({ length: actors }, (_, i) => i === victim);
    this.log(() => `** PARTITION n${victim}`);
    this.network.partition(side);
    this.partitionUntil = this.now + 30 + this.random.below(400);
  }

  /** A planned move of a random shard to a random node; the scheduler refuses what does not fit. */
  private moveSomething(): void {
    const groups = this.scheduler?.map.groups ?? [];
    const identity = this.random.pick(this.nodes).identity;
    if (groups.length === 0 || !identity) return;
    const g = this.random.below(groups.length);
    const before = this.scheduler?.map.epoch;
    const node = identity.id;
    if (this.random.chance(0.7))
      this.stepScheduler({ kind: 'move', g, member: this.random.below(this.config.k), node });
    else this.stepScheduler({ kind: 'move', g, index: this.random.below(this.config.r), node });
    if (this.scheduler?.map.epoch !== before) this.count('move');
  }

  private lagLinks(victim: number): void {
    this.count('lag');
    for (let other = 0; other <= this.nodes.length; other++) this.network.lag(other, victim, 0.97);
  }

  private restarts(): void {
    const rate = this.faultsLeft <= 0 ? 0.2 : this.config.restartRate;
    if (this.steps % 8 !== 0 || !this.random.chance(rate)) return;
    if (!this.scheduler) {
      this.count('schedulerRestart');
      this.startScheduler(true);
      return;
    }
    const down = this.nodes.filter((actor) => !actor.up);
    if (down.length === 0) return;
    const actor = this.random.pick(down);
    actor.up = true;
    this.count('restart');
    this.log(() => `** RESTART ${actor.name}`);
  }

  // ---- what is lacking (seen from above)

  private lackingMembers(map: ClusterMap, g: number, without: number): number {
    const group = map.groups[g]!;
    let lacking = 0;
    const at = (id: PeerId, inc: number) => {
      const index = this.actorOf.get(id);
      const actor = index === undefined || index === without ? undefined : this.nodes[index - 1];
      return actor?.up && actor.identity?.inc === inc ? actor.node : undefined;
    };
    for (const [m, entry] of group.data.entries()) {
      const node = at(entry.node, entry.inc);
      const owner = node?.ownerAt(g, m);
      const mirrored = group.sinks.some(
        (sink) =>
          sink.kind === 'M' && sink.index === m && sink.node === entry.node && node?.sinkAt(sink.sid)?.full,
      );
      const whole =
        owner?.gen === entry.gen
          ? owner.present
          : entry.init && node !== undefined && node.map.epoch < group.version;
      if (!whole && !mirrored) lacking++;
    }
    for (let index = 0; index < this.config.r; index++) {
      const full = group.sinks.some((sink) => {
        const node = sink.kind === 'P' && sink.index === index ? at(sink.node, sink.inc) : undefined;
        const there = node?.sinkAt(sink.sid);
        return there ? there.full : sink.init && node !== undefined && node.map.epoch < group.version;
      });
      if (!full) lacking++;
    }
    return lacking;
  }

  private maxLacking(without: number): number {
    let most = 0;
    for (const map of [this.disk.map]) {
      for (const group of map.groups) most = Math.max(most, this.lackingMembers(map, group.id, without));
    }
    return most;
  }

  private watchLoss(): void {
    if (!this.overwhelmed && this.maxLacking(-1) > this.config.r) {
      this.overwhelmed = true;
      this.log(() => '** MORE THAN r LACKING');
    }
  }

  // ---- phases

  private advance(): void {
    if (this.phase === 'forming') this.tryForm();
    else if (this.phase === 'running' && this.quiet()) this.beginChecks();
    else if (this.phase === 'checking' && this.clients.every((actor) => actor.checks.size === 0))
      this.phase = 'done';
  }

  private tryForm(): void {
    const { map } = this.disk;
    if (map.groups.length === 0) return;
    if (!tableByName(map, 't')) {
      const id = this.clients[0]?.id;
      if (id === undefined) return;
      const spec = {
        name: 't',
        pool: 'embedding',
        dim: DIM,
        optimizer: { kind: 'sgd' as const, lr: -1 },
        initializer: { kind: 'zeros' as const },
        seed: 0,
      };
      this.stepScheduler({ kind: 'message', from: id, message: { t: 'createTables', id: 1, specs: [spec] } });
      return;
    }
    this.phase = 'running';
  }

  private settled(): boolean {
    if (this.faultsLeft > 0 || !this.scheduler || this.persisting.length > 0 || this.partitionUntil > 0)
      return false;
    return this.nodes.every((actor) => actor.up && actor.node !== undefined);
  }

  private quiet(): boolean {
    if (!this.settled()) return false;
    if (this.clients.some((actor) => actor.left > 0 || actor.core.unacknowledged > 0)) return false;
    const redundancy = this.scheduler?.status().redundancy;
    const moving = this.scheduler?.map.groups.some((group) => group.sinks.length !== this.config.r);
    return redundancy === 'full' && !moving;
  }

  /** Lost beyond repair, and nothing is left that could change it. */
  private givenUp(): boolean {
    return this.settled() && this.scheduler?.status().redundancy === 'lost';
  }

  /** At rest: every shard holds what was pushed exactly once, every parity equation holds on every block. */
  private beginChecks(): void {
    this.phase = 'checking';
    this.clients[0]?.checks.clear();
    const [index, actor] = [1 + this.nodes.length, this.clients[0]!];
    const { map } = this.scheduler!;
    for (const group of map.groups) {
      for (const [m, entry] of group.data.entries()) {
        const owner = this.nodes[this.actorOf.get(entry.node)! - 1]?.node?.ownerAt(group.id, m);
        if (owner?.gen !== entry.gen) throw new Violation(`shard ${group.id}/${m} has no owner at rest`);
        this.oracle.checkShard(this.native, map, owner.native, group.id, m, DIM);
      }
      for (const sink of group.sinks) {
        const ticket = this.ticketCounter++;
        actor.checks.set(ticket, `group ${group.id} parity ${sink.index}`);
        const message: Message = { t: 'check', epoch: 0, id: 0, g: group.id, sid: sink.sid };
        const query = { to: { node: sink.node }, message };
        this.runClient(index, actor, actor.core.step({ kind: 'query', ticket, query }));
      }
    }
  }

  private onChecked(actor: ClientActor, ticket: number, message: Message): void {
    const what = actor.checks.get(ticket);
    if (!actor.checks.delete(ticket)) return;
    if (message.t !== 'checked') throw new Violation(`${what}: no answer`);
    if (message.unknown) {
      // The map moved on between the question and its arrival: look again when it is quiet.
      this.phase = 'running';
      return;
    }
    if (message.mismatched > 0)
      throw new Violation(`${what}: ${message.mismatched} blocks do not fit the equation`);
    if (message.unprotected > 0)
      throw new Violation(`${what}: ${message.unprotected} blocks without protection at rest`);
  }

  private stuck(): string {
    const parts = [`phase ${this.phase}, faults left ${this.faultsLeft}`];
    for (const [i, actor] of this.clients.entries()) {
      parts.push(
        `client ${i}: ${actor.left} to push, ${actor.core.unacknowledged} unacknowledged, ${actor.checks.size} checks`,
      );
    }
    const status = this.scheduler?.status();
    parts.push(`redundancy ${status?.redundancy}: ${status?.reasons.join(', ')}`);
    return parts.join('; ');
  }
}

/** The scheduler as an actor: its process, its disk, and the checks of its decisions. */
import {
  DEFAULT_SCHEDULER_POLICY,
  type DurableState,
  restoredJob,
  Scheduler,
  type SchedulerEffect,
  type SchedulerInput,
  type SchedulerPolicy,
} from '../core/scheduler/scheduler.js';
import type { ClusterMap, Group, PeerId, SinkEntry } from '../protocol/map.js';
import type { EndedSessions, JobStatus, JobSummary, Message } from '../protocol/messages.js';
import { maySend } from '../protocol/senders.js';
import { checkCapabilities, membersOf } from './capabilities.js';
import { ChangeWatch } from './changes.js';
import { Chronicle } from './chronicle.js';
import type { SchedulerSide, SimulatedCluster } from './cluster.js';
import { Disk, newDisk } from './disk.js';
import { type Lives, RECONNECT_RETRIES, SILENT_RETRIES, STOPPED_RETRIES } from './lives.js';
import { isLoadedAgain, lackingSeats, watchLoss } from './loss.js';
import type { Draft } from './saved.js';
import { checkSeats } from './seats.js';
import { Stalls } from './stalls.js';
import { checkVanished, VANISHED_RETRIES } from './vanished.js';
import { Violation } from './violation.js';

export class Control implements SchedulerSide {
  private storage: Disk;
  /** An owner reported, with the newest version of its group, that a shard is beyond repair. */
  unrecoverable = false;
  scheduler: Scheduler | undefined;
  private chronicle = new Chronicle();
  private changes = new ChangeWatch();
  /** Time of the scheduler's last tick. */
  private tickedAt = 0;
  /** The scheduler crashes before the disk finishes its next write. */
  private crashSoon = false;
  /** Node -> incarnation, of the processes that the scheduler believed alive at its last decision. */
  private believed = new Map<PeerId, number>();
  private readonly stalled = new Stalls();
  /** Times that the job was restored from a checkpoint. */
  private restored = 0;
  /** Probes that were asked for, with the time of their answer. */
  private refusals: { node: PeerId; inc: number; at: number }[] = [];
  /** Closed connections, with the time at which the scheduler notices. */
  private closings: { peer: PeerId; inc: number; link: number; at: number }[] = [];

  lives!: Lives;

  constructor(private readonly cluster: SimulatedCluster) {
    const { k, r, groups, mirrored } = cluster.config;
    const pools = [{ name: 'embedding', k, r, groups }];
    if (mirrored > 0) pools.push({ name: 'mirrored', k: 1, r, groups: mirrored });
    this.storage = newDisk('sim', k + r, pools);
  }

  /** The state on its disk. A crash loses writes that are not finished, and effects that wait for them. */
  get disk(): DurableState {
    return this.storage.state;
  }

  get clock(): number {
    return this.tickedAt;
  }

  get running(): boolean {
    return this.scheduler !== undefined;
  }

  /** True if every decision is on the disk, and every event is told. */
  get settled(): boolean {
    const redundancy = this.scheduler?.summary().redundancy;
    return redundancy !== undefined && this.storage.idle && this.chronicle.isUpTo(redundancy);
  }

  start(): void {
    const { retry } = this.cluster;
    const policy: SchedulerPolicy = {
      ...DEFAULT_SCHEDULER_POLICY,
      reconnectMs: retry * RECONNECT_RETRIES,
      silentMs: retry * SILENT_RETRIES,
      stoppedMs: retry * STOPPED_RETRIES,
      overloadedMs: retry * SILENT_RETRIES,
      lateMapMs: retry * 4,
      secondMs: retry,
      vanishedMs: retry * VANISHED_RETRIES,
      maxTables: 32,
      sessionMs: retry * 10,
      sessionEndsMs: retry,
      maxSessions: 64,
      maxHeldEffects: 65_536,
      avoidMs: retry * 10,
      maxMoves: 2,
      groupsPerMove: 1,
      balanceJoining: this.cluster.config.balanceJoining,
      leaseMs: retry * 20,
      maxUnsavedBatches: 2,
      saveRetryMs: retry * 2,
      saveStallMs: retry * 200,
      maxIncrements: 3,
      barrierMs: retry * 20,
    };
    this.scheduler = new Scheduler(this.storage.read(), policy, this.storage.used);
    this.chronicle.resumed(this.scheduler);
    this.step({ kind: 'tick', now: this.cluster.now });
  }

  crash(): void {
    if (!this.scheduler) return;
    const { cluster } = this;
    cluster.count('schedulerCrash');
    cluster.log(() => '** SCHEDULER CRASH');
    this.storage.crash(() => cluster.random.chance(0.5));
    watchLoss(cluster);
    this.cluster.leases.crashed();
    this.cluster.maps.crashed(this.disk.map.epoch);
    this.scheduler = undefined;
    this.lives.forget();
    cluster.network.kill(0);
    cluster.links.clear();
    this.closings = [];
    this.refusals = [];
    for (const actor of [...cluster.nodes, ...cluster.clients]) actor.link = 0;
  }

  /** Starts another scheduler, on an empty disk, from a checkpoint. */
  restore(url: string, draft: Draft, reshaped: boolean): void {
    const { k, r } = this.cluster.config;
    const job = `sim-${++this.restored}`;
    const state = restoredJob(job, k + r, draft.pools, url, draft);
    if (reshaped) this.cluster.count('reshaped');
    for (const [key, load] of reshaped ? state.restore!.shards : [])
      state.restore!.shards.set(key, { ...load, reshaped });
    this.storage = new Disk(() => structuredClone(state));
    this.scheduler = undefined;
    this.lives.forget();
    this.unrecoverable = this.crashSoon = false;
    this.changes = new ChangeWatch();
    this.chronicle = new Chronicle();
    this.stalled.clear();
    this.believed.clear();
    this.closings = [];
    this.refusals = [];
    this.cluster.forget();
    this.start();
  }

  /** Asks to load lost shards from this checkpoint. Returns the test for the shards that are loaded now. */
  reload(from: PeerId, id: number, url: string, checkpoint: Draft): (g: number, m: number) => boolean {
    const before = this.scheduler!.map;
    this.step({ kind: 'restoreLost', from, id, url, agoMs: 0, checkpoint });
    const after = this.scheduler!.map;
    return (g, m) => isLoadedAgain(before.groups[g]!, after.groups[g]!, m);
  }

  /** The connection of a peer ended; the scheduler notices it some time later. */
  disconnected(link: number): void {
    const { links, now, random } = this.cluster;
    const entry = links.get(link);
    links.delete(link);
    if (entry?.peer !== undefined)
      this.closings.push({ peer: entry.peer, inc: entry.inc, link, at: now + random.below(30) });
  }

  // ---- sessions

  /** True if the disk has the session as open: nobody may be told of its end before the disk has that. */
  isOpen(id: PeerId): boolean {
    return this.disk.sessions.has(id);
  }

  checkTombstone([first, last]: EndedSessions): void {
    for (const id of this.disk.sessions.keys())
      if (first <= id && id <= last) throw new Violation(`a tombstone for session ${id}, which is open`);
  }

  /** True if only living clients have sessions, and no shard or sink remembers other clients. */
  get sessionsSettled(): boolean {
    const { clients, nodes } = this.cluster;
    const living = new Set(clients.map((actor) => actor.id));
    if ([...this.disk.sessions.keys()].some((id) => !living.has(id))) return false;
    for (const group of this.disk.map.groups) {
      const { sinks, data, id } = group;
      for (const [m, { node }] of data.entries()) {
        const owner = this.cluster.actorWith(node)?.node?.ownerAt(id, m);
        if (!owner?.clients().every((client) => this.isOpen(client))) return false;
      }
      for (const entry of sinks) {
        const sink = nodes.map((actor) => actor.node?.sinkAt(entry.sid)).find((each) => each !== undefined);
        for (const m of membersOf(entry, group)) {
          const known = sink?.dedupOf(m).clients();
          if (!known?.every((client) => this.isOpen(client))) return false;
        }
      }
    }
    return true;
  }

  // ---- inputs

  receive(from: number, message: Message): void {
    if (!this.scheduler) return;
    const { cluster } = this;
    const actor = cluster.isNode(from) ? cluster.nodes[from - 1] : cluster.clientAt(from);
    const link = actor?.link ?? 0;
    if (message.t === 'join') this.step({ kind: 'join', link, message });
    else if (message.t === 'attach') this.step({ kind: 'attach', link, message });
    else {
      const peer = cluster.links.get(link)?.peer;
      if (peer !== undefined) this.step({ kind: 'message', from: peer, role: cluster.roleOf(from), message });
    }
  }

  step(input: SchedulerInput): void {
    if (!this.scheduler) return;
    if (input.kind === 'tick') this.tickedAt = input.now;
    if (input.kind === 'message') this.cluster.leases.received(input.from, input.message);
    if (input.kind === 'message' && input.message.t === 'unrecoverable') this.reportedLost(input.message);
    const before = this.scheduler.map;
    this.stalled.look(input, before, this.cluster);
    const effects = this.scheduler.step(input);
    this.cluster.maps.decide(this.scheduler.map);
    this.changes.look(this.tickedAt, this.scheduler.changes);
    if (this.scheduler.map !== before) this.checkDecision(before, this.scheduler.map);
    this.chronicle.look(this.scheduler, this.disk);
    for (const effect of effects) this.run(effect);
    this.cluster.leases.settled();
  }

  tick(): void {
    const { links, network, now } = this.cluster;
    const silent = [...links.values()].flatMap(({ actor, peer, inc }) => {
      const ms = network.unacknowledgedFor(0, actor, now);
      return peer !== undefined && this.cluster.isNode(actor) && ms > 0 ? [{ node: peer, inc, ms }] : [];
    });
    this.step({ kind: 'silent', links: silent });
    this.step({ kind: 'tick', now });
  }

  private reportedLost(message: Message & { t: 'unrecoverable' }): void {
    if (this.scheduler?.map.groups[message.g]?.version !== message.v) return;
    if (!this.cluster.overwhelmed)
      throw new Violation(`group ${message.g} reported unrecoverable though at most r lacked`);
    this.unrecoverable = true;
  }

  /** A peer sends a request over a connection without faults. */
  told(from: PeerId, message: Message): void {
    const role = this.cluster.actorWith(from) ? 'node' : 'client';
    this.step({ kind: 'message', from, role, message: this.cluster.network.wire.passed(message) });
  }

  /** Lets the scheduler notice closed connections and refused probes whose time has come. */
  events(): void {
    const { now, links } = this.cluster;
    if (this.closings.length > 0 && this.closings.some((entry) => entry.at <= now)) {
      const closed = this.closings.filter((entry) => entry.at <= now);
      this.closings = this.closings.filter((entry) => entry.at > now);
      for (const { peer, inc, link } of closed) {
        const back = [...links.values()].some((other) => other.peer === peer && other.inc === inc);
        if (!back) this.step({ kind: 'closed', peer, inc, link });
      }
    }
    if (this.refusals.length > 0 && this.refusals.some((entry) => entry.at <= now)) {
      const refused = this.refusals.filter((entry) => entry.at <= now);
      this.refusals = this.refusals.filter((entry) => entry.at > now);
      for (const { node, inc } of refused) {
        const actor = this.cluster.actorWith(node);
        if (actor?.gone) continue;
        if (!actor?.up || actor.identity?.inc !== inc) this.step({ kind: 'refused', node, inc });
      }
    }
  }

  // ---- effects

  private run(effect: SchedulerEffect): void {
    const { cluster } = this;
    switch (effect.kind) {
      case 'send':
        if (effect.message.t === 'eventTold') this.chronicle.answered(effect.message.number);
        cluster.transmit(0, effect.to, effect.message, effect.parts);
        return;
      case 'broadcast':
        this.broadcast(effect.message);
        return;
      case 'reply': {
        const link = cluster.links.get(effect.link);
        if (!link) {
          // The caller hung up before it was let in.
          if (effect.admit) this.closings.push({ ...effect.admit, link: effect.link, at: cluster.now });
          return;
        }
        if (effect.admit) {
          link.peer = effect.admit.peer;
          link.inc = effect.admit.inc;
        }
        if (link.peer !== undefined) cluster.promises.check(0, link.peer, effect.message);
        cluster.network.send(0, link.actor, effect.message);
        return;
      }
      case 'probe':
        this.refusals.push({
          node: effect.node,
          inc: effect.inc,
          at: cluster.now + cluster.random.below(40),
        });
        return;
      case 'persist':
        this.storage.begin(effect);
        if (cluster.stormy && cluster.random.chance(0.03)) this.crashSoon = true;
        return;
      case 'event':
        cluster.count(effect.name);
        cluster.log(() => `   scheduler ${effect.name} ${JSON.stringify(effect.fields)}`);
        if (effect.fields.reason === 'vanished') checkVanished(this.cluster, effect.fields.node as PeerId);
        if (effect.name === 'node.lost') this.lives.checkLost(effect.fields);
        return;
      case 'abandon':
        this.abandon(effect.node, effect.inc);
        return;
      case 'publish': {
        const process = this.scheduler;
        cluster.saves.publish(effect, (answer) => {
          if (this.scheduler === process) this.step(answer);
        });
      }
    }
  }

  private broadcast(message: Message): void {
    const { cluster } = this;
    cluster.log(() => `   ${JSON.stringify(message)}`);
    cluster.count(message.t);
    if (message.t === 'resume') cluster.saves.resumed(message.id);
    for (const { peer, actor } of cluster.links.values()) {
      if (peer === undefined || !maySend('scheduler', cluster.roleOf(actor), message.t)) continue;
      cluster.promises.check(0, peer, message);
      if (cluster.stormy && cluster.random.chance(cluster.config.lostDiffs)) cluster.count('lostDiff');
      else cluster.network.send(0, actor, message);
    }
  }

  private abandon(node: PeerId, inc: number): void {
    const { cluster } = this;
    for (const [id, link] of cluster.links) {
      if (link.peer !== node || link.inc !== inc) continue;
      cluster.network.cut(link.actor, 0, false);
      cluster.network.cut(0, link.actor, false);
      cluster.nodes[link.actor - 1]!.link = 0;
      this.disconnected(id);
    }
  }

  /** Finishes a write of the disk, or crashes the scheduler before that. */
  disks(): void {
    const { cluster } = this;
    if (this.crashSoon && cluster.random.chance(0.2)) {
      this.crashSoon = false;
      cluster.faultsLeft--;
      this.crash();
    }
    if (this.storage.idle || !cluster.random.chance(cluster.config.diskRate)) return;
    const version = this.storage.finish()!;
    watchLoss(cluster);
    this.step({ kind: 'persisted', version });
  }

  /**
   * Checks that a decision gives up no complete sink of a living node, unless another one takes its place or
   * it had stalled. The other one may have died a moment ago: the scheduler cannot know yet.
   */
  private checkDecision(before: ClusterMap, after: ClusterMap): void {
    const { nodes } = this.checkSummary();
    const isUseless = (sid: number) => this.stalled.has(sid) || !this.scheduler!.reports.isSinkComplete(sid);
    checkCapabilities(after);
    this.believed = new Map(nodes.filter(({ alive }) => alive).map(({ id, inc }) => [id, inc]));
    for (const group of before.groups) {
      const next = after.groups[group.id]!;
      if (next === group) continue;
      this.checkGivenUp(before, after, group.id);
      checkSeats(
        group,
        next,
        (holder) => !this.believesAlive(holder) || ('sid' in holder && isUseless(holder.sid)),
        (name) => this.cluster.count(name),
      );
      if (next.data.some((_, m) => isLoadedAgain(group, next, m))) continue;
      for (const sink of group.sinks) {
        if (next.sinks.some((other) => other.sid === sink.sid)) continue;
        if (!this.believesAlive(sink) || !this.completeAt(sink) || this.stalled.has(sink.sid)) continue;
        if (sink.kind === 'M') {
          this.checkMirror(sink, group, next);
          continue;
        }
        const others = next.sinks.filter((other) => other.kind === 'P' && other.index === sink.index);
        if (!others.some((other) => this.completeAt(other) || this.diedUnnoticed(other)))
          throw new Violation(`parity ${sink.sid} was given up without a successor`);
      }
    }
  }

  /** Checks that the summary, which the scheduler keeps up to date, equals the status made from scratch. */
  private checkSummary(): JobStatus {
    const [status, summary] = [this.scheduler!.status(), this.scheduler!.summary()];
    const told = ({ redundancy, reasons }: Pick<JobSummary, 'redundancy' | 'reasons'>) =>
      `${redundancy} for ${reasons.length} reasons`;
    if (told(status) !== told(summary))
      throw new Violation(`the summary says ${told(summary)}, and the status ${status.redundancy}`);
    return status;
  }

  /** Checks that a mirror from which a new owner takes its bytes stays until that owner is complete. */
  private checkMirror(mirror: SinkEntry, group: Group, next: Group): void {
    const entry = group.data[mirror.index]!;
    if (next.data[mirror.index]!.gen !== entry.gen) return;
    if (entry.node !== mirror.node || entry.inc !== mirror.inc) return;
    const owner = this.cluster.processOf(entry.node, entry.inc)?.ownerAt(next.id, mirror.index);
    if (owner?.gen !== entry.gen || !owner.complete)
      throw new Violation(`mirror ${mirror.sid} was given up before its owner had everything`);
  }

  /**
   * Rule 30: no decision gives up a silent node or a stalled sink if a group would then lack more than r
   * seats. A process that died a moment ago counts as complete here, unless the scheduler had to ask.
   */
  private checkGivenUp(before: ClusterMap, after: ClusterMap, g: number): void {
    if (this.unrecoverable) return;
    const unnoticed = (node: PeerId, inc: number) => this.diedUnnoticed({ node, inc });
    const lives = (node: PeerId, inc: number) => this.believesAlive({ node, inc });
    const countedComplete = this.stalled.unlessAsked(before, after, g, unnoticed, lives);
    const lackingIn = (map: ClusterMap) => lackingSeats(this.cluster, map, g, { countedComplete });
    const { r } = this.cluster.config;
    const lacking = lackingIn(after);
    if (lacking > r && lackingIn(before) <= r)
      throw new Violation(`a decision made ${lacking} members of group ${g} lack`);
  }

  private completeAt(sink: SinkEntry): boolean {
    return this.cluster.processOf(sink.node, sink.inc)?.sinkAt(sink.sid)?.complete ?? false;
  }

  private diedUnnoticed(sink: { node: PeerId; inc: number }): boolean {
    return this.believesAlive(sink) && this.cluster.processOf(sink.node, sink.inc) === undefined;
  }

  private believesAlive(sink: { node: PeerId; inc: number }): boolean {
    return this.believed.get(sink.node) === sink.inc;
  }
}

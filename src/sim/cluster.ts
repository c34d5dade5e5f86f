/**
 * A whole cluster in one process: the actors, the connections between them and the one clock. It carries
 * messages and effects back and forth and decides nothing. Faults are in faults.ts, the phases of a schedule
 * in world.ts.
 *
 * Actors have numbers: 0 is the scheduler, then the nodes, then the clients.
 */
import type { ClientEffect, ClientInput } from '../core/client/client.js';
import type { FetchAnswer } from '../core/node/loading.js';
import { PsNode } from '../core/node/node.js';
import type { StoreAnswer } from '../core/node/saving.js';
import type { ReplicaInput } from '../core/replica/replica.js';
import type { DurableState, SchedulerInput } from '../core/scheduler/scheduler.js';
import type { Effect } from '../core/shared/outbox.js';
import type { Policy } from '../core/shared/policy.js';
import type { NativeAddon, NativeMemory } from '../engine/native.js';
import { type PeerId, SCHEDULER } from '../protocol/map.js';
import type { EndedSessions, Message } from '../protocol/messages.js';
import type { Role } from '../protocol/senders.js';
import type { ClientActor, NodeActor } from './actors.js';
import { Breaks } from './breaks.js';
import { type SimConfig, silentClients } from './config.js';
import { remembering } from './engine.js';
import { Leases } from './leases.js';
import { limitsOf } from './limits.js';
import { Maps } from './maps.js';
import { type Delivery, Network } from './network.js';
import { ObservationChecks } from './observed.js';
import { Promises } from './promises.js';
import { proofOf, proven } from './proofs.js';
import { Questions } from './questions.js';
import { Random } from './random.js';
import type { CheckpointSide } from './saved.js';
import type { ReplicaSide, Workload } from './sides.js';
import { SlowReaders } from './slow-readers.js';
import { Turns } from './turns.js';
import { Violation } from './violation.js';

/** The scheduler as the cluster needs it (control.ts). */
export interface SchedulerSide {
  readonly running: boolean;
  /** Time of its newest tick. */
  readonly clock: number;
  /** The state on its disk. */
  readonly disk: DurableState;
  /** A loss beyond the code was confirmed. */
  readonly unrecoverable: boolean;
  receive(from: number, message: Message): void;
  step(input: SchedulerInput): void;
  tick(): void;
  /** The connection of a peer ended. */
  disconnected(link: number): void;
  /** True if the scheduler's durable state has the session as open. */
  isOpen(session: PeerId): boolean;
  checkTombstone(ended: EndedSessions): void;
}

/** Id of no peer, for a sender that is gone. */
const GONE: PeerId = -1;

export class SimulatedCluster {
  readonly network: Network;
  readonly breaks = new Breaks(this);
  readonly slowReaders = new SlowReaders(this);
  private readonly turns: Turns;
  readonly nodes: NodeActor[] = [];
  readonly clients: ClientActor[] = [];
  /** Connections to the scheduler. */
  readonly links = new Map<number, { actor: number; peer: PeerId | undefined; inc: number }>();
  /** Bytes that nodes have discarded in the step whose effects are carried out. */
  private readonly discarded: Uint8Array[] = [];
  /** Peer id -> number of the actor. */
  readonly actorOf = new Map<PeerId, number>();
  readonly stats: Record<string, number> = {};
  readonly transcript: string[] | undefined;
  promises = new Promises(this);
  maps = new Maps();
  leases = new Leases(() => this.control.disk);
  questions = new Questions(this);
  /** Protocol timers, in steps. */
  readonly retry: number;
  now = 1;
  phase: 'forming' | 'running' | 'checking' | 'done' = 'forming';
  faultsLeft: number;
  /** More than r members of a group lacked something at some time. */
  overwhelmed = false;
  control!: SchedulerSide;
  traffic!: Workload;
  readonly native: NativeAddon;
  /** The engine of nodes, which may refuse memory. */
  private readonly nodesNative: NativeAddon;
  private readonly memory: NativeMemory;
  private readonly policy: Policy;
  private nextLink = 1;
  private observed: ObservationChecks;
  saves!: CheckpointSide;
  replicas!: ReplicaSide;

  constructor(
    readonly random: Random,
    readonly config: SimConfig,
    native: NativeAddon,
    trace: boolean,
  ) {
    this.transcript = trace ? [] : undefined;
    const count = config.k + config.r + config.spares;
    const actors = 1 + count + config.clients + config.workers + config.replicas + silentClients(config);
    // A timer shorter than the time between two turns of an actor would only make storms of repetition.
    this.retry = Math.max(config.retry, Math.ceil(actors / config.tickRate));
    const late = () =>
      config.haunting > 0 && this.faultsLeft > 0 ? this.now + random.below(this.retry * config.haunting) : 0;
    const isSilent = (from: number, to: number) => this.slowReaders.isSilent(from, to);
    this.turns = new Turns(config.turns, random, () => this.count('behind'));
    this.network = new Network(random, actors, config.duplicate, late, isSilent);
    const refusals = new Random(config.refusalSeed);
    this.native = remembering(native);
    const refuses = () => this.faultsLeft > 0 && refusals.chance(config.refusals);
    this.nodesNative = remembering(native, refuses);
    this.memory = native.createMemory(0);
    this.observed = new ObservationChecks(this);
    this.policy = limitsOf(config, this.retry);
    this.faultsLeft = config.faults;
    for (let i = 0; i < count; i++) {
      this.nodes.push({
        name: `ps-${i}`,
        up: true,
        gone: false,
        node: undefined,
        identity: undefined,
        link: 0,
        awayUntil: 0,
      });
    }
  }

  /** Drops all processes and what they have said: the job begins again under another name. */
  forget(): void {
    for (let actor = 0; actor < this.actors; actor++) this.network.kill(actor);
    this.network.heal(this.now);
    this.links.clear();
    this.actorOf.clear();
    this.promises = new Promises(this);
    this.maps = new Maps();
    this.leases = new Leases(() => this.control.disk);
    this.questions = new Questions(this);
    this.observed = new ObservationChecks(this);
    this.overwhelmed = false;
    this.phase = 'forming';
  }

  get actors(): number {
    return 1 + this.nodes.length + this.clients.length;
  }

  /** Faults are still to come. */
  get stormy(): boolean {
    return this.phase === 'running' && this.faultsLeft > 0;
  }

  count(name: string, times = 1): void {
    this.stats[name] = (this.stats[name] ?? 0) + times;
  }

  log(text: () => string): void {
    if (this.transcript) this.transcript.push(`${this.now} ${text()}`);
  }

  close(): void {
    for (const actor of this.nodes) actor.node?.close();
  }

  roleOf(actor: number): Role {
    if (actor === 0) return 'scheduler';
    return this.isNode(actor) ? 'node' : 'client';
  }

  isNode(actor: number): boolean {
    return actor >= 1 && actor <= this.nodes.length;
  }

  clientAt(actor: number): ClientActor {
    return this.clients[actor - 1 - this.nodes.length]!;
  }

  peerOf(actor: number): PeerId | undefined {
    if (actor === 0) return SCHEDULER;
    return this.isNode(actor) ? this.nodes[actor - 1]!.identity?.id : this.clientAt(actor).id;
  }

  /** The node actor that has this id, whatever its incarnation. */
  actorWith(id: PeerId): NodeActor | undefined {
    return this.nodes[(this.actorOf.get(id) ?? 0) - 1];
  }

  /** The running process (id, incarnation). */
  processOf(id: PeerId, inc: number): PsNode | undefined {
    const actor = this.actorWith(id);
    return actor?.up && actor.identity?.inc === inc ? actor.node : undefined;
  }

  // ---- turns

  tickSomebody(): void {
    const index = this.random.below(this.actors);
    if (index === 0) {
      this.control.tick();
      return;
    }
    if (this.isNode(index)) {
      const actor = this.nodes[index - 1]!;
      if (!actor.up || this.network.heldSince(index, this.now) !== undefined) return;
      if (actor.link === 0) this.joinNode(index, actor);
      else if (actor.node) {
        this.slowReaders.report(index, 'clients');
        const effects = actor.node.step({ kind: 'tick', now: this.now });
        this.runNode(index, actor, this.turns.checked(actor, undefined, effects));
      }
      return;
    }
    this.tickClient(index, this.clientAt(index));
  }

  receive(delivery: Delivery): void {
    const { from, to, message } = delivery;
    if (to === 0) this.control.receive(from, message);
    else if (to <= this.nodes.length) this.receiveNode(delivery);
    else this.receiveClient(delivery);
  }

  private receiveNode({ letter, from, to, message, parts, sender = this.peerOf(from) }: Delivery): void {
    const actor = this.nodes[to - 1]!;
    if (actor.up && message.t === 'welcome') this.welcomeNode(to, actor, message);
    else if (message.t === 'leave') this.leave(to, actor, message.inc);
    // A node that asked to be drained itself goes on until the scheduler has it leave.
    else if (message.t === 'changeReply') return;
    else if (actor.up && actor.node && sender !== undefined) {
      const { map } = actor.node;
      const effects = actor.node.step({
        kind: 'message',
        from: sender,
        role: this.roleOf(from),
        message,
        parts,
      });
      this.network.wire.done(letter);
      if (actor.node.map !== map) this.maps.check(actor.name, actor.node.map);
      this.runNode(to, actor, this.turns.checked(actor, message, effects));
    }
  }

  private receiveClient({ letter, from, to, message, parts, sender = this.peerOf(from) }: Delivery): void {
    const actor = this.clientAt(to);
    if (message.t === 'welcome') {
      actor.id = message.id;
      this.actorOf.set(actor.id, to);
      const map: Message = { t: 'map', map: message.map };
      this.stepClient(to, { kind: 'message', from: SCHEDULER, message: map, parts: [] });
    } else if (message.t === 'stale') this.sessionLost(to, actor);
    else if (!this.traffic.received(to, actor, message)) {
      // The sender's process may be gone; its message is still that of a node.
      const peer = sender ?? GONE;
      const { map } = actor.core;
      this.stepClient(to, { kind: 'message', from: peer, message, parts });
      this.network.wire.done(letter);
      if (actor.core.map !== map) this.maps.check(`client ${actor.id}`, actor.core.map);
      if (message.t === 'pushAck') this.traffic.noteAcknowledged(to, actor);
    }
  }

  peerUp(at: number, other: number): void {
    const peer = this.peerOf(other);
    if (peer === undefined || at === 0 || other === 0) return;
    if (this.isNode(at)) {
      const actor = this.nodes[at - 1]!;
      if (actor.up && actor.node) this.runNode(at, actor, actor.node.step({ kind: 'peerUp', peer }));
    } else this.stepClient(at, { kind: 'peerUp', peer });
  }

  // ---- nodes

  private newLink(actor: number): number {
    this.links.set(this.nextLink, { actor, peer: undefined, inc: 0 });
    return this.nextLink++;
  }

  private joinNode(index: number, actor: NodeActor): void {
    if (!this.control.running || !this.network.connected(0, index)) return;
    if (this.now < actor.awayUntil && this.faultsLeft > 0) return;
    actor.link = this.newLink(index);
    const { zones } = this.config;
    const message: Message = {
      t: 'join',
      name: actor.name,
      host: zones > 0 ? `zone-${index % zones}/${actor.name}` : actor.name,
      address: `${actor.name}:1`,
      standby: false,
      ...actor.identity,
    };
    this.network.send(index, 0, message);
  }

  private unacknowledged(at: number, other: number | undefined): number | undefined {
    return other === undefined ? undefined : this.network.unacknowledgedFor(at, other, this.now);
  }

  private welcomeNode(index: number, actor: NodeActor, welcome: Message & { t: 'welcome' }): void {
    actor.identity = { id: welcome.id, inc: welcome.inc };
    this.actorOf.set(welcome.id, index);
    if (!actor.node) {
      actor.node = new PsNode(welcome.id, welcome.inc, this.nodesNative, this.memory, this.policy, {
        discard: (bytes) => this.discarded.push(bytes),
        holds: (session, proof) => proof?.[0] === proofOf(session)[0],
        unacknowledgedMs: (peer) => this.unacknowledged(index, this.actorOf.get(peer)),
      });
      this.runNode(index, actor, actor.node.step({ kind: 'tick', now: this.now }));
    }
    const message: Message = { t: 'map', map: welcome.map };
    const input = {
      kind: 'message' as const,
      from: SCHEDULER,
      role: 'scheduler' as const,
      message,
      parts: [],
    };
    this.runNode(index, actor, actor.node.step(input));
  }

  /** Ends a process that was told to leave: no entry of the durable map may name it. */
  private leave(index: number, actor: NodeActor, inc: number): void {
    if (!actor.up || actor.identity?.inc !== inc) return;
    const { id } = actor.identity;
    const entries = this.control.disk.map.groups.flatMap((group) => [...group.data, ...group.sinks]);
    if (entries.some((entry) => entry.node === id && entry.inc === inc))
      throw new Violation(`node ${id} was told to leave while it held something`);
    this.count('left');
    this.log(() => `** n${index} LEAVES`);
    this.stop(index, actor);
  }

  /** The end of a node's process, whatever the reason. */
  stop(index: number, actor: NodeActor): void {
    actor.up = false;
    actor.node?.close();
    actor.node = undefined;
    this.network.kill(index);
    const { link } = actor;
    actor.link = 0;
    this.control.disconnected(link);
    actor.identity = undefined;
  }

  private runNode(index: number, actor: NodeActor, effects: Effect[]): void {
    for (const effect of this.turns.with(actor, effects)) {
      if (effect.kind === 'event') {
        if (effect.name === 'message.refused')
          throw new Violation(`node ${index} refused a message: ${JSON.stringify(effect.fields)}`);
        this.count(effect.name === 'sink.complete' && !effect.fields.complete ? 'sink.lacking' : effect.name);
        this.log(() => `   n${index} ${effect.name} ${JSON.stringify(effect.fields)}`);
      } else if (effect.kind === 'store') this.saves.store(index, actor, effect);
      else if (effect.kind === 'fetch') this.saves.fetch(index, actor, effect);
      else if (effect.kind === 'hangUp') this.breaks.hangUp(index, effect.peer);
      else this.transmit(index, effect.to, effect.message, effect.parts);
    }
    // A machine that still reads discarded bytes sees garbage.
    for (const bytes of this.discarded.splice(0)) bytes.fill(0xa5);
    if (actor.node?.needsFlush && this.random.chance(this.config.flushRate)) {
      this.runNode(index, actor, actor.node.step({ kind: 'flush' }));
    }
    if (actor.node && this.turns.come(actor)) this.runNode(index, actor, actor.node.step({ kind: 'turn' }));
    if (actor.node?.needsReport) this.slowReaders.report(index, 'charged');
  }

  /** A step that mostly has no effects. */
  stepNode(index: number, input: Parameters<PsNode['step']>[0]): void {
    const actor = this.nodes[index - 1]!;
    const effects = actor.node?.step(input) ?? [];
    if (effects.length > 0) this.runNode(index, actor, effects);
  }

  /** The place of checkpoints answers a node. */
  answerNode(index: number, actor: NodeActor, answer: StoreAnswer | FetchAnswer): void {
    if (actor.node) this.runNode(index, actor, actor.node.step(answer));
  }

  // ---- clients

  private tickClient(index: number, actor: ClientActor): void {
    if (actor.link === 0) {
      if (!this.control.running || !this.network.connected(0, index)) return;
      actor.link = this.newLink(index);
      const message: Message = actor.id === undefined ? { t: 'attach' } : { t: 'attach', id: actor.id };
      if (actor.expired) return this.sessionLost(index, actor);
      this.network.send(index, 0, message);
    }
    if (this.phase === 'running') this.traffic.request(index, actor);
    this.stepClient(index, { kind: 'tick', now: this.now, busy: this.traffic.busy(index, actor) });
  }

  private stepClient(index: number, input: ReplicaInput & ClientInput): void {
    this.runClient(index, this.clientAt(index).core.step(input));
    this.runClient(index, this.replicas.step(index, input));
  }

  /**
   * Ends the process of a client, with or without a goodbye. A new one takes its place, with its own session.
   */
  replaceClient(index: number, goodbye: boolean): void {
    const actor = this.clientAt(index);
    const { id, link } = actor;
    if (id === undefined) return;
    for (let node = 1; node <= this.nodes.length; node++) this.slowReaders.disconnected(node, index);
    this.count(goodbye ? 'clientDetach' : 'clientCrash');
    this.log(() => `** CLIENT ${index} (peer ${id}) ends`);
    if (goodbye) this.control.receive(index, { t: 'detach' });
    this.network.kill(index);
    this.control.disconnected(link);
    this.actorOf.delete(id);
    this.traffic.restart(index, actor);
    this.replicas.restart(index);
  }

  /** Ends a client that the scheduler sent away, because it stayed away for too long. */
  private sessionLost(index: number, actor: ClientActor): void {
    if (actor.id === undefined) return;
    if (this.control.isOpen(actor.id)) throw new Violation(`client ${actor.id} was sent away`);
    this.replaceClient(index, false);
  }

  runClient(index: number, effects: ClientEffect[]): void {
    for (const effect of effects) {
      if (effect.kind === 'send') this.transmit(index, effect.to, effect.message, effect.parts);
      else if (effect.kind === 'event') this.count(effect.name);
      else if (effect.kind !== 'released') this.traffic.answered(index, this.clientAt(index), effect);
    }
  }

  transmit(from: number, to: PeerId, said: Message, parts: readonly Uint8Array[]): void {
    const message = proven(said);
    this.promises.check(from, to, message);
    this.questions.look(from, to, message, parts);
    if (from === 0) this.leases.sent(to, message);
    const target = to === SCHEDULER ? 0 : this.actorOf.get(to);
    if (target === undefined) return;
    if (target === 0 && !this.control.running) return;
    if (this.isNode(target) && !this.nodes[target - 1]!.up) return;
    this.observed.look(message);
    this.network.send(from, target, message, parts, this.peerOf(from));
  }
}

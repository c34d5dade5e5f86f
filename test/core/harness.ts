/**
 * A cluster whose every step a test decides: the real scheduler, node and client machines over the real
 * engine, joined by one first-in-first-out queue. Nothing moves unless a test calls `settle` or `advance`;
 * messages can be held back (and released later, which reorders them), dropped and inspected. Payloads are
 * overwritten after each delivery, because parts of a message are views that end with the call.
 */
import { type ClientPolicy, DEFAULT_CLIENT_POLICY } from '../../src/core/client/client.js';
import { PsNode } from '../../src/core/node/node.js';
import {
  DEFAULT_SCHEDULER_POLICY,
  type DurableState,
  newJob,
  Scheduler,
  type SchedulerEffect,
  type SchedulerInput,
  type SchedulerPolicy,
} from '../../src/core/scheduler/scheduler.js';
import type { Owner } from '../../src/core/shard/owner.js';
import type { Effect } from '../../src/core/shared/outbox.js';
import { DEFAULT_POLICY, type Policy } from '../../src/core/shared/policy.js';
import type { Sink } from '../../src/core/sink/sink.js';
import type { NativeShard } from '../../src/engine/native.js';
import { type ClusterMap, type PeerId, SCHEDULER, type TableSpec } from '../../src/protocol/map.js';
import type { Message, MessageOf } from '../../src/protocol/messages.js';
import { maySend, type Role } from '../../src/protocol/senders.js';
import { Disk, type DiskWrite } from '../../src/sim/disk.js';
import { ClientActor, native, tableSpec } from './client-actor.js';
import { MemoryPlace } from './memory-place.js';
import { type Hold, heldBytes, loseHeld, type Match, type Packet, Payloads } from './packets.js';

export { ADDING, DIM, native, type Part, section, type Ticket, tableSpec } from './client-actor.js';
export { type Hold, kind, type Packet } from './packets.js';

const BLOCK_BYTES = 4096;
const KEYS_PER_BLOCK = 512;

export interface NodeActor {
  name: string;
  host: string;
  id: PeerId;
  inc: number;
  standby: boolean;
  node: PsNode | undefined;
}

export interface ClusterOptions {
  k: number;
  r: number;
  groups?: number;
  /** Number of nodes beyond k + r, which join after the group has formed. */
  spares?: number;
  clients?: number;
  hosts?: string[];
  tables?: Omit<TableSpec, 'id'>[];
  policy?: Partial<Policy>;
  clientPolicy?: Partial<ClientPolicy>;
  schedulerPolicy?: Partial<SchedulerPolicy>;
  memoryLimit?: number;
  /** State of the scheduler, and place of checkpoints. Default: those of a new job. */
  state?: () => DurableState;
  place?: MemoryPlace;
}

/** With one group, shard m is on `nodes[m]`, parity j on `nodes[k + j]`; `nodes[i]` has peer id i + 1. */
export class Cluster {
  readonly nodes: NodeActor[] = [];
  readonly clients: ClientActor[] = [];
  scheduler: Scheduler | undefined;
  private readonly storage: Disk;
  /** The write under way, which ends at once unless `slowDisk` is set. */
  persisting: DiskWrite[] = [];
  slowDisk = false;
  /** True: open batches are flushed after every step. False: a test calls `flush`. */
  autoFlush = true;
  now = 1000;
  /** Everything that was ever sent, in order. */
  readonly history: Packet[] = [];
  readonly events: { name: string; fields: Record<string, unknown> }[] = [];
  /** Answers of the scheduler on connections without identity. */
  readonly replies: { link: number; message: Message }[] = [];
  /** Nodes that were told to leave, by name. */
  readonly left: string[] = [];
  readonly probes: { node: PeerId; inc: number }[] = [];
  readonly place: MemoryPlace;
  private queue: Packet[] = [];
  private readonly payloads = new Payloads();
  private holds: { match: Match; packets: Packet[] | undefined }[] = [];
  readonly policy: Policy;
  private readonly schedulerPolicy: SchedulerPolicy;

  constructor(private readonly options: ClusterOptions) {
    this.policy = { ...DEFAULT_POLICY, ...options.policy };
    this.schedulerPolicy = {
      ...DEFAULT_SCHEDULER_POLICY,
      balanceJoining: false,
      groupsPerMove: 1,
      ...options.schedulerPolicy,
    };
    const { k, r, groups = 1, clients = 1, spares = 0, tables = [tableSpec()] } = options;
    const job = () => newJob('test', k + r, [{ name: 'embedding', k, r, groups }]);
    this.storage = new Disk(options.state ?? job);
    this.place = options.place ?? new MemoryPlace();
    this.scheduler = new Scheduler(this.storage.read(), this.schedulerPolicy, false);
    this.stepScheduler({ kind: 'tick', now: this.now });
    for (let i = 0; i < k + r + spares; i++) this.addNode();
    for (let i = 0; i < clients; i++) this.addClient();
    if (tables.length > 0) this.createTables(tables);
    this.settle();
  }

  /** The state in the scheduler's storage. */
  get disk(): DurableState {
    return this.storage.state;
  }

  get map(): ClusterMap {
    return this.disk.map;
  }

  get client(): ClientActor {
    return this.clients[0]!;
  }

  owner(m: number, g = 0): Owner {
    const entry = this.map.groups[g]!.data[m]!;
    return this.nodeById(entry.node).node!.ownerAt(g, m)!;
  }

  sink(index: number, g = 0): Sink {
    const entry = this.map.groups[g]!.sinks.filter((s) => s.index === index).at(-1)!;
    return this.nodeById(entry.node).node!.sinkAt(entry.sid)!;
  }

  nodeById(id: PeerId): NodeActor {
    return this.nodes.find((actor) => actor.id === id)!;
  }

  // ---- membership

  addNode(extra: { name?: string; host?: string; standby?: boolean } = {}): NodeActor {
    const name = extra.name ?? `ps-${this.nodes.length}`;
    const host = extra.host ?? this.options.hosts?.[this.nodes.length] ?? name;
    const actor: NodeActor = { name, host, id: 0, inc: 0, standby: extra.standby ?? false, node: undefined };
    this.nodes.push(actor);
    this.join(actor, true);
    return actor;
  }

  addClient(): ClientActor {
    const client = new ClientActor(this, 0, { ...DEFAULT_CLIENT_POLICY, ...this.options.clientPolicy });
    this.clients.push(client);
    this.stepScheduler({ kind: 'attach', link: 1000 + this.clients.length - 1, message: { t: 'attach' } });
    return client;
  }

  createTables(specs: Omit<TableSpec, 'id'>[]): void {
    this.stepScheduler({
      kind: 'message',
      from: this.client.id,
      role: 'client',
      message: { t: 'createTables', id: 1, specs },
    });
  }

  private join(actor: NodeActor, fresh: boolean): void {
    const { name, host, standby, id, inc } = actor;
    const message: MessageOf<'join'> = { t: 'join', name, host, address: `${name}:1`, standby };
    if (!fresh) Object.assign(message, { id, inc });
    this.stepScheduler({ kind: 'join', link: this.nodes.indexOf(actor), message });
  }

  /** Kills a process. `noticed`: its connection closes and nobody listens at its port any more. */
  crash(index: number, { noticed = true } = {}): void {
    const actor = this.nodes[index]!;
    actor.node?.close();
    actor.node = undefined;
    this.queue = this.queue.filter((packet) => packet.to !== actor.id);
    if (noticed) this.notice(index);
  }

  /** Ends a process that was told to leave. */
  private leave(actor: NodeActor, inc: number): void {
    if (actor.inc !== inc) return;
    this.left.push(actor.name);
    this.crash(this.nodes.indexOf(actor));
  }

  notice(index: number): void {
    const { id: node, inc } = this.nodes[index]!;
    this.stepScheduler({ kind: 'closed', peer: node, inc });
    this.stepScheduler({ kind: 'refused', node, inc });
  }

  /** Starts a new process under the same node name. */
  restart = (index: number): void => this.join(this.nodes[index]!, true);

  crashScheduler(): void {
    this.scheduler = undefined;
    this.persisting = [];
    this.queue = this.queue.filter((packet) => packet.to !== SCHEDULER);
  }

  restartScheduler({ rejoin = true } = {}): void {
    this.scheduler = new Scheduler(this.storage.read(), this.schedulerPolicy, true);
    this.stepScheduler({ kind: 'tick', now: this.now });
    if (rejoin) for (const actor of this.nodes) if (actor.node) this.join(actor, false);
  }

  peerUp(at: PeerId, peer: PeerId): void {
    const actor = this.nodes.find((candidate) => candidate.id === at);
    if (actor) this.runNode(actor, actor.node!.step({ kind: 'peerUp', peer }));
    else this.clients.find((client) => client.id === at)!.step({ kind: 'peerUp', peer });
  }

  // ---- messages

  roleOf(peer: PeerId): Role {
    if (peer === SCHEDULER) return 'scheduler';
    return this.clients.some(({ id }) => id === peer) ? 'client' : 'node';
  }

  send(from: PeerId, to: PeerId, message: Message, parts: readonly Uint8Array[] = []): void {
    const packet = { from, to, message, parts };
    this.history.push(packet);
    this.payloads.add(packet);
    const hold = this.holds.find(({ match }) => match(packet));
    (hold ? hold.packets : this.queue)?.push(packet);
  }

  hold(match: Match): Hold {
    const packets: Packet[] = [];
    const entry = { match, packets };
    this.holds.push(entry);
    const end = () => {
      this.holds = this.holds.filter((other) => other !== entry);
    };
    return {
      packets,
      release: () => {
        end();
        this.queue.push(...packets);
      },
      drop: end,
    };
  }

  /** Drops messages until the returned function is called. */
  lose(match: Match): () => void {
    const entry = { match, packets: undefined };
    this.holds.push(entry);
    return () => {
      this.holds = this.holds.filter((other) => other !== entry);
    };
  }

  /** Messages of a kind that were sent since a mark (an earlier `history.length`). */
  sent<T extends Message['t']>(name: T, since = 0): (Packet & { message: MessageOf<T> })[] {
    return this.history.slice(since).filter((packet) => packet.message.t === name) as never;
  }

  eventsNamed(name: string): Record<string, unknown>[] {
    return this.events.filter((event) => event.name === name).map((event) => event.fields);
  }

  /** Delivers messages until none is on its way. */
  settle(): void {
    for (let count = 0; this.queue.length > 0; count++) {
      if (count > 100_000) throw new Error('the cluster never comes to rest');
      this.deliver(this.queue.shift()!);
    }
  }

  deliver({ from, to, message, parts }: Packet): void {
    if (to === SCHEDULER) {
      this.stepScheduler({ kind: 'message', from, role: this.roleOf(from), message });
      return;
    }
    const copies = parts.map((part) => part.slice());
    const client = this.clients.find((candidate) => candidate.id === to);
    if (client) client.step({ kind: 'message', from, message, parts: copies });
    const actor = this.nodes.find((candidate) => candidate.id === to);
    if (!actor?.node) return;
    if (message.t === 'changeReply') return;
    if (message.t === 'leave') {
      this.leave(actor, message.inc);
      return;
    }
    const effects = actor.node.step({
      kind: 'message',
      from,
      role: this.roleOf(from),
      message,
      parts: copies,
    });
    for (const copy of copies) copy.fill(0xa5);
    this.runNode(actor, effects);
  }

  flush(index: number): void {
    const actor = this.nodes[index]!;
    this.runNode(actor, actor.node!.step({ kind: 'flush' }));
  }

  /** Time passes for everybody, in small enough steps for heartbeats; then everything is delivered. */
  advance(ms: number): void {
    for (let left = ms; left > 0; left -= 300) {
      this.now += Math.min(left, 300);
      for (const actor of this.nodes) {
        this.report(actor, actor.node?.answers.clients() ?? []);
        if (actor.node) this.runNode(actor, actor.node.step({ kind: 'tick', now: this.now }));
      }
      this.settle();
      this.stepScheduler({ kind: 'tick', now: this.now });
      for (const client of this.clients) client.step({ kind: 'tick', now: this.now });
      this.settle();
    }
  }

  private runNode(actor: NodeActor, effects: Effect[]): void {
    for (const effect of effects) {
      if (effect.kind === 'send') this.send(actor.id, effect.to, effect.message, effect.parts);
      else if (effect.kind === 'event') this.events.push({ name: effect.name, fields: effect.fields });
      else if (effect.kind === 'hangUp') this.disconnect(actor, effect.peer);
      else this.place.take(effect, (answer) => this.runNode(actor, actor.node?.step(answer) ?? []));
    }
    if (this.autoFlush && actor.node?.needsFlush) this.runNode(actor, actor.node.step({ kind: 'flush' }));
    if (actor.node?.needsTurn) this.runNode(actor, actor.node.step({ kind: 'turn' }));
    this.report(actor, actor.node?.answers.charged() ?? []);
  }

  /** Links hold what is held back (`hold`), and nothing else. */
  private report(actor: NodeActor, clients: readonly PeerId[]): void {
    actor.node?.contentBytes.report(this.payloads.linksOf(actor.id, this.holds));
    const links = clients.map((client) => [client, heldBytes(this.holds, actor.id, client)] as const);
    if (links.length > 0) this.runNode(actor, actor.node!.step({ kind: 'taken', links }));
  }

  /** The connection between a node and a client ends, with what is held back on it. */
  disconnect(actor: NodeActor, client: PeerId): void {
    loseHeld(this.holds, actor.id, client);
    this.runNode(actor, actor.node!.step({ kind: 'gone', client }));
  }

  // ---- scheduler

  stepScheduler(input: SchedulerInput): void {
    for (const effect of this.scheduler?.step(input) ?? []) this.runScheduler(effect);
    if (!this.slowDisk) this.persist();
  }

  /** Finishes the write of the storage. */
  persist(): void {
    for (let next = this.persisting.shift(); next; next = this.persisting.shift()) {
      this.storage.write(next.changes);
      const persisted = { kind: 'persisted' as const, version: next.version };
      for (const effect of this.scheduler?.step(persisted) ?? []) this.runScheduler(effect);
    }
  }

  private runScheduler(effect: SchedulerEffect): void {
    switch (effect.kind) {
      case 'send':
        return this.send(SCHEDULER, effect.to, effect.message);
      case 'broadcast': {
        const { message } = effect;
        for (const { id } of [...this.nodes.filter(({ node }) => node), ...this.clients])
          if (id !== 0 && maySend('scheduler', this.roleOf(id), message.t)) this.send(SCHEDULER, id, message);
        return;
      }
      case 'reply':
        this.replies.push({ link: effect.link, message: effect.message });
        if (effect.message.t === 'welcome') this.welcome(effect.link, effect.message);
        return;
      case 'persist':
        this.persisting.push(effect);
        return;
      case 'publish':
        return this.place.publish(effect, (answer) => this.stepScheduler(answer));
      case 'probe':
        this.probes.push({ node: effect.node, inc: effect.inc });
        return;
      case 'event':
        this.events.push({ name: effect.name, fields: effect.fields });
    }
  }

  private welcome(link: number, welcome: MessageOf<'welcome'>): void {
    const client = this.clients[link - 1000];
    const actor = this.nodes[link];
    if (client) client.id = welcome.id;
    else if (actor) {
      if (!actor.node || actor.inc !== welcome.inc) {
        actor.node?.close();
        const memory = native.createMemory(this.options.memoryLimit ?? 0);
        actor.node = new PsNode(welcome.id, welcome.inc, native, memory, this.policy);
        actor.id = welcome.id;
        actor.inc = welcome.inc;
        this.runNode(actor, actor.node.step({ kind: 'tick', now: this.now }));
      }
    } else return;
    this.send(SCHEDULER, welcome.id, { t: 'map', map: welcome.map });
  }

  close(): void {
    for (const actor of this.nodes) actor.node?.close();
  }

  // ---- content of the tables

  /** Value of a key in a shard, by a pull: every float of its row must be the same. */
  read(m: number, key: number, table = 1): number {
    const ticket = this.client.pull({ [m]: [{ table, keys: [key] }] });
    this.settle();
    const row = ticket.rows[0];
    if (!row) throw new Error(`no rows for key ${key} of shard ${m}: ${ticket.error ?? 'no answer'}`);
    for (const value of row) if (value !== row[0]) throw new Error('a torn row');
    return row[0]!;
  }

  /** Bytes of every block of a shard. @throws when a block is absent */
  image(shard: NativeShard): Buffer {
    const blocks: number[] = [];
    for (const [table, stride, extent] of shard.extents().sort((a, b) => a[0] - b[0])) {
      for (let i = 0; i < Math.ceil(extent / KEYS_PER_BLOCK); i++) blocks.push(table * 2, i);
      for (let i = 0; i < Math.ceil(extent / Math.max(1, Math.floor(BLOCK_BYTES / stride))); i++)
        blocks.push(table * 2 + 1, i);
    }
    const { bytes, lacking } = shard.read(Uint32Array.from(blocks));
    if (lacking.length > 0) throw new Error(`${lacking.length / 2} blocks are absent`);
    return Buffer.from(bytes);
  }

  /** Checks the parity equation of every sink on every block. Returns the number of blocks. */
  checkParities(): number {
    let checked = 0;
    for (const group of this.map.groups) {
      for (const { node, sid } of group.sinks) {
        const ticket = this.client.check(node, sid, group.id);
        this.settle();
        const answer = ticket.answer as MessageOf<'checked'> | undefined;
        if (!answer || answer.unknown || answer.mismatched > 0 || answer.unprotected > 0)
          throw new Error(`parity ${sid}: ${JSON.stringify(answer ?? 'no answer')}`);
        checked += answer.checked;
      }
    }
    return checked;
  }
}

/**
 * The traffic of clients: pushes and pulls of rows whose right content the oracle knows, and the checks at
 * rest.
 */
import { listSections, PsClientCore } from '../core/client/client.js';
import { type Busy, IDLE } from '../core/client/state.js';
import { type ClusterMap, followedBy, locate, SCHEDULER, shardCount } from '../protocol/map.js';
import type { Message } from '../protocol/messages.js';
import type { ClientActor } from './actors.js';
import type { SimulatedCluster } from './cluster.js';
import { silentClients } from './config.js';
import { checkTables, Droppers } from './droppers.js';
import { Oracle, type SavedShardRows, shardOf } from './oracle.js';
import { Random } from './random.js';
import type { Draft, SavedContent } from './saved.js';
import { Scans } from './scans.js';
import { RANGES, SimulatedSections, type Store } from './sections.js';
import { Setters } from './setters.js';
import type { AnswerEffect, Workload } from './sides.js';
import { type SimTable, tablesOfPool } from './tables.js';
import { isSliced } from './turns.js';
import { Violation } from './violation.js';
import { SimulatedWorkers } from './workers.js';

const SHARED_KEYS = 6;

type SimulatedProcess = Omit<ClientActor, 'left'>;

export class Traffic implements Workload {
  readonly tables: readonly SimTable[];
  private readonly sections: SimulatedSections;
  private readonly oracle: Oracle;
  readonly setters: Setters;
  readonly droppers: Droppers;
  private readonly workers: SimulatedWorkers;
  private readonly scans: Scans;
  /** Client process and shard -> the section that asks for its rows there. */
  private readonly pullSections = new Map<string, Uint8Array>();
  /** The pools with their tables; undefined before all tables are in the durable map. */
  private stores: Store[] | undefined;
  private nextTicket = 1;
  /** Parities that have been asked twice: some of their blocks seemed to be without protection. */
  private readonly doubted = new Set<string>();
  private nextProcess = 0;
  /** Process of a client, or range -> the session that its pushes are numbered under. */
  private readonly sessions = new Map<number, number>();

  constructor(
    private readonly cluster: SimulatedCluster,
    private readonly moved: () => void,
  ) {
    const { config, clients, native } = cluster;
    this.tables = tablesOfPool('embedding', config.extra);
    if (config.mirrored > 0)
      this.tables = [...this.tables, ...tablesOfPool('mirrored', config.mirroredExtra)];
    this.sections = new SimulatedSections(native, this.tables);
    this.setters = new Setters(cluster, this.tables);
    this.droppers = new Droppers(cluster);
    this.oracle = new Oracle(this.sections, this.setters, this.droppers);
    this.workers = new SimulatedWorkers(
      cluster,
      this.sections,
      this.oracle,
      this.sessions,
      () => this.nextTicket++,
    );
    this.scans = new Scans(cluster, this.sections, this.oracle, () => this.nextTicket++);
    const count = config.clients + config.workers + config.replicas + silentClients(config);
    for (let i = 0; i < count; i++)
      clients.push({ ...this.newProcess(), left: i < config.clients ? config.pushes : 0 });
  }

  private newProcess(): SimulatedProcess {
    const { retry } = this.cluster;
    return {
      core: new PsClientCore({
        retryMs: retry,
        maxRetryMs: retry * 4,
        wrongOwnerMs: 5,
        maxBusyMs: retry * 8,
      }),
      process: this.nextProcess++,
      id: undefined,
      link: 0,
      pulls: new Map(),
      pushes: new Map(),
      checks: new Map(),
      hold: undefined,
      expired: false,
    };
  }

  /**
   * In some schedules connections are called slow for a while, whether or not messages are on the way. They
   * are drawn from a seed of their own, so that nothing else of a schedule depends on them.
   */
  busy(index: number, { core }: ClientActor): Busy {
    const { config, phase, now, retry } = this.cluster;
    if (config.slow === 0 || phase !== 'running') return IDLE;
    const spell = Math.floor(now / (4 * retry));
    const random = new Random(config.slow + Math.imul(index, 7919) + Math.imul(spell, 104_729));
    const some = () => new Set(core.map.nodes.flatMap(({ id }) => (random.chance(0.3) ? [id] : [])));
    return { sending: some(), receiving: some() };
  }

  /** Number of a client among clients, by its number among actors. */
  private clientNumber(index: number): number {
    return index - 1 - this.cluster.nodes.length;
  }

  private isWorker(index: number): boolean {
    const { clients, workers } = this.cluster.config;
    const number = this.clientNumber(index);
    return number >= clients && number < clients + workers;
  }

  private isReplica(index: number): boolean {
    const { clients, workers } = this.cluster.config;
    return this.clientNumber(index) >= clients + workers && !this.cluster.slowReaders.isSilentClient(index);
  }

  /**
   * Replaces a client by another process. Pushes that were not answered to the old one may have been applied
   * or not.
   */
  restart(index: number, actor: ClientActor): void {
    for (const ticket of actor.pushes.keys()) this.oracle.doubt(ticket);
    this.oracle.countAgain(this.clientNumber(index));
    this.workers.restart(index);
    Object.assign(actor, this.newProcess());
  }

  request(index: number, actor: ClientActor): void {
    if (!this.known()) return;
    this.hold(index, actor);
    if (this.isReplica(index)) return;
    if (this.cluster.slowReaders.isSilentClient(index)) return this.pull(index, actor);
    if (this.isWorker(index)) return this.workers.turn(index, actor, this.stores!);
    const { random } = this.cluster;
    if (!actor.hold && actor.left > 0 && actor.pushes.size < 4 && random.chance(0.7)) this.push(index, actor);
    if (random.chance(0.2)) this.pull(index, actor);
    if (!knows(actor, this.tables)) return;
    this.scans.readEvictions(index, actor, this.stores!);
    if (random.chance(0.05)) this.scans.begin(index, actor, this.clientNumber(index), this.stores!);
  }

  /** Tells the scheduler that the client holds its pushes back, when none is under way. */
  private hold(index: number, actor: ClientActor): void {
    const { hold, core } = actor;
    if (hold && hold.until < this.cluster.now) actor.hold = undefined;
    if (!hold || hold.told || core.unacknowledged > 0) return;
    hold.told = true;
    const ranges = this.workers.progress(index);
    this.cluster.transmit(index, SCHEDULER, { t: 'held', id: hold.id, ranges }, []);
  }

  received(index: number, actor: ClientActor, message: Message): boolean {
    if (message.t === 'hold') {
      actor.hold = { id: message.id, until: this.cluster.now + message.ms, told: false };
      return true;
    }
    if (message.t === 'resume') {
      if (actor.hold?.id === message.id) actor.hold = undefined;
      return true;
    }
    if (this.droppers.received(index, message) || this.setters.received(index, message)) return true;
    return this.isWorker(index) && this.workers.received(index, actor, message);
  }

  /** True if all tables are in the durable map, so that they have their ids. */
  known(): boolean {
    this.stores ??= this.sections.stores(this.cluster.control.disk.map);
    return this.stores !== undefined;
  }

  /** The pools with the tables that a client knows. */
  private storesOf({ core }: ClientActor): readonly Store[] {
    return this.droppers.storesIn(core.map, this.stores!);
  }

  private push(index: number, actor: ClientActor): void {
    if (actor.id === undefined || !knows(actor, this.tables)) return;
    const { random } = this.cluster;
    actor.left--;
    this.sessions.set(actor.process, actor.id);
    const owner = this.clientNumber(index);
    const ticket = this.nextTicket++;
    const items = [];
    for (const store of this.storesOf(actor)) {
      const life = store.tables.find((table) => table.life !== undefined)?.life;
      const shards = shardCount(store.pool);
      for (let shard = 0; shard < shards; shard++) {
        if (!random.chance(this.stores!.length * shards === 1 ? 1 : 0.6)) continue;
        const shared = this.sections.sharedKey(store.pool, shard, random.below(SHARED_KEYS));
        const amount = 1 + random.below(5);
        const { group, member } = locate(store.pool, shard);
        const { process } = actor;
        const push = { ticket, shared, amount, process, life };
        const number = this.oracle.begin(owner, shardOf(group, member), push);
        if (store.tables.some(({ learner }) => learner?.deletes?.(number))) this.cluster.count('deleted');
        const section = this.sections.push(store, shard, { owner, process }, { number, shared, amount });
        items.push({ g: group, m: member, section });
      }
    }
    actor.pushes.set(ticket, items.length);
    this.cluster.runClient(index, actor.core.step({ kind: 'push', ticket, lists: listSections(items) }));
  }

  private pull(index: number, actor: ClientActor): void {
    if (actor.pulls.size > 3 || !knows(actor, this.tables)) return;
    const { random } = this.cluster;
    const owner = this.clientNumber(index);
    const store = random.pick(this.storesOf(actor));
    const shard = random.below(shardCount(store.pool));
    const { group, member } = locate(store.pool, shard);
    const at = shardOf(group, member);
    const ticket = this.nextTicket++;
    actor.pulls.set(ticket, { store, shard: at, acknowledged: this.oracle.acknowledged(owner, at) });
    const name = `${actor.process}/${at}/${store.tables.at(-1)!.id}`;
    let section = this.pullSections.get(name);
    if (!section) {
      section = this.sections.pull(store, shard, { owner, process: actor.process });
      this.pullSections.set(name, section);
    }
    const items = [{ g: group, m: member, section }];
    this.cluster.runClient(index, actor.core.step({ kind: 'pull', ticket, lists: listSections(items) }));
  }

  answered(index: number, actor: ClientActor, effect: AnswerEffect): void {
    switch (effect.kind) {
      case 'rows':
        this.onRows(index, actor, effect.ticket, effect.rows);
        return;
      case 'answer':
        if (!this.scans.answered(index, actor, effect)) this.onChecked(actor, effect.ticket, effect.message);
        return;
      case 'done':
        if (this.isWorker(index) && this.workers.settled(index, actor, effect)) return;
        this.onDone(actor, effect);
    }
  }

  private onDone(actor: ClientActor, { ticket, error }: AnswerEffect & { kind: 'done' }): void {
    const { control } = this.cluster;
    if (error) {
      const life = actor.pulls.get(ticket)?.store.tables.at(-1)?.life;
      const isGone = error.code === 'UNKNOWN_TABLE' && life !== undefined && this.droppers.isEnding(life);
      if (isGone) this.cluster.count('pulledGone');
      else if (error.code !== 'SESSION_EXPIRED') this.checkFailure(error);
      else {
        if (control.isOpen(actor.id!) || this.cluster.links.get(actor.link)?.peer === actor.id)
          throw new Violation(`client ${actor.id} was told that its session has ended`);
        actor.expired = true;
      }
      this.oracle.doubt(ticket);
    }
    actor.pulls.delete(ticket);
    actor.pushes.delete(ticket);
  }

  private checkFailure({ code, message }: { code: string; message: string }): void {
    if (!this.cluster.overwhelmed)
      throw new Violation(`a request failed though at most r lacked: ${message}`);
    if (code === 'UNRECOVERABLE' && !this.cluster.control.unrecoverable)
      throw new Violation('a request was told of a loss that the scheduler had not confirmed');
  }

  noteAcknowledged(index: number, actor: ClientActor): void {
    for (const { g, m, acknowledged } of actor.core.counts())
      this.oracle.acknowledge(this.clientNumber(index), shardOf(g, m), acknowledged);
  }

  private onRows(index: number, actor: ClientActor, ticket: number, rows: Uint8Array): void {
    const pull = actor.pulls.get(ticket);
    if (!pull) return;
    this.cluster.count('pulls');
    const writer = { owner: this.clientNumber(index), process: actor.process };
    const answer = { rows: pull.store.tables.length, bytes: rows.byteLength };
    const sliced = isSliced(this.cluster.config.turns, answer);
    if (sliced) this.cluster.count('slicedPulls');
    this.oracle.checkPulled(pull.store, writer, pull.shard, rows, pull.acknowledged, sliced);
  }

  /** The job is restored from this checkpoint, with other processes. */
  rewind(draft: Draft, contents: ReadonlyMap<string, SavedContent>, reshaped: boolean): void {
    const shards = this.shardsOf(draft, contents);
    const masks = new Map(shards.map(({ g, m, maskOf }) => [shardOf(g, m), maskOf] as const));
    this.oracle.rewind(
      (writer, shard) => masks.get(shard)?.(writer) ?? 0,
      (writer) => writer >= RANGES,
    );
    this.oracle.rewindSettings(this.setters.rewind(draft));
    this.droppers.rewind(draft);
    this.workers.rewind(draft.samples, shards);
    if (reshaped)
      for (const { group, member } of draft.shards) this.oracle.forgetNumbers(shardOf(group, member));
    for (const [i, actor] of this.cluster.clients.entries())
      this.restart(1 + this.cluster.nodes.length + i, actor);
  }

  /** The running job loads these shards again. */
  reload(
    draft: Draft,
    contents: ReadonlyMap<string, SavedContent>,
    isReloaded: (g: number, m: number) => boolean,
  ): void {
    for (const { g, m, maskOf } of this.shardsOf(draft, contents)) {
      if (!isReloaded(g, m)) continue;
      this.cluster.count('reloaded');
      this.oracle.reload(shardOf(g, m), maskOf);
      this.scans.forget(g, m);
      for (const { pulls } of this.cluster.clients)
        for (const pull of pulls.values()) if (pull.shard === shardOf(g, m)) pull.acknowledged = 0;
    }
  }

  /**
   * Checks that de-duplication state and rows of each shard have the same pushes, and the samples fit them.
   */
  checkSaved(draft: Draft, contents: ReadonlyMap<string, SavedContent>): void {
    const shards = this.shardsOf(draft, contents);
    for (const shard of shards) this.oracle.checkSessions(shard, this.sessions);
    if (draft.samples && !this.cluster.overwhelmed) this.workers.checkSaved(draft.samples, shards);
  }

  /** Checks a cut of one instant: every push is in all of its shards or in none, and ranges fit the rows. */
  checkInstant(draft: Draft, contents: ReadonlyMap<string, SavedContent>): void {
    const shards = this.shardsOf(draft, contents);
    this.oracle.checkInstant(shards);
    if (draft.samples) this.workers.checkInstant(draft.samples, shards);
  }

  private shardsOf(draft: Draft, contents: ReadonlyMap<string, SavedContent>): SavedShardRows[] {
    return draft.shards.map(({ pool, shard, group, member }) => {
      const content = contents.get(`${group}/${member}`)!;
      const store = this.stores!.find((each) => each.pool.name === pool)!;
      const main = content.tables.get(store.tables[0]!.name);
      const maskOf = (writer: number): number =>
        main?.get(this.sections.ownKey(store, shard, writer))?.[0] ?? 0;
      return { g: group, m: member, sessions: content.sessions, maskOf };
    });
  }

  // ---- at rest

  /** Gives every client one more push to make. */
  more(): void {
    for (const actor of this.cluster.clients.slice(0, this.cluster.config.clients)) actor.left++;
  }

  /**
   * True if every client has made all its pushes and knows that they are durable, and every range has ended.
   */
  get finished(): boolean {
    const { clients } = this.cluster;
    return (
      clients.every(({ left, core }) => left === 0 && core.unacknowledged === 0) && this.workers.finished
    );
  }

  /** True if all checks are answered, and every pull of a client that reads. */
  get checked(): boolean {
    const { clients, config, nodes, slowReaders } = this.cluster;
    const isServed = ({ pulls }: ClientActor, i: number) =>
      config.answers === 0 || pulls.size === 0 || slowReaders.isSilentClient(1 + nodes.length + i);
    return clients.every((actor, i) => actor.checks.size === 0 && isServed(actor, i));
  }

  /**
   * Checks that every shard has each push exactly once, and that every parity equation holds on every block.
   * `lost`: shards ("group/member") that are beyond repair. The other shards are checked, too, but not the
   * equations of their groups.
   */
  check(map: ClusterMap, lost: ReadonlySet<string>): void {
    const { cluster } = this;
    this.workers.check(lost.size === 0);
    cluster.clients[0]!.checks.clear();
    const stores = this.droppers.storesIn(map, this.stores!);
    for (const group of map.groups) {
      const store = stores[group.pool]!;
      let survives = true;
      for (const [m, entry] of group.data.entries()) {
        if (lost.has(`${group.id}/${m}`)) {
          survives = false;
          cluster.count('shardsLost');
          continue;
        }
        const owner = cluster.actorWith(entry.node)?.node?.ownerAt(group.id, m);
        if (owner?.gen !== entry.gen) throw new Violation(`shard ${group.id}/${m} has no owner at rest`);
        if (!owner.complete)
          throw new Violation(`shard ${group.id}/${m} is neither complete nor called lost`);
        checkTables(map, group.id, owner.native.extents());
        this.oracle.checkShard(store, owner.native, group.id, m, lost.size === 0);
        cluster.count(lost.size === 0 ? 'shardsChecked' : 'survivorsChecked');
      }
      for (const sink of group.sinks) {
        const { native } = cluster.actorWith(sink.node)?.node?.sinkAt(sink.sid) ?? {};
        for (const i of followedBy(group, sink).keys()) checkTables(map, group.id, native?.extents(i));
        if (survives) this.checkEquation(group.id, sink);
      }
    }
    for (const [kind, rows] of this.oracle.compared) cluster.count(`${kind}Compared`, rows);
    this.oracle.compared.clear();
  }

  private checkEquation(g: number, { sid, index, node }: { sid: number; index: number; node: number }): void {
    const { cluster } = this;
    const actor = cluster.clients[0]!;
    const ticket = this.nextTicket++;
    actor.checks.set(ticket, `group ${g} parity ${index}`);
    const message: Message & { t: 'check' } = { t: 'check', epoch: 0, id: 0, g, sid };
    const query = { to: { node }, message };
    cluster.runClient(1 + cluster.nodes.length, actor.core.step({ kind: 'query', ticket, query }));
  }

  private onChecked(actor: ClientActor, ticket: number, message: Message): void {
    const what = actor.checks.get(ticket);
    if (what === undefined) return;
    actor.checks.delete(ticket);
    if (message.t !== 'checked') throw new Violation(`${what}: no answer`);
    if (message.unknown) {
      // The map changed between the question and its arrival: check again when it is quiet.
      this.moved();
      return;
    }
    if (message.mismatched > 0)
      throw new Violation(`${what}: ${message.mismatched} blocks do not fit the equation`);
    if (message.unprotected === 0) return;
    if (this.doubted.has(what))
      throw new Violation(`${what}: ${message.unprotected} blocks without protection at rest`);
    // The sink may have begun to look while a shard recovered, for a question that was asked earlier.
    this.doubted.add(what);
    this.moved();
  }

  describe(): string[] {
    const clients = this.cluster.clients.map(
      (actor, i) =>
        `client ${i}: ${actor.left} to push, ${actor.core.unacknowledged} unacknowledged, ` +
        `${actor.checks.size} checks, ${actor.pulls.size} pulls`,
    );
    return [...clients, ...this.workers.describe()];
  }
}

/** True if the client's own map has the tables, so that it may push and pull. */
function knows({ core }: ClientActor, tables: readonly SimTable[]): boolean {
  return core.map.groups.length > 0 && core.map.tables.length >= tables.length;
}

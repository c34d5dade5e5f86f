/**
 * What the clients do: pushes and pulls of rows whose right content the oracle knows, and the checks at rest.
 */
import { auditKeys } from '../client/audit.js';
import { PsClientCore } from '../core/client/client.js';
import {
  type ClusterMap,
  locate,
  type Pool,
  shardCount,
  type TableSpec,
  tableByName,
} from '../protocol/map.js';
import type { Message } from '../protocol/messages.js';
import type { ClientActor } from './actors.js';
import type { AnswerEffect, Cluster } from './cluster.js';
import { Oracle } from './oracle.js';
import { Violation } from './violation.js';

/** 512 floats are 2 KiB a row, two rows a block: many blocks with few rows. */
export const DIM = 512;
const SHARED_KEYS = 6;
const FIRST = Uint32Array.of(0);
const BOTH = Uint32Array.of(0, 1);

type Process = Omit<ClientActor, 'left'>;

function newClient(retry: number): Process {
  return {
    core: new PsClientCore({ retryMs: retry, maxRetryMs: retry * 4, wrongOwnerMs: 5 }),
    id: undefined,
    link: 0,
    pulls: new Map(),
    pushes: new Map(),
    checks: new Map(),
    expired: false,
  };
}

export class Traffic {
  private readonly oracle: Oracle;
  private readonly row = new Float32Array(DIM);
  private readonly rows = new Float32Array(2 * DIM);
  /** client and shard -> the section that asks for the client's row there */
  private readonly pullSections = new Map<number, Uint8Array>();
  private nextTicket = 1;

  constructor(
    private readonly cluster: Cluster,
    private readonly moved: () => void,
  ) {
    const { config, retry, clients } = cluster;
    this.oracle = new Oracle(config.clients);
    for (let i = 0; i < config.clients; i++) {
      clients.push({ ...newClient(retry), left: config.pushes });
    }
  }

  /**
   * Another process in the place of a client: what the old one was not told of may have been applied or not.
   */
  restart(index: number, actor: ClientActor): void {
    for (const ticket of actor.pushes.keys()) this.oracle.doubt(ticket);
    this.oracle.countAgain(index);
    Object.assign(actor, newClient(this.cluster.retry));
  }

  request(index: number, actor: ClientActor): void {
    const { random } = this.cluster;
    if (actor.left > 0 && actor.pushes.size < 4 && random.chance(0.7)) this.push(index, actor);
    if (random.chance(0.2)) this.pull(index, actor);
  }

  /** Pool and table, once the client's map has them. */
  private known(actor: ClientActor): { pool: Pool; table: TableSpec } | undefined {
    const { map } = actor.core;
    const pool = map.pools[0];
    const table = tableByName(map, 't');
    return pool && table && map.groups.length > 0 ? { pool, table } : undefined;
  }

  private push(index: number, actor: ClientActor): void {
    const known = this.known(actor);
    if (!known || actor.id === undefined) return;
    const { rows } = this;
    const { native, random } = this.cluster;
    const { pool, table } = known;
    actor.left--;
    const own = auditKeys(native, pool, index);
    const ticket = this.nextTicket++;
    const shards = shardCount(pool);
    const items = [];
    for (let shard = 0; shard < shards; shard++) {
      if (!random.chance(shards === 1 ? 1 : 0.6)) continue;
      const shared = this.oracle.sharedKey(native, pool, shard, random.below(SHARED_KEYS));
      const amount = 1 + random.below(5);
      const number = this.oracle.begin(index, shard, { ticket, shared, amount });
      const keys = BigUint64Array.of(own[shard]!, shared);
      rows.fill(2 ** number, 0, DIM);
      rows.fill(amount, DIM);
      const part = { table: table.id, width: DIM, keys, rows, order: BOTH, start: 0, end: 2 };
      const { group, member } = locate(pool, shard);
      items.push({ g: group, m: member, section: native.encodeRequest(0, [part]) });
    }
    actor.pushes.set(ticket, items.length);
    this.cluster.runClient(index, actor.core.step({ kind: 'push', ticket, items }));
  }

  private pull(index: number, actor: ClientActor): void {
    const known = this.known(actor);
    if (!known || actor.pulls.size > 3) return;
    const { pool, table } = known;
    const shard = this.cluster.random.below(shardCount(pool));
    const { group, member } = locate(pool, shard);
    const ticket = this.nextTicket++;
    actor.pulls.set(ticket, { shard, acknowledged: this.oracle.acknowledged(index, shard) });
    const items = [{ g: group, m: member, section: this.pullSection(pool, table, index, shard) }];
    this.cluster.runClient(index, actor.core.step({ kind: 'pull', ticket, items }));
  }

  private pullSection(pool: Pool, table: TableSpec, index: number, shard: number): Uint8Array {
    const { native } = this.cluster;
    const name = index * shardCount(pool) + shard;
    let section = this.pullSections.get(name);
    if (!section) {
      const keys = BigUint64Array.of(auditKeys(native, pool, index)[shard]!);
      const part = { table: table.id, width: DIM, keys, order: FIRST, start: 0, end: 1 };
      section = native.encodeRequest(0, [part]);
      this.pullSections.set(name, section);
    }
    return section;
  }

  answered(index: number, actor: ClientActor, effect: AnswerEffect): void {
    switch (effect.kind) {
      case 'rows':
        this.onRows(index, actor, effect.ticket, effect.rows);
        return;
      case 'answer':
        this.onChecked(actor, effect.ticket, effect.message);
        return;
      case 'done':
        if (effect.error && effect.error.code !== 'SESSION_EXPIRED' && !this.cluster.overwhelmed)
          throw new Violation(`a request failed though at most r lacked: ${effect.error.message}`);
        if (effect.error?.code === 'UNRECOVERABLE' && !this.cluster.control.unrecoverable)
          throw new Violation('a request was told of a loss that the scheduler had not confirmed');
        if (effect.error?.code === 'SESSION_EXPIRED') {
          if (this.cluster.control.isOpen(actor.id!) || this.cluster.links.get(actor.link)?.peer === actor.id)
            throw new Violation(`client ${actor.id} was told that its session has ended`);
          actor.expired = true;
        }
        if (effect.error) this.oracle.doubt(effect.ticket);
        actor.pulls.delete(effect.ticket);
        actor.pushes.delete(effect.ticket);
    }
  }

  noteAcknowledged(index: number, actor: ClientActor): void {
    const { k } = this.cluster.config;
    for (const { g, m, acknowledged } of actor.core.counts())
      this.oracle.acknowledge(index, g * k + m, acknowledged);
  }

  private onRows(index: number, actor: ClientActor, ticket: number, rows: Uint8Array): void {
    const pull = actor.pulls.get(ticket);
    if (!pull) return;
    const { row } = this;
    row.fill(0);
    this.cluster.native.scatterRows(row, DIM, FIRST, 0, 1, rows, 0);
    this.cluster.count('pulls');
    this.oracle.checkOwnRow(index, pull.shard, row, pull.acknowledged);
  }

  // ---- at rest

  /** Every client has one more push to make. */
  more(): void {
    for (const actor of this.cluster.clients) actor.left++;
  }

  /** Every client has pushed all it wanted to, and knows that it is durable. */
  get finished(): boolean {
    return this.cluster.clients.every((actor) => actor.left === 0 && actor.core.unacknowledged === 0);
  }

  get checked(): boolean {
    return this.cluster.clients.every((actor) => actor.checks.size === 0);
  }

  /** Every shard holds what was pushed exactly once, every parity equation holds on every block. */
  check(map: ClusterMap): void {
    const { cluster } = this;
    const index = 1 + cluster.nodes.length;
    const actor = cluster.clients[0]!;
    actor.checks.clear();
    for (const group of map.groups) {
      for (const [m, entry] of group.data.entries()) {
        const owner = cluster.actorWith(entry.node)?.node?.ownerAt(group.id, m);
        if (owner?.gen !== entry.gen) throw new Violation(`shard ${group.id}/${m} has no owner at rest`);
        this.oracle.checkShard(cluster.native, map, owner.native, group.id, m, DIM);
      }
      for (const sink of group.sinks) {
        const ticket = this.nextTicket++;
        actor.checks.set(ticket, `group ${group.id} parity ${sink.index}`);
        const message: Message = { t: 'check', epoch: 0, id: 0, g: group.id, sid: sink.sid };
        const query = { to: { node: sink.node }, message };
        cluster.runClient(index, actor.core.step({ kind: 'query', ticket, query }));
      }
    }
  }

  private onChecked(actor: ClientActor, ticket: number, message: Message): void {
    const what = actor.checks.get(ticket);
    if (!actor.checks.delete(ticket)) return;
    if (message.t !== 'checked') throw new Violation(`${what}: no answer`);
    if (message.unknown) {
      // The map moved on between the question and its arrival: look again when it is quiet.
      this.moved();
      return;
    }
    if (message.mismatched > 0)
      throw new Violation(`${what}: ${message.mismatched} blocks do not fit the equation`);
    if (message.unprotected > 0)
      throw new Violation(`${what}: ${message.unprotected} blocks without protection at rest`);
  }

  describe(): string[] {
    return this.cluster.clients.map(
      (actor, i) =>
        `client ${i}: ${actor.left} to push, ${actor.core.unacknowledged} unacknowledged, ` +
        `${actor.checks.size} checks`,
    );
  }
}

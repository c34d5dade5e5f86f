/**
 * The client's side of the protocol (rule 5): numbers pushes per shard from 1 without gaps, keeps them until
 * they are acknowledged, and sends them again, in order, when a connection, an owner or an answer is lost.
 * Pulls are idempotent and simply repeated. Requests are tickets: the library waits for them, the machine
 * never does.
 */
import type { ErrorCode } from '../../common/errors.js';
import { Items, shardKey } from '../../protocol/items.js';
import { limitText } from '../../protocol/limits.js';
import { type ClusterMap, type PeerId, SCHEDULER } from '../../protocol/map.js';
import type { Message, MessageOf, Refusal } from '../../protocol/messages.js';
import { checkSender } from '../../protocol/senders.js';
import { PUSH_WINDOW } from '../shared/dedup.js';
import { KnownMap } from '../shared/known-map.js';
import { PushMessages } from './push-messages.js';
import { Reads, type ReadsHost } from './reads.js';
import {
  type Busy,
  type ClientEffect,
  type ClientInput,
  type ClientPolicy,
  countsOf,
  FORGOTTEN_LIMIT,
  IDLE,
  lostText,
  NOTHING,
  newShard,
  type PendingPush,
  PLACE_WORDS,
  type PushTicket,
  type SectionList,
  type ShardCounts,
  type ShardState,
} from './state.js';

export type {
  ClientEffect,
  ClientInput,
  ClientPolicy,
  Query,
  SectionList,
  ShardSection,
} from './state.js';
export { DEFAULT_CLIENT_POLICY, listSections, PLACE_WORDS } from './state.js';

/** The scheduler is asked for a map after so many times `retryMs`, and not sooner after the newest one. */
const MAP_RETRIES = 2;

export class PsClientCore implements ReadsHost {
  /** Shards by `shardKey`, for each session that is pushed under (undefined: this client's own). */
  private readonly sessions = new Map<PeerId | undefined, Map<number, ShardState>>();
  /** Pushes that somebody waits for. */
  private readonly tickets = new Map<number, PushTicket>();
  private readonly reads: Reads;
  /** Sessions (undefined: this client's own) whose pushes cannot be delivered any more, and why. */
  private readonly broken = new Map<PeerId | undefined, { code: ErrorCode; reason: string }>();
  /** By `shardKey`: the generation of the owner of which nothing was heard yet. */
  private readonly awaitingService = new Map<number, number>();
  private effects: ClientEffect[] = [];
  private readonly followed: KnownMap;
  now = 0;

  constructor(private readonly policy: ClientPolicy) {
    this.reads = new Reads(this, policy);
    this.followed = new KnownMap(MAP_RETRIES * policy.retryMs, (message) => {
      this.effects.push({ kind: 'send', to: SCHEDULER, message, parts: [] });
    });
  }

  /** The newest map that this client knows. */
  get map(): ClusterMap {
    return this.followed.newest;
  }

  step(input: ClientInput): ClientEffect[] {
    switch (input.kind) {
      case 'message':
        // A client is connected with the scheduler and with nodes.
        checkSender(input.from === SCHEDULER ? 'scheduler' : 'node', 'client', input.message.t);
        this.receive(input.message, input.parts);
        break;
      case 'peerUp':
        this.onPeerUp(input.peer);
        break;
      case 'push':
        this.push(input.ticket, input.lists, input.client);
        break;
      case 'skip':
        for (const { g, m, count } of input.items) this.shard(g, m, input.client).next += count;
        break;
      case 'leave':
        this.leave(input.client);
        break;
      case 'pull':
        this.reads.pull(input.ticket, input.lists);
        break;
      case 'query':
        this.reads.query(input.ticket, input.query);
        break;
      case 'forget':
        this.forget(input.ticket);
        this.reads.forget(input.ticket);
        break;
      case 'tick':
        this.tick(input.now, input.busy ?? IDLE);
        break;
    }
    const effects = this.effects;
    this.effects = [];
    return effects;
  }

  /** Messages of pulls and questions whose answers are waited for. */
  get unanswered(): number {
    return this.reads.unanswered;
  }

  /** Pushes that have a number and no acknowledgement. */
  get unacknowledged(): number {
    let count = 0;
    for (const shard of this.allShards()) count += shard.unacknowledged.length;
    return count;
  }

  /**
   * Per shard: pushes numbered, acknowledged (applied) and refused; of this client, or of another it pushes
   * for.
   */
  counts(client?: PeerId): ShardCounts[] {
    return [...(this.sessions.get(client)?.values() ?? [])].map(countsOf);
  }

  // ---- pushes

  private shardsOf(client: PeerId | undefined): Map<number, ShardState> {
    let shards = this.sessions.get(client);
    if (!shards) {
      shards = new Map();
      this.sessions.set(client, shards);
    }
    return shards;
  }

  private *allShards(): Generator<ShardState> {
    for (const shards of this.sessions.values()) yield* shards.values();
  }

  private shard(g: number, m: number, client: PeerId | undefined, of = this.shardsOf(client)): ShardState {
    const key = shardKey(g, m);
    let shard = of.get(key);
    if (!shard) {
      shard = newShard(g, m, client, this.policy);
      of.set(key, shard);
    }
    return shard;
  }

  private push(id: number, lists: readonly SectionList[], client: PeerId | undefined): void {
    const ticket: PushTicket = { id, left: 0, kept: 0, awaited: true };
    this.tickets.set(id, ticket);
    const fresh = new PushMessages();
    let lost: ShardState | undefined;
    const broken = this.broken.get(client);
    const shards = this.shardsOf(client);
    for (const { places, bytes: memory } of broken ? [] : lists) {
      let start = 0;
      for (let i = 0; i < places.length; i += PLACE_WORDS) {
        const size = places[i + 2]!;
        const shard = this.shard(places[i]!, places[i + 1]!, client, shards);
        ticket.left++;
        if (this.isLost(shard)) {
          // The push fails at once and gets no number: the shard may stay lost, and the client would keep
          // numbered pushes for ever.
          lost = shard;
        } else {
          const push = { cseq: shard.next++, ticket, memory, start, size };
          ticket.kept++;
          if (shard.unacknowledged.push(push) <= PUSH_WINDOW) this.ask(fresh, shard, push);
        }
        start += size;
      }
    }
    this.sendPushes(fresh);
    if (broken) this.fail(ticket, broken.code, broken.reason);
    else if (lost) this.fail(ticket, 'UNRECOVERABLE', lostText(lost.g, lost.m));
    else if (ticket.left === 0) this.complete(ticket);
    if (ticket.kept === 0) this.effects.push({ kind: 'released', ticket: id });
  }

  private isLost({ g, lostIn }: ShardState): boolean {
    return (this.map.groups[g]?.version ?? 0) <= lostIn;
  }

  /** The push goes to the owner of its shard, if it has one. */
  private ask(messages: PushMessages, shard: ShardState, push: PendingPush): void {
    const node = this.ownerOf(shard.g, shard.m);
    if (node === 0) return;
    shard.retry.asked(this.now);
    messages.add(node, shard, push);
  }

  private sendPushes(pushes: PushMessages): void {
    for (const { node: to, message, parts } of pushes.messages(this.map.epoch))
      this.effects.push({ kind: 'send', to, message, parts });
  }

  private resend(shards: Iterable<ShardState>): void {
    const messages = new PushMessages();
    for (const shard of shards) {
      const { unacknowledged } = shard;
      const underWay = Math.min(unacknowledged.length, PUSH_WINDOW);
      for (let i = 0; i < underWay; i++) this.ask(messages, shard, unacknowledged[i]!);
    }
    this.sendPushes(messages);
  }

  private onPushAck(message: MessageOf<'pushAck'>): void {
    const next = new PushMessages();
    const shards = this.sessions.get(message.client);
    const items = new Items('pushAck', message.items);
    const refusals = new Map(message.refused);
    for (let i = 0; i < items.length; i++) {
      const [g, m, cseq] = [items.word(i, 0), items.word(i, 1), items.number(i, 2)];
      const shard = shards?.get(shardKey(g, m));
      const at = shard?.unacknowledged.findIndex((push) => push.cseq === cseq) ?? -1;
      if (!shard || at < 0) continue;
      const refused = refusals.get(i);
      if (refused === 'SESSION_EXPIRED') {
        this.giveUp(message.client, refused, `shard ${g}/${m} says that the session has ended`);
        return;
      }
      const [push] = shard.unacknowledged.splice(at, 1);
      const waiting = shard.unacknowledged[PUSH_WINDOW - 1];
      if (waiting) this.ask(next, shard, waiting);
      shard.forgotten = 0;
      shard.retry.answered(this.now);
      if (refused !== undefined) shard.refused++;
      else if (push?.memory !== NOTHING) shard.acknowledged++;
      this.served(g, m);
      if (!push) continue;
      this.withdraw(push);
      const { ticket } = push;
      if (!ticket.awaited) continue;
      if (refused !== undefined) this.fail(ticket, refused, refusalText(g, m, refused));
      else if (--ticket.left === 0) this.complete(ticket);
    }
    this.sendPushes(next);
  }

  private onGap(message: MessageOf<'gap'>): void {
    const shard = this.sessions.get(message.client)?.get(shardKey(message.g, message.m));
    const first = shard?.unacknowledged[0];
    if (!shard || !first) return;
    if (message.expected < first.cseq && message.rewound) this.skipTo(shard, first.cseq);
    else if (message.expected < first.cseq && ++shard.forgotten >= FORGOTTEN_LIMIT) {
      const text = `shard ${message.g}/${message.m} does not know this client's earlier pushes`;
      this.giveUp(message.client, 'SESSION_EXPIRED', text);
      return;
    }
    this.resend([shard]);
  }

  /**
   * Answers a gap of a shard that was loaded from a checkpoint and so has forgotten pushes that were
   * acknowledged (rule 41).
   */
  private skipTo({ g, m, client }: ShardState, next: number): void {
    const to = this.ownerOf(g, m);
    if (to === 0) return;
    const message: Message = { t: 'skipTo', g, m, next, ...(client !== undefined && { client }) };
    this.effects.push({ kind: 'send', to, message, parts: [] });
  }

  /**
   * The shard is beyond repair in this version of its group, so its pushes fail now. They keep their numbers
   * without their bytes: a newer version of the group may have the shard again, and then every number up to
   * the next push must arrive. Some of them may have been applied.
   */
  private onLost({ g, m, v, client }: MessageOf<'lost'>): void {
    const shard = this.sessions.get(client)?.get(shardKey(g, m));
    if (!shard || v < (this.map.groups[g]?.version ?? 0)) return;
    // Numbers of a range's session are not used up: the worker that goes on with the range pushes them again.
    if (client !== undefined) return this.giveUp(client, 'UNRECOVERABLE', lostText(g, m));
    shard.lostIn = Math.max(shard.lostIn, v);
    for (const push of shard.unacknowledged) {
      this.fail(push.ticket, 'UNRECOVERABLE', lostText(g, m));
      this.withdraw(push);
    }
  }

  /** Gives up the bytes of a push. An owner that has applied it acknowledges it, others refuse the rest. */
  private withdraw(push: PendingPush): void {
    if (push.memory === NOTHING) return;
    push.memory = NOTHING;
    push.start = push.size = 0;
    if (--push.ticket.kept === 0) this.effects.push({ kind: 'released', ticket: push.ticket.id });
  }

  /**
   * The owners do not know the numbers of this session (undefined: this client's own) any more: its pushes
   * fail, and nothing is sent again.
   */
  private giveUp(client: PeerId | undefined, code: ErrorCode, reason: string): void {
    if (!this.broken.has(client)) this.broken.set(client, { code, reason });
    for (const shard of this.sessions.get(client)?.values() ?? []) {
      const pending = shard.unacknowledged;
      shard.unacknowledged = [];
      for (const push of pending) {
        this.fail(push.ticket, code, reason);
        this.withdraw(push);
      }
    }
  }

  private leave(client: PeerId): void {
    this.giveUp(client, 'ABORTED', 'the push was given up');
    this.broken.delete(client);
    this.sessions.delete(client);
  }

  // ---- tickets

  private complete(ticket: PushTicket): void {
    this.forget(ticket.id);
    this.effects.push({ kind: 'done', ticket: ticket.id });
  }

  private fail(ticket: PushTicket, code: ErrorCode, message: string): void {
    if (!ticket.awaited) return;
    this.forget(ticket.id);
    this.effects.push({ kind: 'done', ticket: ticket.id, error: { code, message } });
  }

  private forget(id: number): void {
    const ticket = this.tickets.get(id);
    if (ticket) ticket.awaited = false;
    this.tickets.delete(id);
  }

  // ---- map, connections, time

  ownerOf(g: number, m: number): PeerId {
    return this.map.groups[g]?.data[m]?.node ?? 0;
  }

  private receive(message: Message, parts: readonly Uint8Array[]): void {
    switch (message.t) {
      case 'map':
      case 'mapDiff':
        return this.onMap(message);
      case 'pushAck':
        return this.onPushAck(message);
      case 'gap':
        return this.onGap(message);
      case 'lost':
        return this.onLost(message);
      case 'rows':
        return this.reads.onRows(message, parts);
      case 'reject':
        return this.reads.onReject(message);
      case 'keysPage':
      case 'evicted':
      case 'shardStatsReply':
      case 'checked':
      case 'observed':
        return this.reads.onAnswer(message, parts);
      default:
        return;
    }
  }

  /** Sends again, to each new owner, what was sent to the owner before it. */
  private onMap(message: MessageOf<'map'> | MessageOf<'mapDiff'>): void {
    const change = this.followed.take(message, this.now);
    if (!change) return;
    const { before } = change;
    const elsewhere = new Set<number>();
    for (const { id, data } of change.groups) {
      for (const [m, { gen, node }] of data.entries()) {
        const was = before.groups[id]?.data[m];
        if (was?.gen === gen && was.node === node) continue;
        const key = shardKey(id, m);
        elsewhere.add(key);
        if (before.groups.length > 0) this.awaitingService.set(key, gen);
      }
    }
    if (elsewhere.size === 0) return;
    const moved = (g: number, m: number) => elsewhere.has(shardKey(g, m));
    const shards = [...this.allShards()];
    this.resend(shards.filter(({ g, m }) => moved(g, m)));
    this.reads.again(moved);
  }

  /** Changes of the map were lost, or an answer is overdue, which a newer map would explain. */
  askForMap(): void {
    this.followed.ask(this.now);
  }

  /** The first answer from a shard after its owner changed. */
  served(g: number, m: number): void {
    if (this.awaitingService.size === 0) return;
    const key = shardKey(g, m);
    const gen = this.awaitingService.get(key);
    if (gen === undefined) return;
    this.awaitingService.delete(key);
    this.effects.push({ kind: 'event', name: 'shard.served', fields: { group: g, member: m, gen } });
  }

  private onPeerUp(peer: PeerId): void {
    const shards = [...this.allShards()];
    this.resend(shards.filter(({ g, m }) => this.ownerOf(g, m) === peer));
    this.reads.again((g, m) => this.ownerOf(g, m) === peer);
  }

  private tick(now: number, busy: Busy): void {
    this.now = now;
    const overdue: ShardState[] = [];
    for (const shard of this.allShards()) {
      if (shard.unacknowledged.length === 0 || !shard.retry.overdue(now)) continue;
      const isOnTheWay = busy.sending.has(this.ownerOf(shard.g, shard.m));
      if (isOnTheWay && !shard.retry.overdue(now - this.policy.maxBusyMs)) continue;
      shard.retry.lengthen();
      this.askForMap();
      overdue.push(shard);
    }
    this.resend(overdue);
    this.reads.tick(now, busy);
  }

  emit(effect: ClientEffect): void {
    this.effects.push(effect);
  }
}

/** The library splits pushes, so a section over its limit is a limit that somebody has lowered. */
function refusalText(g: number, m: number, code: Refusal): string {
  const text = `a push was refused by shard ${g}/${m}: ${code}`;
  return code === 'LIMIT' ? limitText(text, 'maxSectionBytes') : text;
}

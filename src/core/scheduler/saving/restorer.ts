/**
 * Loads the shards of a job that goes on from a checkpoint, and those that a running job has lost. The map
 * marks these shards. Their owners are asked to load them until they report them as loaded. The mark goes in
 * a durable decision, and only then does the owner serve (rule 37). An owner that dies before has
 * acknowledged nothing, so another node loads the shard again.
 */
import { KintsugiError } from '../../../errors.js';
import { shardKey } from '../../../protocol/items.js';
import type { DataEntry, Group, PeerId } from '../../../protocol/map.js';
import type { Message, MessageOf } from '../../../protocol/messages.js';
import type { RestoreStatus } from '../../../protocol/status.js';
import type { SchedulerPolicy } from '../../shared/policy.js';
import { loadKey, RESTORE_KEY } from '../entries.js';
import type { Ledger } from '../ledger.js';
import type { Sessions } from '../sessions.js';
import type { ShardToLoad } from '../state.js';
import {
  type Checkpoint,
  type LostInput,
  type Reload,
  type RestoreLostInput,
  reloadLost,
} from './restored.js';

/** Shards that a node is asked for at a time. */
const SHARDS_AT_ONCE = 8;
/** Questions are repeated until they are answered: so many answers are kept for those that cross. */
const KEPT_ANSWERS = 16;

export interface RestorerHost {
  readonly ledger: Ledger;
  readonly policy: Pick<SchedulerPolicy, 'saveRetryMs'>;
  readonly sessions: Pick<Sessions, 'answer'>;
  /** Shards that are beyond repair, by the newest reports, and what is complete. */
  lost(): LostInput['lost'];
  isComplete: LostInput['isComplete'];
  /** Where shards are complete has changed. */
  unsettle(): void;
}

export class Restorer {
  private now = 0;
  private startedAt = 0;
  private askedAt = Number.NEGATIVE_INFINITY;
  /** Shards whose owners said so since the last tick, with the generation. */
  private readonly loaded = new Map<number, number>();
  private failure: RestoreStatus['failure'];
  private readonly answered: { to: PeerId; answer: MessageOf<'restoreReply'> }[] = [];

  constructor(private readonly host: RestorerHost) {}

  private get restore(): Ledger['state']['restore'] {
    return this.host.ledger.state.restore;
  }

  /** What is to be loaded of a shard when its group is formed. */
  toLoad(g: number, m: number): ShardToLoad | undefined {
    return this.restore?.shards.get(shardKey(g, m));
  }

  /** True if the message was one about shards that are loaded. */
  receive(from: PeerId, message: Message): boolean {
    if (message.t === 'shardLoaded') {
      const { g, m, gen } = message;
      if (this.owns(from, message)) this.loaded.set(shardKey(g, m), gen);
    } else if (message.t === 'loadFailed') this.failed(from, message);
    else return false;
    return true;
  }

  private entry(g: number, m: number): DataEntry | undefined {
    return this.host.ledger.map.groups[g]?.data[m];
  }

  private owns(from: PeerId, { g, m, gen }: { g: number; m: number; gen: number }): boolean {
    const entry = this.entry(g, m);
    return entry?.restore === true && entry.node === from && entry.gen === gen;
  }

  private failed(from: PeerId, message: MessageOf<'loadFailed'>): void {
    if (!this.owns(from, message)) return;
    const { g: group, m: member, code, message: reason } = message;
    const said = this.failure?.message === reason;
    this.failure = { code, message: reason };
    if (!said) this.event('restore.failed', { group, member, code, message: reason });
  }

  private event(name: string, fields: Record<string, unknown>): void {
    this.host.ledger.afterwards({ kind: 'event', name, fields: { number: this.restore!.number, ...fields } });
  }

  tick(now: number): void {
    this.now = now;
    const { restore } = this;
    const { map } = this.host.ledger;
    if (!restore || map.groups.length === 0) return;
    this.startedAt ||= now;
    if (this.loaded.size > 0) this.clearMarks();
    if (restore.shards.size === 0) return this.done();
    if (now - this.askedAt < this.host.policy.saveRetryMs && this.loaded.size === 0) return;
    this.loaded.clear();
    this.ask();
  }

  /** One decision for all that were loaded since the last one. */
  private clearMarks(): void {
    const { ledger } = this.host;
    const { map } = ledger;
    let changed = false;
    const groups = map.groups.map((group): Group => {
      const isHere = (entry: DataEntry, m: number) =>
        entry.restore === true && this.loaded.get(shardKey(group.id, m)) === entry.gen;
      if (!group.data.some(isHere)) return group;
      changed = true;
      const data = group.data.map((entry, m): DataEntry => {
        if (!isHere(entry, m)) return entry;
        this.restore!.shards.delete(shardKey(group.id, m));
        ledger.touch(loadKey(group.id, m));
        const { restore: _, ...rest } = entry;
        return rest;
      });
      return { ...group, version: map.epoch + 1, data };
    });
    if (!changed) return;
    ledger.setMap({ groups }, 'loaded');
    this.tellSessions(groups);
    this.host.unsettle();
  }

  /** A reloaded shard has the sessions of the checkpoint's time, of which some have ended since (rule 31). */
  private tellSessions(groups: readonly Group[]): void {
    if (!this.restore!.onlyLost) return;
    const nodes = new Set(groups.flatMap(({ data }) => data.map(({ node }) => node)));
    for (const node of nodes) if (node !== 0) this.host.ledger.answer(node, this.host.sessions.answer());
  }

  // ---- what a running job has lost

  /** Begins it, and answers what comes back and how old it is. */
  restoreLost(input: RestoreLostInput): void {
    const { from, id } = input;
    const known = this.answered.find(({ to, answer }) => to === from && answer.id === id);
    const answer = known?.answer ?? this.reload(input);
    if (!known) this.answered.push({ to: from, answer });
    if (this.answered.length > KEPT_ANSWERS) this.answered.shift();
    this.host.ledger.answer(from, answer);
  }

  private reload({ id, url, agoMs, checkpoint }: RestoreLostInput): MessageOf<'restoreReply'> {
    const { number } = checkpoint;
    const answer = { t: 'restoreReply' as const, id, number, agoMs };
    try {
      const { groups, shards } = this.plan(checkpoint);
      if (shards.length > 0) this.begin(url, number, groups, shards);
      const told = shards.map(({ pool, shard, rows }): [string, number, number] => [pool, shard, rows]);
      for (const { g: group, m: member, rows } of shards)
        this.event('restore.lost', { group, member, rows, agoMs });
      return { ...answer, shards: told };
    } catch (error) {
      if (!(error instanceof KintsugiError)) throw error;
      return { ...answer, shards: [], code: error.code, message: error.message };
    }
  }

  /** @throws what `reloadLost` throws; NOT_READY while another restore is under way */
  private plan(checkpoint: Checkpoint): Reload {
    const { ledger } = this.host;
    const { map } = ledger;
    const lost = [...this.host.lost()];
    if (this.restore) {
      // One that cannot go on is begun again with another checkpoint.
      if (!this.restore.onlyLost || !this.failure)
        throw new KintsugiError('NOT_READY', `checkpoint ${this.restore.number} is still being loaded`);
      lost.push(...this.restore.shards.values());
    }
    const isComplete = this.host.isComplete;
    const { firstPeer = 1 } = ledger.state;
    return reloadLost({ map, firstPeer, lost, isComplete, nextSid: ledger.nextSid }, checkpoint);
  }

  private begin(url: string, number: number, groups: Group[], shards: Reload['shards']): void {
    const { ledger } = this.host;
    const toLoad = shards.map(({ pool: _p, shard: _s, rows: _r, ...load }): [number, ShardToLoad] => [
      shardKey(load.g, load.m),
      load,
    ]);
    ledger.state.restore = { url, number, onlyLost: true, shards: new Map(toLoad) };
    ledger.touch(RESTORE_KEY);
    for (const { g, m } of shards) ledger.touch(loadKey(g, m));
    ledger.setMap({ groups }, 'restore lost', { number });
    this.failure = undefined;
    this.startedAt = this.now;
    this.loaded.clear();
    this.askedAt = Number.NEGATIVE_INFINITY;
    this.host.unsettle();
  }

  private ask(): void {
    const { ledger } = this.host;
    const { epoch, groups } = ledger.map;
    this.askedAt = this.now;
    const asked = new Map<PeerId, number>();
    for (const load of this.restore!.shards.values()) {
      const { node, gen } = groups[load.g]!.data[load.m]!;
      const count = asked.get(node) ?? 0;
      if (node === 0 || count >= SHARDS_AT_ONCE) continue;
      asked.set(node, count + 1);
      const { url } = this.restore!;
      ledger.answer(node, { t: 'loadShard', epoch, gen, url, ...load });
    }
  }

  private done(): void {
    const { ledger } = this.host;
    const { atLeastOnce } = this.restore!;
    const tookMs = Math.round(this.now - this.startedAt);
    this.event('restore.done', { tookMs, ...(atLeastOnce && { atLeastOnce }) });
    this.startedAt = 0;
    this.failure = undefined;
    delete ledger.state.restore;
    ledger.touch(RESTORE_KEY);
  }

  /** Undefined: nothing is to be loaded. */
  status(): RestoreStatus | undefined {
    const { restore, failure } = this;
    if (!restore) return undefined;
    const { shards, ...rest } = restore;
    return { ...rest, shardsLeft: shards.size, ...(failure && { failure }) };
  }
}

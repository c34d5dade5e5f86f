/**
 * Loads the shards of a job that goes on from a checkpoint. The map marks them. Their owners are asked to
 * load them until they say that they have, and a mark goes when that is durable: only then does the owner
 * serve (rule 37). An owner that dies before has told nobody anything, so another node loads the shard again.
 */
import { shardKey } from '../../../protocol/items.js';
import type { DataEntry, Group, PeerId } from '../../../protocol/map.js';
import type { Message, MessageOf } from '../../../protocol/messages.js';
import type { RestoreStatus } from '../../../protocol/status.js';
import type { SchedulerPolicy } from '../../shared/policy.js';
import { loadKey, RESTORE_KEY } from '../entries.js';
import type { Ledger } from '../ledger.js';

/** Shards that a node is asked for at a time. */
const SHARDS_AT_ONCE = 8;

export interface RestorerHost {
  readonly ledger: Ledger;
  readonly policy: Pick<SchedulerPolicy, 'saveRetryMs'>;
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

  constructor(private readonly host: RestorerHost) {}

  private get restore(): Ledger['state']['restore'] {
    return this.host.ledger.state.restore;
  }

  /** The shard is to be loaded when its group is formed. */
  isToLoad(g: number, m: number): boolean {
    return this.restore?.shards.has(shardKey(g, m)) ?? false;
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
    this.host.unsettle();
  }

  private ask(): void {
    const { ledger } = this.host;
    const { epoch, groups } = ledger.map;
    this.askedAt = this.now;
    const asked = new Map<PeerId, number>();
    for (const { g, m, segments } of this.restore!.shards.values()) {
      const { node, gen } = groups[g]!.data[m]!;
      const count = asked.get(node) ?? 0;
      if (node === 0 || count >= SHARDS_AT_ONCE) continue;
      asked.set(node, count + 1);
      const { url } = this.restore!;
      ledger.answer(node, { t: 'loadShard', epoch, g, m, gen, url, segments: [...segments] });
    }
  }

  private done(): void {
    const { ledger } = this.host;
    this.event('restore.done', { tookMs: Math.round(this.now - this.startedAt) });
    delete ledger.state.restore;
    ledger.touch(RESTORE_KEY);
  }

  /** Undefined: nothing is to be loaded. */
  status(): RestoreStatus | undefined {
    const { restore, failure } = this;
    if (!restore) return undefined;
    const { url, number, shards } = restore;
    return { url, number, shardsLeft: shards.size, ...(failure && { failure }) };
  }
}

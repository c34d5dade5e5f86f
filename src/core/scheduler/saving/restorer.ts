/**
 * Loads the shards of a job that goes on from a checkpoint, and those that a running job has lost. The map
 * marks these shards. Their owners are asked to load them until they report them as loaded. The mark goes in
 * a durable decision, and only then does the owner serve (rule 37). An owner that dies before has
 * acknowledged nothing, so another node loads the shard again.
 */
import { KintsugiError } from '../../../common/errors.js';
import { shardKey } from '../../../protocol/items.js';
import type { DataEntry, Group, PeerId } from '../../../protocol/map.js';
import type { MessageOf } from '../../../protocol/messages.js';
import type { RestoreStatus } from '../../../protocol/status.js';
import type { SchedulerPolicy } from '../../shared/policy.js';
import { loadKey, RESTORE_KEY } from '../entries.js';
import type { ClusterFacts } from '../facts.js';
import type { Ledger } from '../ledger.js';
import type { Placing } from '../placing.js';
import type { Reports } from '../reports.js';
import type { Sessions } from '../sessions.js';
import type { ShardToLoad } from '../state.js';
import {
  type Checkpoint,
  type LostInput,
  type Reload,
  type RestoreLostInput,
  reloadLost,
} from './restored.js';

/** The most shards that a node is asked to load at a time. */
const SHARDS_AT_ONCE = 8;
/** The most answers that are kept: a client repeats its question until the answer comes. */
const KEPT_ANSWERS = 16;

export class Restorer {
  private now = 0;
  /** Milliseconds at which the restore under way began; 0: none is under way. */
  private startedAt = 0;
  /** Milliseconds of the last question to owners. */
  private askedAt = Number.NEGATIVE_INFINITY;
  /** Shards that their owners have reported as loaded since the last decision: `shardKey` -> generation. */
  private readonly loaded = new Map<number, number>();
  /** The newest failure of the restore under way; undefined: it has not failed. */
  private failure: RestoreStatus['failure'];
  /** The newest answers to clients; at most `KEPT_ANSWERS`. */
  private readonly answered: { to: PeerId; answer: MessageOf<'restoreReply'> }[] = [];

  constructor(
    private readonly ledger: Ledger,
    private readonly policy: Pick<SchedulerPolicy, 'saveRetryMs'>,
    private readonly sessions: Sessions,
    private readonly reports: Reports,
    private readonly facts: ClusterFacts,
    private readonly placing: Placing,
  ) {}

  private get restore(): Ledger['state']['restore'] {
    return this.ledger.state.restore;
  }

  onLoaded(from: PeerId, message: MessageOf<'shardLoaded'>): void {
    const { g, m, gen } = message;
    if (this.owns(from, message)) this.loaded.set(shardKey(g, m), gen);
  }

  private entry(g: number, m: number): DataEntry | undefined {
    return this.ledger.map.groups[g]?.data[m];
  }

  private owns(from: PeerId, { g, m, gen }: { g: number; m: number; gen: number }): boolean {
    const entry = this.entry(g, m);
    return entry?.restore === true && entry.node === from && entry.gen === gen;
  }

  onFailed(from: PeerId, message: MessageOf<'loadFailed'>): void {
    if (!this.owns(from, message)) return;
    const { g: group, m: member, code, message: reason } = message;
    const said = this.failure?.message === reason;
    this.failure = { code, message: reason };
    if (!said) this.event('restore.failed', { group, member, code, message: reason });
  }

  private event(name: string, fields: Record<string, unknown>): void {
    this.ledger.afterwards({ kind: 'event', name, fields: { number: this.restore!.number, ...fields } });
  }

  tick(now: number): void {
    this.now = now;
    const { restore } = this;
    const { map } = this.ledger;
    if (!restore || map.groups.length === 0) return;
    this.startedAt ||= now;
    if (this.loaded.size > 0) this.clearMarks();
    if (restore.shards.size === 0) return this.done();
    if (now - this.askedAt < this.policy.saveRetryMs && this.loaded.size === 0) return;
    this.loaded.clear();
    this.ask();
  }

  /** One decision for all that were loaded since the last one. */
  private clearMarks(): void {
    const { ledger } = this;
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
    this.placing.setGroups(groups, 'loaded');
    this.tellSessions(groups);
    this.facts.changed();
  }

  /** A reloaded shard has the sessions of the checkpoint's time, of which some have ended since (rule 31). */
  private tellSessions(groups: readonly Group[]): void {
    if (!this.restore!.onlyLost) return;
    const nodes = new Set(groups.flatMap(({ data }) => data.map(({ node }) => node)));
    for (const node of nodes) if (node !== 0) this.ledger.answer(node, this.sessions.answer());
  }

  // ---- what a running job has lost

  /** Begins it, and answers what comes back and how old it is. */
  restoreLost(input: RestoreLostInput): void {
    const { from, id } = input;
    const known = this.answered.find(({ to, answer }) => to === from && answer.id === id);
    const answer = known?.answer ?? this.reload(input);
    if (!known) this.answered.push({ to: from, answer });
    if (this.answered.length > KEPT_ANSWERS) this.answered.shift();
    this.ledger.answer(from, answer);
  }

  private reload({ id, url, agoMs, checkpoint }: RestoreLostInput): MessageOf<'restoreReply'> {
    const { number } = checkpoint;
    const answer = { t: 'restoreReply' as const, id, number, agoMs };
    try {
      const { groups, shards } = this.reloadOf(checkpoint);
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
  private reloadOf(checkpoint: Checkpoint): Reload {
    const { ledger } = this;
    const { map } = ledger;
    // Losses of an older version of a group have been decided upon.
    const lost: LostInput['lost'][number][] = this.reports.lost.filter(
      ({ g, v }) => map.groups[g]?.version === v,
    );
    if (this.restore) {
      // A restore that cannot go on is begun again with another checkpoint.
      if (!this.restore.onlyLost || !this.failure)
        throw new KintsugiError('NOT_READY', `checkpoint ${this.restore.number} is still being loaded`);
      lost.push(...this.restore.shards.values());
    }
    const isComplete: LostInput['isComplete'] = (g, m, gen) => this.reports.isShardComplete(g, m, gen);
    const { firstPeer = 1 } = ledger.state;
    return reloadLost({ map, firstPeer, lost, isComplete, nextSid: ledger.nextSid }, checkpoint);
  }

  private begin(url: string, number: number, groups: Group[], shards: Reload['shards']): void {
    const { ledger } = this;
    const toLoad = shards.map(({ pool: _p, shard: _s, rows: _r, ...load }): [number, ShardToLoad] => [
      shardKey(load.g, load.m),
      load,
    ]);
    ledger.state.restore = { url, number, onlyLost: true, shards: new Map(toLoad) };
    ledger.touch(RESTORE_KEY);
    for (const { g, m } of shards) ledger.touch(loadKey(g, m));
    this.placing.setGroups(groups, 'restore lost', { number });
    this.failure = undefined;
    this.startedAt = this.now;
    this.loaded.clear();
    this.askedAt = Number.NEGATIVE_INFINITY;
    this.facts.changed();
  }

  private ask(): void {
    const { ledger } = this;
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
    const { ledger } = this;
    const { atLeastOnce } = this.restore!;
    const tookMs = Math.round(this.now - this.startedAt);
    this.event('restore.done', { tookMs, ...(atLeastOnce && { atLeastOnce }) });
    this.startedAt = 0;
    this.failure = undefined;
    delete ledger.state.restore;
    ledger.touch(RESTORE_KEY);
  }

  /** Undefined: no shard is to be loaded. */
  status(): RestoreStatus | undefined {
    const { restore, failure } = this;
    if (!restore) return undefined;
    const { shards, ...rest } = restore;
    return { ...rest, shardsLeft: shards.size, ...(failure && { failure }) };
  }
}

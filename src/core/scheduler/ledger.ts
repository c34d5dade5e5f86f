/**
 * Guards the scheduler's durable state: a decision is durable before anyone sees it (rule 2). Effects that
 * depend on a decision are held back until the runtime says `persisted`.
 */
import type { ErrorCode } from '../../common/errors.js';
import type { CheckpointDraft } from '../../protocol/checkpoints.js';
import type { ClusterMap, Group, PeerId } from '../../protocol/map.js';
import { diffOf } from '../../protocol/map-diff.js';
import type { Message, MessageOf } from '../../protocol/messages.js';
import type { Role } from '../../protocol/senders.js';
import type { EventEffect, SendEffect } from '../shared/outbox.js';
import {
  compareLists,
  entriesOf,
  entryOf,
  HEAD_KEY,
  questionsKey,
  type StateEntries,
  sessionKey,
} from './entries.js';
import { EventLog } from './events.js';
import type { RestoreLostInput } from './saving/restored.js';
import type { DurableState, Scaling } from './state.js';
import type { Silence } from './vanishing.js';

export type SchedulerInput =
  | { kind: 'join'; link: number; message: MessageOf<'join'> }
  | { kind: 'attach'; link: number; message: MessageOf<'attach'> }
  /** `role` is that of the connection that the message came on. */
  | { kind: 'message'; from: PeerId; role: Role; message: Message }
  /** `link`: which of the peer's connections ended, where it may have several. */
  | { kind: 'closed'; peer: PeerId; inc: number; link?: number }
  /** Nobody listens at the node's address: its process is gone. */
  | { kind: 'refused'; node: PeerId; inc: number }
  /** Somebody listens there: the process may only be slow to come back. */
  | { kind: 'listening'; node: PeerId; inc: number }
  /** All links to nodes on which nothing was acknowledged for a while. */
  | { kind: 'silent'; links: readonly Silence[] }
  /** A planned move of data shard `m`, or of parity `index`, to a node that is free for the group. */
  | { kind: 'move'; g: number; member?: number; index?: number; node: PeerId }
  | { kind: 'persisted'; version: number }
  /** A client's request for lost shards, with the checkpoint that the runtime found for it. */
  | RestoreLostInput
  /** The answer to an effect `publish`. */
  | PublishAnswer
  /** `problem`: why the store cannot be reached, so that decisions wait; undefined: it can be reached. */
  | { kind: 'store'; problem: string | undefined }
  /** `wall`: milliseconds since 1970, for events; without it events have `now`. */
  | { kind: 'tick'; now: number; wall?: number };

/** Inputs that say themselves when they have changed the facts, because most of them change none. */
export const QUIET: ReadonlySet<SchedulerInput['kind']> = new Set([
  'tick',
  'persisted',
  'message',
  'silent',
  'listening',
  'published',
  'publishFailed',
]);

export type PublishAnswer =
  | { kind: 'published'; token: number }
  /** `newest`: the highest number of a manifest at the place, with CHECKPOINT_TAKEN. */
  | { kind: 'publishFailed'; token: number; code: ErrorCode; message: string; newest?: number };

export type SchedulerEffect =
  | SendEffect
  | EventEffect
  /** Answer on a connection whose peer has no identity yet; `admit` gives it one. */
  | { kind: 'reply'; link: number; message: Message; admit?: { peer: PeerId; inc: number } }
  /** To every peer that is admitted and whose role takes this kind of message (senders.ts). */
  | { kind: 'broadcast'; message: Message }
  | { kind: 'probe'; node: PeerId; inc: number; address: string }
  /** The machine at the other end is gone: the connection is closed without waiting for anything. */
  | { kind: 'abandon'; node: PeerId; inc: number }
  /**
   * Write the manifest of a checkpoint into the place `url`, if there is none of its number, with the time at
   * which its state was taken: `ageMs` ago. Then keep the newest `keep` and remove the files that none of
   * them needs. Just before it is written, all files that it lists must be seen to be there, and no newer
   * manifest: a scheduler that was away may come late with its manifest, when another one has removed its
   * files. The runtime answers with the input `published`, when the manifest is stored, durably, or
   * `publishFailed`, after its own retries.
   */
  | {
      kind: 'publish';
      token: number;
      url: string;
      keep: number;
      ageMs: number;
      draft: Omit<CheckpointDraft, 'createdAt'>;
    }
  /**
   * One transaction. The transaction of the next decisions begins after `persisted` of this one. A
   * transaction that has only events is different: the next one may begin before `persisted` of it, and the
   * store orders them.
   */
  | { kind: 'persist'; version: number; changes: StateEntries };

/** A transaction for the store, with the effects that wait until it is durable. */
interface Write {
  version: number;
  changes: Map<string, unknown>;
  effects: SchedulerEffect[];
  /** The map of the decisions in it. */
  map: ClusterMap;
  /** Number of the newest event in it; 0 until the transaction goes to the store. */
  events: number;
}

export class Ledger {
  /** Number of the newest transaction of this process. */
  private version = 0;
  /** Effects of this step that depend on no decision, or only on durable ones. */
  private effects: SchedulerEffect[] = [];
  /** Effects of this step that wait until its decisions are durable. */
  private gated: SchedulerEffect[] = [];
  /** Keys whose entries changed in this step. Lists of the map and of changes are compared instead. */
  private readonly touched = new Set<string>();
  /** Keys whose entries changed, and for which nothing waits. */
  private readonly jotted = new Set<string>();
  /** Sessions that have ended, durably or not, and whose end no node was told. */
  private ended: PeerId[] = [];
  /** Sessions of ranges that are over and stay open for a checkpoint; undefined: none is under way. */
  private held: Set<PeerId> | undefined;
  /** Map and changes as of the last commit; undefined: nothing is stored yet. */
  private committed: { map: ClusterMap; scaling: Scaling | undefined } | undefined;
  /** The newest map that is durable; undefined: none is yet. No peer has a newer one. */
  durableMap: ClusterMap | undefined;
  /** The transaction at the store; undefined: there is none. */
  private writing: Write | undefined;
  /** Decisions since: all of them are one transaction, so a slow store has fewer and larger ones. */
  private next: Write | undefined;
  /** The transaction at the store that has only events; undefined: there is none. */
  private noting: { version: number; events: number } | undefined;
  readonly events: EventLog;

  constructor(
    readonly state: DurableState,
    unwritten: boolean,
  ) {
    this.events = new EventLog(state.events);
    if (unwritten) return;
    this.committed = { map: state.map, scaling: state.scaling };
    this.durableMap = state.map;
  }

  get map(): ClusterMap {
    return this.state.map;
  }

  /** An effect that does not depend on the decisions of this step. */
  now(effect: SchedulerEffect): void {
    this.hear(effect);
    this.effects.push(effect);
  }

  private hear(effect: SchedulerEffect): void {
    if (effect.kind === 'event') this.events.heard(effect.name, effect.fields);
  }

  /** Effects that are held back until the decisions of this step, and all earlier ones, are durable. */
  afterwards(...effects: SchedulerEffect[]): void {
    for (const effect of effects) this.hear(effect);
    this.gated.push(...effects);
  }

  /** Number of effects that wait for the store. */
  get heldEffects(): number {
    return (this.writing?.effects.length ?? 0) + (this.next?.effects.length ?? 0);
  }

  /** Sends at once a message that depends on no decision. */
  tell(to: PeerId, message: Message): void {
    this.now({ kind: 'send', to, message, parts: [] });
  }

  /** Sends a message when the decisions of this step, and all earlier ones, are durable. */
  answer(to: PeerId, message: Message): void {
    this.afterwards({ kind: 'send', to, message, parts: [] });
  }

  /** The entry of this key was changed. */
  touch(key: string): void {
    this.touched.add(key);
  }

  /**
   * The entry of this key was changed, and nobody waits until that is durable. It is written with the next
   * decision or with the next events, whichever is first.
   */
  jot(key: string): void {
    this.jotted.add(key);
  }

  private giveJotted(changes: Map<string, unknown>): void {
    for (const key of this.jotted) if (!changes.has(key)) changes.set(key, entryOf(this.state, key));
    this.jotted.clear();
  }

  /**
   * Ends a step: its decisions go together in one transaction. Effects that depend on them, or on earlier
   * ones that are not durable yet, wait for it.
   */
  commit(): SchedulerEffect[] {
    const changes = this.changes();
    if (changes) {
      this.next ??= { version: ++this.version, changes: new Map(), effects: [], map: this.map, events: 0 };
      this.next.map = this.map;
      for (const [key, value] of changes) this.next.changes.set(key, value);
    }
    const last = this.next ?? this.writing;
    (last?.effects ?? this.effects).push(...this.gated);
    this.gated = [];
    if (this.next && !this.writing) {
      this.writing = this.next;
      this.next = undefined;
      const { version, changes } = this.writing;
      this.writing.events = this.events.giveTo(changes);
      this.giveJotted(changes);
      this.effects.push({ kind: 'persist', version, changes });
    } else if (this.events.isDue && !this.writing && !this.noting && this.committed) this.writeEvents();
    const { effects } = this;
    this.effects = [];
    return effects;
  }

  private writeEvents(): void {
    const changes = new Map<string, unknown>();
    const events = this.events.giveTo(changes);
    this.giveJotted(changes);
    this.noting = { version: ++this.version, events };
    this.effects.push({ kind: 'persist', version: this.noting.version, changes });
  }

  /** Entries that this step changed; undefined: none. */
  private changes(): Map<string, unknown> | undefined {
    const { state, committed, touched } = this;
    const { map, scaling } = state;
    if (committed?.map === map && committed.scaling === scaling && touched.size === 0) return undefined;
    this.committed = { map, scaling };
    if (!committed) {
      touched.clear();
      return entriesOf(state);
    }
    const changes = new Map<string, unknown>();
    touched.add(HEAD_KEY);
    for (const key of touched) changes.set(key, entryOf(state, key));
    touched.clear();
    compareLists('group', committed.map.groups, map.groups, changes);
    compareLists('node', committed.map.nodes, map.nodes, changes);
    compareLists('table', committed.map.tables, map.tables, changes);
    compareLists('change', committed.scaling?.changes ?? [], scaling?.changes ?? [], changes);
    return changes;
  }

  /** The transaction is durable: the effects that wait for it go out. */
  persisted(version: number): void {
    if (this.noting?.version === version) {
      this.events.stored(this.noting.events);
      this.noting = undefined;
    }
    if (this.writing?.version !== version) return;
    this.events.stored(this.writing.events);
    this.durableMap = this.writing.map;
    // Thousands may have come together while the store was away, too many for the arguments of a call.
    this.effects = this.effects.concat(this.writing.effects);
    this.writing = undefined;
  }

  setMap(
    changes: Partial<Pick<ClusterMap, 'nodes' | 'tables' | 'lastTable'>>,
    reason: string,
    fields: Record<string, unknown> = {},
  ): void {
    this.change(changes, reason, fields);
  }

  /** Called by `Placing` only, which tells the recoveries. */
  setGroups(groups: Group[], reason: string, fields: Record<string, unknown>): void {
    this.change({ groups }, reason, fields);
  }

  private change(changes: Partial<ClusterMap>, reason: string, fields: Record<string, unknown>): void {
    const before = this.state.map;
    const map = { ...before, ...changes, epoch: before.epoch + 1 };
    this.state.map = map;
    this.gated.push(
      { kind: 'broadcast', message: diffOf(before, map) },
      { kind: 'event', name: 'map.durable', fields: { epoch: map.epoch, reason, ...fields } },
    );
  }

  /**
   * Opens a session under a new id. A `leased` one belongs to a client; others belong to ranges of samples.
   */
  openSession(leased = false): PeerId {
    const id = this.state.nextPeer++;
    this.state.sessions.set(id, { id, leased });
    this.touch(sessionKey(id));
    return id;
  }

  /** The session belongs to a client, and is open. */
  isLeased(id: PeerId): boolean {
    return this.state.sessions.get(id)?.leased === true;
  }

  /** Ends a session. Owners learn of it soon, forget the id, and refuse its pushes (rule 31). */
  endSession(id: PeerId): void {
    if (this.held && this.state.sessions.get(id)?.leased === false) {
      this.held.add(id);
      return;
    }
    const { sessions, settingQuestions } = this.state;
    if (!sessions.delete(id)) return;
    const chunks = [...(settingQuestions.get(id)?.keys() ?? [])];
    settingQuestions.delete(id);
    for (const chunk of chunks) this.touch(questionsKey(id, chunk));
    this.touch(sessionKey(id));
    this.ended.push(id);
  }

  /** Sessions of ranges do not end until `releaseSessions`. Those that are held count as open. */
  holdSessions(): void {
    this.held ??= new Set();
  }

  releaseSessions(): void {
    const { held } = this;
    this.held = undefined;
    for (const id of held ?? []) this.endSession(id);
  }

  /** Sessions that have ended since this was last asked. */
  takeEnded(): PeerId[] {
    const { ended } = this;
    this.ended = [];
    return ended;
  }

  nextSid = (): number => this.state.nextSid++;
}

/**
 * Guards the scheduler's durable state: a decision is durable before anyone sees it (rule 2). Effects that
 * depend on a decision are held back until the runtime says `persisted`.
 */
import type { ClusterMap, Group, PeerId } from '../../protocol/map.js';
import type { Message, MessageOf } from '../../protocol/messages.js';
import type { Role } from '../../protocol/senders.js';
import type { EventEffect, SendEffect } from '../shared/outbox.js';
import type { DatasetState } from './samples/state.js';
import { type DurableState, snapshot } from './state.js';

export type SchedulerInput =
  | { kind: 'join'; link: number; message: MessageOf<'join'> }
  | { kind: 'attach'; link: number; message: MessageOf<'attach'> }
  /** `role`: of the connection that it came on. */
  | { kind: 'message'; from: PeerId; role: Role; message: Message }
  /** `link`: which of the peer's connections ended, where it may have several. */
  | { kind: 'closed'; peer: PeerId; inc: number; link?: number }
  /** Nobody listens at the node's address: its process is gone. */
  | { kind: 'refused'; node: PeerId; inc: number }
  /** Somebody listens there: the process may only be slow to come back. */
  | { kind: 'listening'; node: PeerId; inc: number }
  /** A planned move of data shard `m`, or of parity `index`, to a node that is free for the group. */
  | { kind: 'move'; g: number; member?: number; index?: number; node: PeerId }
  | { kind: 'persisted'; version: number }
  | { kind: 'tick'; now: number };

export type SchedulerEffect =
  | SendEffect
  | EventEffect
  /** Answer on a connection whose peer has no identity yet; `admit` gives it one. */
  | { kind: 'reply'; link: number; message: Message; admit?: { peer: PeerId; inc: number } }
  | { kind: 'broadcast'; message: Message }
  | { kind: 'probe'; node: PeerId; inc: number; address: string }
  | { kind: 'persist'; version: number; state: DurableState };

export class Ledger {
  private version = 0;
  private changed = false;
  private effects: SchedulerEffect[] = [];
  /** Effects of decisions that are not durable yet. */
  private held: { version: number; effects: SchedulerEffect[] }[] = [];
  private gated: SchedulerEffect[] = [];
  readonly datasets: DatasetState[];

  constructor(
    readonly state: DurableState,
    restarted: boolean,
  ) {
    this.changed = !restarted;
    this.datasets = state.datasets ??= [];
  }

  get map(): ClusterMap {
    return this.state.map;
  }

  /** An effect that does not depend on the decisions of this step. */
  now(effect: SchedulerEffect): void {
    this.effects.push(effect);
  }

  /** Effects that are held back until the decisions of this step, and all earlier ones, are durable. */
  afterwards(...effects: SchedulerEffect[]): void {
    this.gated.push(...effects);
  }

  /** A message that is held back likewise. */
  answer(to: PeerId, message: Message): void {
    this.afterwards({ kind: 'send', to, message, parts: [] });
  }

  /** The state was changed: this step ends with a write. */
  touch(): void {
    this.changed = true;
  }

  /** Ends a step: one write for all its decisions. Effects that depend on them wait for the write. */
  commit(): SchedulerEffect[] {
    if (!this.changed) {
      (this.held.at(-1)?.effects ?? this.effects).push(...this.gated);
      this.gated = [];
      return this.take();
    }
    this.changed = false;
    this.version++;
    this.held.push({ version: this.version, effects: this.gated });
    this.gated = [];
    this.effects.push({ kind: 'persist', version: this.version, state: snapshot(this.state) });
    return this.take();
  }

  private take(): SchedulerEffect[] {
    const effects = this.effects;
    this.effects = [];
    return effects;
  }

  persisted(version: number): void {
    while (this.held[0] && this.held[0].version <= version) this.effects.push(...this.held.shift()!.effects);
  }

  setMap(changes: Partial<ClusterMap>, reason: string, fields: Record<string, unknown> = {}): void {
    const map = { ...this.state.map, ...changes, epoch: this.state.map.epoch + 1 };
    this.state.map = map;
    this.changed = true;
    this.gated.push(
      { kind: 'broadcast', message: { t: 'map', map } },
      { kind: 'event', name: 'map.durable', fields: { epoch: map.epoch, reason, ...fields } },
    );
  }

  /**
   * Opens a session under a new id. A `leased` one belongs to a client; others belong to ranges of samples.
   */
  openSession(leased = false): PeerId {
    const { state } = this;
    const id = state.nextPeer++;
    // Replaced, not changed: snapshots refer to it. Ids only grow, so it stays in order.
    state.sessions = [...state.sessions, { id, leased }];
    this.changed = true;
    return id;
  }

  /** Ends a session. Owners learn of it later, forget the id, and refuse its pushes (rule 31). */
  endSession(id: PeerId): void {
    const left = this.state.sessions.filter((session) => session.id !== id);
    if (left.length === this.state.sessions.length) return;
    this.state.sessions = left;
    this.changed = true;
  }

  nextSid = (): number => this.state.nextSid++;

  setGroup(group: Group, reason: string, fields: Record<string, unknown> = {}): void {
    const { map } = this.state;
    const changed = { ...group, version: map.epoch + 1 };
    this.setMap(
      { groups: map.groups.map((other) => (other.id === group.id ? changed : other)) },
      reason,
      fields,
    );
  }
}

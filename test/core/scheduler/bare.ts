/**
 * A scheduler without nodes: a test says what it hears. Decisions are durable at once, unless the store is
 * away.
 */

import {
  DEFAULT_SCHEDULER_POLICY,
  type DurableState,
  Scheduler,
  type SchedulerEffect,
  type SchedulerInput,
} from '../../../src/core/scheduler/scheduler.js';
import type { SchedulerPolicy } from '../../../src/core/shared/policy.js';
import type { Group, PeerId } from '../../../src/protocol/map.js';
import type { Heartbeat, Message, MessageOf } from '../../../src/protocol/messages.js';
import { type Disk, newDisk } from '../../../src/sim/disk.js';
import { senderOf } from '../senders.js';

export interface Identity {
  id: PeerId;
  inc: number;
}

export class BareScheduler {
  scheduler: Scheduler;
  /** Effects of the last step. */
  effects: SchedulerEffect[] = [];
  now = 1000;
  private link = 0;
  private readonly policy: SchedulerPolicy;
  readonly disk: Disk;
  private away = false;
  private waiting: (SchedulerEffect & { kind: 'persist' })[] = [];

  constructor(k: number, r: number, groups = 1, policy: Partial<SchedulerPolicy> = {}, nodes = k + r) {
    this.disk = newDisk('job', nodes, [{ name: 'embedding', k, r, groups }]);
    this.policy = { ...DEFAULT_SCHEDULER_POLICY, ...policy };
    this.scheduler = new Scheduler(this.disk.read(), this.policy, false);
    this.step({ kind: 'tick', now: this.now });
  }

  /** Another one goes on with what is on the disk. */
  restart(): void {
    this.scheduler = new Scheduler(this.disk.read(), this.policy, true);
    this.step({ kind: 'tick', now: this.now });
  }

  get state(): DurableState {
    return this.disk.state;
  }

  get groups(): Group[] {
    return this.scheduler.map.groups;
  }

  get redundancy(): string {
    return this.scheduler.status().redundancy;
  }

  step(input: SchedulerInput): void {
    this.effects = [];
    const open = this.scheduler.step(input);
    for (let effect = open.shift(); effect; effect = open.shift()) {
      this.effects.push(effect);
      if (effect.kind !== 'persist') continue;
      if (this.away) this.waiting.push(effect);
      else open.push(...this.write(effect));
    }
  }

  private write({ changes, version }: SchedulerEffect & { kind: 'persist' }): SchedulerEffect[] {
    this.disk.write(changes);
    return this.scheduler.step({ kind: 'persisted', version });
  }

  /** From now on nothing becomes durable, until the store is back. */
  leaveStore(): void {
    this.away = true;
  }

  /** Decisions that were made meanwhile become durable. */
  returnStore(): void {
    this.away = false;
    this.effects = [];
    const open = this.waiting.splice(0).flatMap((effect) => this.write(effect));
    for (let effect = open.shift(); effect; effect = open.shift()) {
      this.effects.push(effect);
      if (effect.kind === 'persist') open.push(...this.write(effect));
    }
  }

  tick(ms: number): void {
    this.now += ms;
    this.step({ kind: 'tick', now: this.now });
  }

  private welcomed(): Identity & { link: number } {
    const reply = this.effects.find((effect) => effect.kind === 'reply' && effect.message.t === 'welcome');
    if (reply?.kind !== 'reply' || !reply.admit) throw new Error('nobody was let in');
    return { id: reply.admit.peer, inc: reply.admit.inc, link: reply.link };
  }

  join(name: string, fields: Partial<MessageOf<'join'>> = {}): Identity {
    const message = { t: 'join' as const, name, host: name, address: `${name}:1`, standby: false, ...fields };
    this.step({ kind: 'join', link: ++this.link, message });
    return this.welcomed();
  }

  attach(): Identity & { link: number } {
    this.step({ kind: 'attach', link: ++this.link, message: { t: 'attach' } });
    return this.welcomed();
  }

  hear(from: PeerId, message: Message): void {
    this.step({ kind: 'message', from, role: senderOf(message.t, 'scheduler'), message });
  }

  /** Questions of the last step whether a machine is reached, by whom they go to. */
  questions(): Map<PeerId, MessageOf<'reach'>> {
    return new Map(
      this.effects.flatMap((effect) =>
        effect.kind === 'send' && effect.message.t === 'reach' ? [[effect.to, effect.message] as const] : [],
      ),
    );
  }

  /** All nodes answer the questions of the last step, but for those that are `dead`. */
  answerQuestions(dead: readonly PeerId[] = []): void {
    for (const [to, { node, inc, round }] of this.questions())
      if (!dead.includes(to))
        this.hear(to, { t: 'reached', node, inc, ...(round !== undefined && { round }) });
  }

  heartbeat({ id, inc }: Identity, fields: Partial<Heartbeat> = {}): void {
    const { epoch } = this.scheduler.map;
    const nothing = { completeSinks: [], completeShards: [], recoveries: [], owned: [], bytes: 0, rows: 0 };
    this.hear(id, { t: 'heartbeat', inc, epoch, ...nothing, ...fields });
  }

  /** A heartbeat that says that everything that the map gives to this node is complete. */
  complete({ id, inc }: Identity): void {
    const mine = (entry: { node: PeerId; inc: number }) => entry.node === id && entry.inc === inc;
    const completeSinks = this.groups.flatMap(({ sinks }) => sinks.filter(mine).map(({ sid }) => sid));
    const completeShards = this.groups.flatMap((group) =>
      group.data.flatMap((entry, m): [number, number, number][] =>
        mine(entry) ? [[group.id, m, entry.gen]] : [],
      ),
    );
    const owned = completeShards.map(([g, m]): [number, number, number] => [g, m, 7]);
    const held = owned.map(([g, m]): [number, number, number, number] => [g, m, 4096, this.now]);
    this.heartbeat({ id, inc }, { completeSinks, completeShards, owned, held });
  }
}

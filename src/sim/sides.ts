/** The traffic and the replicas of a schedule, as the cluster needs them. */
import type { ClientEffect } from '../core/client/client.js';
import type { Busy } from '../core/client/state.js';
import type { ReplicaInput } from '../core/replica/replica.js';
import type { SendEffect } from '../core/shared/outbox.js';
import type { Message } from '../protocol/messages.js';
import type { ClientActor } from './actors.js';
import type { Draft, SavedContent } from './saved.js';

/** The source of requests and reader of answers (traffic.ts). */
export interface Workload {
  /** A turn of a client. */
  request(index: number, actor: ClientActor): void;
  /** The connections of the client that are called slow. */
  busy(index: number, actor: ClientActor): Busy;
  answered(index: number, actor: ClientActor, effect: AnswerEffect): void;
  noteAcknowledged(index: number, actor: ClientActor): void;
  /** Checks a manifest before it is written. `contents`: "group/member" -> content of the shard. */
  checkSaved(draft: Draft, contents: ReadonlyMap<string, SavedContent>): void;
  /** Checks the manifest of a cut of one instant. */
  checkInstant(draft: Draft, contents: ReadonlyMap<string, SavedContent>): void;
  /** True if the message is not one for the client machine. */
  received(index: number, actor: ClientActor, message: Message): boolean;
  /** Another process takes the place of a client. */
  restart(index: number, actor: ClientActor): void;
}

export type AnswerEffect = ClientEffect & { kind: 'rows' | 'answer' | 'done' };

/** The replicas (replicas.ts), which are clients, too. */
export interface ReplicaSide {
  /** Steps the replica of an actor; an actor without one has no effects. */
  step(index: number, input: ReplicaInput): SendEffect[];
  restart(index: number): void;
  /** Replaces all replicas: every process was killed, and another job is restored. */
  restartAll(): void;
  /** True if every replica has the present state of all its shards. */
  readonly finished: boolean;
  describe(): string[];
  close(): void;
}

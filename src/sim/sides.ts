/** What a simulated cluster asks of those who use it, and of replicas. */
import type { ClientEffect } from '../core/client/client.js';
import type { Busy } from '../core/client/requests.js';
import type { ReplicaInput } from '../core/replica/replica.js';
import type { SendEffect } from '../core/shared/outbox.js';
import type { Message } from '../protocol/messages.js';
import type { ClientActor } from './actors.js';
import type { Draft, SavedContent } from './saved.js';

/** What the cluster asks of whoever makes requests and reads the answers (traffic.ts). */
export interface Workload {
  /** A turn of a client. */
  request(index: number, actor: ClientActor): void;
  /** What its connections are said to carry. */
  busy(index: number, actor: ClientActor): Busy;
  answered(index: number, actor: ClientActor, effect: AnswerEffect): void;
  noteAcknowledged(index: number, actor: ClientActor): void;
  /** A manifest is about to be written. `contents`: of its shards, by "group/member". */
  checkSaved(draft: Draft, contents: ReadonlyMap<string, SavedContent>): void;
  /** The same, of a cut of one instant. */
  checkInstant(draft: Draft, contents: ReadonlyMap<string, SavedContent>): void;
  /** True if the message is not one for the client machine. */
  received(index: number, actor: ClientActor, message: Message): boolean;
  /** Another process takes the place of a client. */
  restart(index: number, actor: ClientActor): void;
}

export type AnswerEffect = ClientEffect & { kind: 'rows' | 'answer' | 'done' };

/** What the cluster asks of replicas (replicas.ts), which are clients, too. */
export interface ReplicaSide {
  /** Nothing where no replica is. */
  step(index: number, input: ReplicaInput): SendEffect[];
  restart(index: number): void;
  /** Every process of the job was killed, and another job goes on. */
  restartAll(): void;
  /** All have all, as it is now. */
  readonly finished: boolean;
  describe(): string[];
  close(): void;
}

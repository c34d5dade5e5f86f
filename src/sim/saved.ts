/** A checkpoint as its manifest and its files have it. */
import type { SchedulerEffect } from '../core/scheduler/scheduler.js';
import type { FetchEffect, StoreEffect } from '../core/shared/outbox.js';
import type { DedupEntry } from '../protocol/messages.js';
import type { NodeActor } from './actors.js';

export type PublishEffect = SchedulerEffect & { kind: 'publish' };
export type PublishAnswer =
  | { kind: 'published'; token: number }
  | {
      kind: 'publishFailed';
      token: number;
      code: 'PLACE_FAILED' | 'CHECKPOINT_TAKEN' | 'BAD_CHECKPOINT';
      message: string;
      newest?: number;
    };
export type Draft = PublishEffect['draft'];

/** A shard of a checkpoint. */
export interface SavedContent {
  tables: Map<string, Map<bigint, Float32Array>>;
  sessions: DedupEntry[];
}

/** What the cluster asks of the place of checkpoints (saves.ts). */
export interface CheckpointSide {
  store(index: number, actor: NodeActor, effect: StoreEffect): void;
  fetch(index: number, actor: NodeActor, effect: FetchEffect): void;
  /** Clients may push again. */
  resumed(attempt: number): void;
  publish(effect: PublishEffect, answer: (input: PublishAnswer) => void): void;
}

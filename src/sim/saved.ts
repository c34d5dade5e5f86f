/** The content of checkpoints, and their place as the cluster needs it. */
import type { SchedulerEffect } from '../core/scheduler/scheduler.js';
import type { FetchEffect, StoreEffect } from '../core/shared/outbox.js';
import type { DedupEntry } from '../protocol/messages.js';
import type { NodeActor } from './actors.js';

export type SimulatedPublish = SchedulerEffect & { kind: 'publish' };
export type SimulatedAnswer =
  | { kind: 'published'; token: number }
  | {
      kind: 'publishFailed';
      token: number;
      code: 'PLACE_FAILED' | 'CHECKPOINT_TAKEN' | 'BAD_CHECKPOINT';
      message: string;
      newest?: number;
    };
export type Draft = SimulatedPublish['draft'];

/** The content of a shard of a checkpoint. */
export interface SavedContent {
  tables: Map<string, Map<bigint, Float32Array>>;
  sessions: DedupEntry[];
}

/** The place of checkpoints as the cluster needs it (saves.ts). */
export interface CheckpointSide {
  store(index: number, actor: NodeActor, effect: StoreEffect): void;
  fetch(index: number, actor: NodeActor, effect: FetchEffect): void;
  /** Called when clients may push again. */
  resumed(attempt: number): void;
  publish(effect: SimulatedPublish, answer: (input: SimulatedAnswer) => void): void;
}

/** A checkpoint as its manifest and its files have it. */
import type { SchedulerEffect } from '../core/scheduler/scheduler.js';
import type { DedupEntry } from '../protocol/messages.js';

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

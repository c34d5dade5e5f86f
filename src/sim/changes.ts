/** The check of changes: a change with progress is not taken back for want of it. */
import type { Change } from '../core/scheduler/state.js';
import { Violation } from './violation.js';

export class ChangeWatch {
  /** The changes after the last step. */
  private seen: readonly Change[] = [];
  /** Id of a change -> shards that it has moved. */
  private moved = new Map<number, number>();
  /** Ids of the changes that were running after the last step. */
  private running = new Set<number>();
  /** When a shard of any change last moved. */
  private progressAt = Number.NEGATIVE_INFINITY;

  /** Looks at the changes after a step. `now`: time of the scheduler's last tick. */
  look(now: number, changes: readonly Change[]): void {
    if (changes === this.seen) return;
    this.seen = changes;
    for (const { id, state, reason, shardsMoved } of changes) {
      if (shardsMoved > (this.moved.get(id) ?? 0)) this.progressAt = now;
      const seconds = /^no progress in ([\d.]+) s/.exec(reason)?.[1];
      const fresh = state === 'cancelled' && this.running.has(id);
      if (fresh && seconds !== undefined && now - this.progressAt < Number(seconds) * 1000)
        throw new Violation(
          `change ${id} was taken back though a shard moved at ${this.progressAt}: ${reason}`,
        );
    }
    this.moved = new Map(changes.map(({ id, shardsMoved }) => [id, shardsMoved]));
    this.running = new Set(changes.filter(({ state }) => state === 'running').map(({ id }) => id));
  }
}

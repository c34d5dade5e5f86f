/** A place of checkpoints in memory: writes end at once, unless a test holds them or has them fail. */

import type { ErrorCode } from '../../src/common/errors.js';
import type { FetchAnswer } from '../../src/core/node/loading.js';
import type { StoreAnswer } from '../../src/core/node/saving.js';
import type { PublishAnswer, SchedulerEffect } from '../../src/core/scheduler/ledger.js';
import type { FetchEffect, StoreEffect } from '../../src/core/shared/outbox.js';

type PublishEffect = SchedulerEffect & { kind: 'publish' };

export class MemoryPlace {
  readonly files = new Map<string, StoreEffect>();
  readonly manifests: PublishEffect['draft'][] = [];
  /** Age of the state of each manifest when it was written, in milliseconds. */
  readonly agesMs: number[] = [];
  /** Why files are not written or read, and manifests are not written; undefined: nothing fails. */
  storeFails: ErrorCode | undefined;
  fetchFails: ErrorCode | undefined;
  publishFails: { code: ErrorCode; newest?: number } | undefined;
  /** True: writes wait for `release`. */
  held = false;
  private waiting: (() => void)[] = [];

  private act(run: () => void): void {
    if (this.held) this.waiting.push(run);
    else run();
  }

  get heldWrites(): number {
    return this.waiting.length;
  }

  release(): void {
    this.held = false;
    for (const run of this.waiting.splice(0)) run();
  }

  take(effect: StoreEffect | FetchEffect, answer: (input: StoreAnswer | FetchAnswer) => void): void {
    if (effect.kind === 'store') this.store(effect, answer);
    else this.fetch(effect, answer);
  }

  private fetch({ token, segment }: FetchEffect, answer: (input: FetchAnswer) => void): void {
    const code = this.fetchFails;
    this.act(() => {
      const file = this.files.get(segment.name);
      if (code || !file)
        return answer({ kind: 'fetchFailed', token, code: code ?? 'BAD_CHECKPOINT', message: 'no' });
      const { sessions } = file;
      const tables = file.tables.flatMap(({ name, keys, values, state }) =>
        keys.map((chunk, i) => ({ name, keys: chunk, values: values[i]!, state: state[i]! })),
      );
      answer({ kind: 'fetched', token, tables, ...(sessions && { sessions }) });
    });
  }

  private store(effect: StoreEffect, answer: (input: StoreAnswer) => void): void {
    const { token, name } = effect;
    const code = this.storeFails;
    this.act(() => {
      if (code) return answer({ kind: 'storeFailed', token, code, message: 'no room' });
      this.files.set(name, effect);
      answer({ kind: 'stored', token, bytes: 100, sha256: `of ${name}` });
    });
  }

  publish({ token, draft, ageMs }: PublishEffect, answer: (input: PublishAnswer) => void): void {
    const fails = this.publishFails;
    this.act(() => {
      if (fails) return answer({ kind: 'publishFailed', token, message: 'no', ...fails });
      this.manifests.push(draft);
      this.agesMs.push(ageMs);
      answer({ kind: 'published', token });
    });
  }

  /** Rows of a shard of a manifest, by key: the first float of each. */
  rows(draft: PublishEffect['draft'], shard: number): Record<number, number> {
    const rows: Record<number, number> = {};
    for (const { name } of draft.shards[shard]!.segments) {
      for (const { keys, values } of this.files.get(name)!.tables) {
        for (const [chunk, some] of keys.entries()) {
          const dim = values[chunk]!.length / some.length;
          for (const [i, key] of some.entries()) rows[Number(key)] = values[chunk]![i * dim]!;
        }
      }
    }
    return rows;
  }
}

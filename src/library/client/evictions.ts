/**
 * The evictions of a table, shard by shard: each shard is asked again and again, and what it tells waits
 * until the caller takes it. So a shard that is being recovered holds up no other, and memory is bounded by a
 * page for each shard.
 */
import { onAbort } from '../../common/aborts.js';
import { aborted, KintsugiError } from '../../common/errors.js';
import { checkOptions, checkSignal, checkTimeout, type OptionKeys } from '../../common/options.js';
import { EvictionReader } from '../../core/client/evictions.js';
import { copied, longs } from '../../core/shared/bytes.js';
import { EVICTION_REASONS, type EvictedKeys } from '../../engine/policies.js';
import { locate, shardCount, type TableSpec } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import { eachAtMost } from './concurrent.js';
import type { EvictionBatch, EvictionPosition, EvictionsOptions } from './options.js';
import { askOwner } from './questions.js';
import { poolOfTable } from './scan.js';
import type { Session } from './session.js';

const POLL_MS = 1000;
/** Keys in the pages of all shards together, and the least in one. */
const ALL_PAGES = 65_536;
const LEAST_PAGE = 256;
const SHARDS_AT_ONCE = 16;

const OPTIONS = { from: true, pollMs: true, signal: checkSignal } satisfies OptionKeys<EvictionsOptions>;

function isPosition({ job, table, shards }: EvictionPosition): boolean {
  const isCount = (n: unknown) => Number.isSafeInteger(n) && (n as number) >= 0;
  const isPlace = (place: unknown) => Array.isArray(place) && place.length === 2 && place.every(isCount);
  return typeof job === 'string' && isCount(table) && Array.isArray(shards) && shards.every(isPlace);
}

/** See `Client.evictions`. @throws BAD_ARGUMENT */
export function evictions(
  session: Session,
  spec: TableSpec,
  options: EvictionsOptions,
): AsyncGenerator<EvictionBatch, void> {
  checkOptions('evictions', options, OPTIONS);
  const { from, pollMs = POLL_MS } = options;
  checkTimeout('evictions: pollMs', pollMs, 1);
  if (from !== undefined && (typeof from !== 'object' || from === null || !isPosition(from)))
    throw new KintsugiError('BAD_ARGUMENT', 'evictions: from must be a position that a batch had');
  return new EvictionStream(session, spec, { ...options, pollMs }).batches();
}

/** An answer that the caller has not taken. */
interface ToldPage extends EvictedKeys {
  shard: number;
  answer: MessageOf<'evicted'>;
  /** Called when it was taken. */
  taken(): void;
}

class EvictionStream {
  private readonly readers: EvictionReader[];
  private readonly told: ToldPage[] = [];
  private readonly stop = new AbortController();
  private readonly max: number;
  /** The position that was given is of another job or table. */
  private readonly isLost: boolean;
  private failure: unknown;
  private wake = () => {};

  constructor(
    private readonly session: Session,
    private readonly spec: TableSpec,
    private readonly options: EvictionsOptions & { pollMs: number },
  ) {
    const shards = shardCount(poolOfTable(session.map, spec));
    const { from } = options;
    const isOurs = from?.job === session.map.job && from.table === spec.id && from.shards.length === shards;
    this.isLost = from !== undefined && !isOurs;
    this.readers = Array.from({ length: shards }, (_, shard) => {
      const [gen, number] = (isOurs && from.shards[shard]) || [0, 0];
      return new EvictionReader({ gen, number });
    });
    this.max = Math.max(LEAST_PAGE, Math.floor(ALL_PAGES / shards));
  }

  async *batches(): AsyncGenerator<EvictionBatch, void> {
    const { signal } = this.options;
    const forget = onAbort(signal, () => this.end(aborted()));
    try {
      if (signal?.aborted) throw aborted();
      const fresh = [...this.readers.keys()].filter((shard) => this.readers[shard]!.place.gen === 0);
      await eachAtMost(SHARDS_AT_ONCE, fresh, async (shard) => {
        const { answer, keys } = await this.ask(shard);
        this.readers[shard]!.take(answer, keys.length);
      });
      if (fresh.length > 0) yield this.batch({ gap: this.isLost });
      for (const shard of this.readers.keys()) void this.follow(shard).catch((error) => this.end(error));
      for (;;) {
        if (signal?.aborted) throw aborted();
        const page = this.told.shift();
        if (page) {
          const gap = this.readers[page.shard]!.take(page.answer, page.keys.length);
          yield this.batch({ ...page, gap });
          page.taken();
        } else {
          if (this.failure !== undefined) throw this.failure;
          await new Promise<void>((resolve) => {
            this.wake = resolve;
          });
        }
      }
    } finally {
      forget();
      this.end(aborted());
    }
  }

  private batch({ keys, reasons, gap }: Partial<EvictedKeys> & { gap: boolean }): EvictionBatch {
    const shards = this.readers.map(({ place }): [number, number] => [place.gen, place.number]);
    return {
      keys: keys ?? new BigUint64Array(0),
      reasons: Array.from(reasons ?? [], (reason) => EVICTION_REASONS[reason]!),
      gap,
      position: { job: this.session.map.job, table: this.spec.id, shards },
    };
  }

  private end(error: unknown): void {
    this.failure ??= error;
    this.stop.abort();
    this.wake();
  }

  private async follow(shard: number): Promise<void> {
    const reader = this.readers[shard]!;
    while (!this.stop.signal.aborted) {
      const page = await this.ask(shard);
      if (page.keys.length > 0 || reader.misses(page.answer)) {
        await new Promise<void>((taken) => {
          this.told.push({ shard, ...page, taken });
          this.wake();
        });
      }
      if (reader.place.number >= page.answer.end) await this.pause();
    }
  }

  private ask(shard: number): Promise<EvictedKeys & { answer: MessageOf<'evicted'> }> {
    const { session, spec, max, stop } = this;
    const { group: g, member: m } = locate(poolOfTable(session.map, spec), shard);
    const question = { t: 'evictions' as const, g, m, table: spec.id, max, ...this.readers[shard]!.asked };
    const read = (answer: MessageOf<'evicted'>, [keys, reasons]: readonly Uint8Array[]) => ({
      answer: { ...answer },
      keys: longs(keys),
      reasons: copied(reasons ?? new Uint8Array(0)),
    });
    return askOwner(session, question, read, { signal: stop.signal });
  }

  private pause(): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        forget();
        resolve();
      };
      const timer = setTimeout(done, this.options.pollMs);
      const forget = onAbort(this.stop.signal, done);
    });
  }
}

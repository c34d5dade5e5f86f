/**
 * Manifests of checkpoints that a scheduler writes, and what a place keeps: the effects `publish` of its
 * core, carried out.
 */

import { KintsugiError } from '../../common/errors.js';
import type { PublishAnswer, SchedulerEffect } from '../../core/scheduler/ledger.js';
import type { Logger } from '../../net/log.js';
import { manifestOf } from '../../protocol/checkpoints.js';
import {
  checkpointNumbers,
  type Listing,
  numberAfter,
  publishNewest,
} from '../../stores/checkpoint/checkpoints.js';
import type { Place } from '../../stores/checkpoint/place.js';
import { keepNewest } from '../../stores/checkpoint/retention.js';
import { failureOf, Places } from '../places.js';

type PublishOrder = SchedulerEffect & { kind: 'publish' };

/** So many checkpoints stay. */
interface Clean {
  keep: number;
  /** Listing of the place from the newest publication, if that was only just now. */
  listing?: Listing | undefined;
}

export class Publisher {
  private readonly places = new Places();
  /** Places where older checkpoints are being removed; what is to be removed then, if another one came. */
  private readonly cleaning = new Map<string, Clean | undefined>();
  /** By place: the newest checkpoint that was published here. */
  private readonly published = new Map<string, number>();
  private closed = false;

  /** `answer` is called in a later turn of the event loop, and not any more after `close`. */
  constructor(
    private readonly log: Logger,
    private readonly answer: (answer: PublishAnswer) => void,
  ) {}

  /** @param problem why there is nothing to publish: the answer is a failure */
  publish({ token, url, keep, ageMs, draft }: PublishOrder, problem?: KintsugiError): void {
    // The time is taken once: a write that is repeated has the same content.
    const complete = { ...draft, createdAt: new Date(Date.now() - ageMs).toISOString() };
    const work = async () => {
      if (problem) throw problem;
      const place = await this.places.at(url);
      const { signal } = this.places;
      // The checkpoint that this one adds to: the newest one that was published here, or else by an earlier
      // scheduler.
      const addsTo = this.published.get(url) ?? manifestOf(complete).parents.at(-1);
      const { listing } = await publishNewest(place, complete, { addsTo, signal });
      this.published.set(url, complete.number);
      return { place, listing };
    };
    work().then(
      ({ place, listing }) => {
        this.tell({ kind: 'published', token });
        this.clean(place, { keep, listing });
      },
      async (error: unknown) => {
        const next = isTaken(error) ? await this.next(url).catch(() => 1) : 1;
        const newest = next > 1 && { newest: next - 1 };
        this.tell({ kind: 'publishFailed', token, ...failureOf(error), ...newest });
      },
    );
  }

  private tell(answer: PublishAnswer): void {
    if (!this.closed) this.answer(answer);
  }

  /** Numbers of the checkpoints that are there, ascending. @throws what `openPlace` throws, PLACE_FAILED */
  async numbers(url: string): Promise<number[]> {
    return checkpointNumbers(await this.places.at(url));
  }

  /**
   * The number after those of all checkpoints that are there.
   * @throws PLACE_FAILED, LIMIT, and what `openPlace` throws
   */
  async next(url: string): Promise<number> {
    const newest = (await this.numbers(url)).at(-1) ?? 0;
    return numberAfter(await this.places.at(url), newest);
  }

  /**
   * Removes old checkpoints, in each place one removal at a time. Files that cannot be removed now are
   * removed after a later checkpoint.
   */
  private clean(place: Place, what: Clean): void {
    const { url } = place;
    const isBusy = this.cleaning.has(url);
    // Another scheduler may publish before this turn comes, so the place is looked at again then.
    this.cleaning.set(url, isBusy ? { keep: what.keep } : undefined);
    if (isBusy) return;
    keepNewest(place, what.keep, what.listing)
      .then(({ checkpoints, files, bytes }) => {
        if (checkpoints.length + files > 0)
          this.log.info('checkpoint.removed', { checkpoints, files, bytes });
      })
      .catch((error: unknown) => {
        if (!this.closed) this.log.warn('checkpoint.notRemoved', { url, ...failureOf(error) });
      })
      .finally(() => {
        const again = this.cleaning.get(url);
        this.cleaning.delete(url);
        if (again !== undefined && !this.closed) this.clean(place, again);
      });
  }

  /** Ends. Files that were to be removed are removed after a later checkpoint. */
  close(): Promise<void> {
    this.closed = true;
    return this.places.close();
  }
}

const isTaken = (error: unknown) => error instanceof KintsugiError && error.code === 'CHECKPOINT_TAKEN';

/**
 * Manifests of checkpoints that a scheduler writes, and what a place keeps: the effects `publish` of its
 * core, carried out.
 */
import { checkpointNumbers, publishNewest } from '../checkpoint/checkpoints.js';
import type { Place } from '../checkpoint/place.js';
import { keepNewest } from '../checkpoint/retention.js';
import type { PublishAnswer, SchedulerEffect } from '../core/scheduler/ledger.js';
import { KintsugiError } from '../errors.js';
import type { Logger } from './log.js';
import { failureOf, Places } from './places.js';

type PublishEffect = SchedulerEffect & { kind: 'publish' };

export class Publisher {
  private readonly places = new Places();
  /** Places where older checkpoints are being removed; how many are kept then, if another one came. */
  private readonly cleaning = new Map<string, number | undefined>();
  private closed = false;

  /** `answer` is called in a later turn of the event loop, and not any more after `close`. */
  constructor(
    private readonly log: Logger,
    private readonly answer: (answer: PublishAnswer) => void,
  ) {}

  publish({ token, url, keep, ageMs, draft }: PublishEffect): void {
    // The time is taken once: a write that is repeated has the same content.
    const complete = { ...draft, createdAt: new Date(Date.now() - ageMs).toISOString() };
    const work = async () => {
      const place = await this.places.at(url);
      await publishNewest(place, complete, this.places.signal);
      return place;
    };
    work().then(
      (place) => {
        this.tell({ kind: 'published', token });
        this.clean(place, keep);
      },
      async (error: unknown) => {
        const newest = isTaken(error) ? await this.newest(url).catch(() => undefined) : undefined;
        this.tell({ kind: 'publishFailed', token, ...failureOf(error), ...(newest && { newest }) });
      },
    );
  }

  private tell(answer: PublishAnswer): void {
    if (!this.closed) this.answer(answer);
  }

  /** The highest number of a checkpoint there; 0: none. @throws PLACE_FAILED and what `openPlace` throws */
  async newest(url: string): Promise<number> {
    return (await checkpointNumbers(await this.places.at(url))).at(-1) ?? 0;
  }

  /** One at a time in a place. What cannot be removed now is removed after a later checkpoint. */
  private clean(place: Place, keep: number): void {
    const { url } = place;
    const isBusy = this.cleaning.has(url);
    this.cleaning.set(url, isBusy ? keep : undefined);
    if (isBusy) return;
    keepNewest(place, keep)
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

  /** What was to be removed is removed after a later checkpoint. */
  close(): Promise<void> {
    this.closed = true;
    return this.places.close();
  }
}

const isTaken = (error: unknown) => error instanceof KintsugiError && error.code === 'CHECKPOINT_TAKEN';

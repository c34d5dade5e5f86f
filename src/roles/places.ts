/**
 * The places of a process: one for each address, opened when it is first used and closed with the process.
 */

import { describe, type ErrorCode, KintsugiError } from '../common/errors.js';
import { openPlace } from '../stores/checkpoint/open.js';
import type { Place } from '../stores/checkpoint/place.js';

export class Places {
  private readonly places = new Map<string, Promise<Place>>();
  private readonly closing = new AbortController();

  /** Ends what is under way when the process does. */
  get signal(): AbortSignal {
    return this.closing.signal;
  }

  /** @throws what `openPlace` throws; the next call tries again */
  at(url: string): Promise<Place> {
    const known = this.places.get(url);
    if (known) return known;
    const opening = openPlace(url);
    this.places.set(url, opening);
    opening.catch(() => this.places.delete(url));
    return opening;
  }

  async close(): Promise<void> {
    this.closing.abort();
    const places = await Promise.allSettled(this.places.values());
    this.places.clear();
    for (const place of places) if (place.status === 'fulfilled') await place.value.close();
  }
}

/** As answers to effects have it: what is no failure of the place's own has no better name. */
export function failureOf(error: unknown): { code: ErrorCode; message: string } {
  if (error instanceof KintsugiError) return { code: error.code, message: error.message };
  return { code: 'PLACE_FAILED', message: describe(error) };
}

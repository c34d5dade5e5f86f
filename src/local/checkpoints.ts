/**
 * Checkpoints of a local run: what its report says of them, and what the launcher knows of finished ranges,
 * which no checkpoint has. It is kept beside the checkpoints, so that a run that is restored can count every
 * push of every range, also of those that were finished before.
 */
import { checkpointNumbers } from '../checkpoint/checkpoints.js';
import { openPlace } from '../checkpoint/open.js';
import type { Place } from '../checkpoint/place.js';
import { KintsugiError } from '../errors.js';
import type { SavePlan } from '../protocol/saving.js';
import { numberOf, type RoleEvent } from './events.js';
import type { FinishedRange } from './samples.js';

/** A checkpoint that became complete in the run. */
export interface CheckpointRecord {
  number: number;
  /** Since training began. */
  atSeconds: number;
  /** From its beginning to its manifest. */
  seconds: number;
  /** Of the files that are new in it. */
  rows: number;
  bytes: number;
}

export interface CheckpointsReport {
  /** Address of the place. */
  place: string;
  everySeconds: number;
  made: CheckpointRecord[];
  failed: { number: number; code: string; message: string }[];
  /** Number of the newest one in the place; null: there is none. */
  newest: number | null;
}

/** `start`: when training began, in milliseconds of the clock of the events. @throws PLACE_FAILED */
export async function checkpointsOf(
  plan: SavePlan | undefined,
  events: readonly RoleEvent[],
  start = 0,
): Promise<CheckpointsReport | null> {
  if (!plan) return null;
  const seconds = (ms: number) => Math.round(ms) / 1000;
  const made = events
    .filter(({ event }) => event === 'checkpoint.done')
    .map((event) => ({
      number: numberOf(event, 'number'),
      atSeconds: seconds(event.mono - start),
      seconds: seconds(numberOf(event, 'tookMs')),
      rows: numberOf(event, 'rows'),
      bytes: numberOf(event, 'bytes'),
    }));
  const failed = events
    .filter(({ event }) => event === 'checkpoint.failed')
    .map((event) => ({
      number: numberOf(event, 'number'),
      code: String(event.code),
      message: String(event.message),
    }));
  const newest = await withPlace(plan.url, checkpointNumbers).then((numbers) => numbers.at(-1) ?? null);
  return { place: plan.url, everySeconds: seconds(plan.everyMs), made, failed, newest };
}

export async function withPlace<T>(url: string, work: (place: Place) => Promise<T>): Promise<T> {
  const place = await openPlace(url);
  try {
    return await work(place);
  } finally {
    await place.close();
  }
}

// ---- evidence

const EVIDENCE = 'local-ranges.json';

/** Keeps what workers told of finished ranges. @throws PLACE_FAILED */
export async function keepRanges(url: string, ranges: readonly FinishedRange[]): Promise<void> {
  const bytes = new TextEncoder().encode(JSON.stringify(ranges));
  await withPlace(url, (place) => place.put(EVIDENCE, [bytes]));
}

/** What a run before has kept; undefined: nothing. @throws PLACE_FAILED, BAD_CHECKPOINT */
export async function keptRanges(url: string): Promise<FinishedRange[] | undefined> {
  try {
    const bytes = await withPlace(url, (place) => place.get(EVIDENCE));
    return JSON.parse(new TextDecoder().decode(bytes)) as FinishedRange[];
  } catch (error) {
    if (error instanceof KintsugiError && error.code === 'CHECKPOINT_MISSING') return undefined;
    if (error instanceof SyntaxError) throw new KintsugiError('BAD_CHECKPOINT', `${EVIDENCE}: not JSON`);
    throw error;
  }
}

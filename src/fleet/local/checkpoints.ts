/**
 * Checkpoints of a local run: those that it makes, and the one that it begins with. A checkpoint does not
 * know how many pushes of a range its workers saw acknowledged. The launcher keeps that beside the
 * checkpoints, so that a run that is restored can check every push of every range, also of those that were
 * finished before.
 */

import { KintsugiError } from '../../common/errors.js';
import { isReshaped } from '../../core/scheduler/saving/restored.js';
import type { Client } from '../../library/client/client.js';
import type { Manifest } from '../../protocol/checkpoints.js';
import type { PeerId, Pool } from '../../protocol/map.js';
import { readRestorable } from '../../roles/scheduler/restored.js';
import { checkpointNumbers } from '../../stores/checkpoint/checkpoints.js';
import { withPlace } from '../../stores/checkpoint/open.js';
import type { Place } from '../../stores/checkpoint/place.js';
import type { Display } from './display.js';
import { numberOf, type RoleEvent } from './events.js';
import type { LocalOptions } from './options.js';
import { type FinishedRange, finishedRanges } from './samples.js';

/** A checkpoint that became complete in the run. */
export interface CheckpointRecord {
  number: number;
  /** Seconds since training began. */
  atSeconds: number;
  /** Seconds from its beginning to its manifest. */
  seconds: number;
  /** Rows and bytes of the files that are new in it. */
  rows: number;
  bytes: number;
}

export interface CheckpointsReport {
  /** Address of the place. */
  place: string;
  everySeconds: number;
  made: CheckpointRecord[];
  failed: { number: number; code: string; message: string }[];
  /** Number of the newest one in the place; null: there is none, or the place cannot be read. */
  newest: number | null;
}

/** The checkpoint that a run began with. */
export interface RestoredReport {
  place: string;
  number: number;
  /** When its state was taken, ISO 8601. */
  createdAt: string;
  rows: number;
  bytes: number;
  /** Samples in ranges that were finished when it was taken. */
  samples: number;
  /**
   * The run has other shards, and the checkpoint is not of one instant: some samples that were trained after
   * it began are trained again.
   */
  atLeastOnce: boolean;
  /** Seconds until every shard was loaded. */
  seconds: number | null;
}

interface Restored {
  url: string;
  manifest: Manifest;
  /** Ranges that earlier runs finished. Undefined: nobody has kept them, or they went to other shards. */
  ranges: FinishedRange[] | undefined;
  /** Pushes of sessions below this id went to other shards. */
  before: PeerId;
}

const seconds = (ms: number): number => Math.round(ms) / 1000;

export class RunCheckpoints {
  private restored: Restored | undefined;

  constructor(private readonly options: Pick<LocalOptions, 'checkpoint' | 'restore'>) {}

  // ---- restore

  /**
   * Looks at the checkpoint that the run is to begin with, before anything is started.
   * @throws CHECKPOINT_MISSING, BAD_CHECKPOINT, PLACE_FAILED, BAD_ARGUMENT
   */
  async begin(): Promise<{ url: string; number: number } | undefined> {
    const { restore } = this.options;
    if (!restore) return undefined;
    const { url } = restore;
    const manifest = await readRestorable(restore);
    this.restored = { url, manifest, ranges: await withPlace(url, keptRanges), before: 0 };
    return { url, number: manifest.number };
  }

  /** Samples in ranges that were finished in the checkpoint that the run began with. */
  get samplesBefore(): number {
    const all = this.restored?.manifest.samples?.datasets.flatMap(({ samples }) => samples) ?? [];
    return all.reduce((sum, samples) => sum + samples, 0);
  }

  /**
   * Takes the pools of the run, which has formed. Pushes that went to other shards cannot be checked by those
   * of this run.
   */
  formed(pools: readonly Pool[]): void {
    const { restored } = this;
    if (!restored || !isReshaped(pools, restored.manifest)) return;
    restored.ranges = undefined;
    restored.before = restored.manifest.samples?.nextPeer ?? 0;
  }

  /** Finished ranges of the data set whose pushes can be checked, those of earlier runs included. */
  ranges(events: readonly RoleEvent[]): FinishedRange[] {
    return this.finished(events).filter(({ client }) => client >= (this.restored?.before ?? 0));
  }

  private finished(events: readonly RoleEvent[]): FinishedRange[] {
    return finishedRanges(events, this.restored?.ranges);
  }

  /** Number of finished ranges of a data set that earlier runs began and whose pushes are unknown. */
  untold(dataset: string, events: readonly RoleEvent[]): number {
    if (!this.restored) return 0;
    const saved = this.restored.manifest.samples?.datasets.find(({ name }) => name === dataset);
    const others = [...(saved?.open ?? []), ...(saved?.setAside ?? []), ...(this.restored.ranges ?? [])];
    const known = new Set(others.map((each) => ('range' in each ? each.range : each.number)));
    let untold = this.finished(events).length - this.ranges(events).length;
    for (let number = 0; number < (saved?.next ?? 0); number++) if (!known.has(number)) untold++;
    return untold;
  }

  restoredReport(events: readonly RoleEvent[]): RestoredReport | null {
    if (!this.restored) return null;
    const { url: place, manifest } = this.restored;
    const { number, createdAt, rows, bytes } = manifest;
    const done = events.find(({ event }) => event === 'restore.done');
    const took = done ? seconds(numberOf(done, 'tookMs')) : null;
    const atLeastOnce = this.restored.before > 0 && !manifest.barrier;
    return { place, number, createdAt, rows, bytes, samples: this.samplesBefore, atLeastOnce, seconds: took };
  }

  // ---- what the run makes

  /** Makes a checkpoint of the end of the run. Events and the report tell when it fails. */
  async last(client: Client, events: readonly RoleEvent[], display: Display): Promise<void> {
    if (!this.options.checkpoint) return;
    display.line('making a last checkpoint');
    await client.checkpoint().catch((error: Error) => display.line(`no checkpoint: ${error.message}`));
    await this.keep(events, display);
  }

  /**
   * Keeps what workers told of finished ranges. Where that fails, a run that is restored says that it does
   * not know their pushes.
   */
  async keep(events: readonly RoleEvent[], display: Display): Promise<void> {
    const { checkpoint } = this.options;
    if (!checkpoint) return;
    const bytes = new TextEncoder().encode(JSON.stringify(this.ranges(events)));
    await withPlace(checkpoint.url, (place) => place.put(KEPT, [bytes])).catch((error: Error) =>
      display.line(`the pushes of finished ranges are not kept: ${error.message}`),
    );
  }

  /** `start`: when training began, in milliseconds of the clock of the events. */
  async report(events: readonly RoleEvent[], start = 0): Promise<CheckpointsReport | null> {
    const { checkpoint } = this.options;
    if (!checkpoint) return null;
    const { url, everyMs } = checkpoint;
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
    return { place: url, everySeconds: seconds(everyMs), made, failed, newest: await newestIn(url) };
  }

  /** The report of a run whose processes have ended since it was made: the place may have one more. */
  async atEnd<R extends { checkpoints: CheckpointsReport | null }>(report: R): Promise<R> {
    const { checkpoints: before } = report;
    return before ? { ...report, checkpoints: { ...before, newest: await newestIn(before.place) } } : report;
  }
}

async function newestIn(url: string): Promise<number | null> {
  const listed = await withPlace(url, checkpointNumbers).catch(() => []);
  return listed.at(-1) ?? null;
}

// ---- what is kept beside the checkpoints

const KEPT = 'local-ranges.json';

async function keptRanges(place: Place): Promise<FinishedRange[] | undefined> {
  try {
    return JSON.parse(new TextDecoder().decode(await place.get(KEPT))) as FinishedRange[];
  } catch (error) {
    if (error instanceof KintsugiError && error.code === 'CHECKPOINT_MISSING') return undefined;
    if (error instanceof SyntaxError) throw new KintsugiError('BAD_CHECKPOINT', `${KEPT}: not JSON`);
    throw error;
  }
}

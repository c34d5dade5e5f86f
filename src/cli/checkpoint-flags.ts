/** Flags of commands that make checkpoints: places, and the fields of a save plan. */
import { resolve } from 'node:path';
import { type Command, Option } from 'commander';
import { KintsugiError } from '../common/errors.js';
import { isSamePlace, type SavePlan } from '../protocol/saving.js';
import { checkWritable, openPlace, schemeOf } from '../stores/checkpoint/open.js';
import { RunFailure } from './failure.js';
import { grouped } from './flags.js';
import { duration, integer, size } from './values.js';

export const DEFAULT_EVERY_MS = 5 * 60_000;
export const DEFAULT_KEEP = 3;
/** Variable of a scheduler whose launcher has written to its place a moment ago. */
export const PLACE_TRIED_ENV = 'KINTSUGI_PLACE_TRIED';
/** A place that does not answer for so long at the start may be away for a while. */
const PLACE_MS = 5000;
const MOST_KEPT = 1_000_000;
/** The number of a checkpoint, behind its place. */
const NUMBER = /@\d{1,15}$/;

export interface CheckpointFlags {
  checkpoint?: string;
  every?: number;
  keep?: number;
  checkpointRate?: number;
  barrier?: boolean;
  restore?: string;
}

/**
 * The absolute form of a place: other processes may have other working directories.
 * @throws BAD_ARGUMENT for `PLACE@NUMBER`, which would be a directory of that name; what `schemeOf` throws
 */
export function absolutePlace(url: string): string {
  const number = NUMBER.exec(url)?.[0];
  if (number !== undefined) {
    const text = `a place is needed here, without ${number}; a directory of that name is written "${url}/"`;
    throw new KintsugiError('BAD_ARGUMENT', `${url}: ${text}`);
  }
  if (schemeOf(url) !== undefined) return url;
  const path = resolve(url);
  // Roles parse this again; the slash marks a directory.
  return NUMBER.test(path) ? `${path}/` : path;
}

/**
 * The place that a plan is to have, in the words that the job has for it where it is the one that it has:
 * files of a place are added to under one address. Undefined: there is none.
 */
export function placeOfPlan(place: string | undefined, known: string | undefined): string | undefined {
  const url = place === undefined ? known : absolutePlace(place);
  return url !== undefined && known !== undefined && isSamePlace(url, known) ? known : url;
}

/** Says that a plan has left a place; nothing where it stays, or is new. */
export function movedText(url: string, before = url): string {
  return url === before ? '' : `, no longer to ${before}`;
}

/** Parses `PLACE` or `PLACE@NUMBER`. */
export function placeAndNumber(text: string): { url: string; number: number | undefined } {
  const match = /^(.+)@(\d{1,15})$/.exec(text);
  return match
    ? { url: absolutePlace(match[1]!), number: Number(match[2]) }
    : { url: absolutePlace(text), number: undefined };
}

export function everyOption(what = 'a checkpoint'): Option {
  return new Option('--every <time>', `make ${what} so often; 0s = only when asked`).argParser(
    duration('--every'),
  );
}

export function keepOption(what = 'checkpoints'): Option {
  return new Option('--keep <n>', `keep so many ${what}`).argParser(integer('--keep', 1, MOST_KEPT));
}

/**
 * A checkpoint that was begun and failed is a failed run (exit 1). Without a plan none can begin (exit 2).
 */
export function asFailure(error: unknown): unknown {
  const failed = error instanceof KintsugiError && error.code !== 'BAD_ARGUMENT';
  return failed ? RunFailure.of(error) : error;
}

/** The text of --barrier, in all commands that have it. */
export const BARRIER = 'all shards show one instant: clients hold their pushes for a moment';

/** Adds the flags of a save plan to a command that begins a job. */
export function withCheckpoint(command: Command): Command {
  return grouped(command, 'Checkpoints', (it) =>
    it
      .option(
        '--checkpoint <place>',
        'save everything here: a directory that scheduler and PS share, or s3://bucket/prefix',
      )
      .addOption(everyOption().default(undefined, '5m'))
      .addOption(keepOption().default(undefined, `${DEFAULT_KEEP}`))
      .option(
        '--checkpoint-rate <size>',
        'bytes per second that each PS reads for a checkpoint (default: what requests leave)',
        size('--checkpoint-rate'),
      )
      .option('--barrier', BARRIER, false),
  );
}

export function withRestore(command: Command): Command {
  return grouped(command, 'Checkpoints', (it) =>
    it.option(
      '--restore <place[@number]>',
      'begin with this checkpoint, or with the newest one there, in any shape of the job',
    ),
  );
}

/**
 * The save plan that flags ask for; undefined: no checkpoints. @throws BAD_ARGUMENT for flags without a place
 */
export function planOf(flags: CheckpointFlags): SavePlan | undefined {
  const { checkpoint, every, keep, checkpointRate: rate, barrier } = flags;
  if (checkpoint === undefined) {
    if (every !== undefined || keep !== undefined || rate !== undefined || barrier)
      throw new KintsugiError(
        'BAD_ARGUMENT',
        '--every, --keep, --checkpoint-rate and --barrier need --checkpoint',
      );
    return undefined;
  }
  return {
    url: absolutePlace(checkpoint),
    everyMs: every ?? DEFAULT_EVERY_MS,
    keep: keep ?? DEFAULT_KEEP,
    rate: rate ?? 0,
    kind: 'full job',
    ...(barrier && { barrier: true as const }),
  };
}

/**
 * Opens a place once, so that a bad one is refused before anything is started. @throws BAD_ARGUMENT,
 * DEPENDENCY_MISSING
 */
export async function checkPlace(url: string | undefined): Promise<void> {
  if (url !== undefined) await (await openPlace(url)).close();
}

/**
 * For a command that begins a job: the place can be written. False: there is none, or it does not answer for
 * now. @throws BAD_ARGUMENT, DEPENDENCY_MISSING, PLACE_FAILED
 */
export async function checkPlaceOfJob(url: string | undefined): Promise<boolean> {
  return url !== undefined && (await checkWritable(url, PLACE_MS));
}

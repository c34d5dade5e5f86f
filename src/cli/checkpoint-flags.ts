/** What commands that make checkpoints have in common: places, and the flags of a save plan. */
import { resolve } from 'node:path';
import { type Command, Option } from 'commander';
import { openPlace } from '../checkpoint/open.js';
import { KintsugiError } from '../errors.js';
import type { SavePlan } from '../protocol/saving.js';
import { RunFailure } from './failure.js';
import { duration, integer, size } from './flags.js';

export const DEFAULT_EVERY_MS = 5 * 60_000;
export const DEFAULT_KEEP = 3;
const MOST_KEPT = 1_000_000;
/** Of a checkpoint, behind its place. */
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
 * A place without the number of a checkpoint; absolute, because other processes may have other working
 * directories. @throws BAD_ARGUMENT for `PLACE@NUMBER`, which would be a directory of that name
 */
export function absolutePlace(url: string): string {
  const number = NUMBER.exec(url)?.[0];
  if (number !== undefined) {
    const text = `a place is needed here, without ${number}; a directory of that name is written "${url}/"`;
    throw new KintsugiError('BAD_ARGUMENT', `${url}: ${text}`);
  }
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(url)) return url;
  const path = resolve(url);
  // Others read it again.
  return NUMBER.test(path) ? `${path}/` : path;
}

/** `PLACE` or `PLACE@NUMBER`, of a checkpoint there. */
export function placeAndNumber(text: string): { url: string; number: number | undefined } {
  const match = /^(.+)@(\d{1,15})$/.exec(text);
  return match
    ? { url: absolutePlace(match[1]!), number: Number(match[2]) }
    : { url: absolutePlace(text), number: undefined };
}

export function everyOption(what = 'a checkpoint'): Option {
  return new Option('--every <time>', `${what} so often; 0s = only when it is asked for`).argParser(
    duration('--every'),
  );
}

export function keepOption(what = 'checkpoints'): Option {
  return new Option('--keep <n>', `so many ${what} are kept`).argParser(integer('--keep', 1, MOST_KEPT));
}

/** One that was begun and failed is a failed run; without a plan there is nothing to begin. */
export function asFailure(error: unknown): unknown {
  const failed = error instanceof KintsugiError && error.code !== 'BAD_ARGUMENT';
  return failed ? new RunFailure(error.code, error.message, { cause: error }) : error;
}

/** Of a flag. */
export const BARRIER = 'each is of one instant of all shards: clients hold their pushes for a moment';

/** The plan of a job, for the roles that begin one. */
export function withCheckpoint(command: Command): Command {
  return command
    .option(
      '--checkpoint <place>',
      'a directory that all PS and the scheduler share, or s3://bucket/prefix: everything is saved there ' +
        '(default: do not)',
    )
    .addOption(everyOption().default(undefined, '5m'))
    .addOption(keepOption().default(undefined, `${DEFAULT_KEEP}`))
    .option(
      '--checkpoint-rate <size>',
      'bytes per second that each PS reads for a checkpoint (default: as fast as leaves room for requests)',
      size('--checkpoint-rate'),
    )
    .option('--barrier', BARRIER, false);
}

export function withRestore(command: Command): Command {
  return command.option(
    '--restore <place[@number]>',
    'the job begins with this checkpoint (without a number: the newest one there); PS, code, groups and ' +
      'workers may be others than those that made it (default: empty)',
  );
}

/** The plan that flags ask for; undefined: none. @throws BAD_ARGUMENT for flags without a place */
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

/** A place that cannot be is refused before anything is started. @throws BAD_ARGUMENT, DEPENDENCY_MISSING */
export async function checkPlace(url: string | undefined): Promise<void> {
  if (url !== undefined) await (await openPlace(url)).close();
}

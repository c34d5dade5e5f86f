/** `kintsugi checkpoint`: makes checkpoints of a running job, and looks after those of a place. */
import { type Command, Option } from 'commander';
import { KintsugiError } from '../common/errors.js';
import { bytesText, countText, table, timeText } from '../fleet/local/text.js';
import { setSavePlan } from '../library/tools/checkpoints.js';
import { CHECKPOINT_PLAN, type SavePlan } from '../protocol/saving.js';
import type { PlanStatus } from '../protocol/status.js';
import { listCheckpoints } from '../stores/checkpoint/checkpoints.js';
import { compactCheckpoint } from '../stores/checkpoint/compact.js';
import { withExistingPlace } from '../stores/checkpoint/open.js';
import { purgePlace } from '../stores/checkpoint/purge.js';
import { deleteCheckpoint } from '../stores/checkpoint/retention.js';
import { verifyCheckpoint } from '../stores/checkpoint/verify.js';
import {
  absolutePlace,
  asFailure,
  BARRIER,
  DEFAULT_EVERY_MS,
  DEFAULT_KEEP,
  everyOption,
  keepOption,
  movedText,
  placeAndNumber,
  placeOfPlan,
} from './checkpoint-flags.js';
import { type ConnectFlags, withClient } from './connected.js';
import { RunFailure } from './failure.js';
import { withScheduler } from './flags.js';
import { hint } from './hints.js';
import { size } from './values.js';

interface JobFlags extends ConnectFlags {
  json: boolean;
}
interface SetFlags extends ConnectFlags {
  every?: number;
  keep?: number;
  rate?: number;
  barrier?: boolean;
  off: boolean;
}
interface PlaceFlags {
  json: boolean;
}
interface CompactFlags extends PlaceFlags {
  purge: boolean;
}
interface DeleteFlags extends PlaceFlags {
  newest: boolean;
}

function print(json: boolean, value: unknown, text: string): void {
  process.stdout.write(json ? `${JSON.stringify(value)}\n` : `${text}\n`);
}

// ---- a running job

/** `checkpoint now` takes no argument, so BAD_ARGUMENT means that the job has no save plan. */
function notMade(error: unknown, flags: JobFlags): unknown {
  if (!(error instanceof KintsugiError && error.code === 'BAD_ARGUMENT')) return asFailure(error);
  const command = hint(['checkpoint', 'set', 'PLACE'], flags);
  const text = `the job has no place for checkpoints: give it one with "${command}"`;
  return new KintsugiError('BAD_ARGUMENT', text, { cause: error });
}

async function runNow(flags: JobFlags): Promise<void> {
  const made = await withClient(flags, (client) =>
    client.checkpoint().catch((error: unknown) => Promise.reject(notMade(error, flags))),
  );
  const { number, rows, bytes, tookMs } = made;
  const text = `checkpoint ${number}: ${countText(rows)} rows, ${bytesText(bytes)} in ${timeText(tookMs)}`;
  print(flags.json, made, text);
}

async function runSet(place: string | undefined, flags: SetFlags): Promise<void> {
  const { off, every, keep, rate, barrier } = flags;
  if (off && (place ?? every ?? keep ?? rate ?? barrier) !== undefined)
    throw new KintsugiError('BAD_ARGUMENT', 'checkpoint set --off takes nothing else');
  const text = await withClient(flags, async (client) => {
    if (off) {
      await setSavePlan(client, CHECKPOINT_PLAN);
      return 'no checkpoints are made any more';
    }
    const known = (await client.status()).saving?.find(({ name }) => name === CHECKPOINT_PLAN);
    const plan = changed(known, place, flags);
    await setSavePlan(client, CHECKPOINT_PLAN, plan);
    const often = plan.everyMs === 0 ? 'when it is asked for' : `every ${timeText(plan.everyMs)}`;
    return `checkpoints to ${plan.url} ${often}, ${plan.keep} are kept${movedText(plan.url, known?.url)}`;
  });
  process.stdout.write(`${text}\n`);
}

/** The plan of the job with what the flags change. */
function changed(known: PlanStatus | undefined, place: string | undefined, flags: SetFlags): SavePlan {
  const url = placeOfPlan(place, known?.url);
  if (url === undefined)
    throw new KintsugiError('BAD_ARGUMENT', 'the job makes no checkpoints yet: checkpoint set needs a place');
  return {
    url,
    everyMs: flags.every ?? known?.everyMs ?? DEFAULT_EVERY_MS,
    keep: flags.keep ?? known?.keep ?? DEFAULT_KEEP,
    rate: flags.rate ?? known?.rate ?? 0,
    kind: 'full job',
    ...((flags.barrier ?? known?.barrier) && { barrier: true as const }),
  };
}

// ---- a place

async function runList(text: string, flags: PlaceFlags): Promise<void> {
  const url = absolutePlace(text);
  const all = await withExistingPlace(url, listCheckpoints);
  if (flags.json) return print(true, all, '');
  if (all.length === 0) return print(false, all, `${url} has no complete checkpoint`);
  const rows = all.map((each) => {
    const { number, problem, kind, createdAt, barrier, shards, rows: n, bytes, ownBytes } = each;
    if (problem !== undefined) return [`${number}`, `damaged: ${problem}`];
    const cut = barrier ? 'one instant' : 'shard by shard';
    const sizes = [`${shards}`, countText(n!), bytesText(bytes!), bytesText(ownBytes!)];
    return [`${number}`, createdAt!, kind!, cut, ...sizes];
  });
  const head = ['number', 'taken at', 'kind', 'cut', 'shards', 'rows', 'bytes', 'new bytes'];
  print(false, all, table(head, rows, 4).join('\n'));
}

async function runVerify(text: string, flags: PlaceFlags): Promise<void> {
  const { url, number } = placeAndNumber(text);
  const found = await withExistingPlace(url, (place) => verifyCheckpoint(place, number));
  const { bad, files, bytes } = found;
  const whole = `checkpoint ${found.number} is whole: ${files} files, ${bytesText(bytes)}`;
  if (bad.length === 0) return print(flags.json, found, whole);
  if (flags.json) print(true, found, '');
  const problems = bad.map(({ name, problem }) => `${name}: ${problem}`).join('; ');
  throw new RunFailure('BAD_CHECKPOINT', `checkpoint ${found.number}: ${problems}`);
}

async function runPurge(text: string, flags: CompactFlags): Promise<void> {
  const purged = await withExistingPlace(absolutePlace(text), (place) => purgePlace(place));
  const { number, compactionOf, rows, bytes, removed } = purged;
  const sizes = `${countText(rows)} rows, ${bytesText(bytes)}`;
  const what = compactionOf === undefined ? 'is as it was' : `has the content of ${compactionOf}`;
  const gone = `${removed.checkpoints.length} checkpoints and ${removed.files} files are removed`;
  print(flags.json, purged, `checkpoint ${number} ${what}: ${sizes}; ${gone}`);
}

async function runCompact(text: string, flags: CompactFlags): Promise<void> {
  if (flags.purge) return runPurge(text, flags);
  const { number, compactionOf, rows, bytes } = await withExistingPlace(absolutePlace(text), (place) =>
    compactCheckpoint(place),
  );
  const made = { number, compactionOf, rows, bytes };
  const sizes = `${countText(rows)} rows, ${bytesText(bytes)}`;
  print(flags.json, made, `checkpoint ${number} has the content of ${compactionOf}: ${sizes}`);
}

async function runDelete(text: string, flags: DeleteFlags): Promise<void> {
  const { url, number } = placeAndNumber(text);
  if (number === undefined)
    throw new KintsugiError('BAD_ARGUMENT', `checkpoint delete needs a number: ${text}@NUMBER`);
  const removed = await withExistingPlace(url, (place) =>
    deleteCheckpoint(place, number, { newest: flags.newest }),
  );
  const { files, bytes } = removed;
  print(flags.json, removed, `checkpoint ${number} is deleted: ${files} files, ${bytesText(bytes)}`);
}

export function registerCheckpoint(program: Command): void {
  const command = program
    .command('checkpoint')
    .description('Checkpoints of a running job, and those that a place has.');
  withScheduler(
    command
      .command('now')
      .description('Make a checkpoint of a running job now, and wait until it is complete.'),
  )
    .option('--json', 'print the result as JSON', false)
    .action(runNow);
  withScheduler(
    command
      .command('set')
      .description('Change where and how often a running job makes checkpoints; durable, part of the job.')
      .argument('[place]', 'directory or s3://bucket/prefix (default: where it makes them now)'),
  )
    .addOption(everyOption().default(undefined, 'as it is, at first 5m'))
    .addOption(keepOption().default(undefined, `as it is, at first ${DEFAULT_KEEP}`))
    .addOption(
      new Option('--rate <size>', 'bytes per second that each PS reads for it; 0 = what requests leave')
        .argParser(size('--rate'))
        .default(undefined, 'as it is, at first 0'),
    )
    .option('--barrier', BARRIER)
    .option('--no-barrier', 'each shard shows a moment of its own (default: as it is, at first so)')
    .option('--off', 'make no more checkpoints', false)
    .action(runSet);
  const ofPlace = (name: string, argument: string, meaning: string, description: string) =>
    command
      .command(name)
      .description(description)
      .argument(argument, meaning)
      .option('--json', 'print the result as JSON', false);
  const place = 'directory or s3://bucket/prefix';
  const one = `${place}, and the number of a checkpoint`;
  ofPlace('list', '<place>', place, 'List the complete checkpoints of a place.').action(runList);
  ofPlace(
    'verify',
    '<place[@number]>',
    `${one} (default: the newest)`,
    'Read every file that a checkpoint needs, and check its content.',
  ).action(runVerify);
  ofPlace(
    'compact',
    '<place>',
    place,
    'Write the newest checkpoint again with every row once, under the next number.',
  )
    .option('--purge', 'remove all others, so that no file has a row that was deleted or replaced', false)
    .action(runCompact);
  ofPlace('delete', '<place@number>', one, 'Delete a checkpoint, and the files that no other one needs.')
    .option('--newest', 'also when it is the newest, on which the next one builds', false)
    .action(runDelete);
}

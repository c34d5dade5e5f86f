/** `kintsugi export`: writes the values of tables for programs that serve them, once or again and again. */
import type { Command } from 'commander';
import { KintsugiError } from '../common/errors.js';
import { MOST_LIFE } from '../engine/policies.js';
import { bytesText, countText, timeText } from '../fleet/local/text.js';
import type { Client } from '../library/client/client.js';
import { saveNow, setSavePlan } from '../library/tools/checkpoints.js';
import { CHECKPOINT_PLAN, isSamePlace, type SavePlan, servedRows } from '../protocol/saving.js';
import type { PlanStatus } from '../protocol/status.js';
import {
  asFailure,
  DEFAULT_KEEP,
  everyOption,
  keepOption,
  movedText,
  placeOfPlan,
} from './checkpoint-flags.js';
import { type ConnectFlags, withClient } from './connected.js';
import { withScheduler } from './flags.js';
import { hint } from './hints.js';
import { ages, integer, size } from './values.js';

const DEFAULT_EVERY_MS = 20_000;
/** The name of the exports of a job that has one kind of them. */
const EXPORTS = 'export';

interface ExportFlags extends ConnectFlags {
  name: string;
  every?: number;
  tables?: string[];
  keep?: number;
  rate?: number;
  minFrequency?: number;
  maxAge?: ReturnType<ReturnType<typeof ages>>;
  once: boolean;
  stop: boolean;
  json: boolean;
}

/** Words of other commands, which would name folders here, with what they may have meant. */
const NO_PLACES: Readonly<Record<string, string>> = { once: 'export --once', stop: 'export --stop' };

/** `export now`: one more by the plan that the job has, which stays as it is. */
async function runNow(flags: ExportFlags): Promise<void> {
  const { name, once, stop } = flags;
  if (once || stop || changes(flags))
    throw new KintsugiError('BAD_ARGUMENT', 'export now takes nothing else than --name and --json');
  const text = await withClient(flags, async (client) => {
    const known = (await client.status()).saving?.find((plan) => plan.name === name);
    if (known) return made(client, flags, known.last?.number);
    const command = hint(['export', 'PLACE', ...(name === EXPORTS ? [] : ['--name', name])], flags);
    const problem = `the job has no place for exports "${name}": give it one with "${command}"`;
    throw new KintsugiError('BAD_ARGUMENT', problem);
  });
  process.stdout.write(`${text}\n`);
}

/** A flag says how the plan is to be. */
const changes = ({ every, tables, keep, rate, minFrequency, maxAge }: ExportFlags): boolean =>
  (every ?? tables ?? keep ?? rate ?? minFrequency ?? maxAge) !== undefined;

async function run(place: string | undefined, flags: ExportFlags): Promise<void> {
  const { name, stop, once } = flags;
  if (name === CHECKPOINT_PLAN)
    throw new KintsugiError('BAD_ARGUMENT', `"${name}" is the name of the plan of checkpoints`);
  if (place === 'now') return runNow(flags);
  const meant = NO_PLACES[place ?? ''];
  if (meant !== undefined) {
    const folder = `a directory of that name is written "./${place}"`;
    const text = `"${place}" is no place: kintsugi ${meant}; ${folder}`;
    throw new KintsugiError('BAD_ARGUMENT', text);
  }
  if (stop && (once || place !== undefined || changes(flags)))
    throw new KintsugiError('BAD_ARGUMENT', 'export --stop takes nothing else than --name');
  const text = await withClient(flags, async (client) => {
    const plans = (await client.status()).saving ?? [];
    if (stop) return stopped(client, name, plans);
    const known = plans.find((each) => each.name === name);
    const plan = planOf(place, flags, plans, client);
    await setSavePlan(client, name, plan);
    const movedFrom = known?.url === plan.url ? undefined : known?.url;
    if (once)
      return made(client, flags, movedFrom === undefined ? known?.last?.number : undefined, movedFrom);
    const often = plan.everyMs === 0 ? 'when it is asked for' : `every ${timeText(plan.everyMs)}`;
    const tables = plan.tables?.join(', ') ?? 'all tables';
    return `exports of ${tables} to ${plan.url} ${often}${movedText(plan.url, known?.url)}`;
  });
  process.stdout.write(`${text}\n`);
}

async function stopped(client: Client, name: string, plans: readonly PlanStatus[]): Promise<string> {
  if (!plans.some((plan) => plan.name === name))
    throw new KintsugiError('BAD_ARGUMENT', `the job makes no exports of the name "${name}"`);
  await setSavePlan(client, name);
  return `no exports "${name}" are made any more`;
}

/**
 * Has an export made.
 * @param newest the number of the newest export until now, which the job answers when nothing has changed
 * @param movedFrom the place that these exports had until now, if it was another one
 */
async function made(
  client: Client,
  { name, json }: ExportFlags,
  newest?: number,
  movedFrom?: string,
): Promise<string> {
  const { number, rows, bytes, tookMs } = await saveNow(client, name).catch((error: unknown) =>
    Promise.reject(asFailure(error)),
  );
  const unchanged = number === newest;
  if (json) {
    const more = { ...(unchanged && { unchanged }), ...(movedFrom !== undefined && { movedFrom }) };
    return JSON.stringify({ number, rows, bytes, tookMs, ...more });
  }
  if (unchanged) return `nothing has changed since export ${number}: no other one was made`;
  const moved = movedFrom === undefined ? '' : `; exports go there from now on, no longer to ${movedFrom}`;
  return `export ${number}: ${countText(rows)} rows, ${bytesText(bytes)} in ${timeText(tookMs)}${moved}`;
}

/** The plan of this name with what the flags change, in another place, too. @throws BAD_ARGUMENT */
function planOf(
  place: string | undefined,
  { name, every, tables, keep, rate, once, ...flags }: ExportFlags,
  plans: readonly PlanStatus[],
  client: Client,
): SavePlan {
  const known = plans.find((plan) => plan.name === name);
  const url = placeOfPlan(place, known?.url);
  if (url === undefined)
    throw new KintsugiError('BAD_ARGUMENT', `the job makes no exports "${name}" yet: export needs a place`);
  // Two plans with one place would remove each other's files.
  const other = plans.find((plan) => plan.name !== name && isSamePlace(plan.url, url));
  if (other)
    throw new KintsugiError('BAD_ARGUMENT', `${url} is the place of "${other.name}"; take another one`);
  if (once && every === undefined && known && known.everyMs > 0 && known.url !== url) {
    const often = `"${name}" are made every ${timeText(known.everyMs)} at ${known.url}`;
    const choice = 'give this one a --name of its own, or move them with --every';
    throw new KintsugiError('BAD_ARGUMENT', `exports ${often}, and would end there: ${choice}`);
  }
  for (const table of tables ?? []) client.table(table);
  const chosen = tables ?? known?.tables;
  const { minFrequency = known?.served?.minFrequency ?? 0 } = flags;
  const { maxAge = 0, maxAgeSeconds = 0 } = flags.maxAge ?? known?.served ?? {};
  const served = servedRows(minFrequency, maxAge, maxAgeSeconds);
  return {
    url,
    everyMs: every ?? known?.everyMs ?? (once ? 0 : DEFAULT_EVERY_MS),
    keep: keep ?? known?.keep ?? DEFAULT_KEEP,
    rate: rate ?? known?.rate ?? 0,
    kind: 'export',
    ...(chosen && { tables: chosen }),
    ...(served && { served }),
  };
}

/** Parses `a,b`. @throws BAD_ARGUMENT */
function names(text: string): string[] {
  const all = text.split(',');
  if (all.some((name) => name === '') || new Set(all).size < all.length)
    throw new KintsugiError('BAD_ARGUMENT', `--tables needs names with commas between, not "${text}"`);
  return all;
}

export function registerExport(program: Command): void {
  withScheduler(
    program
      .command('export')
      .description(
        'Write the values of tables of a running job to a place again and again; durable, part of the job.',
      )
      .argument(
        '[place]',
        'directory or s3://bucket/prefix (default: as it is), or "now": make one there and wait',
      ),
  )
    .addOption(everyOption('an export').default(undefined, 'as it is, at first 20s'))
    .option('--tables <names>', 'tables, with commas between (default: as it is, at first all)', names)
    .addOption(keepOption('exports').default(undefined, `as it is, at first ${DEFAULT_KEEP}`))
    .option(
      '--rate <size>',
      'bytes per second that each PS reads; 0 = what requests leave (default: as it is, at first 0)',
      size('--rate'),
    )
    .option(
      '--min-frequency <n>',
      'only rows that were seen n times, of tables with a policy; 0 = all (default: as it is)',
      integer('--min-frequency', 0, MOST_LIFE),
    )
    .option(
      '--max-age <steps|time>',
      'only rows last seen so long ago: 2000, 24h where ttls are times, or 2000,24h; 0 = all ' +
        '(default: as it is)',
      ages('--max-age'),
    )
    .option('--name <name>', 'name of these exports, where a job has several', EXPORTS)
    .option('--once', 'make one now and wait for it; more only with --every', false)
    .option('--stop', 'make no more of this name', false)
    .option('--json', 'with "now" or --once: print the result as JSON', false)
    .action(run);
}

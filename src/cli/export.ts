/** `kintsugi export`: values of tables for those that serve them, again and again or once. */
import type { Command } from 'commander';
import type { Client } from '../client/client.js';
import { KintsugiError } from '../errors.js';
import { bytesText, countText, timeText } from '../local/text.js';
import { CHECKPOINT_PLAN, isSamePlace, type SavePlan } from '../protocol/saving.js';
import type { PlanStatus } from '../protocol/status.js';
import { saveNow, setSavePlan } from '../tools/checkpoints.js';
import { absolutePlace, asFailure, DEFAULT_KEEP, everyOption, keepOption } from './checkpoint-flags.js';
import { type ConnectFlags, withClient } from './connected.js';
import { size, withScheduler } from './flags.js';

const DEFAULT_EVERY_MS = 20_000;

interface Flags extends ConnectFlags {
  name: string;
  every?: number;
  tables?: string[];
  keep?: number;
  rate?: number;
  once: boolean;
  stop: boolean;
  json: boolean;
}

async function run(place: string | undefined, flags: Flags): Promise<void> {
  const { name, stop, once } = flags;
  if (name === CHECKPOINT_PLAN)
    throw new KintsugiError('BAD_ARGUMENT', `"${name}" is the name of the plan of checkpoints`);
  const { every, tables, keep, rate } = flags;
  if (stop && (once || (place ?? every ?? tables ?? keep ?? rate) !== undefined))
    throw new KintsugiError('BAD_ARGUMENT', 'export --stop takes nothing else than --name');
  const text = await withClient(flags, async (client) => {
    const plans = (await client.status()).saving ?? [];
    if (stop) return stopped(client, name, plans);
    const plan = planOf(place, flags, plans, client);
    await setSavePlan(client, name, plan);
    if (once) return made(client, flags);
    const often = plan.everyMs === 0 ? 'when it is asked for' : `every ${timeText(plan.everyMs)}`;
    return `exports of ${plan.tables?.join(', ') ?? 'all tables'} to ${plan.url} ${often}`;
  });
  process.stdout.write(`${text}\n`);
}

async function stopped(client: Client, name: string, plans: readonly PlanStatus[]): Promise<string> {
  if (!plans.some((plan) => plan.name === name))
    throw new KintsugiError('BAD_ARGUMENT', `the job makes no exports of the name "${name}"`);
  await setSavePlan(client, name);
  return `no exports "${name}" are made any more`;
}

async function made(client: Client, { name, json }: Flags): Promise<string> {
  const { number, rows, bytes, tookMs } = await saveNow(client, name).catch((error: unknown) =>
    Promise.reject(asFailure(error)),
  );
  if (json) return JSON.stringify({ number, rows, bytes, tookMs });
  return `export ${number}: ${countText(rows)} rows, ${bytesText(bytes)} in ${timeText(tookMs)}`;
}

/** What the job exports under this name, with what the flags change. Another place begins anew. */
function planOf(
  place: string | undefined,
  { name, every, tables, keep, rate, once }: Flags,
  plans: readonly PlanStatus[],
  client: Client,
): SavePlan {
  const known = plans.find((plan) => plan.name === name);
  const url = place === undefined ? known?.url : absolutePlace(place);
  if (url === undefined)
    throw new KintsugiError('BAD_ARGUMENT', `the job makes no exports "${name}" yet: export needs a place`);
  // Each would remove the files of the other one.
  const other = plans.find((plan) => plan.name !== name && isSamePlace(plan.url, url));
  if (other)
    throw new KintsugiError('BAD_ARGUMENT', `${url} is the place of "${other.name}"; take another one`);
  for (const table of tables ?? []) client.table(table);
  const before = known?.url === url ? known : undefined;
  const chosen = tables ?? before?.tables;
  return {
    url,
    everyMs: every ?? before?.everyMs ?? (once ? 0 : DEFAULT_EVERY_MS),
    keep: keep ?? before?.keep ?? DEFAULT_KEEP,
    rate: rate ?? before?.rate ?? 0,
    kind: 'export',
    ...(chosen && { tables: chosen }),
  };
}

/** `a,b`. @throws BAD_ARGUMENT */
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
      .argument('[place]', 'directory or s3://bucket/prefix (default: where it exports to now)'),
  )
    .addOption(everyOption('an export').default(undefined, 'as it is, at first 20s'))
    .option(
      '--tables <names>',
      'names of the tables, with commas between (default: as it is, at first all)',
      names,
    )
    .addOption(keepOption('exports').default(undefined, `as it is, at first ${DEFAULT_KEEP}`))
    .option(
      '--rate <size>',
      'bytes per second that each PS reads; 0 = as leaves room for requests (default: as it is, at first 0)',
      size('--rate'),
    )
    .option('--name <name>', 'of these exports, where a job makes several', 'export')
    .option('--once', 'make one now, and wait until it is complete; without --every no further ones', false)
    .option('--stop', 'make none of this name any more', false)
    .option('--json', 'with --once: print the result as JSON', false)
    .action(run);
}

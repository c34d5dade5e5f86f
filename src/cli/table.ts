/**
 * `kintsugi table`: lists and shows the tables of a running job, changes their settings, deletes rows, counts
 * rows that a policy would let go, and drops tables.
 */

import { type Command, Option } from 'commander';
import { KintsugiError } from '../common/errors.js';
import { SETTING_FLAGS, type Setting, settingText } from '../engine/optimizers.js';
import { LIFE_REASONS, policyText, type TablePolicy } from '../engine/policies.js';
import type { ScheduleSpec } from '../engine/schedules.js';
import { bytesText, countText, harmless, lifeText, table } from '../fleet/local/text.js';
import type { TableChanges } from '../library/client/options.js';
import { plannedEvictions } from '../library/tools/evictions.js';
import { listTables, showTable, type TableInfo } from '../library/tools/tables.js';
import { saidWhile } from '../net/repeats.js';
import { type ConnectFlags, withClient } from './connected.js';
import { policyOf, scheduleSpec, withScheduler } from './flags.js';
import { hint } from './hints.js';
import { keysOfFile } from './keys-file.js';
import { decimal, integer, seconds } from './values.js';

const LIMIT = 100;

interface ShowFlags extends ConnectFlags {
  json: boolean;
}
interface ListFlags extends ShowFlags {
  limit: number;
  after?: string;
}

interface DeleteRowsFlags extends ShowFlags {
  keys: string;
}

interface TableSetFlags extends ShowFlags {
  tablePolicy?: TablePolicy;
}

interface EvictFlags extends ShowFlags {
  dryRun: boolean;
  tablePolicy?: TablePolicy;
  steps?: number;
  time?: number;
}

/** `adagrad lr=0.05 eps=1e-8`: a kind and its parameters, also those of a schedule. */
function kindText({ kind, ...parameters }: { kind: string }): string {
  const texts = Object.entries(parameters)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => {
      const isKind = typeof value === 'object' && value !== null;
      return `${name}=${isKind ? `(${kindText(value as { kind: string })})` : String(value)}`;
    });
  return [kind, ...texts].join(' ');
}

const unheard = (missing: readonly string[]): string[] =>
  missing.length > 0 ? [`without the rows of ${missing.join(', ')}: no answer`] : [];

function print(json: boolean, value: unknown, lines: () => string[]): void {
  process.stdout.write(json ? `${JSON.stringify(value)}\n` : harmless(`${lines().join('\n')}\n`));
}

function listRow({ name, pool, dim, optimizer, initializer, shards, rows, bytes }: TableInfo): string[] {
  const kinds = [kindText(optimizer), kindText(initializer)];
  return [name, pool, ...kinds, `${dim}`, `${shards}`, countText(rows), bytesText(bytes)];
}

async function runList(flags: ListFlags): Promise<void> {
  const { limit, after } = flags;
  const page = await withClient(flags, (client) => listTables(client, { limit, after }));
  const { tables, total, next, missing } = page;
  print(flags.json, page, () => {
    if (total === 0) return ['the job has no tables'];
    if (tables.length === 0) return [`no name of its ${countText(total)} tables is above "${after}"`];
    const heads = ['table', 'pool', 'optimizer', 'initializer', 'dim', 'shards', 'rows', 'memory'];
    const lines = [...table(heads, tables.map(listRow), 4), ...unheard(missing)];
    if (next === undefined) return lines;
    const more = limit === LIMIT ? [] : ['--limit', `${limit}`];
    const command = hint(['table', 'list', '--after', next, ...more], flags);
    return [...lines, `${tables.length} of ${countText(total)} tables; the next ones: ${command}`];
  });
}

async function runShow(name: string, flags: ShowFlags): Promise<void> {
  const { table: info, missing } = await withClient(flags, (client) => showTable(client, name));
  const { pool, dim, optimizer, initializer, seed, policy, policyVersion = 1 } = info;
  const { shards, rows, bytes, life } = info;
  const version = policyVersion > 1 ? `, version ${policyVersion}` : '';
  print(flags.json, { ...info, missing }, () => {
    const pairs = [
      ['table', info.name],
      ['pool', pool],
      ['dim', `${dim}`],
      ['optimizer', kindText(optimizer)],
      ['initializer', kindText(initializer)],
      ['seed', `${seed}`],
      ['policy', policy ? `${policyText(policy)}${version}` : 'none'],
      ['shards', `${shards}`],
      ['rows', countText(rows)],
      ['memory', bytesText(bytes)],
      ...(life ? [['gone', lifeText(life)] as const] : []),
      ...Object.entries(life?.nodes ?? {}).map(([node, each]) => [`  on ${node}`, lifeText(each)] as const),
    ] as const;
    return [...pairs.map(([head, value]) => `${head.padEnd(12)} ${value}`), ...unheard(missing)];
  });
}

const NAMES = Object.keys(SETTING_FLAGS) as Setting[];
const TAKEN = 'lr=NUMBER, clip-norm=NUMBER or none, lr-schedule=KIND,NAME=NUMBER,... or none, each once';

/** `none` takes a clip or a schedule away. Undefined: it is no number. */
function settingOf(name: Setting, text: string): number | ScheduleSpec | null | undefined {
  if (name !== 'lr' && text === 'none') return null;
  if (name === 'schedule') return scheduleSpec(text, SETTING_FLAGS[name]);
  const number = decimal(text);
  return Number.isNaN(number) ? undefined : number;
}

/** The changes of `lr=0.01 clip-norm=1`. @throws BAD_ARGUMENT */
function changesOf(settings: readonly string[], policy: TablePolicy | undefined): TableChanges {
  const changes: Record<string, unknown> = policy ? { policy } : {};
  if (settings.length === 0 && !policy)
    throw new KintsugiError('BAD_ARGUMENT', `nothing is to change: it takes ${TAKEN}, or --table-policy`);
  for (const setting of settings) {
    const [, flag, text] = /^([a-z-]+)=(.+)$/.exec(setting.trim()) ?? [];
    const name = NAMES.find((each) => SETTING_FLAGS[each] === flag);
    const value = name && !Object.hasOwn(changes, name) ? settingOf(name, text!) : undefined;
    if (value === undefined) {
      const others = 'but for --table-policy, nothing else of a table can change';
      const wrong = `"${settings.join(' ')}" must be ${TAKEN}: ${others}`;
      throw new KintsugiError('BAD_ARGUMENT', wrong);
    }
    changes[name!] = value;
  }
  return changes as TableChanges;
}

/** A change is carried out when it is durable; the command may be ended then, and begun again. */
function saidAsItWaits(change: Promise<void>, flags: ShowFlags): Promise<void> {
  const why = 'waits until every owner of a shard has the change';
  return saidWhile(change, (repeated) => {
    const again = repeated === undefined ? '' : ' still';
    process.stderr.write(`kintsugi:${again} ${why}; which PS are missing: ${hint(['doctor'], flags)}\n`);
  });
}

async function runSet(name: string, settings: string[], flags: TableSetFlags): Promise<void> {
  const changes = changesOf(settings, flags.tablePolicy);
  const { optimizer, policy } = await withClient(flags, async (client) => {
    const table = client.table(name);
    const before = table.spec;
    await saidAsItWaits(table.set(changes), flags);
    return before;
  });
  const changed = NAMES.filter((each) => changes[each] !== undefined);
  const was = Object.fromEntries([
    ...changed.map((each) => [each, optimizer[each] ?? null]),
    ...(changes.policy ? [['policy', policy]] : []),
  ]);
  print(flags.json, { table: name, ...changes, was }, () => {
    const texts = changed.map((each) => {
      const [old, now] = [settingText(optimizer[each]), settingText(changes[each] ?? undefined)];
      return `${SETTING_FLAGS[each]} ${old} -> ${now}`;
    });
    if (changes.policy) texts.push(`policy ${policyText(policy!)} -> ${policyText(changes.policy)}`);
    return [`table ${name}: ${texts.join('; ')}`];
  });
}

async function runDrop(name: string, flags: ShowFlags): Promise<void> {
  await withClient(flags, (client) => saidAsItWaits(client.table(name).drop(), flags));
  print(flags.json, { dropped: name }, () => [`table ${name} is dropped`]);
}

/** @throws BAD_ARGUMENT, BAD_DATA, UNKNOWN_TABLE */
async function runDelete(name: string, flags: DeleteRowsFlags): Promise<void> {
  let count = 0;
  // A line that is no key is an error before a row is deleted. A pipe can be read once.
  const lists: BigUint64Array[] = [];
  for await (const keys of keysOfFile(flags.keys)) {
    lists.push(keys);
    count += keys.length;
  }
  await withClient(flags, async (client) => {
    const rows = client.table(name);
    for (const keys of lists) await rows.delete(keys);
  });
  print(flags.json, { table: name, keys: count }, () => [
    `table ${name}: rows of ${countText(count)} keys are deleted`,
  ]);
}

/** @throws BAD_ARGUMENT, UNKNOWN_TABLE */
async function runEvict(name: string, flags: EvictFlags): Promise<void> {
  const { dryRun, tablePolicy: policy, steps, time } = flags;
  if (!dryRun) {
    const why = 'rows go by themselves, by the policy of their table; --dry-run counts those that would';
    throw new KintsugiError('BAD_ARGUMENT', `table evict: ${why}`);
  }
  const made = await withClient(flags, (client) =>
    plannedEvictions(client, name, { policy, steps, seconds: time }),
  );
  print(flags.json, { table: name, ...made }, () => {
    const { rows, expired, rare, faint, displaced, refused, waiting, bytes } = made;
    const pairs = [
      ['table', name],
      ['policy', policyText(made.policy)],
      ['rows', countText(rows)],
      ['would go', `${countText(expired + rare + faint + displaced)}, ${bytesText(bytes)}`],
      [`  ${LIFE_REASONS.expired}`, countText(expired)],
      [`  ${LIFE_REASONS.rare}`, countText(rare)],
      [`  ${LIFE_REASONS.faint}`, countText(faint)],
      [`  ${LIFE_REASONS.displaced}`, countText(displaced)],
      [LIFE_REASONS.refused, `${countText(refused)} of those that stay`],
      ['gone already', `${countText(waiting)}, and their memory is not free yet`],
    ];
    const passed = made.seconds ? `${countText(made.seconds)} seconds` : `${countText(made.steps)} steps`;
    const then = steps || time ? [`as if ${passed} passed in which no row is seen`] : [];
    const memory = made.policy.memory ? ['by memory rows go only when new ones come: none is counted'] : [];
    return [...pairs.map(([head, value]) => `${head!.padEnd(18)} ${value}`), ...then, ...memory];
  });
}

export function registerTable(program: Command): void {
  const command = program.command('table').description('The tables of a running job.');
  withScheduler(
    command.command('list').description('List tables by their names, with their parameters and sizes.'),
  )
    .addOption(
      new Option('--limit <n>', 'tables that are listed').argParser(integer('--limit', 1)).default(LIMIT),
    )
    .option('--after <name>', 'begin above this name: the last one of the page before')
    .option('--json', 'print JSON: tables, total, next and missing', false)
    .action(runList);
  withScheduler(
    command
      .command('show')
      .description('Show one table: its parameters, and how large it is.')
      .argument('<name>', 'name of the table'),
  )
    .option('--json', 'print JSON', false)
    .action(runShow);
  withScheduler(
    command
      .command('set')
      .description('Change learning rate, clipping, schedule or policy of a table, while the job trains.')
      .argument('<name>', 'name of the table')
      .argument('[setting...]', TAKEN),
  )
    .option(
      '--table-policy <policy>',
      '"admit=counter(2),evict=ttl(2000)", in place of the whole policy of a table that has one',
      policyOf,
    )
    .option('--json', 'print JSON: table, what is set, and was', false)
    .action(runSet);
  withScheduler(
    command
      .command('evict')
      .description('Count the rows of a table that would go under a policy, by reason, and change none.')
      .argument('<name>', 'name of the table, which has a policy'),
  )
    .option('--dry-run', 'must be given: rows go by themselves', false)
    .option(
      '--table-policy <policy>',
      '"admit=counter(2),evict=ttl(2000)" (default: that of the table)',
      policyOf,
    )
    .option(
      '--steps <n>',
      'as if so many steps passed in which no row is seen (default: 0)',
      integer('--steps', 0),
    )
    .option('--time <time>', 'the same for a table whose ttls are times, such as 24h', seconds('--time'))
    .option('--json', 'print JSON: table, policy, steps, rows, and how many of them by reason', false)
    .action(runEvict);
  withScheduler(
    command
      .command('drop')
      .description('Drop a table with all its rows, durably: its name is free, and no row comes back.')
      .argument('<name>', 'name of the table'),
  )
    .option('--json', 'print JSON: dropped', false)
    .action(runDrop);
  withScheduler(
    command
      .command('delete')
      .description('Delete rows of a table with their optimizer state, as durably as a push.')
      .argument('<name>', 'name of the table'),
  )
    .requiredOption('--keys <file>', 'text file with a key in each line')
    .option('--json', 'print JSON: table and keys', false)
    .action(runDelete);
}

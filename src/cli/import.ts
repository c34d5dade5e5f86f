/** `kintsugi import FILE...`: sets rows of a table to embeddings that were trained before. */
import { type Command, Option } from 'commander';
import { KintsugiError } from '../common/errors.js';
import { VECTOR_ENDINGS } from '../data/formats.js';
import { readSchema } from '../data/parse-schema.js';
import { expandPaths } from '../data/paths.js';
import type { KeyKind, SchemaTable, SparseColumn } from '../data/schema.js';
import { OPTIMIZER_KINDS, type Setting } from '../engine/optimizers.js';
import { scheduleText, wholeSchedule } from '../engine/schedules.js';
import { countText } from '../fleet/local/text.js';
import type { Client } from '../library/client/client.js';
import { importRows } from '../library/tools/import.js';
import type { TableSpec } from '../protocol/map.js';
import { hadBefore } from '../protocol/settings.js';
import { type ConnectFlags, withClient } from './connected.js';
import { embeddingOptimizer, type OptimizerFlags, withRates, withScheduler } from './flags.js';
import { integer, positive } from './values.js';

interface ImportFlags extends ConnectFlags, OptimizerFlags {
  table?: string;
  key?: KeyKind;
  schema?: string;
  column?: string;
  keys?: string;
  values?: string;
  create: boolean;
  dim: number;
  seed: number;
}

interface Target {
  table: SchemaTable;
  column?: SparseColumn;
}

/** @throws BAD_ARGUMENT */
async function targetOf({ table, key, schema, column }: ImportFlags): Promise<Target> {
  if (schema === undefined) {
    if (table === undefined || column !== undefined)
      throw new KintsugiError('BAD_ARGUMENT', 'import needs --table, or --schema and --column');
    return { table: { name: table } };
  }
  if (table !== undefined || key !== undefined)
    throw new KintsugiError('BAD_ARGUMENT', 'the schema says table and keys: leave --table and --key out');
  const { sparse, tables } = await readSchema(schema);
  const found = sparse.find(({ name }) => name === column);
  if (!found) {
    const names = sparse.map(({ name }) => name).join(', ');
    throw new KintsugiError('BAD_ARGUMENT', `--column must be one of ${names}, not "${column ?? 'nothing'}"`);
  }
  return { table: tables.find(({ name }) => name === found.table)!, column: found };
}

type WantedTable = Pick<TableSpec, 'name' | 'dim' | 'optimizer' | 'seed'>;

/** Flags of a new table, and what a table has of each. */
const OF_TABLE: { readonly [flag: string]: (table: WantedTable) => unknown } = {
  dim: ({ dim }) => dim,
  optimizer: ({ optimizer }) => optimizer.kind,
  lr: ({ optimizer }) => optimizer.lr,
  clipNorm: ({ optimizer }) => optimizer.clipNorm,
  lrSchedule: ({ optimizer }) => optimizer.schedule && scheduleText(wholeSchedule(optimizer.schedule)),
  seed: ({ seed }) => seed,
};
/** Flags of these whose values may change while a table lives. */
const SETTING_OF: { readonly [flag: string]: Setting | undefined } = {
  lr: 'lr',
  clipNorm: 'clipNorm',
  lrSchedule: 'schedule',
};

/** Names of the flags of a new table that were given. */
const givenFlags = (command: Command): string[] =>
  Object.keys(OF_TABLE).filter((flag) => command.getOptionValueSource(flag) === 'cli');

const flagText = (flag: string): string =>
  `--${flag.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;

/** Makes the table as a worker would, so that a worker takes it for its own. */
async function makeTable(
  client: Client,
  { name, ...own }: SchemaTable,
  flags: ImportFlags,
  given: readonly string[],
): Promise<void> {
  const { dim, seed } = flags;
  const optimizer = own.optimizer ?? embeddingOptimizer(flags);
  const wanted = { name, dim: own.dim ?? dim, optimizer, seed };
  const known = client.tables().find((table) => table.name === name);
  if (known) return checkTable(known, wanted, given);
  const initializer = own.initializer && { initializer: own.initializer };
  await client.createTable({ ...wanted, ...initializer });
}

/** A table that is there is as the flags say, or had such settings before. @throws BAD_ARGUMENT */
function checkTable(known: TableSpec, wanted: WantedTable, given: readonly string[]): void {
  for (const flag of given) {
    const [has, asked] = [OF_TABLE[flag]!(known), OF_TABLE[flag]!(wanted)];
    const setting = SETTING_OF[flag];
    if (has === asked || (setting && hadBefore(known, setting, wanted.optimizer[setting]))) continue;
    const text = `has ${String(has ?? 'none')}, not ${String(asked ?? 'none')}`;
    throw new KintsugiError('BAD_ARGUMENT', `${flagText(flag)}: table "${known.name}" is there and ${text}`);
  }
}

async function run(paths: string[], flags: ImportFlags, command: Command): Promise<void> {
  const given = givenFlags(command);
  if (!flags.create && given.length > 0)
    throw new KintsugiError('BAD_ARGUMENT', `${given.map(flagText).join(', ')}: only with --create`);
  const { table, column } = await targetOf(flags);
  const files = await expandPaths(paths);
  const { rows } = await withClient(flags, async (client) => {
    if (flags.create) await makeTable(client, table, flags, given);
    const { key, keys, values } = flags;
    return importRows(client, files, { ...(column ? { column } : { table: table.name, key }), keys, values });
  });
  process.stdout.write(`imported ${countText(rows)} rows into the table "${table.name}"\n`);
}

export function registerImport(program: Command): void {
  const command = withScheduler(
    program
      .command('import')
      .description('Set rows of a table of a running job to embeddings that were trained before.')
      .argument('<file...>', `${VECTOR_ENDINGS}; also directories, patterns, s3://`),
  );
  withRates(command)
    .option('--table <name>', 'table to write (default: that of --column)')
    .addOption(
      new Option('--key <kind>', 'kind of the keys in the files (default: integer)').choices([
        ...(['integer', 'hash', 'hash64', 'string'] as const),
      ]),
    )
    .option('--schema <file.json>', 'schema that says table and keys, by --column')
    .option('--column <name>', 'sparse column of the schema whose values the keys are')
    .option(
      '--keys <name>',
      'column (default: key), tensor or npy file of the keys; rows of an array without it count from 0',
    )
    .option(
      '--values <name>',
      'columns of the values (default: all others), or their tensor (default: the only one of floats)',
    )
    .option('--create', 'make the table if it is not there, as a worker would', false)
    .option('--dim <n>', 'with --create: width of a row', integer('--dim', 1, 65_536), 16)
    .option('--optimizer <name>', `with --create: ${OPTIMIZER_KINDS.join(', ')}`, 'adagrad')
    .option('--lr <rate>', 'with --create: learning rate', positive('--lr'), 0.05)
    .option('--seed <n>', 'with --create: seed of the initial values', integer('--seed', 0), 1)
    .action(run);
}

/** `kintsugi import FILE...`: sets rows of a table to embeddings that were trained before. */
import { type Command, Option } from 'commander';
import type { Client } from '../client/client.js';
import { readSchema } from '../data/parse-schema.js';
import { expandPaths } from '../data/paths.js';
import type { KeyKind, SchemaTable, SparseColumn } from '../data/schema.js';
import { KintsugiError } from '../errors.js';
import { countText } from '../local/text.js';
import { OPTIMIZER_KINDS } from '../optimizers.js';
import { importRows } from '../tools/import.js';
import { type ConnectFlags, withClient } from './connected.js';
import {
  embeddingOptimizer,
  integer,
  type OptimizerFlags,
  positive,
  withRates,
  withScheduler,
} from './flags.js';

interface Flags extends ConnectFlags, OptimizerFlags {
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
async function targetOf({ table, key, schema, column }: Flags): Promise<Target> {
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

/** As a worker makes it, so that it finds the table as its own. */
async function makeTable(client: Client, { name, ...own }: SchemaTable, flags: Flags): Promise<void> {
  if (client.tables().some((table) => table.name === name)) return;
  const { dim, seed } = flags;
  const optimizer = own.optimizer ?? embeddingOptimizer(flags);
  const initializer = own.initializer && { initializer: own.initializer };
  await client.createTable({ name, dim: own.dim ?? dim, optimizer, ...initializer, seed });
}

async function run(paths: string[], flags: Flags): Promise<void> {
  const { table, column } = await targetOf(flags);
  const files = await expandPaths(paths);
  const { rows } = await withClient(flags, async (client) => {
    if (flags.create) await makeTable(client, table, flags);
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
      .argument('<file...>', '.safetensors, .npy, .parquet, .csv or .tsv; also directories, patterns, s3://'),
  );
  withRates(command)
    .option('--table <name>', 'the table (default: that of --column)')
    .addOption(
      new Option('--key <kind>', 'what the keys in the files are (default: integer)').choices([
        ...(['integer', 'hash', 'string'] as const),
      ]),
    )
    .option('--schema <file.json>', 'a schema, of which --column says the table and what the keys are')
    .option('--column <name>', 'the sparse column of the schema whose values the keys are')
    .option(
      '--keys <name>',
      'the column (default: key), the tensor or the npy file with the keys; without it the rows of an ' +
        'array are numbered from 0',
    )
    .option(
      '--values <name>',
      'the columns with commas between (default: all others), or the tensor with the values (default: the ' +
        'only one with rows of floats)',
    )
    .option('--create', 'make the table if it is not there, as a worker with these flags would', false)
    .option('--dim <n>', 'with --create: width of a row', integer('--dim', 1, 65_536), 16)
    .option('--optimizer <name>', `with --create: ${OPTIMIZER_KINDS.join(', ')}`, 'adagrad')
    .option('--lr <rate>', 'with --create: learning rate', positive('--lr'), 0.05)
    .option('--seed <n>', 'with --create: seed of the initial values', integer('--seed', 0), 1)
    .action(run);
}

/** The tables of a job with their sizes, a page at a time: a job may have thousands. */

import { KintsugiError } from '../../common/errors.js';
import { checkInteger, checkOptions, type OptionKeys } from '../../common/options.js';
import { type LifeCounts, sumOfLives } from '../../engine/policies.js';
import { shardCount, type TableSpec } from '../../protocol/map.js';
import type { Client } from '../client/client.js';
import { internalsOf } from '../client/connected.js';
import type { ObservedNode } from '../client/observe.js';

/** Options of {@link listTables}. */
export interface ListTablesOptions {
  /** Names above this one, in the order of their UTF-16 units: the last name of the page before. */
  after?: string | undefined;
  /** Tables of a page, at least 1. Default: 100. */
  limit?: number | undefined;
}

/** A table of a job with its size. */
export interface TableInfo extends TableSpec {
  /** Data shards, over which its keys are spread by their hash. */
  shards: number;
  /** Rows that were pushed or assigned, in the data shards of all PS that answered. */
  rows: number;
  /** Bytes of these rows with their optimizer state, without keys, index and parity. */
  bytes: number;
  /** Rows that went, by reason; absent: the table has no policy, and no row of it was deleted. */
  life?: TableLife;
}

/**
 * Rows that went from a table, and gradients that were dropped, since the processes of its PS were started.
 * What a PS counted that was lost is not in it.
 */
export interface TableLife extends LifeCounts {
  /** By name of a PS. */
  nodes: Record<string, LifeCounts>;
}

/** Counts of the tables that have some, by their names. */
export function livesOf(nodes: readonly ObservedNode[]): Map<string, TableLife> {
  const counts = new Map<string, Record<string, LifeCounts>>();
  for (const { name: node, telemetry } of nodes)
    for (const { name, life } of telemetry.tables)
      if (life) counts.set(name, { ...counts.get(name), [node]: life });
  return new Map(
    [...counts].map(([name, ofNodes]) => [name, { ...sumOfLives(Object.values(ofNodes))!, nodes: ofNodes }]),
  );
}

/** A page of the tables of a job. */
export interface TablePage {
  /** In the order of their names. */
  tables: TableInfo[];
  /** Tables of the job, on all pages. */
  total: number;
  /** The `after` of the next page; absent: this is the last one. */
  next?: string;
  /** Names of living PS that did not answer in time: their rows are not counted. */
  missing: string[];
}

const DEFAULT_LIMIT = 100;
/** A row in a slab begins at a multiple of so many bytes. */
const ROW_ALIGNMENT = 16;

const LIST_OPTIONS = { after: true, limit: true } satisfies OptionKeys<ListTablesOptions>;

/**
 * The tables of a job by their names, with their sizes as all PS know them now. Tables that audits use are
 * left out.
 *
 * @example
 * ```ts
 * const { tables, next } = await listTables(client, { limit: 50 });
 * ```
 * @throws BAD_ARGUMENT, UNREACHABLE (the scheduler does not answer), CLOSED
 */
export async function listTables(client: Client, options: ListTablesOptions = {}): Promise<TablePage> {
  internalsOf(client);
  checkOptions('listTables', options, LIST_OPTIONS);
  const { after, limit = DEFAULT_LIMIT } = options;
  checkInteger('listTables: limit', limit, 1);
  if (after !== undefined && typeof after !== 'string')
    throw new KintsugiError('BAD_ARGUMENT', 'listTables: after must be the name of a table');
  const all = client.tables();
  const rest = after === undefined ? all : all.filter(({ name }) => name > after);
  rest.sort((a, b) => (a.name < b.name ? -1 : 1));
  const page = rest.slice(0, limit);
  const { tables, missing } = await sized(client, page);
  const next = rest.length > page.length ? { next: page.at(-1)!.name } : {};
  return { tables, total: all.length, ...next, missing };
}

/**
 * One table with its size, and the PS whose rows are not counted because they did not answer in time.
 * @throws UNKNOWN_TABLE with the names near it, UNREACHABLE, CLOSED
 */
export async function showTable(
  client: Client,
  name: string,
): Promise<{ table: TableInfo; missing: string[] }> {
  internalsOf(client);
  const { tables, missing } = await sized(client, [client.table(name).spec]);
  return { table: tables[0]!, missing };
}

async function sized(client: Client, specs: readonly TableSpec[]) {
  if (specs.length === 0) return { tables: [], missing: [] };
  const { nodes, missing } = await client.observe();
  const rows = new Map(specs.map(({ name }) => [name, 0]));
  for (const { telemetry } of nodes)
    for (const each of telemetry.tables) {
      const known = rows.get(each.name);
      if (known !== undefined) rows.set(each.name, known + each.rows);
    }
  const lives = livesOf(nodes);
  const shards = new Map(client.clusterMap.pools.map((pool) => [pool.name, shardCount(pool)]));
  const tables = specs.map((spec): TableInfo => {
    const stride = Math.ceil((client.rowWidth(spec) * 4) / ROW_ALIGNMENT) * ROW_ALIGNMENT;
    const count = rows.get(spec.name)!;
    const life = lives.get(spec.name);
    const sizes = { shards: shards.get(spec.pool)!, rows: count, bytes: count * stride };
    return { ...spec, ...sizes, ...(life && { life }) };
  });
  return { tables, missing };
}

/** Tables as `kintsugi status` shows them: all of a few, and of many those that are the largest. */
import { LIFE_REASONS, type LifeCounts } from '../engine/policies.js';
import { sizesOf, type TableSize } from '../fleet/dashboard/tables.js';
import { bytesText, countText, table } from '../fleet/local/text.js';
import type { JobSnapshot } from '../library/client/observe.js';
import { livesOf, type TableLife } from '../library/tools/tables.js';
import type { JobStatus } from '../protocol/messages.js';
import { type ConnectFlags, withClient } from './connected.js';
import { hint } from './hints.js';
import { integer } from './values.js';

/** Tables that are shown where nothing else is asked for. */
export const TABLES_SHOWN = 20;

/** `N` or `all`. @throws BAD_ARGUMENT */
export const tablesAsked = (text: string): number =>
  text === 'all' ? Number.POSITIVE_INFINITY : integer('--tables', 1)(text);

/** Sizes of tables, the largest first, and the nodes that did not tell theirs. */
export interface SizedTables {
  sizes: readonly TableSize[];
  missing: readonly string[];
}

/** Asks all PS for their counters, once for all that is shown of tables; undefined: they cannot be asked. */
export async function looked({ tables }: JobStatus, flags: ConnectFlags): Promise<JobSnapshot | undefined> {
  if (tables.length === 0) return undefined;
  return withClient(flags, (client) => client.observe(), { waitForJob: false }).catch(() => undefined);
}

/** How large the tables are. */
export function sizedTables(look: JobSnapshot | undefined): SizedTables | undefined {
  return look && { sizes: sizesOf(look), missing: look.missing };
}

/** Counts by table, and the nodes that did not tell theirs. */
export interface TableLives {
  lives: ReadonlyMap<string, TableLife>;
  missing: readonly string[];
}

/** Counts of what went from the tables. */
export function tableLives(look: JobSnapshot | undefined): TableLives | undefined {
  return look && { lives: livesOf(look.nodes), missing: look.missing };
}

/** The status with the counts of its tables. */
export function withLives(status: JobStatus, told: TableLives | undefined) {
  const tables = status.tables.map((each) => {
    const life = told?.lives.get(each.name);
    return { ...each, ...(life && { life }) };
  });
  return { ...status, tables };
}

/** Lines about rows that went, of `most` tables and their PS. */
export function lifeLines(told: TableLives | undefined, most: number): string[] {
  if (!told || told.lives.size === 0) return [];
  const reasons = Object.keys(LIFE_REASONS) as (keyof LifeCounts)[];
  const counts = (life: LifeCounts) => reasons.map((reason) => countText(life[reason]));
  const rows = [...told.lives]
    .slice(0, most)
    .flatMap(([name, { nodes, ...all }]) => [
      [name, 'all', ...counts(all)],
      ...Object.entries(nodes).map(([node, life]) => ['', node, ...counts(life)]),
    ]);
  const missing = told.missing.length > 0 ? [`without ${told.missing.join(', ')}: no answer`] : [];
  return [...table(['rows gone from', 'on', ...Object.values(LIFE_REASONS)], rows, 2), ...missing];
}

/** Lines for people. `sized`: undefined where all tables are shown, or where the sizes are not known. */
export function tableLines(
  { tables }: JobStatus,
  most: number,
  sized: SizedTables | undefined,
  flags: ConnectFlags,
): string[] {
  if (tables.length === 0) return [];
  const heads = ['table', 'pool', 'dim', 'optimizer'];
  if (tables.length <= most || !sized) {
    const rows = tables.slice(0, most).map((each) => [each.name, each.pool, `${each.dim}`, each.optimizer]);
    return [...table(heads, rows, 4), ...others(tables.length, rows.length, 'the first ones', flags)];
  }
  const rows = sized.sizes
    .slice(0, most)
    .map(({ name, pool, dim, optimizer, rows: count, bytes }) => [
      ...[name, pool, `${dim}`, optimizer, `${count}`, bytesText(bytes)],
    ]);
  const { missing } = sized;
  const without = missing.length > 0 ? [`without the rows of ${missing.join(', ')}: no answer`] : [];
  const kind = 'the largest ones';
  return [
    ...table([...heads, 'rows', 'memory'], rows, 4),
    ...others(sized.sizes.length, rows.length, kind, flags),
    ...without,
  ];
}

function others(all: number, shown: number, kind: string, flags: ConnectFlags): string[] {
  if (all <= shown) return [];
  const command = hint(['status', '--tables', 'all'], flags);
  return [`${countText(all - shown)} tables are not shown, these are ${kind}: ${command}`];
}

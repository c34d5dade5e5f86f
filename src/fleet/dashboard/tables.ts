/**
 * The tables of the job, of which a page is shown a few at a time: a job may have thousands. The live data
 * says only how many there are, and when something about them has changed; a page then asks for its few.
 */
import { KintsugiError } from '../../common/errors.js';
import { isOptimizerKind } from '../../engine/optimizers.js';
import { LIFE_REASONS, type LifeCounts, policyText } from '../../engine/policies.js';
import { isAuditTable } from '../../library/client/audit.js';
import type { JobSnapshot } from '../../library/client/observe.js';
import { livesOf } from '../../library/tools/tables.js';
import { rowBytes } from '../planner/memory.js';
import { ratesOf } from './load.js';

/** A table, and how large it is in all nodes together. */
export interface TableSize {
  name: string;
  pool: string;
  dim: number;
  optimizer: string;
  rows: number;
  /** Bytes of its rows with their optimizer state, without keys, index and parity. */
  bytes: number;
  /** As a flag has it; absent: all rows stay, and all are admitted. */
  policy?: string;
  /** Rows that went, by reason; absent: it has no policy, and no row of it was deleted. */
  gone?: LifeCounts;
}

/** Absent numbers: not known yet, because rates need two looks. */
export interface TableView extends TableSize {
  newRowsPerSecond?: number;
  pulledRowsPerSecond?: number;
  pushedRowsPerSecond?: number;
}

/** The part of the live data that is about tables. */
export interface TablesView {
  count: number;
  /** Another number: something about them has changed. */
  version: number;
}

/** Some tables, as a page asks for them. */
export interface TablesPage extends TablesView {
  /** Tables whose names have the text that was looked for. */
  found: number;
  /** Place of the first of these among the found. */
  from: number;
  tables: TableView[];
}

/** Tables in one answer. */
export const TABLES_AT_ONCE = 50;
const MAX_FIND = 256;
const REASONS = Object.keys(LIFE_REASONS) as (keyof LifeCounts)[];

/** All tables with their sizes: the largest ones first, then in the order in which they were made. */
export function sizesOf({ status, nodes }: JobSnapshot): TableSize[] {
  const counts = new Map<string, number>();
  for (const { telemetry } of nodes)
    for (const { name, rows } of telemetry.tables) counts.set(name, (counts.get(name) ?? 0) + rows);
  const lives = livesOf(nodes);
  const sizes = status.tables.map(({ name, pool, dim, optimizer, policy }): TableSize => {
    const rows = counts.get(name) ?? 0;
    const bytes = isOptimizerKind(optimizer) ? rows * rowBytes({ dim, optimizer, policy }) : 0;
    const { nodes: _, ...gone } = lives.get(name) ?? {};
    return {
      ...{ name, pool, dim, optimizer, rows, bytes },
      ...(policy && { policy: policyText(policy) }),
      ...('deleted' in gone && { gone }),
    };
  });
  return sizes.sort((a, b) => b.bytes - a.bytes || b.rows - a.rows);
}

/** All tables without those of audits; undefined before the first look. */
export function tablesOf(history: readonly JobSnapshot[]): TableView[] | undefined {
  const now = history.at(-1);
  if (!now) return undefined;
  const rates = new Map(ratesOf(history)?.tables.map((each) => [each.name, each]));
  const areKnown = history.length > 1;
  const sizes = sizesOf(now).filter(({ name }) => !isAuditTable(name));
  return sizes.map((size): TableView => {
    if (!areKnown) return size;
    const rate = rates.get(size.name);
    return {
      ...size,
      newRowsPerSecond: rate?.rowsPerSecond ?? 0,
      pulledRowsPerSecond: rate?.pulledRowsPerSecond ?? 0,
      pushedRowsPerSecond: rate?.pushedRowsPerSecond ?? 0,
    };
  });
}

export class Tables {
  private list: readonly TableView[] | undefined;
  private version = 0;

  /** Undefined: not known any more. */
  look(list: readonly TableView[] | undefined): void {
    if (list === undefined || this.list === undefined || !areSame(this.list, list)) this.version++;
    this.list = list;
  }

  /** Undefined: not known yet. */
  get view(): TablesView | undefined {
    return this.list && { count: this.list.length, version: this.version };
  }

  /**
   * @param find names have this text; case does not matter
   * @param from place of the first one, from 0
   */
  page(find: string, from: number): TablesPage {
    const { list = [], version } = this;
    const text = find.toLowerCase();
    const found = text === '' ? list : list.filter(({ name }) => name.toLowerCase().includes(text));
    const first = Math.max(0, Math.min(from, found.length - 1));
    const begin = first - (first % TABLES_AT_ONCE);
    const tables = found.slice(begin, begin + TABLES_AT_ONCE);
    return { version, count: list.length, found: found.length, from: begin, tables };
  }

  /** The page for the query of a request. @throws BAD_ARGUMENT */
  asked(query: string): TablesPage {
    const asked = new URLSearchParams(query);
    const [find, from] = [asked.get('find') ?? '', Number(asked.get('from') ?? 0)];
    if (find.length > MAX_FIND || !Number.isSafeInteger(from) || from < 0)
      throw new KintsugiError(
        'BAD_ARGUMENT',
        `find has at most ${MAX_FIND} characters, and from is a number`,
      );
    return this.page(find, from);
  }
}

function areSame(before: readonly TableView[], now: readonly TableView[]): boolean {
  return before.length === now.length && now.every((table, i) => isSame(before[i]!, table));
}

const isSame = (a: TableView, b: TableView): boolean =>
  a.name === b.name &&
  a.pool === b.pool &&
  a.dim === b.dim &&
  a.optimizer === b.optimizer &&
  a.rows === b.rows &&
  a.policy === b.policy &&
  areEqual(a.gone, b.gone) &&
  a.newRowsPerSecond === b.newRowsPerSecond &&
  a.pulledRowsPerSecond === b.pulledRowsPerSecond &&
  a.pushedRowsPerSecond === b.pushedRowsPerSecond;

const areEqual = (a: LifeCounts | undefined, b: LifeCounts | undefined): boolean =>
  a === b || (!!a && !!b && REASONS.every((reason) => a[reason] === b[reason]));

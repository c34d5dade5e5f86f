/** What makes a table specification valid, and when two are the same. */

import type { ErrorCode } from '../../errors.js';
import type { InitializerSpec } from '../../native.js';
import { onlyKnownOptimizer, optimizerProblem, quoted } from '../../optimizers.js';
import type { ClusterMap, PeerId, Pool, TableSpec } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import type { Ledger } from './ledger.js';

export const MAX_DIM = 65_536;
const MAX_TABLE_NAME = 256;

const INITIALIZERS: Record<string, string[]> = {
  zeros: [],
  constant: ['value'],
  uniform: ['low', 'high'],
  normal: ['mean', 'std'],
};

function initializerProblem(initializer: InitializerSpec): string | undefined {
  const kind: unknown = initializer?.kind;
  const fields = typeof kind === 'string' && Object.hasOwn(INITIALIZERS, kind) && INITIALIZERS[kind];
  if (!fields) return `unknown initializer ${quoted(kind)}; one of ${Object.keys(INITIALIZERS).join(', ')}`;
  for (const field of fields) {
    const value = (initializer as unknown as Record<string, unknown>)[field];
    if (typeof value !== 'number' || !Number.isFinite(value))
      return `initializer ${kind}: ${field} must be a number`;
  }
  return undefined;
}

/** Why a specification is not valid, in one line; undefined when it is. */
export function tableProblem(spec: Omit<TableSpec, 'id'>, pools: readonly Pool[]): string | undefined {
  if (typeof spec.name !== 'string' || spec.name.length === 0 || spec.name.length > MAX_TABLE_NAME) {
    return `a table needs a name of 1 to ${MAX_TABLE_NAME} characters`;
  }
  if (!pools.some((pool) => pool.name === spec.pool))
    return `table "${spec.name}": unknown pool "${spec.pool}"`;
  if (!Number.isInteger(spec.dim) || spec.dim < 1 || spec.dim > MAX_DIM) {
    return `table "${spec.name}": dim must be an integer from 1 to ${MAX_DIM}`;
  }
  if (!Number.isSafeInteger(spec.seed) || spec.seed < 0)
    return `table "${spec.name}": seed must be an integer from 0 to 2^53-1`;
  const problem = optimizerProblem(spec.optimizer) ?? initializerProblem(spec.initializer);
  return problem && `table "${spec.name}": ${problem}`;
}

function sortedEntries(object: object): string {
  return JSON.stringify(Object.entries(object).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Of specifications without further fields. */
export function sameTable(a: Omit<TableSpec, 'id'>, b: Omit<TableSpec, 'id'>): boolean {
  return (
    a.name === b.name &&
    a.pool === b.pool &&
    a.dim === b.dim &&
    a.seed === b.seed &&
    sortedEntries(a.optimizer) === sortedEntries(b.optimizer) &&
    sortedEntries(a.initializer) === sortedEntries(b.initializer)
  );
}

/** A valid specification without further fields: those of a message may have some, the map takes none. */
export function onlyKnown(spec: Omit<TableSpec, 'id'>): Omit<TableSpec, 'id'> {
  const pick = <T extends { kind: string }>(value: T, fields: readonly string[]): T =>
    Object.fromEntries(['kind', ...fields].map((field) => [field, value[field as keyof T]])) as unknown as T;
  const { name, pool, dim, optimizer, initializer, seed } = spec;
  return {
    name,
    pool,
    dim,
    optimizer: onlyKnownOptimizer(optimizer),
    initializer: pick(initializer, INITIALIZERS[initializer.kind]!),
    seed,
  };
}

/** Finds tables by name, and adds them. */
export class TableBook {
  private readonly byName = new Map<string, TableSpec>();
  private seen = 0;

  /** Tables are only added, so of each list those are new that come after the ones before. */
  private known({ tables }: ClusterMap): ReadonlyMap<string, TableSpec> {
    for (; this.seen < tables.length; this.seen++)
      this.byName.set(tables[this.seen]!.name, tables[this.seen]!);
    return this.byName;
  }

  /** Answers when they are durable. */
  create(ledger: Ledger, from: PeerId, { id, specs }: MessageOf<'createTables'>, limit: number): void {
    const { map } = ledger;
    const { all, asked, problem } = this.add(map, specs, limit);
    if (all.length > map.tables.length) ledger.setMap({ tables: all }, 'tables');
    ledger.answer(from, { t: 'tablesCreated', id, tables: asked, ...problem });
  }

  /**
   * Tables for specifications, new or known: all tables of the job, and the ones asked for in order. On a
   * problem nothing is added, whatever came before it in the list. `map` is the newest one.
   */
  add(
    map: ClusterMap,
    specs: readonly Omit<TableSpec, 'id'>[],
    limit: number,
  ): { all: TableSpec[]; asked: TableSpec[]; problem?: { code: ErrorCode; message: string } } {
    const refuse = (code: ErrorCode, message: string) => ({
      all: map.tables,
      asked: [],
      problem: { code, message },
    });
    if (specs.length > limit) return refuse('LIMIT', `at most ${limit} tables`);
    const all = [...map.tables];
    const names = this.known(map);
    const added = new Map<string, TableSpec>();
    const asked: TableSpec[] = [];
    for (const spec of specs) {
      const problem = tableProblem(spec, map.pools);
      if (problem) return refuse('BAD_ARGUMENT', problem);
      const known = names.get(spec.name) ?? added.get(spec.name);
      const wanted = onlyKnown(spec);
      if (known && !sameTable(known, wanted)) {
        return refuse('TABLE_EXISTS', `table "${spec.name}" exists with another specification`);
      }
      if (!known && all.length >= limit) return refuse('LIMIT', `at most ${limit} tables`);
      const table = known ?? { ...wanted, id: all.length + 1 };
      if (!known) {
        all.push(table);
        added.set(table.name, table);
      }
      asked.push(table);
    }
    return { all, asked };
  }
}

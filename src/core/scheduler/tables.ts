/** The tables of a job by name, and how tables are added. */
import type { ErrorCode } from '../../common/errors.js';
import { limitText } from '../../protocol/limits.js';
import type { ClusterMap, PeerId, TableSpec } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import { onlyKnownTable, tableDifferences, tableProblem } from '../../protocol/table-rules.js';
import type { SchedulerPolicy } from '../shared/policy.js';
import type { Ledger } from './ledger.js';

/** Tables that the engine takes in a shard (`kMaxTables`): a higher `maxTables` holds as this. */
export const MAX_TABLES = 4096;

/** `count`: tables that there would be. */
function tooMany(count: number, limit: number): string {
  const help = limit < MAX_TABLES ? 'kintsugi scheduler --limit maxTables=N' : 'a shard takes no more';
  return limitText(`${count} tables are too many: ${help}`, 'maxTables', limit);
}

/** Finds tables by name, and adds them. */
export class TableBook {
  /** The first `seen` tables of the map, by name. */
  private readonly byName = new Map<string, TableSpec>();
  private seen = 0;

  constructor(
    private readonly ledger: Ledger,
    private readonly policy: Pick<SchedulerPolicy, 'maxTables'>,
  ) {}

  /** Tables are only added, so of each list those are new that come after the ones before. */
  private known({ tables }: ClusterMap): ReadonlyMap<string, TableSpec> {
    for (; this.seen < tables.length; this.seen++)
      this.byName.set(tables[this.seen]!.name, tables[this.seen]!);
    return this.byName;
  }

  /** Adds the tables, and answers when they are durable. */
  create(from: PeerId, { id, specs }: MessageOf<'createTables'>): void {
    const { ledger } = this;
    const { map } = ledger;
    const { all, asked, problem } = this.add(map, specs, this.policy.maxTables);
    if (all.length > map.tables.length) ledger.setMap({ tables: all }, 'tables');
    ledger.answer(from, { t: 'tablesCreated', id, tables: asked, ...problem });
  }

  /**
   * Tables for specifications, new or known: all tables of the job, and the ones asked for in order. On a
   * problem no table is added, also none that came before it in the list. `map` is the newest one.
   */
  private add(
    map: ClusterMap,
    specs: readonly Omit<TableSpec, 'id'>[],
    maxTables: number,
  ): { all: TableSpec[]; asked: TableSpec[]; problem?: { code: ErrorCode; message: string } } {
    const limit = Math.min(maxTables, MAX_TABLES);
    const refuse = (code: ErrorCode, message: string) => ({
      all: map.tables,
      asked: [],
      problem: { code, message },
    });
    if (specs.length > limit) return refuse('LIMIT', tooMany(specs.length, limit));
    const all = [...map.tables];
    const names = this.known(map);
    const added = new Map<string, TableSpec>();
    const asked: TableSpec[] = [];
    for (const spec of specs) {
      const problem = tableProblem(spec, map.pools);
      if (problem) return refuse('BAD_ARGUMENT', problem);
      const known = names.get(spec.name) ?? added.get(spec.name);
      const wanted = onlyKnownTable(spec);
      const differences = known ? tableDifferences(known, wanted) : [];
      if (differences.length > 0) {
        return refuse('TABLE_EXISTS', `table "${spec.name}" exists with ${differences.join('; ')}`);
      }
      if (!known && all.length >= limit) return refuse('LIMIT', tooMany(all.length + 1, limit));
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

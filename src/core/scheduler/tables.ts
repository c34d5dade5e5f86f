/** The tables of a job by name: how they come and go, and how their settings change. */
import type { ErrorCode } from '../../common/errors.js';
import { filterBytes } from '../../engine/filters.js';
import { fixedSettingOf, type OptimizerChanges, settingText } from '../../engine/optimizers.js';
import { isSamePolicy, policyText } from '../../engine/policies.js';
import { limitText } from '../../protocol/limits.js';
import { type ClusterMap, lastTableOf, type PeerId, type TableSpec } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import { hadPolicy } from '../../protocol/policy-changes.js';
import {
  changeProblem,
  countEarlier,
  differingSettings,
  hadBefore,
  isOldSetting,
  isSetAlike,
  optimizerWith,
  withSettings,
} from '../../protocol/settings.js';
import { onlyKnownTable, tableDifferences, tableProblem } from '../../protocol/table-rules.js';
import type { AskedTable } from '../../protocol/tables.js';
import type { SchedulerPolicy } from '../shared/policy.js';
import { questionsKey } from './entries.js';
import type { Ledger } from './ledger.js';
import type { OwnersMaps } from './owners-maps.js';
import type { Reports } from './reports.js';
import { forgetTable, noteQuestion } from './setting-questions.js';

/** Tables that the engine takes in a shard (`kMaxTables`): a higher `maxTables` holds as this. */
export const MAX_TABLES = 4096;

/** `count`: tables that there would be. */
function tooMany(count: number, limit: number): string {
  const help = limit < MAX_TABLES ? 'kintsugi scheduler --limit maxTables=N' : 'a shard takes no more';
  return limitText(`${count} tables are too many: ${help}`, 'maxTables', limit);
}

interface TableProblem {
  code: ErrorCode;
  message: string;
}

/** Finds tables by name, adds and drops them, and changes their settings. */
export class TableBook {
  /** The first `seen` tables of the map, by name. */
  private readonly byName = new Map<string, TableSpec>();
  private seen = 0;

  constructor(
    private readonly ledger: Ledger,
    private readonly policy: Pick<SchedulerPolicy, 'maxTables'>,
    private readonly owners: OwnersMaps,
    private readonly reports: Pick<Reports, 'nodes'>,
  ) {}

  /** `drop` takes tables away here, too. So of each list those are new that come after the ones before. */
  private known({ tables }: ClusterMap): Map<string, TableSpec> {
    for (; this.seen < tables.length; this.seen++)
      this.byName.set(tables[this.seen]!.name, tables[this.seen]!);
    return this.byName;
  }

  /**
   * Adds the tables, and answers when they are durable. If a setting is asked for, and one of the table was
   * ever changed, it answers when every owner has the newest ones: this may be the copy of a question that
   * changed it and was not answered. A session that has ended sets nothing.
   */
  create(from: PeerId, { id, specs }: MessageOf<'createTables'>): void {
    const { ledger } = this;
    const sets = ({ set = [] }: AskedTable) => set.length > 0;
    if (specs.some(sets) && !ledger.isLeased(from)) return;
    const { map } = ledger;
    const { all, asked, others, problem } = this.add(map, specs, this.policy.maxTables);
    if (all !== map.tables) ledger.setMap({ tables: all }, 'tables');
    for (const [before, after] of others) this.changed(before, after);
    const answer = { t: 'tablesCreated' as const, id, tables: asked, ...problem };
    const changed = asked.filter((table, i) => countEarlier(table) > 0 && sets(specs[i]!));
    if (changed.length > 0) this.owners.answer(from, answer, changed);
    else ledger.answer(from, answer);
  }

  /**
   * Changes settings of a table, and answers when every owner of a shard has the new ones. A client repeats
   * its question until there is an answer. A copy that comes late changes nothing, because somebody else may
   * have set something else meanwhile. The client's session has the newest question for each table,
   * durably: the copy may come to a later scheduler. A session that has ended sets nothing.
   */
  set(from: PeerId, question: MessageOf<'setTable'>): void {
    const { ledger } = this;
    const { id, name } = question;
    if (!ledger.isLeased(from)) return;
    const refuse = (code: ErrorCode, message: string) =>
      ledger.answer(from, { t: 'tableSet', id, epoch: ledger.map.epoch, code, message });
    const { map } = ledger;
    const table = this.known(map).get(name);
    if (!table) return refuse('UNKNOWN_TABLE', `no table "${name}" exists in this job`);
    if (question.table !== undefined && question.table !== table.id)
      return refuse('UNKNOWN_TABLE', `table "${name}" was dropped, and another one has its name`);
    const problem = changeProblem(table, question);
    if (problem) return refuse('BAD_ARGUMENT', `table "${name}": ${problem}`);
    const isNew = this.carryOut(from, table, id);
    const changed = withSettings(table, question);
    if (isNew && !isSetAlike(table, changed)) {
      const tables = map.tables.map((each) => (each === table ? changed : each));
      ledger.setMap({ tables }, 'table set');
      this.changed(table, changed);
    }
    this.owners.answer(from, { t: 'tableSet', id, epoch: ledger.map.epoch }, [table]);
  }

  /**
   * Drops a table (rule 47), and answers when every owner of a shard has the epoch that drops it. A copy of
   * the question finds that it is gone: its id is never used again. True: a table was dropped now.
   */
  drop(from: PeerId, { id, table: dropped }: MessageOf<'dropTable'>): boolean {
    const { ledger } = this;
    if (!ledger.isLeased(from)) return false;
    const { map } = ledger;
    const refuse = (code: ErrorCode, message: string): false => {
      ledger.answer(from, { t: 'tableDropped', id, epoch: map.epoch, code, message });
      return false;
    };
    const table = map.tables.find((each) => each.id === dropped);
    if (!table && dropped > lastTableOf(map))
      return refuse('UNKNOWN_TABLE', `this job has never had a table with the id ${dropped}`);
    // Files of a checkpoint know tables by their names.
    const isLoading = map.groups.some(({ data }) => data.some(({ restore }) => restore));
    if (table && (isLoading || (ledger.state.restore?.shards.size ?? 0) > 0))
      return refuse('NOT_READY', `table "${table.name}": shards are being loaded from a checkpoint`);
    if (table) {
      this.known(map).delete(table.name);
      this.owners.dropped(table);
      const { settingQuestions } = ledger.state;
      for (const [session, chunk] of forgetTable(settingQuestions, dropped))
        ledger.jot(questionsKey(session, chunk));
      this.seen--;
      const tables = map.tables.filter((each) => each !== table);
      const reason = { table: table.name, id: table.id };
      ledger.setMap({ tables, lastTable: lastTableOf(map) + 1 }, 'table drop', reason);
      ledger.afterwards({ kind: 'event', name: 'table.dropped', fields: reason });
    }
    this.owners.answerByAll(from, { t: 'tableDropped', id, epoch: ledger.map.epoch });
    return table !== undefined;
  }

  /** False: this question of the client for this table, or a later one, was carried out before. */
  private carryOut(from: PeerId, table: TableSpec, id: number): boolean {
    const { ledger } = this;
    const chunk = noteQuestion(ledger.state.settingQuestions, from, table.id, id);
    if (chunk === undefined) return false;
    ledger.touch(questionsKey(from, chunk));
    return true;
  }

  private changed(before: TableSpec, after: TableSpec): void {
    this.byName.set(after.name, after);
    this.owners.changed(after);
    for (const name of differingSettings(before.optimizer, after.optimizer)) {
      const [value, was] = [after, before].map(({ optimizer }) => settingText(optimizer[name]));
      const fields = { table: after.name, [name]: value!, was: was! };
      this.ledger.afterwards({ kind: 'event', name: 'table.set', fields });
    }
    const [policy, was] = [after, before].map((table) => policyText(table.policy ?? {}));
    if (policy === was) return;
    const fields = { table: after.name, policy: policy!, was: was! };
    this.ledger.afterwards({ kind: 'event', name: 'table.set', fields });
  }

  /**
   * Tables for specifications, new or known: all tables of the job, the ones asked for in order, and those
   * whose settings change, before and after. On a problem nothing changes, also nothing that came before it
   * in the list. `map` is the newest one.
   */
  private add(
    map: ClusterMap,
    specs: readonly AskedTable[],
    maxTables: number,
  ): {
    all: TableSpec[];
    asked: TableSpec[];
    others: readonly (readonly [before: TableSpec, after: TableSpec])[];
    problem?: TableProblem;
  } {
    const limit = Math.min(maxTables, MAX_TABLES);
    const refuse = (code: ErrorCode, message: string) => ({
      all: map.tables,
      asked: [],
      others: [],
      problem: { code, message },
    });
    if (specs.length > limit) return refuse('LIMIT', tooMany(specs.length, limit));
    const all = [...map.tables];
    const names = this.known(map);
    /** Tables that are new or have other settings. */
    const changed = new Map<string, TableSpec>();
    for (const spec of specs) {
      const problem = tableProblem(spec, map.pools);
      if (problem) return refuse('BAD_ARGUMENT', problem);
      const known = changed.get(spec.name) ?? names.get(spec.name);
      const wanted = onlyKnownTable(spec);
      if (!known) {
        const tooLarge = this.largeFilter(wanted, map);
        if (tooLarge) return refuse('MEMORY_LIMIT', `table "${spec.name}": ${tooLarge}`);
        if (all.length >= limit) return refuse('LIMIT', tooMany(all.length + 1, limit));
        all.push({ ...wanted, id: lastTableOf({ ...map, tables: all }) + 1 });
        changed.set(spec.name, all.at(-1)!);
        continue;
      }
      const { table, differences } = resumed(known, wanted, spec.set);
      if (differences.length > 0)
        return refuse('TABLE_EXISTS', `table "${spec.name}" exists with ${differences.join('; ')}`);
      if (table === known) continue;
      all[all.indexOf(known)] = table;
      changed.set(spec.name, table);
    }
    const asked = specs.map(({ name }) => changed.get(name) ?? names.get(name)!);
    const others = map.tables.flatMap((before, i) => (all[i] === before ? [] : [[before, all[i]!] as const]));
    return { all: changed.size > 0 ? all : map.tables, asked, others };
  }

  /** The filter of a table alone takes more than some PS has; undefined: it does not, as far as is known. */
  private largeFilter(spec: Omit<TableSpec, 'id'>, map: ClusterMap): string | undefined {
    const limits = [...this.reports.nodes.values()].flatMap(({ limit }) => limit ?? []);
    const pool = map.pools.find(({ name }) => name === spec.pool);
    if (limits.length === 0 || !pool || !spec.policy?.bloom) return undefined;
    const { k, r, groups } = pool;
    const seats = Math.ceil((groups * (k + r)) / this.reports.nodes.size);
    const [bytes, limit] = [filterBytes(spec, k * groups) * seats, Math.min(...limits)];
    if (bytes <= limit) return undefined;
    const [needed, most] = [bytes, limit].map((each) => `${Math.ceil(each / 2 ** 20)} MiB`);
    const help = 'take a lower capacity, or a higher error';
    return `policy: bloom needs ${needed} of a PS, whose --memory is ${most}: ${help}`;
  }
}

/**
 * A table that exists, as it goes on for somebody who asks for `wanted`, and the fields in which that must
 * not differ. Only settings may: see `AskedTable`.
 */
function resumed(
  known: TableSpec,
  wanted: Omit<TableSpec, 'id'>,
  set: AskedTable['set'],
): { table: TableSpec; differences: string[] } {
  const changes: Record<string, unknown> = {};
  const kept: Record<string, unknown> = {};
  for (const name of differingSettings(known.optimizer, wanted.optimizer)) {
    const [now, value] = [known.optimizer[name] ?? null, wanted.optimizer[name] ?? null];
    const isAsked = set?.includes(name) === true;
    const isFixed = fixedSettingOf(name, known.optimizer, wanted.optimizer) !== undefined;
    if (isAsked && isFixed) continue;
    if (isAsked && !isOldSetting(known, name, value)) changes[name] = value;
    else if (set || hadBefore(known, name, value)) kept[name] = now;
  }
  const after = Object.keys(changes).length > 0 ? withSettings(known, changes as OptimizerChanges) : known;
  const optimizer = optimizerWith(wanted.optimizer, kept as OptimizerChanges);
  const differences = tableDifferences(after, withPolicyOf(known, { ...wanted, optimizer }));
  return { table: differences.length === 0 ? after : known, differences };
}

/**
 * The wanted table. It has the policy of the known one where that had the wanted one before: the policy of a
 * worker that is started again is not the newest one.
 */
function withPolicyOf(known: TableSpec, wanted: Omit<TableSpec, 'id'>): Omit<TableSpec, 'id'> {
  const { policy } = known;
  const isOld = policy && !isSamePolicy(policy, wanted.policy) && hadPolicy(known, wanted.policy);
  return isOld ? { ...wanted, policy } : wanted;
}

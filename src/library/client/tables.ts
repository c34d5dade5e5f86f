/** Tables as callers hold them, and how a client knows that one is of its job. */
import { isDeepStrictEqual } from 'node:util';
import { KintsugiError } from '../../common/errors.js';
import { frozen } from '../../common/frozen.js';
import { nearText } from '../../common/near-names.js';
import { checkFields, checkOptions } from '../../common/options.js';
import { lastingPart, optimizerProblem } from '../../engine/optimizers.js';
import { policyProblem } from '../../engine/policy-checks.js';
import { type ClusterMap, type TableSpec, tableByName } from '../../protocol/map.js';
import { countEarlier, isSetAlike, withoutEarlier } from '../../protocol/settings.js';
import { MAX_DIM } from '../../protocol/table-rules.js';
import { isAuditTable } from './audit.js';
import {
  type EvictionBatch,
  type EvictionsOptions,
  PUSH_OPTIONS,
  type PullOptions,
  type PullRequest,
  type PushOptions,
  type PushRequest,
  REQUEST_OPTIONS,
  type RequestOptions,
  type ScanBatch,
  type ScanOptions,
  TABLE_CHANGES,
  type Table,
  type TableChanges,
} from './options.js';

/** The job of each specification that a client gave out. Specifications are frozen, so they are unchanged. */
const jobOf = new WeakMap<TableSpec, string>();

/** The parts of a client that the tables it gave out use. */
interface TableClient {
  pull(requests: readonly PullRequest[], options?: PullOptions): Promise<Float32Array[]>;
  push(requests: readonly PushRequest[], options?: RequestOptions): Promise<void>;
  delete(requests: readonly PullRequest[], options?: RequestOptions): Promise<void>;
  scan(table: Table, options?: ScanOptions): AsyncGenerator<ScanBatch, void>;
  evictions(table: Table, options?: EvictionsOptions): AsyncGenerator<EvictionBatch, void>;
  setTable(table: Table, changes: TableChanges, signal: AbortSignal | undefined): Promise<void>;
  dropTable(table: Table, signal: AbortSignal | undefined): Promise<void>;
}

/** See {@link Table}. */
export class JobTable implements Table {
  private given: TableSpec;
  /** The tables of the map that `given` was last compared with. */
  private seen: readonly TableSpec[] = [];

  constructor(
    private readonly client: TableClient,
    private readonly map: () => ClusterMap,
    spec: TableSpec,
  ) {
    this.given = this.ownOf(spec);
  }

  private ownOf(spec: TableSpec): TableSpec {
    const own = frozen(spec);
    jobOf.set(own, this.map().job);
    return own;
  }

  get spec(): TableSpec {
    const { given, seen } = this;
    const { tables } = this.map();
    if (tables === seen) return given;
    this.seen = tables;
    // A map that does not have the table yet, or has it as it was, is older than `given`.
    const now = tables.find(({ id }) => id === given.id);
    const isOlder = !now || now.name !== given.name || countEarlier(now) < countEarlier(given);
    if (!isOlder && !isSetAlike(now, given)) this.given = this.ownOf(now);
    return this.given;
  }

  get name(): string {
    return this.spec.name;
  }

  get dim(): number {
    return this.spec.dim;
  }

  async pull(keys: BigUint64Array, options?: PullOptions): Promise<Float32Array> {
    const [rows] = await this.client.pull([{ table: this, keys }], options);
    return rows!;
  }

  async push(keys: BigUint64Array, gradients: Float32Array, options: PushOptions = {}): Promise<void> {
    checkOptions('push', options, PUSH_OPTIONS);
    const { lr, counts, scores, ...rest } = options;
    await this.client.push([{ table: this, keys, gradients, lr, counts, scores }], rest);
  }

  async delete(keys: BigUint64Array, options?: RequestOptions): Promise<void> {
    await this.client.delete([{ table: this, keys }], options);
  }

  scan(options?: ScanOptions): AsyncGenerator<ScanBatch, void> {
    return this.client.scan(this, options);
  }

  evictions(options?: EvictionsOptions): AsyncGenerator<EvictionBatch, void> {
    return this.client.evictions(this, options);
  }

  async set(changes: TableChanges, options: RequestOptions = {}): Promise<void> {
    checkFields<TableChanges>('set', changes, TABLE_CHANGES);
    checkOptions('set', options, REQUEST_OPTIONS);
    await this.client.setTable(this, changes, options.signal);
  }

  async drop(options: RequestOptions = {}): Promise<void> {
    checkOptions('drop', options, REQUEST_OPTIONS);
    await this.client.dropTable(this, options.signal);
  }
}

/** Finds the specifications of tables that callers name or give. */
export class KnownTables {
  /**
   * By the object that a caller gave: what the tables of a map say. The map's own is used, because a caller
   * may change the other one later.
   */
  private readonly verified = new WeakMap<TableSpec, { tables: readonly TableSpec[]; known: TableSpec }>();

  constructor(private readonly map: () => ClusterMap) {}

  /** @throws UNKNOWN_TABLE, BAD_ARGUMENT */
  specOf(table: PullRequest['table']): TableSpec {
    if (typeof table === 'string') return this.named(table);
    const given = table?.spec;
    if (typeof given !== 'object' || given === null)
      throw new KintsugiError('BAD_ARGUMENT', 'table must be a table or its name');
    const verified = this.verified.get(given);
    return verified?.tables === this.map().tables ? verified.known : this.verify(given);
  }

  private named(name: string): TableSpec {
    const spec = tableByName(this.map(), name);
    if (spec) return spec;
    const names = this.map().tables.map((table) => table.name);
    const near = nearText(
      name,
      names.filter((each) => !isAuditTable(each)),
    );
    throw new KintsugiError('UNKNOWN_TABLE', `no table "${name}" exists in this job${near}`);
  }

  /**
   * Nodes know tables by their ids, which say nothing of the job: another table with the same id would take
   * the rows.
   */
  private verify(given: TableSpec): TableSpec {
    const { job, tables, lastTable = 0 } = this.map();
    const name = String(given.name);
    const itsJob = jobOf.get(given);
    if (itsJob !== undefined && itsJob !== job)
      throw new KintsugiError('UNKNOWN_TABLE', `table "${name}" is of another job`);
    const known = tables.find(({ id }) => id === given.id);
    if (!known && itsJob !== undefined) {
      // No id comes again. One that is newer was created by another client of the job a moment ago.
      if (given.id > lastTable) return given;
      throw new KintsugiError('UNKNOWN_TABLE', `table "${name}" was dropped`);
    }
    if (!known || known.name !== given.name)
      throw new KintsugiError('UNKNOWN_TABLE', `table "${name}" is none of this job: its id is ${given.id}`);
    if (!isSameTable(given, known))
      throw new KintsugiError('BAD_ARGUMENT', `table "${name}" is not as this job has it`);
    this.verified.set(given, { tables, known });
    return known;
  }
}

/** True: it is the table that the map has, perhaps with settings of another time. `given` may be anything. */
function isSameTable(given: TableSpec, known: TableSpec): boolean {
  if (given.optimizer?.kind !== known.optimizer.kind) return false;
  const lasting = (table: TableSpec) => ({
    ...withoutEarlier(table),
    policy: table.policy !== undefined,
    score: table.policy?.score === true,
    optimizer: lastingPart(table.optimizer),
  });
  return isDeepStrictEqual(lasting(given), lasting(known));
}

/** The largest float32: what a row holds is of single precision. */
const LARGEST = 2 ** 128 - 2 ** 104;
/** Values are at most so many standard deviations from their mean. */
const FARTHEST = 6;
/** Names are written to logs, pages and files, and must come out as they went in. */
const UNWRITABLE = /[\p{Cc}\p{Cs}]/u;

/** Why no new table should be as this valid specification says, in one line; undefined when it may. */
export function newTableProblem({ name, initializer }: Omit<TableSpec, 'id'>): string | undefined {
  if (UNWRITABLE.test(name))
    return 'the name of a table must have neither control characters nor halves of characters';
  const where = `table ${JSON.stringify(name)}: initializer ${initializer.kind}`;
  for (const [field, value] of Object.entries(initializer))
    if (typeof value === 'number' && Math.abs(value) > LARGEST)
      return `${where}: ${field} must be a number that single precision holds`;
  if (initializer.kind === 'uniform' && initializer.low > initializer.high)
    return `${where}: low must not be above high`;
  if (initializer.kind !== 'normal') return undefined;
  const { mean, std } = initializer;
  if (std < 0) return `${where}: std must not be below 0`;
  if (Math.abs(mean) + FARTHEST * std > LARGEST)
    return `${where}: single precision must hold the mean and ${FARTHEST} std, which values are within`;
  return undefined;
}

/** Checks the fields that decide how long a row is. @throws BAD_ARGUMENT */
export function checkShape(where: string, given: Pick<TableSpec, 'dim' | 'optimizer' | 'policy'>): void {
  const { dim, optimizer, policy } = (given ?? {}) as Partial<TableSpec>;
  const isDim = Number.isInteger(dim) && dim! >= 1 && dim! <= MAX_DIM;
  const problem = isDim
    ? (optimizerProblem(optimizer!) ?? policyProblem(policy))
    : `dim must be an integer from 1 to ${MAX_DIM}`;
  if (problem) throw new KintsugiError('BAD_ARGUMENT', `${where}: ${problem}`);
}

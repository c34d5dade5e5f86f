/** Messages of clients about tables, and what the scheduler answers. */
import type { ErrorCode } from '../common/errors.js';
import type { Setting } from '../engine/optimizers.js';
import type { EarlierSettings, TableSpec } from './map.js';
import type { TableChanges } from './settings.js';

/**
 * A table that is asked for. `set`: the settings that become those of the specification where the table
 * exists with others, unless they are old ones (`isOldSetting`); the other settings stay. Undefined: a
 * setting stays if that of the specification is an earlier one, else it is refused. So it is with the policy.
 */
export interface AskedTable extends Omit<TableSpec, 'id' | keyof EarlierSettings> {
  set?: readonly Setting[];
}
export interface CreateTables {
  t: 'createTables';
  id: number;
  specs: AskedTable[];
}
export interface TablesCreated {
  t: 'tablesCreated';
  id: number;
  tables: TableSpec[];
  code?: ErrorCode;
  message?: string;
}

/**
 * Settings of a table change. The ids of a client rise: an older question for the same table that comes later
 * is answered and changes nothing.
 */
export interface SetTable extends TableChanges {
  t: 'setTable';
  id: number;
  name: string;
  /** Id of the table: another one that has taken its name is not meant. */
  table?: number;
}
/** Every owner of a shard has the map of this epoch, so later pushes have the new settings. */
export interface TableSet {
  t: 'tableSet';
  id: number;
  epoch: number;
  code?: ErrorCode;
  message?: string;
}

/** The table with this id goes. If it is gone that is no error: the question may be a repeated one. */
export interface DropTable {
  t: 'dropTable';
  id: number;
  table: number;
}
/** The drop is durable, and every owner of a shard has the map of this epoch. */
export interface TableDropped {
  t: 'tableDropped';
  id: number;
  epoch: number;
  code?: ErrorCode;
  message?: string;
}

export type TableMessage = CreateTables | TablesCreated | SetTable | TableSet | DropTable | TableDropped;

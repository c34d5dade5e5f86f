/**
 * The tables of a schedule. Each pool has a main table, whose rows are bit masks of the pushes that were
 * applied, and further tables that the same pushes write to, with other widths and other optimizers
 * (learners.ts).
 */
import type { OptimizerSpec } from '../engine/native.js';
import type { TableSpec } from '../protocol/map.js';
import { INITIAL, LEARNERS, type Learner, type LearnerName } from './learners.js';
import { optimizerAfter } from './settings.js';

/** Rows of 512 floats have 2 KiB, so a block has two rows: many blocks with few rows. */
const MAIN_DIM = 512;
const MIRRORED_DIM = 64;

export interface SimTable extends Omit<TableSpec, 'id'> {
  /** The optimizer; undefined: SGD with lr -1 on zeros, so the row is the sum of its gradients. */
  learner: Learner | undefined;
  /** True: its settings are set meanwhile, and its rows tell those of each push (settings.ts). */
  settable: boolean;
  /** Number of its life: it is dropped and created again meanwhile (droppers.ts). Undefined: it is not. */
  life?: number;
}

const ADDING: OptimizerSpec = { kind: 'sgd', lr: -1 };

function table(pool: string, name: string, dim: number, learner?: Learner): SimTable {
  return {
    ...{ name: `${pool}/${name}`, pool, dim, seed: 0, learner, settable: name.startsWith('r') },
    optimizer: learner ? { ...learner.optimizer } : name.startsWith('r') ? optimizerAfter(0) : ADDING,
    ...(learner?.policy && { policy: learner.policy }),
    initializer: learner ? { kind: 'constant', value: INITIAL } : { kind: 'zeros' },
  };
}

/**
 * `extra`: further tables such as "i1 a64": i adds integers, other letters name an optimizer, the number is
 * the width. r has settings that are set.
 */
export function tablesOfPool(pool: string, extra: string): SimTable[] {
  const main = table(pool, 'main', pool === 'embedding' ? MAIN_DIM : MIRRORED_DIM);
  const more = extra.split(' ').filter((name) => name !== '');
  const learnerOf = (name: string) => (/^[ir]/.test(name) ? undefined : LEARNERS[name[0] as LearnerName]);
  return [main, ...more.map((name) => table(pool, name, Number(name.slice(1)), learnerOf(name)))];
}

/** The table that is dropped and created again. Its seed, which zeros do not need, is its life. */
export function tableOfLife(life: number): SimTable {
  return { ...table('embedding', 't2', 2), seed: life, life };
}

/** The specification as a message has it, without other fields. */
export function specOf({ learner: _, settable: __, life: ___, ...spec }: SimTable): Omit<TableSpec, 'id'> {
  return spec;
}

/** The gradient of push number `number` in the main table, and in all tables that add. */
export function bit(number: number): number {
  return 2 ** number;
}

/** The draws that decide which further tables a schedule has. */
interface TableKinds {
  /** 0: none, as with `policies`. */
  settings: number;
  policies: number;
  /** 0: none, as with `policies`. */
  evictions: number;
  deletions: boolean;
  expiry: boolean;
  crowds: boolean;
  scores: boolean;
  seconds: boolean;
  filters: boolean;
}

/** The tables whose settings are set, whose rows are deleted, go by themselves, and make room for others. */
const SET_TABLE = 'r3';
const FORGETTING_TABLE = 'x5';
const EXPIRING_TABLE = 'e3';
const CROWDED_TABLE = 'c2';
const SCORED_TABLE = 's3';
const TIMED_TABLE = 'z3';
const FILTERED_TABLES = ['b2', 'p3'];

/** The further tables of a schedule with those that it has for its setters, deletions and expiry. */
export function withTables(
  extra: string,
  { settings, policies, evictions, deletions, expiry, crowds, scores, seconds, filters }: TableKinds,
): string {
  const names = new Set(extra.split(' ').filter((name) => name !== ''));
  if (settings !== 0) names.add(SET_TABLE);
  if (deletions || evictions !== 0) names.add(FORGETTING_TABLE);
  if (expiry || policies !== 0 || evictions !== 0) names.add(EXPIRING_TABLE);
  if (crowds) names.add(CROWDED_TABLE);
  if (scores) names.add(SCORED_TABLE);
  if (seconds) names.add(TIMED_TABLE);
  if (filters) for (const name of FILTERED_TABLES) names.add(name);
  return [...names].join(' ');
}

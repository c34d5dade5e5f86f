/**
 * The tables of a schedule and what their rows must hold. Each pool has a main table, whose rows are bit
 * masks of the pushes that were applied, and further ones that the same pushes write to: other widths, and
 * other optimizers (learners.ts).
 */
import type { OptimizerSpec } from '../native.js';
import type { TableSpec } from '../protocol/map.js';
import { INITIAL, LEARNERS, type Learner, type LearnerName } from './learners.js';

/** 512 floats are 2 KiB a row, two rows a block: many blocks with few rows. */
const MAIN_DIM = 512;
const MIRRORED_DIM = 64;

export interface SimTable extends Omit<TableSpec, 'id'> {
  /** Otherwise SGD with lr -1 on zeros: the row is the sum of its gradients. */
  learner: Learner | undefined;
}

const ADDING: OptimizerSpec = { kind: 'sgd', lr: -1 };

function table(pool: string, name: string, dim: number, learner?: Learner): SimTable {
  return {
    ...{ name: `${pool}/${name}`, pool, dim, seed: 0, learner },
    optimizer: learner ? { ...learner.optimizer } : ADDING,
    initializer: learner ? { kind: 'constant', value: INITIAL } : { kind: 'zeros' },
  };
}

/**
 * `extra`: further tables such as "i1 a64": i adds integers, other letters name an optimizer, the number is
 * the width.
 */
export function tablesOfPool(pool: string, extra: string): SimTable[] {
  const main = table(pool, 'main', pool === 'embedding' ? MAIN_DIM : MIRRORED_DIM);
  const more = extra.split(' ').filter((name) => name !== '');
  const learnerOf = (name: string) => (name.startsWith('i') ? undefined : LEARNERS[name[0] as LearnerName]);
  return [main, ...more.map((name) => table(pool, name, Number(name.slice(1)), learnerOf(name)))];
}

/** As in a message, which has no other fields. */
export function specOf({ learner: _, ...spec }: SimTable): Omit<TableSpec, 'id'> {
  return spec;
}

/** What push number `number` adds to a row of the main table, and to all tables that add. */
export function bit(number: number): number {
  return 2 ** number;
}

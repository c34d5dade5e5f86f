/** From what requests cost to rates: two sizes of a request say what a row and a section cost. */
import type { Rates } from './rates.js';

/** Requests of one kind that a job was kept busy with. */
export interface Load {
  op: 'pull' | 'push';
  /** Parities of a shard. */
  r: number;
  /** Distinct keys of a request. */
  rows: number;
  dim: number;
  /** Shards that a request has a section for. */
  sections: number;
  requests: number;
  /** Processor seconds of all PS, without what they take when nothing happens. */
  psSeconds: number;
  /** Of the client. */
  clientSeconds: number;
}

/** Sizes of requests that are measured. The first two differ in rows, the last two in bytes of a row. */
export const FEW_ROWS = 256;
export const MANY_ROWS = 4096;
export const DIM = 64;
export const NARROW_DIM = 8;

/** What cannot be seen between the noise still costs something. */
const LEAST = 1e-9;

interface Cost {
  row: number;
  section: number;
}

type Where = 'psSeconds' | 'clientSeconds';

/** What `a` rows and `b` rows take is row x rows + section x sections: two equations. */
function solve(few: Load, many: Load, where: Where): Cost {
  const [a, b] = [few[where] / few.requests, many[where] / many.requests];
  const det = few.rows * many.sections - many.rows * few.sections;
  const row = Math.max(LEAST, (a * many.sections - b * few.sections) / det);
  return { row, section: Math.max(LEAST, (a - row * few.rows) / few.sections) };
}

/** Rates of requests from all loads of {@link LOADS}, in any order. @throws TypeError where one is missing */
export function ratesFrom(loads: readonly Load[]): Partial<Rates> {
  const find = (op: Load['op'], rows: number, dim: number, coded = false): Load => {
    const found = loads.find((l) => l.op === op && l.rows === rows && l.dim === dim && l.r > 0 === coded);
    if (!found) throw new TypeError(`no load of ${op}, ${rows} rows of dim ${dim}`);
    return found;
  };
  const cost = (op: Load['op'], where: Where, coded = false): Cost =>
    solve(find(op, FEW_ROWS, DIM, coded), find(op, MANY_ROWS, DIM, coded), where);
  const [pull, push] = [cost('pull', 'psSeconds'), cost('push', 'psSeconds')];
  const coded = find('push', MANY_ROWS, DIM, true);
  const parity = cost('push', 'psSeconds', true);
  const client = [cost('pull', 'clientSeconds'), cost('push', 'clientSeconds')] as const;
  const sum = (dim: number, where: Where): number =>
    (['pull', 'push'] as const).reduce((total, op) => {
      const load = find(op, MANY_ROWS, dim);
      return total + load[where] / load.requests;
    }, 0);
  const narrow = NARROW_DIM / DIM;
  const section = (pull.section + push.section) / 2;
  // What of a row's time does not grow with its bytes. Sections cost the same in both.
  const sections = 2 * section * find('push', MANY_ROWS, DIM).sections;
  const [wide, thin] = [sum(DIM, 'psSeconds') - sections, sum(NARROW_DIM, 'psSeconds') - sections];
  return {
    pullRow: pull.row,
    pushRow: push.row,
    parityRow: Math.max(LEAST, (parity.row - push.row) / coded.r),
    section,
    deltaMessage: Math.max(LEAST, (parity.section - push.section) / coded.r),
    rowFixed: Math.min(1, Math.max(0.05, (thin / wide - narrow) / (1 - narrow))),
    clientRow: client[0].row + client[1].row,
    clientSection: (client[0].section + client[1].section) / 2,
  };
}

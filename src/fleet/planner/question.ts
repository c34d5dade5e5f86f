/** The question that a plan answers, and its checks. */
import { KintsugiError } from '../../common/errors.js';
import { type CodeSpec, defaultGroups, MAX_GROUPS, MAX_K, MAX_R } from '../../core/placement/job.js';
import { inShards, maxRowsPerShard, type RowShape } from './memory.js';
import type { PlannerRates } from './rates.js';

export interface PlanQuestion extends RowShape {
  /** Rows that the table will have. */
  rows: number;
  code: CodeSpec;
  workers: number;
  /** Distinct keys that a worker pulls and pushes in one step. */
  batch: number;
  /** Seconds that a step takes a worker when it waits for nothing. */
  step: number;
  /** PS; absent: the fewest that hold. */
  ps?: number;
  /** Groups of the code; absent: the default of the scheduler for that number of PS. */
  groups?: number;
  /** Bytes that a PS may use. */
  memory: number;
  /** Bytes per second that a PS may send, and as many that it may take in. */
  network: number;
  /** Seconds between failures of one machine, on average. */
  mtbf: number;
  /** Seconds until a loss of data is expected: at least so many. */
  durability: number;
  /** Checkpoints are made, so their stamps take memory. */
  checkpoints: boolean;
  /** Price of a processor and of a GiB of memory for an hour. Only their ratio matters. */
  price: { core: number; gib: number };
  /** Processors that all processes of the job share; absent: each has a machine of its own. */
  processors?: number;
  rates: PlannerRates;
}

/** No PS is busier than this with requests: what is left is for recovery, moves and bursts. */
export const MOST_BUSY = 0.7;
/** A node's memory is filled up to this share: an index that doubles and a shard more fit in the rest. */
export const MOST_FULL = 0.85;
export const MOST_PS = 4096;

const bad = (message: string) => new KintsugiError('BAD_ARGUMENT', message);

export function codeText({ k, r }: CodeSpec): string {
  return r === 0 ? 'none' : `${k}+${r}`;
}

export function groupsOf({ code, groups }: PlanQuestion, ps: number): number {
  return groups ?? defaultGroups(code, ps);
}

/** @throws BAD_ARGUMENT for what no job can be; NOT_ENOUGH_NODES for fewer PS than the code needs */
export function checkQuestion(question: PlanQuestion): void {
  const { rows, dim, code, workers, batch, ps, groups } = question;
  const whole: [string, number, number, number][] = [
    ['rows', rows, 1, 1e13],
    ['dim', dim, 1, 65_536],
    ['workers', workers, 1, 1e6],
    ['batch', batch, 1, 1e8],
    ['k of the code', code.k, 1, MAX_K],
    ['r of the code', code.r, 0, MAX_R],
    ...(ps === undefined ? [] : [['ps', ps, 1, MOST_PS] satisfies [string, number, number, number]]),
    ...(groups === undefined
      ? []
      : [['groups', groups, 1, MAX_GROUPS] satisfies [string, number, number, number]]),
  ];
  for (const [name, value, least, most] of whole) {
    if (Number.isInteger(value) && value >= least && value <= most) continue;
    throw bad(`${name} must be a whole number from ${least} to ${most}, not ${value}`);
  }
  if (question.processors !== undefined && !(question.processors > 0))
    throw bad(`processors must be above 0, not ${question.processors}`);
  const positive = ['step', 'memory', 'network', 'mtbf', 'durability'] as const;
  for (const name of positive)
    if (!(question[name] > 0)) throw bad(`${name} must be above 0, not ${question[name]}`);
  const needed = code.k + code.r;
  if (ps !== undefined && ps < needed)
    throw new KintsugiError(
      'NOT_ENOUGH_NODES',
      `code ${codeText(code)} needs ${needed} PS, and ${ps} are given`,
    );
  const most = groups === undefined ? MAX_GROUPS : groups;
  const shards = most * code.k;
  const mostRows = maxRowsPerShard(inShards(question, shards));
  if (rows / shards > mostRows)
    throw bad(`${rows} rows in ${shards} shards are more than a shard may have (${mostRows})`);
}

/**
 * The planner's view of a running job: what its PS would need by the formulas of docs/planning.md, with the
 * tables, the code and the load that it has now. Pure.
 */

import { KintsugiError } from '../../common/errors.js';
import { parseCode } from '../../core/placement/job.js';
import { isOptimizerKind } from '../../engine/optimizers.js';
import type { JobSnapshot } from '../../library/client/observe.js';
import { ratesBetween } from '../../library/observe/rates.js';
import type { FrozenMap } from '../../protocol/map.js';
import { rowBytes } from '../planner/memory.js';
import { type CandidateSize, candidate } from '../planner/plan.js';
import { checkQuestion, type PlanQuestion } from '../planner/question.js';
import { DEFAULT_RATES } from '../planner/rates.js';

export interface OutlookView {
  /**
   * `rows` of `dim` values have as many bytes as all `tables`. `keysPerSecond`: rows that are pulled, or
   * pushed where that is more.
   */
  tables: number;
  rows: number;
  dim: number;
  keysPerSecond: number;
  code: string;
  ps: number;
  memoryBytes: number;
  memoryAfterLossBytes: number;
  /** Part of a PS's processor that requests take. */
  busy: number;
  recoverySeconds: number;
  /** 0: data is never lost. */
  meanTimeToLossSeconds: number;
  problems: string[];
}

/** Memory of a machine, too much to be a problem: what it has beyond the limit of its PS is unknown. */
const MACHINE_BYTES = 2 ** 44;
/** Defaults of `kintsugi plan`. */
const NETWORK_BYTES = 1.25e9;
const DAY_SECONDS = 86_400;
const MTBF_SECONDS = 30 * DAY_SECONDS;
const DURABILITY_SECONDS = 10 * 365.25 * DAY_SECONDS;
const PRICE = { core: 0.03, gib: 0.004 };
const GIB = 2 ** 30;

/** Undefined: there are no rows to plan for, or the planner has no answer for such a job. */
export function outlookOf(earlier: JobSnapshot, now: JobSnapshot, map: FrozenMap): OutlookView | undefined {
  const pool = map.pools[0];
  const main = mainTables(now);
  if (!pool || !main) return undefined;
  const { pull, push } = ratesBetween(earlier, now).job;
  const keys = Math.round(Math.max(pull.rowsPerSecond, push.rowsPerSecond));
  const limits = now.nodes.flatMap(({ telemetry: { memory } }) => memory.limitBytes || []);
  const ps = now.status.scaling.serving;
  try {
    const question: PlanQuestion = {
      rows: main.rows,
      dim: main.dim,
      optimizer: main.optimizer,
      policy: main.policy,
      code: parseCode(pool.r === 0 ? 'none' : `${pool.k}+${pool.r}`),
      // One worker with a step of all keys each second makes the same load.
      ...{ workers: 1, step: 1, batch: Math.max(1, keys) },
      ...{ ps, groups: pool.groups },
      memory: MACHINE_BYTES,
      network: NETWORK_BYTES,
      mtbf: MTBF_SECONDS,
      durability: DURABILITY_SECONDS,
      checkpoints: (now.status.saving?.length ?? 0) > 0,
      price: PRICE,
      rates: { ...DEFAULT_RATES },
    };
    // `candidate` in place of `planJob`: alternatives are not shown, and take thousands of times as long.
    checkQuestion(question);
    return viewOf(candidate(question, ps), { ...main, keys }, Math.min(...limits));
  } catch (error) {
    if (error instanceof KintsugiError) return undefined;
    throw error;
  }
}

/** The tables of the first pool, as if all were of the shape of the one that takes most. */
function mainTables({ status, nodes }: JobSnapshot) {
  const rows = new Map<string, number>();
  for (const { telemetry } of nodes)
    for (const table of telemetry.tables) rows.set(table.name, (rows.get(table.name) ?? 0) + table.rows);
  const tables = status.tables.flatMap(({ name, pool, dim, optimizer, policy }) => {
    if (pool !== status.pools[0]?.name || !isOptimizerKind(optimizer)) return [];
    const shape = { dim, optimizer, policy };
    return { ...shape, bytes: (rows.get(name) ?? 0) * rowBytes(shape) };
  });
  const bytes = tables.reduce((all, table) => all + table.bytes, 0);
  const main = tables.sort((a, b) => b.bytes - a.bytes)[0];
  if (!main || bytes === 0) return undefined;
  const { dim, optimizer, policy } = main;
  return { dim, optimizer, policy, rows: Math.ceil(bytes / rowBytes(main)), tables: tables.length };
}

function viewOf(
  { code, ps, memory, afterLoss, load, recovery, meanTimeToLoss, problems }: CandidateSize,
  { rows, tables, dim, keys }: { rows: number; tables: number; dim: number; keys: number },
  limitBytes: number,
): OutlookView {
  const [needed, limit] = [afterLoss.engine, limitBytes].map((size) => `${(size / GIB).toFixed(2)} GiB`);
  const tooMuch = `memory: after a loss a PS needs ${needed}, and its limit is ${limit}`;
  return {
    ...{ tables, rows, dim, keysPerSecond: keys, code, ps },
    memoryBytes: memory.engine,
    memoryAfterLossBytes: afterLoss.engine,
    busy: load.busy,
    recoverySeconds: recovery.redundant,
    meanTimeToLossSeconds: Number.isFinite(meanTimeToLoss) ? meanTimeToLoss : 0,
    problems: afterLoss.engine > limitBytes ? [tooMuch, ...problems] : problems,
  };
}

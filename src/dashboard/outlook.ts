/**
 * The planner's view of a running job: what its PS would need by the formulas of docs/planning.md, with the
 * tables, the code and the load that it has now. Pure.
 */
import type { JobSnapshot } from '../client/observe.js';
import { KintsugiError } from '../errors.js';
import { ratesBetween } from '../observe/rates.js';
import { isOptimizerKind } from '../optimizers.js';
import { rowBytes } from '../planner/memory.js';
import { type Candidate, candidate } from '../planner/plan.js';
import { checkQuestion, type Question } from '../planner/question.js';
import { DEFAULT_RATES } from '../planner/rates.js';
import type { ClusterMap } from '../protocol/map.js';
import { parseCode } from '../runtime/job.js';

export interface OutlookView {
  /** Tables, their bytes as rows of the main one, and what is pulled or pushed of them. */
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
  /** 0: for ever. */
  meanTimeToLossSeconds: number;
  problems: string[];
}

/** What a machine has beyond the limit of its PS is unknown, so it is no reason against a job. */
const MACHINE_BYTES = 2 ** 44;
/** As `kintsugi plan` has them. */
const NETWORK_BYTES = 1.25e9;
const DAY_SECONDS = 86_400;
const MTBF_SECONDS = 30 * DAY_SECONDS;
const DURABILITY_SECONDS = 10 * 365.25 * DAY_SECONDS;
const PRICE = { core: 0.03, gib: 0.004 };
const GIB = 2 ** 30;

/** Undefined: there are no rows to plan for, or the planner has no answer for such a job. */
export function outlookOf(earlier: JobSnapshot, now: JobSnapshot, map: ClusterMap): OutlookView | undefined {
  const pool = map.pools[0];
  const main = mainTables(now);
  if (!pool || !main) return undefined;
  const { pull, push } = ratesBetween(earlier, now).job;
  const keys = Math.round(Math.max(pull.rowsPerSecond, push.rowsPerSecond));
  const limits = now.nodes.flatMap(({ telemetry: { memory } }) => memory.limitBytes || []);
  const ps = now.status.scaling.serving;
  try {
    const question: Question = {
      rows: main.rows,
      dim: main.dim,
      optimizer: main.optimizer,
      code: parseCode(pool.r === 0 ? 'none' : `${pool.k}+${pool.r}`),
      // One that asks for everything in a second is the same load.
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
    // Alternatives are not shown, and take thousands of times as long.
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
  const tables = status.tables.flatMap(({ name, pool, dim, optimizer }) => {
    if (pool !== status.pools[0]?.name || !isOptimizerKind(optimizer)) return [];
    return { dim, optimizer, bytes: (rows.get(name) ?? 0) * rowBytes({ dim, optimizer }) };
  });
  const bytes = tables.reduce((all, table) => all + table.bytes, 0);
  const main = tables.sort((a, b) => b.bytes - a.bytes)[0];
  if (!main || bytes === 0) return undefined;
  const { dim, optimizer } = main;
  return { dim, optimizer, rows: Math.ceil(bytes / rowBytes(main)), tables: tables.length };
}

function viewOf(
  { code, ps, memory, afterLoss, load, recovery, meanTimeToLoss, problems }: Candidate,
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

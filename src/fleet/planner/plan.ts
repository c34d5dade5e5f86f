/**
 * From a question to a plan: how many PS, and what each needs. Pure: the same question gives the same plan.
 * docs/planning.md has the formulas.
 */
import type { CodeSpec } from '../../core/placement/job.js';
import { jobMeanTimeToLoss } from './durability.js';
import {
  nodeLoad,
  type PlannedLoad,
  type PlannedThroughput,
  type RecoveryCost,
  recovery,
  throughput,
} from './load.js';
import { codedBytes, inShards, type NodeMemory, nodeMemory, rowBytes } from './memory.js';
import { type CheckpointCost, checkpointCost } from './protection.js';
import {
  checkQuestion,
  codeText,
  groupsOf,
  MOST_BUSY,
  MOST_FULL,
  MOST_PS,
  type PlanQuestion,
} from './question.js';

/** A code and a number of PS, with all that follows. */
export interface CandidateSize {
  code: string;
  ps: number;
  groups: number;
  memory: NodeMemory;
  /** The same on the fullest PS after one is lost and its shards are on the others. */
  afterLoss: NodeMemory;
  /** Bytes that a machine for one PS must have, and what `kintsugi ps --memory` should be. */
  machineBytes: number;
  limitBytes: number;
  load: PlannedLoad;
  /** Throughput that the workers reach; less than they ask for where something limits them. */
  throughput: PlannedThroughput;
  recovery: RecoveryCost;
  /** Seconds until data is lost, on average; a lower bound. Without parity: until the first loss of a PS. */
  meanTimeToLoss: number;
  /** In the currency of the prices, per hour, PS alone. */
  cost: number;
  /** Why it does not hold; empty when it does. */
  problems: string[];
}

/** Cost of a way of keeping data, beside the same job without any. */
export interface Protection {
  how: string;
  /** Bytes of all PS, and as a share of the job without. */
  bytes: number;
  memoryShare: number;
  /** Processors of all PS that are busy, beyond those of the job without. */
  processors: number;
  /** Bytes per second between PS, all together. */
  network: number;
  /** Seconds of work that are gone or wait when a PS is lost. */
  lostPerFailure: number;
  /** Share of the time of the whole job that failures and checkpoints take. */
  lostShare: number;
  meanTimeToLoss: number;
}

export interface JobPlan {
  question: PlanQuestion;
  /** Bytes of a row with its key, without index and parity. */
  bytesPerRow: number;
  /** For the code that was asked for, and the PS if they were; it may have problems. */
  chosen: CandidateSize;
  /** Codes with the fewest PS that hold, and more PS for the code that was asked for; cheapest first. */
  alternatives: CandidateSize[];
  /** The cheapest of all that hold. */
  cheapest?: CandidateSize;
  protections: Protection[];
  checkpoints: CheckpointCost;
}

const CODES: readonly (readonly [number, number])[] = [
  [1, 0],
  [1, 1],
  [1, 2],
  [2, 1],
  [4, 1],
  [4, 2],
  [8, 1],
  [8, 2],
  [8, 3],
  [16, 2],
  [16, 4],
];
const GIB = 2 ** 30;

const percent = (share: number): string => `${Math.round(share * 100)} %`;

/** The candidate for a question with its code and `ps` PS. */
export function candidate(question: PlanQuestion, ps: number): CandidateSize {
  const { rows, code, memory: machine, network, mtbf, durability, checkpoints, price, rates } = question;
  const groups = groupsOf(question, ps);
  const layout = { ...code, groups };
  const memory = nodeMemory(rows, question, layout, ps, checkpoints);
  const canLose = code.r > 0 && ps > code.k + code.r;
  const afterLoss = nodeMemory(rows, question, layout, canLose ? ps - 1 : ps, checkpoints);
  const load = nodeLoad(question, ps);
  const perShard = Math.ceil(rows / (groups * code.k));
  const coded = codedBytes(perShard, inShards(question, groups * code.k));
  const lost = (coded * groups * (code.k + code.r)) / ps;
  const recovered = recovery(question, ps, lost);
  const meanTimeToLoss = jobMeanTimeToLoss(ps, layout, mtbf, recovered.redundant || mtbf);
  const needed = Math.max(memory.engine / MOST_FULL, afterLoss.engine);
  const machineBytes = needed + rates.processBytes;
  const problems: string[] = [];
  if (machineBytes > machine)
    problems.push(`memory: a PS needs ${gib(machineBytes)}, and has ${gib(machine)}`);
  if (load.busy > MOST_BUSY) problems.push(`processor: a PS is ${percent(load.busy)} busy`);
  const busiest = Math.max(load.sent, load.received) / network;
  if (busiest > MOST_BUSY) problems.push(`network: ${percent(busiest)} of a PS's is used`);
  if (meanTimeToLoss < durability)
    problems.push(
      `durability: ${yearsText(meanTimeToLoss)} until data is lost, not ${yearsText(durability)}`,
    );
  if (code.r > 0 && !canLose) problems.push('spare: with exactly k+r PS a loss is not made good');
  const cost = ps * (price.core + (machineBytes / GIB) * price.gib);
  return {
    code: codeText(code),
    ps,
    groups,
    memory,
    afterLoss,
    machineBytes,
    limitBytes: Math.floor(needed),
    load,
    throughput: throughput(question, ps),
    recovery: recovered,
    meanTimeToLoss,
    cost,
    problems,
  };
}

function gib(bytes: number): string {
  return `${(bytes / GIB).toFixed(bytes < 10 * GIB ? 2 : 0)} GiB`;
}

const YEAR = 365.25 * 86_400;

export function yearsText(seconds: number): string {
  if (seconds === Number.POSITIVE_INFINITY) return 'for ever';
  const years = seconds / YEAR;
  if (years >= 1e6) return `${years.toExponential(1)} years`;
  if (years >= 1) return `${years.toFixed(years < 10 ? 1 : 0)} years`;
  const days = seconds / 86_400;
  return days >= 1 ? `${days.toFixed(1)} days` : `${(seconds / 3600).toFixed(1)} hours`;
}

/** The fewest PS that hold; where none do, the number with the fewest problems. */
function fewest(question: PlanQuestion): CandidateSize {
  const { code } = question;
  const least = code.k + code.r + (code.r > 0 ? 1 : 0);
  let best: CandidateSize | undefined;
  for (let ps = least; ps <= MOST_PS; ps++) {
    const found = candidate(question, ps);
    if (found.problems.length === 0) return found;
    if (best === undefined || found.problems.length < best.problems.length) best = found;
  }
  return best!;
}

const same = (a: CandidateSize, b: CandidateSize): boolean => a.code === b.code && a.ps === b.ps;

/** A job of the same size that protects its rows in another way. */
function protection(question: PlanQuestion, ps: number, code: CodeSpec, how: string): Protection {
  const plain = candidate({ ...question, code: { k: 1, r: 0 } }, ps);
  const { load, recovery: lost, meanTimeToLoss } = candidate({ ...question, code }, ps);
  const groups = groupsOf({ ...question, code }, ps);
  const perShard = Math.ceil(question.rows / (groups * code.k));
  const extra = groups * code.r * codedBytes(perShard, inShards(question, groups * code.k));
  const bytes = plain.memory.engine * ps + extra;
  return {
    how,
    bytes,
    memoryShare: bytes / (plain.memory.engine * ps),
    processors: (load.busy - plain.load.busy) * ps,
    network: load.keys * ps * code.r * (rowBytes(question) + 4),
    lostPerFailure: lost.serving,
    lostShare: Math.min(1, (lost.serving * ps) / question.mtbf),
    meanTimeToLoss,
  };
}

/** Cost of checkpoints alone, for a job without parity. */
function checkpointsOf(question: PlanQuestion, ps: number, bytes: number): CheckpointCost {
  const { rates, mtbf } = question;
  return checkpointCost({
    bytes,
    between: mtbf / ps,
    writeBytes: rates.checkpointBytes,
    shareMeanwhile: rates.checkpointShare,
    restoreBytes: rates.restoreBytes,
    restart: rates.restart,
  });
}

/** @throws BAD_ARGUMENT, NOT_ENOUGH_NODES for questions without an answer */
export function planJob(question: PlanQuestion): JobPlan {
  checkQuestion(question);
  const { code, ps, rows } = question;
  const chosen = ps === undefined ? fewest(question) : candidate(question, ps);
  const others = CODES.filter(([k, r]) => k !== code.k || r !== code.r).map(([k, r]) =>
    fewest({ ...question, code: { k, r } }),
  );
  const larger = [1.25, 1.5, 2]
    .map((factor) => Math.ceil(chosen.ps * factor))
    .filter((count, i, all) => count <= MOST_PS && all.indexOf(count) === i)
    .map((count) => candidate(question, count));
  const least = fewest(question);
  const all = [chosen, least, ...larger, ...others].filter(
    (one, i, list) => list.findIndex((other) => same(one, other)) === i,
  );
  const alternatives = all.sort(
    (a, b) => a.problems.length - b.problems.length || a.cost - b.cost || a.ps - b.ps,
  );
  const cheapest = alternatives.find(({ problems }) => problems.length === 0);
  const size = chosen.ps;
  const protections = [
    ...(code.r === 0 ? [] : [protection(question, size, code, `parity ${codeText(code)}`)]),
    ...(code.r === 0 || code.k === 1
      ? []
      : [protection(question, size, { k: 1, r: code.r }, `mirrors 1+${code.r}`)]),
  ];
  const bare = protection(question, size, { k: 1, r: 0 }, 'checkpoints alone');
  const checkpoints = checkpointsOf(question, size, rows * (8 + rowBytes(question)));
  protections.push({
    ...bare,
    lostPerFailure: checkpoints.lostPerFailure,
    lostShare: checkpoints.share,
    // Each loss goes back to a checkpoint; what is lost is work.
    meanTimeToLoss: bare.meanTimeToLoss,
  });
  return {
    question,
    bytesPerRow: 8 + rowBytes(question),
    chosen,
    alternatives,
    ...(cheapest && { cheapest }),
    protections,
    checkpoints,
  };
}

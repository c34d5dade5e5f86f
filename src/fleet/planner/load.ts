/** Load of a job on each PS: bytes, processor time, and what a loss adds. */
import { rowBytes } from './memory.js';
import type { PlanQuestion } from './question.js';
import { groupsOf } from './question.js';

const KEY_BYTES = 8;
const SLOT_BYTES = 4;
/** The rows of the rates: values of a pull and a push, and a delta with the state of Adagrad and a slot. */
export const VALUE_BYTES = 256;
export const DELTA_BYTES = 516;

/** Load of one PS, on average. */
export interface PlannedLoad {
  /** Keys that it answers for in a second: as many pulled as pushed. */
  keys: number;
  /** Bytes per second. */
  sent: number;
  received: number;
  /** Processors that are busy: a PS is one thread, so 1 is all of it. */
  busy: number;
}

/**
 * Cost of a row of `bytes`, relative to one of `measured` bytes. `fixed`: the share that does not grow with
 * them.
 */
function relative(fixed: number, bytes: number, measured: number): number {
  return fixed + ((1 - fixed) * bytes) / measured;
}

/** Shards that a step has a section for, when each key lies in one of them by chance. */
function sectionsOf(question: PlanQuestion, ps: number): number {
  const shards = groupsOf(question, ps) * question.code.k;
  return shards * -Math.expm1(question.batch * Math.log1p(-1 / shards));
}

/** The steps per second of all workers together, as they are when nothing waits. */
function stepsPerSecond({ workers, step }: PlanQuestion): number {
  return workers / step;
}

/**
 * Each step pulls and pushes `batch` keys. A pull has 8 bytes a key there and the values back, a push a key
 * and a gradient. Each of r parities gets a delta with the whole row: values, optimizer state and its slot.
 * A step has a section for every shard that its keys lie in, twice.
 */
export function nodeLoad(question: PlanQuestion, ps: number): PlannedLoad {
  const { batch, code, dim, rates } = question;
  const steps = stepsPerSecond(question) / ps;
  const keys = steps * batch;
  const values = dim * 4;
  const delta = rowBytes(question) + SLOT_BYTES;
  const sections = sectionsOf(question, ps);
  return {
    keys,
    sent: keys * (values + code.r * delta),
    received: keys * (KEY_BYTES + KEY_BYTES + values + code.r * delta),
    busy:
      rates.idle +
      keys *
        (relative(rates.rowFixed, values, VALUE_BYTES) * (rates.pullRow + rates.pushRow) +
          code.r * rates.parityRow * relative(rates.parityFixed, delta, DELTA_BYTES)) +
      steps * sections * (2 * rates.section + code.r * rates.deltaMessage),
  };
}

/** Processor seconds that a client spends on the requests of a step. */
export function clientStep(question: PlanQuestion, ps: number): number {
  const { batch, dim, rates } = question;
  return (
    batch * rates.clientRow * relative(rates.clientFixed, dim * 4, VALUE_BYTES) +
    2 * sectionsOf(question, ps) * rates.clientSection
  );
}

/** Throughput of a job, and what limits it. */
export interface PlannedThroughput {
  steps: number;
  keys: number;
  limit: 'workers' | 'PS' | 'network' | 'processors';
  /** Processor seconds of a step: of all PS, without what they take anyway, and of the worker's requests. */
  stepSeconds: number;
}

/**
 * Steps per second: as many as workers take, at most as many as keep a PS busy all the time, or its network.
 * Where all processes share `processors`, also at most as many as these have time for.
 */
export function throughput(question: PlanQuestion, ps: number): PlannedThroughput {
  const { rates, processors, batch, workers, network } = question;
  const wanted = stepsPerSecond(question);
  const load = nodeLoad(question, ps);
  const perStep = (load.busy - rates.idle) / wanted;
  const client = clientStep(question, ps);
  const limits: [PlannedThroughput['limit'], number][] = [
    // A step that computes nothing still has its requests.
    ['workers', workers / Math.max(question.step, client)],
    ['PS', (1 - rates.idle) / perStep],
    ['network', (wanted * network) / Math.max(load.sent, load.received)],
  ];
  if (processors !== undefined)
    limits.push(['processors', (processors - ps * rates.idle) / (ps * perStep + client)]);
  const [limit, steps] = limits.reduce((least, one) => (one[1] < least[1] ? one : least));
  const stepSeconds = ps * perStep + client;
  return { steps: Math.max(0, steps), keys: Math.max(0, steps) * batch, limit, stepSeconds };
}

/** Cost of a lost PS for the others. */
export interface RecoveryCost {
  /** Seconds until every shard serves again; rows are decoded on demand from then on. 0 without parity. */
  serving: number;
  /** Seconds until everything is redundant again. */
  redundant: number;
  /** Bytes that are decoded or built again. */
  bytes: number;
  /** Bytes per second that each other PS sends and takes in for that. */
  network: number;
  /** Processors that each other PS spends on it: what requests leave. */
  busy: number;
}

/**
 * The other PS share the work. Each gives what requests leave of its processor, and of its network. For a
 * lost block the k - 1 other members and a parity are sent, and for a lost parity k members.
 */
export function recovery(question: PlanQuestion, ps: number, lostBytes: number): RecoveryCost {
  const { code, rates, network } = question;
  if (code.r === 0) return { serving: 0, redundant: 0, bytes: 0, network: 0, busy: 0 };
  const others = ps - 1;
  const load = nodeLoad(question, ps);
  const busy = Math.max(0.05, 1 - (load.busy * ps) / Math.max(1, others));
  const byProcessor = rates.recoveryBytes * busy;
  const left = Math.max(0.05 * network, network - Math.max(load.sent, load.received));
  const pace = Math.min(byProcessor, left / code.k);
  const seconds = lostBytes / (Math.max(1, others) * pace);
  return {
    serving: rates.detection + rates.serving,
    redundant: rates.detection + rates.serving + seconds,
    bytes: lostBytes,
    network: pace * code.k,
    busy: Math.min(busy, pace / rates.recoveryBytes),
  };
}

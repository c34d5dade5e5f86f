/**
 * A job of a day in steps of ten seconds: what PS and workers do, hold and count. The rules that decide see
 * only what an observation has.
 */
import type { Decision, Observation } from '../../src/fleet/autoscale/decide/observation.js';
import type { Scenario } from './scenario.js';

/** Price of a PS (a processor and its memory), and of a worker, for an hour. */
export const PS_PRICE = 0.04;
export const WORKER_PRICE = 0.12;
/** Seconds of a step. */
const STEP = 10;
/** Share of the throughput that is left while shards move, and bytes per second that a new node takes in. */
const WHILE_MOVING = 0.85;
const MOVE_BYTES = 20 * 2 ** 20;
/** Part of the load beyond the mean that a rebalance leaves. */
const REBALANCED = 0.5;
/** Sharpness of the bend where PS and workers are equally fast. */
const BEND = 4;

/** Samples per second, when the workers can do `workers` and the PS `ps`. */
export function throughputOf(workers: number, ps: number): number {
  return workers === 0 ? 0 : 1 / (workers ** -BEND + ps ** -BEND) ** (1 / BEND);
}

interface ScaledProcess {
  id: string;
  number: number;
  busy: number;
  idle: number;
  samples: number;
  /** When it serves. */
  from: number;
}

export interface ScaledOutcome {
  samples: number;
  cost: number;
  /** Pushes were refused for want of memory: so many seconds. */
  outOfMemory: number;
  decisions: number;
  psMean: number;
  workersMean: number;
}

export class ScaledJob {
  at = 0;
  private samples = 0;
  private cost = 0;
  private refused = 0;
  private decisions = 0;
  private psSeconds = 0;
  private workerSeconds = 0;
  private ps: ScaledProcess[] = [];
  private workers: ScaledProcess[] = [];
  private started = 0;
  private moveLeft = 0;
  private rebalancedFor = -1;
  /** PS that leave when the moves are done. */
  private leaving = 0;

  constructor(
    private readonly scene: Scenario,
    size: { ps: number; workers: number },
    private readonly noise: () => number,
  ) {
    for (let i = 0; i < size.ps; i++) this.ps.push(this.process('ps', 0));
    for (let i = 0; i < size.workers; i++) this.workers.push(this.process('worker', 0));
  }

  private process(kind: string, from: number): ScaledProcess {
    const number = this.started++;
    return { id: `${kind}-${number}`, number, busy: 0, idle: 0, samples: 0, from };
  }

  private serving(list: readonly ScaledProcess[]): ScaledProcess[] {
    return list.filter(({ from }) => from <= this.at);
  }

  apply(decision: Decision): void {
    this.decisions++;
    const startup = this.scene.startup(this.at);
    if (decision.kind === 'rebalance') {
      this.rebalancedFor = this.skewKey();
      this.moveLeft += this.bytes() / this.serving(this.ps).length / 4;
    } else if (decision.kind === 'replace') {
      this.workers = this.workers.filter(({ id }) => id !== decision.worker);
      this.workers.push(this.process('worker', this.at + startup));
    } else {
      const isPs = decision.kind === 'ps';
      const list = isPs ? this.ps : this.workers;
      const more = decision.to - list.length;
      if (isPs && more < 0) this.leaving = -more;
      else {
        for (let i = 0; i < more; i++) list.push(this.process(decision.kind, this.at + startup));
        if (more < 0) list.splice(list.length + more, -more);
      }
      // Each new node takes in its share, each that leaves hands it over; at most four at once.
      if (isPs) this.moveLeft += (this.bytes() / Math.max(1, decision.to)) * Math.ceil(Math.abs(more) / 4);
    }
  }

  /** Hot keys that a rebalance has spread are cold when others are hot. */
  private skewKey(): number {
    return Math.floor(this.at / 10_800);
  }

  private skewNow(count: number): number {
    const skew = this.scene.skew(this.at, count);
    return this.rebalancedFor === this.skewKey() ? 1 + (skew - 1) * REBALANCED : skew;
  }

  bytes(): number {
    return this.scene.bytesAfter(this.samples);
  }

  /** Ten seconds. */
  step(): void {
    const { scene } = this;
    const nodes = this.serving(this.ps);
    const hands = this.serving(this.workers);
    const fresh = nodes.some(({ from }) => from > 0 && this.at - from < STEP);
    if (this.moveLeft > 0 && !this.ps.some(({ from }) => from > this.at)) this.moveLeft -= MOVE_BYTES * STEP;
    const moving = this.moveLeft > 0;
    if (!moving && this.leaving > 0) {
      this.ps.splice(this.ps.length - this.leaving, this.leaving);
      this.leaving = 0;
      return this.step();
    }
    const skew = this.skewNow(nodes.length);
    const speeds = hands.map(({ number }) => scene.workerRate / scene.slowness(this.at, number));
    const can = speeds.reduce((sum, speed) => sum + speed, 0);
    const served = nodes.length / skew / scene.psCost(this.at);
    const possible =
      throughputOf(can, served) * (moving || fresh ? WHILE_MOVING : 1) * (0.97 + 0.06 * this.noise());
    const full = this.bytes() / nodes.length > scene.limit / this.memorySkew();
    // Pushes of new rows are refused: the job stands still.
    const rate = full ? 0 : Math.min(possible, scene.arrivals(this.at));
    if (full) this.refused += STEP;
    this.samples += rate * STEP;
    const active = possible > 0 ? rate / possible : 1;
    for (const [i, hand] of hands.entries()) {
      hand.samples += can > 0 ? (rate * STEP * speeds[i]!) / can : 0;
      hand.busy += STEP * active;
      hand.idle += STEP * (1 - active);
    }
    for (const [i, node] of nodes.entries()) {
      const share = (i === 0 ? skew : (nodes.length - skew) / Math.max(1, nodes.length - 1)) / nodes.length;
      node.busy += STEP * Math.min(1, rate * scene.psCost(this.at) * Math.max(0, share));
    }
    this.cost += ((this.ps.length * PS_PRICE + this.workers.length * WORKER_PRICE) * STEP) / 3600;
    this.psSeconds += this.ps.length * STEP;
    this.workerSeconds += this.workers.length * STEP;
    this.at += STEP;
  }

  /** The fullest holds so much more than the mean. */
  private memorySkew(): number {
    return 1.05;
  }

  observe(): Observation {
    const nodes = this.serving(this.ps);
    const each = this.bytes() / nodes.length;
    return {
      at: this.at,
      samples: this.samples,
      ps: nodes.map(({ id, busy }, i) => ({
        id,
        cpu: busy,
        bytes: Math.min(this.scene.limit, each * (i === 0 ? this.memorySkew() : 1)),
        limit: this.scene.limit,
      })),
      workers: this.serving(this.workers).map(({ id, samples, busy, idle }) => ({
        ...{ id, name: id, samples, busy, idle },
      })),
      pendingPs: this.ps.length - nodes.length,
      pendingWorkers: this.workers.length - this.serving(this.workers).length,
      changing: this.moveLeft > 0,
    };
  }

  outcome(): ScaledOutcome {
    return {
      samples: this.samples,
      cost: this.cost,
      outOfMemory: this.refused,
      decisions: this.decisions,
      psMean: this.psSeconds / Math.max(1, this.at),
      workersMean: this.workerSeconds / Math.max(1, this.at),
    };
  }
}

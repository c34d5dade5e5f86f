/**
 * Counts messages, bytes and processor time of each role. Processor time is taken around the real code only,
 * and never around the simulated world. It is the time of the process, work of V8's own threads included.
 */

const PARTS = ['decode', 'core', 'encode', 'store'] as const;
/** A part of the time of a role. `store`: packing decisions that are made durable. */
export type MeteredPart = (typeof PARTS)[number];

export interface MeteredTraffic {
  messages: number;
  bytes: number;
}

export interface RoleCount {
  sent: MeteredTraffic;
  received: MeteredTraffic;
  /** Milliseconds of processor time; of PS and workers, that of the one whose code is real. */
  cpuMs: number;
  parts: Record<MeteredPart, number>;
}

export type RoleName = 'scheduler' | 'ps' | 'worker';

/** Tells the microseconds of processor time so far. */
export type CpuClock = () => number;

const processCpu: CpuClock = () => {
  const { user, system } = process.cpuUsage();
  return user + system;
};

function emptyCount(): RoleCount {
  const parts = { decode: 0, core: 0, encode: 0, store: 0 };
  return { sent: { messages: 0, bytes: 0 }, received: { messages: 0, bytes: 0 }, cpuMs: 0, parts };
}

export class ScaleMeter {
  counts = { scheduler: emptyCount(), ps: emptyCount(), worker: emptyCount() };
  /** Bytes that each peer received from the scheduler. */
  readonly receivedBy = new Map<number, number>();
  /** Time that one call of the clock takes, in microseconds. */
  private readonly overhead: number;

  constructor(private readonly clock: CpuClock = processCpu) {
    const start = clock();
    for (let i = 0; i < 1000; i++) clock();
    this.overhead = (clock() - start) / 1000;
  }

  reset(): void {
    this.counts = { scheduler: emptyCount(), ps: emptyCount(), worker: emptyCount() };
    this.receivedBy.clear();
  }

  /** Runs real code on account of a role. `times`: factor of the time that is charged. */
  on<T>(role: RoleName, part: MeteredPart, run: () => T, times = 1): T {
    const start = this.clock();
    const result = run();
    this.charge(role, part, (Math.max(0, this.clock() - start - this.overhead) / 1000) * times);
    return result;
  }

  charge(role: RoleName, part: MeteredPart, ms: number): void {
    const count = this.counts[role];
    count.cpuMs += ms;
    count.parts[part] += ms;
  }

  toScheduler(role: 'ps' | 'worker', bytes: number): void {
    add(this.counts[role].sent, bytes);
    add(this.counts.scheduler.received, bytes);
  }

  fromScheduler(role: 'ps' | 'worker', peer: number, bytes: number): void {
    add(this.counts.scheduler.sent, bytes);
    add(this.counts[role].received, bytes);
    this.receivedBy.set(peer, (this.receivedBy.get(peer) ?? 0) + bytes);
  }
}

function add(traffic: MeteredTraffic, bytes: number): void {
  traffic.messages++;
  traffic.bytes += bytes;
}

/** Jobs of a day: what they are, and what happens to them. Everything is a function of the seed. */
import { randomU32 } from '../common/random.js';

export interface Scenario {
  name: string;
  /** Bytes that all PS hold after so many samples: rows, index and parity. */
  bytesAfter(samples: number): number;
  /** Samples per second of one worker alone. */
  workerRate: number;
  /** Processor seconds of all PS for one sample. */
  psCost(at: number): number;
  /** The load of the hottest PS over the mean, of so many. A rebalance lessens it. */
  skew(at: number, ps: number): number;
  /** Samples per second that arrive; infinite for data on disk. What is not trained at once is late. */
  arrivals(at: number): number;
  /** How many times as long as usual the worker that started as the n-th takes. */
  slowness(at: number, worker: number): number;
  /** Seconds until a process that is started at this time serves. */
  startup(at: number): number;
  /** Bytes of a PS. */
  limit: number;
}

const HOUR = 3600;
const MIB = 2 ** 20;
const GIB = 2 ** 30;

function uniform(seed: number): (low: number, high: number) => number {
  const next = randomU32(seed);
  for (let i = 0; i < 8; i++) next();
  return (low, high) => low + ((high - low) * next()) / 2 ** 32;
}

/** Rows grow with a power of the samples (Heaps), and no job begins with nothing. */
function growing(random: (low: number, high: number) => number, bytesOfDay: number, samplesOfDay: number) {
  const power = random(0.6, 0.8);
  const start = random(200, 400) * MIB;
  return (samples: number) => start + bytesOfDay * (samples / samplesOfDay) ** power;
}

const common = (random: (low: number, high: number) => number): Omit<Scenario, 'name'> => ({
  bytesAfter: growing(random, 6 * GIB, 4e9),
  workerRate: random(2500, 3500),
  psCost: () => 6e-5,
  skew: () => 1.1,
  arrivals: () => Number.POSITIVE_INFINITY,
  slowness: () => 1,
  startup: () => 60,
  limit: 2 * GIB,
});

/** By kind; `seed` chooses the day. */
export const KINDS: Readonly<Record<string, (seed: number) => Omit<Scenario, 'name'>>> = {
  steady: (seed) => common(uniform(seed)),
  growing: (seed) => {
    const random = uniform(seed);
    return {
      ...common(random),
      bytesAfter: growing(random, random(25, 40) * GIB, 4e9),
      psCost: () => 3e-5,
    };
  },
  skewed: (seed) => {
    const random = uniform(seed);
    const phase = random(0, 6 * HOUR);
    const peak = random(1.5, 2);
    return {
      ...common(random),
      // The hot keys move every three hours.
      skew: (at) => (Math.floor((at + phase) / (3 * HOUR)) % 2 === 0 ? 1.1 : peak),
    };
  },
  slow: (seed) => {
    const random = uniform(seed);
    const times = Array.from(
      { length: 12 },
      () => [random(0, 24 * HOUR), Math.floor(random(0, 20))] as const,
    );
    return {
      ...common(random),
      // From its hour on a machine is slow for good.
      slowness: (at, worker) => (times.some(([from, who]) => who === worker && at >= from) ? 4 : 1),
    };
  },
  bursts: (seed) => {
    const random = uniform(seed);
    const base = random(15_000, 25_000);
    const bursts = Array.from({ length: 6 }, (_, i) => (i * 4 + random(0, 2)) * HOUR);
    return {
      ...common(random),
      arrivals: (at) => {
        const daily = base * (1 + 0.4 * Math.sin((2 * Math.PI * at) / (24 * HOUR)));
        return bursts.some((from) => at >= from && at < from + HOUR) ? 2 * daily : daily;
      },
    };
  },
  pending: (seed) => {
    const random = uniform(seed);
    const waits = Array.from({ length: 24 }, () => random(60, 900));
    return {
      ...common(random),
      bytesAfter: growing(random, random(25, 40) * GIB, 4e9),
      psCost: () => 3e-5,
      startup: (at) => waits[Math.floor(at / HOUR) % waits.length]!,
    };
  },
};

export const scenario = (kind: string, seed: number): Scenario => ({ name: kind, ...KINDS[kind]!(seed) });

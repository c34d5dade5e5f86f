/**
 * `--kill ROLE[:INDEX]@P%`: which process is killed, and when; `all` are all of them at once. The time is a
 * share of all samples, so a slow machine loses the same process at the same sample. A seed chooses among
 * several, so a run can be repeated.
 */
import { KintsugiError } from '../../common/errors.js';

const ROLES = ['ps', 'worker', 'scheduler', 'all'] as const;
type Victims = (typeof ROLES)[number];
export type KillRole = Exclude<Victims, 'all'>;

export interface Kill {
  /** `all`: every process of the job, which ends the run. */
  role: Victims;
  /** Launch order from 0; undefined: a live one chosen by the seed. */
  index: number | undefined;
  /** Percent of all samples. */
  percent: number;
}

/** @throws BAD_ARGUMENT */
export function parseKill(text: string): Kill {
  const match = /^([a-z]+)(?:[:-](\d{1,6}))?@(\d{1,3}(?:\.\d+)?)%$/.exec(text);
  const percent = Number(match?.[3]);
  if (!match || percent > 100) {
    throw new KintsugiError(
      'BAD_ARGUMENT',
      `--kill must be ROLE[:INDEX]@P% with P from 0 to 100, for example ps@50% or ps:2@80%, not "${text}"`,
    );
  }
  const role = ROLES.find((each) => each === match[1]);
  if (!role) {
    throw new KintsugiError(
      'BAD_ARGUMENT',
      `--kill ${text}: "${match[1]}" is not a role; roles are ${ROLES.join(', ')}`,
    );
  }
  return { role, index: match[2] === undefined ? undefined : Number(match[2]), percent };
}

/** Every INDEX must name a process that the job starts. @throws BAD_ARGUMENT */
export function checkKills(kills: readonly Kill[], nodes: number, workers: number): void {
  const counts = { ps: nodes, worker: workers, scheduler: 1 };
  for (const { role, index } of kills) {
    if (role === 'all') {
      if (index === undefined) continue;
      throw new KintsugiError('BAD_ARGUMENT', `--kill all:${index}: "all" has no index`);
    }
    const count = counts[role];
    if (index === undefined || index < count) continue;
    const range = count === 1 ? 'only index 0' : `indices 0 to ${count - 1}`;
    throw new KintsugiError('BAD_ARGUMENT', `--kill ${role}:${index}: the job has ${range}`);
  }
}

/** u32 numbers from a seed (SplitMix32). */
export function seededRandom(seed: number): () => number {
  let state = Math.floor(seed) >>> 0;
  return () => {
    state = (state + 0x9e3779b9) >>> 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return (z ^ (z >>> 15)) >>> 0;
  };
}

/** Kills that are due, each once, in the order of their percentages. */
export class KillPlan {
  private readonly waiting: Kill[];
  private readonly random: () => number;

  constructor(
    kills: readonly Kill[],
    private readonly totalSamples: number,
    seed: number,
  ) {
    this.waiting = [...kills].sort((a, b) => a.percent - b.percent);
    this.random = seededRandom(seed);
  }

  due(samples: number): Kill[] {
    const due: Kill[] = [];
    while (this.waiting[0] && samples * 100 >= this.waiting[0].percent * this.totalSamples)
      due.push(this.waiting.shift()!);
    return due;
  }

  /** Chooses one of `live`; undefined when there is none. */
  choose<T>(live: readonly T[]): T | undefined {
    return live.length === 0 ? undefined : live[this.random() % live.length];
  }
}

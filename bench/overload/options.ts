/** Options of `bench overload`. */
import { parseCode, poolsFor } from '../../src/core/placement/job.js';
import { OVERLOAD_MEMORY } from '../common/attacks/bound.js';
import { ATTACK_NAMES, type AttackName } from '../common/attacks/names.js';
import { bad, LOG_FLAG, type OptionsOf, optionSpec, QUIET_FLAG } from '../common/flags.js';
import { randomU32 } from '../common/random.js';

const MEBIBYTE = 2 ** 20;
/** Least share of `--seconds` that a round gets. Where it would be less, attacks and jobs take turns. */
const LEAST_ROUND_SECONDS = 5;
const SMOKE_ATTACKS: readonly AttackName[] = ['idle-connections', 'recovery'];

/** Code and number of PS of a job. */
export interface OverloadShape {
  name: string;
  code: string;
  ps: number;
}

/** The attacks of one round, which go on at once, on a job of its own. */
export interface RoundPlan {
  name: string;
  attacks: readonly AttackName[];
  job: OverloadShape;
}

export const OVERLOAD_OPTIONS = optionSpec(
  {
    ...QUIET_FLAG,
    ...LOG_FLAG,
    seconds: {
      value: 'n',
      help: 'attacks and their baselines, all rounds together',
      standard: '600',
      smoke: '8',
    },
    seed: { value: 'n', help: 'of the mixes', standard: '1' },
    jobs: {
      value: 'list',
      help: 'code@PS of each job',
      standard: '3+2@6,2+1@3',
      smoke: '2+1@3',
    },
    attacks: {
      value: 'list',
      help: 'names of attacks, each alone (default: all)',
    },
    mixes: {
      value: 'n',
      help: 'rounds with several attacks at once, on each job',
      standard: '2',
      smoke: '0',
    },
    pairs: {
      value: 'n',
      help: 'times that an attack and its baseline follow each other in a round',
      standard: '3',
      smoke: '1',
    },
    scale: {
      value: 'x',
      help: 'of the numbers of clients and connections',
      standard: '1',
      smoke: '0.05',
    },
    memory: { value: 'MiB', help: 'of each PS', standard: `${OVERLOAD_MEMORY.memoryMiB}` },
    overhead: {
      value: 'MiB',
      help: 'that a PS may have beside --memory',
      standard: `${OVERLOAD_MEMORY.overheadMiB}`,
    },
    fill: { value: 'MiB', help: 'rows and parity of a PS before an attack', standard: '256', smoke: '8' },
    killAt: { value: 'MiB', help: 'resident memory of a process that ends its attack', standard: '3072' },
  },
  (flags) => {
    const { smoke = false, attacks: named } = flags.texts;
    const jobs = flags.texts.jobs.split(',').map(jobOf);
    const attacks = named?.split(',').map(attackOf) ?? (smoke ? SMOKE_ATTACKS : ATTACK_NAMES);
    const mixes = flags.whole('mixes', 0);
    const seconds = flags.number('seconds');
    const seed = flags.whole('seed', 0);
    const memoryMiB = flags.whole('memory', 64);
    return {
      seconds,
      seed,
      /** Names of the jobs, of the attacks that are made alone, and how many mixes each job gets. */
      jobs,
      attacks,
      mixes,
      pairs: flags.whole('pairs', 1),
      scale: flags.number('scale'),
      /** As of `kintsugi ps`. */
      memory: `${memoryMiB}MiB`,
      memoryBytes: memoryMiB * MEBIBYTE,
      /** Beside `memory`. */
      overheadBytes: flags.number('overhead') * MEBIBYTE,
      fillBytes: flags.numberOrZero('fill') * MEBIBYTE,
      killBytes: flags.number('killAt') * MEBIBYTE,
      /** Times of a smoke mean nothing. */
      times: !smoke,
      plans: plansOf({ jobs, attacks, mixes, seconds, seed }),
    };
  },
);
export type OverloadOptions = OptionsOf<typeof OVERLOAD_OPTIONS>;

/** Parses `3+2@6`. @throws BAD_ARGUMENT, NOT_ENOUGH_NODES */
function jobOf(text: string): OverloadShape {
  const match = /^(\d+\+\d+)@(\d{1,4})$/.exec(text);
  if (!match) throw bad(`--jobs must be a list of code@PS like 3+2@6, not "${text}"`);
  const [, code, count] = match as unknown as [string, string, string];
  const ps = Number(count);
  poolsFor(parseCode(code), ps, undefined);
  return { name: text, code, ps };
}

/** @throws BAD_ARGUMENT */
function attackOf(text: string): AttackName {
  const name = ATTACK_NAMES.find((each) => each === text);
  if (name === undefined) throw bad(`--attacks: there is no "${text}", but ${ATTACK_NAMES.join(', ')}`);
  return name;
}

/**
 * The rounds: each attack alone and each mix, on each job. Where `seconds` are too few for all of them, each
 * attack and mix has one job, and the jobs take turns.
 */
function plansOf({
  jobs,
  attacks,
  mixes,
  seconds,
  seed,
}: {
  jobs: readonly OverloadShape[];
  attacks: readonly AttackName[];
  mixes: number;
  seconds: number;
  seed: number;
}): RoundPlan[] {
  const sets: (readonly AttackName[])[] = [
    ...attacks.map((name) => [name]),
    ...Array.from({ length: mixes }, (_, i) => mixOf(attacks, seed + i)),
  ];
  const planOf = (set: readonly AttackName[], job: OverloadShape): RoundPlan => {
    return { name: `${set.join('+')} on ${job.name}`, attacks: set, job };
  };
  const all = jobs.flatMap((job) => sets.map((set) => planOf(set, job)));
  if (seconds / all.length >= LEAST_ROUND_SECONDS) return all;
  return sets.map((set, i) => planOf(set, jobs[i % jobs.length]!));
}

/** Two to four of the attacks, which the seed chooses; all of them where there are fewer. */
function mixOf(attacks: readonly AttackName[], seed: number): AttackName[] {
  const random = randomU32(seed);
  const left = [...attacks];
  const count = 2 + (random() % 3);
  const mix: AttackName[] = [];
  while (mix.length < count && left.length > 0) mix.push(...left.splice(random() % left.length, 1));
  return mix;
}

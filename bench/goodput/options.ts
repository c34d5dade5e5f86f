/** What `bench goodput` can be told. */
import { type CodeSpec, parseCode } from '../../src/runtime/job.js';
import {
  bad,
  COMMON_FLAGS,
  completed,
  type Flags,
  type Given,
  number,
  numbers,
  QUIET_FLAG,
  teller,
  whole,
} from '../common/flags.js';
import { type Assumptions, MEASURED } from './model.js';

/** A way to keep what the job has learned. */
export interface Way {
  name: string;
  code: CodeSpec;
  checkpoints: boolean;
}

export interface GoodputOptions {
  smoke: boolean;
  seed: number;
  ways: Way[];
  /** Of these, those that are run as processes. */
  real: Way[];
  ps: number;
  workers: number;
  /** Failures of an hour, of each simulated job. */
  rates: number[];
  /** Simulated hours of each rate. */
  hours: number;
  assumptions: Assumptions;
  /** Seconds of the job of processes, and its failures of an hour. */
  seconds: number;
  perHour: number;
  /** Seconds between its checkpoints. */
  interval: number;
  svg: string | undefined;
  json: string | undefined;
  log: string | undefined;
  tell(text: string): void;
}

export const GOODPUT_FLAGS = {
  ...COMMON_FLAGS,
  ...QUIET_FLAG,
  modes: {
    value: 'list',
    help: 'of codes and checkpoints',
    standard: '4+1,4+1/checkpoint,checkpoint,none',
    smoke: '2+1,2+1/checkpoint,checkpoint,none',
  },
  real: {
    value: 'list',
    help: 'of these, jobs of processes',
    standard: '4+1,checkpoint,none',
    smoke: '2+1,checkpoint',
  },
  ps: { value: 'n', help: 'PS', standard: '6', smoke: '4' },
  workers: { value: 'n', help: 'workers', standard: '3', smoke: '2' },
  seed: { value: 'n', help: 'of the failures', standard: '1' },
  rates: {
    value: 'list',
    help: 'failures of an hour, of the simulated jobs',
    standard: '1,6,12,30,60,120',
    smoke: '6,60',
  },
  hours: { value: 'n', help: 'simulated hours of each rate', standard: '20', smoke: '2' },
  assume: {
    value: 'list',
    help: 'other figures for the simulated jobs: restart=60,restore=13',
  },
  simulate: { help: 'simulated jobs alone' },
  seconds: { value: 'n', help: 'of each job of processes', standard: '300', smoke: '6' },
  perHour: {
    value: 'n',
    help: 'failures of an hour, of the jobs of processes',
    standard: '60',
    smoke: '1200',
  },
  interval: { value: 'seconds', help: 'between their checkpoints', standard: '20', smoke: '2' },
  svg: { value: 'file', help: 'write a picture' },
  log: { value: 'file', help: 'append every log record of every role' },
} as const satisfies Flags;

function wayOf(name: string): Way {
  const [code = '', second, ...more] = name === 'checkpoint' ? ['none', name] : name.split('/');
  if (more.length > 0 || (second !== undefined && second !== 'checkpoint'))
    throw bad(`--modes: "${name}" is none of a code, a code/checkpoint, checkpoint, none`);
  return { name, code: parseCode(code), checkpoints: second !== undefined };
}

function assumptionsOf(text: string | undefined): Assumptions {
  const given = { ...MEASURED };
  for (const pair of text?.split(',') ?? []) {
    const [name = '', value] = pair.split('=');
    if (!Object.hasOwn(given, name))
      throw bad(`--assume: there is no "${name}"; there are ${Object.keys(given).join(', ')}`);
    const number = Number(value || Number.NaN);
    if (!(number >= 0)) throw bad(`--assume: ${name} must be a number of at least 0, not "${value}"`);
    given[name as keyof Assumptions] = number;
  }
  return given;
}

/** @throws BAD_ARGUMENT */
export function parseGoodputOptions(given: Given<typeof GOODPUT_FLAGS>): GoodputOptions {
  const flags = completed(GOODPUT_FLAGS, given);
  const { smoke = false, simulate = false, svg, json, log } = flags;
  const ways = flags.modes.split(',').map(wayOf);
  const real = flags.real.split(',');
  return {
    ...{ smoke, ways, svg, json, log },
    real: simulate ? [] : ways.filter(({ name }) => real.includes(name)),
    seed: whole(flags, 'seed', 0),
    ps: whole(flags, 'ps', 1),
    workers: whole(flags, 'workers', 1),
    rates: numbers(flags, 'rates'),
    hours: whole(flags, 'hours', 1),
    assumptions: assumptionsOf(flags.assume),
    seconds: number(flags, 'seconds'),
    perHour: number(flags, 'perHour'),
    interval: number(flags, 'interval'),
    tell: teller(flags),
  };
}

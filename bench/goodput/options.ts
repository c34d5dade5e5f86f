/** Options of `bench goodput`. */
import { type CodeSpec, parseCode } from '../../src/core/placement/job.js';
import { bad, LOG_FLAG, type OptionsOf, optionSpec, QUIET_FLAG } from '../common/flags.js';
import { type Assumptions, MEASURED } from './model.js';

/** A way to keep what the job has learned. */
export interface GoodputWay {
  name: string;
  code: CodeSpec;
  checkpoints: boolean;
}

function wayOf(name: string): GoodputWay {
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

export const GOODPUT_OPTIONS = optionSpec(
  {
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
    ...LOG_FLAG,
  },
  (flags) => {
    const { simulate = false, modes, assume, svg } = flags.texts;
    const ways = modes.split(',').map(wayOf);
    const real = flags.texts.real.split(',');
    return {
      ways,
      /** Ways that are also run as processes. */
      real: simulate ? [] : ways.filter(({ name }) => real.includes(name)),
      seed: flags.whole('seed', 0),
      ps: flags.whole('ps', 1),
      workers: flags.whole('workers', 1),
      /** Failures of an hour, of each simulated job. */
      rates: flags.numbers('rates'),
      /** Simulated hours of each rate. */
      hours: flags.whole('hours', 1),
      assumptions: assumptionsOf(assume),
      /** Seconds of the job of processes, and its failures of an hour. */
      seconds: flags.number('seconds'),
      perHour: flags.number('perHour'),
      /** Seconds between its checkpoints. */
      interval: flags.number('interval'),
      svg,
    };
  },
);
export type GoodputOptions = OptionsOf<typeof GOODPUT_OPTIONS>;

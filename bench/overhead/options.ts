/** What `bench overhead` can be told: jobs, and the modes that run them. */
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
import { LOOKS, type Mode, modeOf } from '../common/training/modes.js';

export interface Job {
  name: string;
  /** Flags of `kintsugi worker`; undefined: pushes alone. */
  worker?: string[];
  /** Samples of one round: of a worker its rows of data, as often as it trains them; of pushes their keys. */
  samples: number;
  epochs: number;
  batch: number;
  dim: number;
}

export interface OverheadOptions {
  smoke: boolean;
  jobs: Job[];
  modes: Mode[];
  ps: number;
  rounds: number;
  json: string | undefined;
  tell(text: string): void;
}

/** From so many PS on 8+2 is measured as well. */
const WIDE_PS = 10;
export const OVERHEAD_FLAGS = {
  ...COMMON_FLAGS,
  ...QUIET_FLAG,
  jobs: { value: 'list', help: 'of ecrec-sgd, ecrec-adagrad (ecrec: both), light, pushes (default: all)' },
  modes: {
    value: 'list',
    help: 'codes, none, checkpoint, MODE/watched (default: none,4+1,4+2,1+1,checkpoint)',
  },
  intervals: { value: 'list', help: 'seconds between two checkpoints', standard: '5,20' },
  ps: { value: 'n', help: 'PS', standard: '6' },
  epochs: {
    value: 'n',
    help: 'times that workers train their data in a round (default: 1; 4 where one looks)',
  },
  rounds: { value: 'n', help: 'rounds in which the modes take turns', standard: '5', smoke: '1' },
} as const satisfies Flags;

/**
 * A round takes up to ten seconds on two cores: long enough that the first step, which compiles code, is not
 * what is measured.
 */
function jobsOf(smoke: boolean): Omit<Job, 'epochs'>[] {
  if (smoke) return [{ name: 'pushes', samples: 20_000, batch: 1024, dim: 16 }];
  const layers = ['--bottom', '512-256-128', '--top', '1024-1024-512-256-1'];
  /** The paper trains all parameters with the same optimizer. */
  const ecrec = (optimizer: string): Omit<Job, 'epochs'> => ({
    name: `ecrec-${optimizer}`,
    worker: [...layers, '--optimizer', optimizer, '--dense-optimizer', optimizer],
    samples: 49_152,
    batch: 2048,
    dim: 128,
  });
  return [
    ecrec('sgd'),
    ecrec('adagrad'),
    { name: 'light', worker: [], samples: 65_536, batch: 256, dim: 16 },
    { name: 'pushes', samples: 800_000, batch: 4096, dim: 64 },
  ];
}

/** `ecrec` is every job whose name begins so. @throws BAD_ARGUMENT */
function jobsNamed(wanted: string, smoke: boolean): Omit<Job, 'epochs'>[] {
  const jobs = jobsOf(smoke);
  const found = jobs.filter(({ name }) => name === wanted || name.startsWith(`${wanted}-`));
  if (found.length > 0) return found;
  throw bad(`--jobs must be of ${jobs.map(({ name }) => name).join(', ')}, not "${wanted}"`);
}

/** After a mode: everything looks. One of `LOOKS` in its place: this alone does. */
const WATCHED = 'watched';
const WATCHED_EPOCHS = '4';

/** One of the modes is looked at. */
export const isWatched = (modes: readonly Mode[]): boolean => modes.some(({ watched }) => watched);

/** Of a mode that is looked at: the mode without anybody who looks. */
export const unwatched = ({ name }: Mode): string => name.slice(0, name.lastIndexOf('/'));

/** Everything looks, so that the goals are about it. */
export const looksWhole = ({ watched }: Mode): boolean => watched?.length === LOOKS.length;

/** @throws BAD_ARGUMENT */
function modesNamed(name: string, intervals: readonly number[]): Mode[] {
  const [base, look] = name.split('/') as [string, ...string[]];
  const watched = look === WATCHED ? LOOKS : LOOKS.filter((each) => each === look);
  if (watched.length === 0) return modeOf(name, intervals);
  return modeOf(base, intervals).map((mode) => ({ ...mode, name: `${mode.name}/${look}`, watched }));
}

/** @throws BAD_ARGUMENT */
export function parseOverheadOptions(given: Given<typeof OVERHEAD_FLAGS>): OverheadOptions {
  const flags = completed(OVERHEAD_FLAGS, given);
  const { smoke = false, json } = flags;
  const wanted = flags.jobs?.split(',');
  const intervals = numbers(flags, 'intervals');
  const ps = number(flags, 'ps');
  const modes =
    flags.modes ?? (smoke ? 'none,4+1' : `none,4+1,4+2,${ps >= WIDE_PS ? '8+2,' : ''}1+1,checkpoint`);
  const chosen = modes.split(',').flatMap((name) => modesNamed(name, intervals));
  const jobs = wanted === undefined ? jobsOf(smoke) : wanted.flatMap((name) => jobsNamed(name, smoke));
  // Who looks comes every few seconds, so a round has to have several of these.
  const { epochs = isWatched(chosen) ? WATCHED_EPOCHS : '1' } = flags;
  const times = whole({ epochs }, 'epochs', 1);
  return {
    smoke,
    jobs: jobs.map((job) =>
      job.worker ? { ...job, samples: job.samples * times, epochs: times } : { ...job, epochs: 1 },
    ),
    modes: chosen,
    ps,
    rounds: number(flags, 'rounds'),
    json,
    tell: teller(flags),
  };
}

/** Options of `bench overhead`: jobs, and the modes that run them. */
import { bad, type OptionsOf, optionSpec, QUIET_FLAG, whole } from '../common/flags.js';
import { LOOKS, modeOf, type TrainingMode } from '../common/training/modes.js';

export interface OverheadJob {
  name: string;
  /** Flags of `kintsugi worker`; undefined: pushes alone. */
  worker?: string[];
  /** Samples of one round: of a worker its rows of data, as often as it trains them; of pushes their keys. */
  samples: number;
  epochs: number;
  batch: number;
  dim: number;
}

/** The least number of PS with which 8+2 is measured as well. */
const WIDE_PS = 10;

/**
 * A round takes up to ten seconds on two cores: long enough that the first step, which compiles code, is not
 * what is measured.
 */
function jobsOf(smoke: boolean): Omit<OverheadJob, 'epochs'>[] {
  if (smoke) return [{ name: 'pushes', samples: 20_000, batch: 1024, dim: 16 }];
  const layers = ['--bottom', '512-256-128', '--top', '1024-1024-512-256-1'];
  /** The paper trains all parameters with the same optimizer. */
  const ecrec = (optimizer: string): Omit<OverheadJob, 'epochs'> => ({
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
function jobsNamed(wanted: string, smoke: boolean): Omit<OverheadJob, 'epochs'>[] {
  const jobs = jobsOf(smoke);
  const found = jobs.filter(({ name }) => name === wanted || name.startsWith(`${wanted}-`));
  if (found.length > 0) return found;
  throw bad(`--jobs must be of ${jobs.map(({ name }) => name).join(', ')}, not "${wanted}"`);
}

/** Suffix of a mode: everything looks. One of `LOOKS` as the suffix: this alone does. */
const WATCHED = 'watched';
const WATCHED_EPOCHS = '4';

/** True: one of the modes is looked at. */
export const isWatched = (modes: readonly TrainingMode[]): boolean => modes.some(({ watched }) => watched);

/** Name of the mode that is the same without anybody who looks; only for a mode that is looked at. */
export const unwatched = ({ name }: TrainingMode): string => name.slice(0, name.lastIndexOf('/'));

/** True: everything looks, which is what the goals are about. */
export const looksWhole = ({ watched }: TrainingMode): boolean => watched?.length === LOOKS.length;

/** @throws BAD_ARGUMENT */
function modesNamed(name: string, intervals: readonly number[]): TrainingMode[] {
  const [base, look] = name.split('/') as [string, ...string[]];
  const watched = look === WATCHED ? LOOKS : LOOKS.filter((each) => each === look);
  if (watched.length === 0) return modeOf(name, intervals);
  return modeOf(base, intervals).map((mode) => ({ ...mode, name: `${mode.name}/${look}`, watched }));
}

export const OVERHEAD_OPTIONS = optionSpec(
  {
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
  },
  (flags) => {
    const { smoke = false } = flags.texts;
    const wanted = flags.texts.jobs?.split(',');
    const intervals = flags.numbers('intervals');
    const ps = flags.number('ps');
    const modes =
      flags.texts.modes ?? (smoke ? 'none,4+1' : `none,4+1,4+2,${ps >= WIDE_PS ? '8+2,' : ''}1+1,checkpoint`);
    const chosen = modes.split(',').flatMap((name) => modesNamed(name, intervals));
    const jobs = wanted === undefined ? jobsOf(smoke) : wanted.flatMap((name) => jobsNamed(name, smoke));
    // Pages, scrapes and files look every few seconds, and a round needs several of these times.
    const { epochs = isWatched(chosen) ? WATCHED_EPOCHS : '1' } = flags.texts;
    const times = whole({ epochs }, 'epochs', 1);
    return {
      jobs: jobs.map(
        (job): OverheadJob =>
          job.worker ? { ...job, samples: job.samples * times, epochs: times } : { ...job, epochs: 1 },
      ),
      modes: chosen,
      ps,
      rounds: flags.number('rounds'),
    };
  },
);
export type OverheadOptions = OptionsOf<typeof OVERHEAD_OPTIONS>;

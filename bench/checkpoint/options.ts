/** Options of `bench checkpoint`. */
import { bad, LOG_FLAG, type OptionsOf, optionSpec, QUIET_FLAG } from '../common/flags.js';
import { TRAINING_FLAGS } from '../common/training/flags.js';
import { modeOf } from '../common/training/modes.js';

/** Parts of the benchmark, in the order in which they run. */
const PARTS = ['beside', 'compare', 'full', 'restore'] as const;
export type Part = (typeof PARTS)[number];

export const CHECKPOINT_OPTIONS = optionSpec(
  {
    ...QUIET_FLAG,
    ...LOG_FLAG,
    ...TRAINING_FLAGS,
    // Pulls and pushes alone: as many as the PS can do.
    compute: { ...TRAINING_FLAGS.compute, standard: '0', smoke: '0' },
    parts: { value: 'list', help: 'what is measured', standard: PARTS.join(',') },
    rows: { value: 'n', help: 'rows of the table in millions', standard: '5', smoke: '0.02' },
    ps: { value: 'n', help: 'PS', standard: '6', smoke: '3' },
    code: { value: 'k+r', help: 'code of the job', standard: '4+1', smoke: '2+1' },
    interval: { value: 'seconds', help: 'between two checkpoints', standard: '10', smoke: '0.5' },
    rounds: { value: 'n', help: 'turns of all that takes turns', standard: '3', smoke: '1' },
    watch: { value: 'seconds', help: 'for which each way is watched', standard: '30', smoke: '1.5' },
    dir: { value: 'directory', help: 'where checkpoints go while it runs (default: temporary files)' },
    svg: { value: 'file', help: 'write a picture of the comparison' },
  },
  (flags) => {
    const { dir: directory, svg } = flags.texts;
    const parts = flags.texts.parts.split(',');
    const [mode] = modeOf(flags.texts.code, [1]);
    if (!mode || mode.intervalSeconds !== undefined)
      throw bad(`--code must be k+r or none, not "${flags.texts.code}"`);
    const wrong = parts.find((part) => !PARTS.includes(part as Part));
    if (wrong !== undefined) throw bad(`--parts must name some of ${PARTS.join(', ')}, not "${wrong}"`);
    return {
      parts: PARTS.filter((part) => parts.includes(part)),
      rows: flags.millions('rows'),
      ps: flags.whole('ps', 1),
      mode,
      dim: flags.whole('dim', 1),
      /** Keys of one training step, and its arithmetic, in units of about a millisecond. */
      batch: flags.whole('batch', 1),
      compute: flags.numberOrZero('compute'),
      /** Milliseconds between two checkpoints. */
      intervalMs: flags.number('interval') * 1000,
      /** Turns with and without checkpoints; full checkpoints and restores, too. */
      rounds: flags.whole('rounds', 1),
      /** Milliseconds for which each of the ways is watched. */
      watchMs: flags.number('watch') * 1000,
      /** Directory of checkpoints, for the time of the run; undefined: among temporary files. */
      directory,
      svg,
    };
  },
);
export type CheckpointBenchOptions = OptionsOf<typeof CHECKPOINT_OPTIONS>;

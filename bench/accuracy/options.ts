/** Options of `bench accuracy`. */
import { MODEL_NAMES, type ModelName } from '../../src/training/models/dlrm.js';
import { bad, type OptionsOf, optionSpec, QUIET_FLAG } from '../common/flags.js';

const ALL = 'all';

/** @throws BAD_ARGUMENT for a name that is no built-in model */
function modelsOf(text: string): readonly ModelName[] {
  if (text === ALL) return MODEL_NAMES;
  return text.split(',').map((name) => {
    const model = MODEL_NAMES.find((each) => each === name);
    if (!model) throw bad(`--models must be ${ALL}, or some of ${MODEL_NAMES.join(',')}, not "${text}"`);
    return model;
  });
}

export const ACCURACY_OPTIONS = optionSpec(
  {
    ...QUIET_FLAG,
    models: {
      value: 'names',
      help: 'built-in models, with commas between them',
      standard: ALL,
      smoke: 'deepfm,finalmlp',
    },
    rows: { value: 'n', help: 'generated samples to train on', standard: '200000', smoke: '8000' },
    testRows: { value: 'n', help: 'generated samples to test with', standard: '30000', smoke: '4000' },
    epochs: { value: 'n', help: 'passes over the samples', standard: '3', smoke: '1' },
    seed: { value: 'n', help: 'seed of the samples and of the initial values', standard: '1' },
    python: { value: 'program', help: 'Python that has PyTorch', standard: 'python3' },
    movielens: {
      value: 'folder',
      help: 'folder of movielens-100k-rich.*.jsonl.gz, to compare on real ratings as well',
    },
  },
  (flags) => ({
    models: modelsOf(flags.texts.models),
    rows: flags.whole('rows', 1),
    testRows: flags.whole('testRows', 1),
    epochs: flags.whole('epochs', 1),
    seed: flags.whole('seed', 0),
    python: flags.texts.python,
    movielens: flags.texts.movielens,
  }),
);
export type AccuracyOptions = OptionsOf<typeof ACCURACY_OPTIONS>;

/** Options of `bench kube-chaos`. */
import { type OptionsOf, optionSpec } from '../common/flags.js';

export const KUBE_CHAOS_OPTIONS = optionSpec(
  {
    minutes: { value: 'n', help: 'faults for so long, under three jobs', standard: '10' },
    seed: { value: 'n', help: 'what is drawn; default: by the time' },
    counts: { value: 'path', help: 'counts of a run that is over, in place of a run' },
  },
  (flags) => ({
    minutes: flags.number('minutes'),
    seed: flags.texts.seed,
    /** File that the test wrote (KINTSUGI_CHAOS_REPORT). */
    counts: flags.texts.counts,
  }),
);
export type KubeChaosOptions = OptionsOf<typeof KUBE_CHAOS_OPTIONS>;

/** Options of `bench rolling`. */
import { parseCode } from '../../src/core/placement/job.js';
import { bad, type OptionsOf, optionSpec, QUIET_FLAG } from '../common/flags.js';

export const ROLLING_OPTIONS = optionSpec(
  {
    ...QUIET_FLAG,
    code: { value: 'k+r', help: 'code of the job', standard: '4+1', smoke: '2+1' },
    ps: { value: 'n', help: 'PS, at least k + r + 1', standard: '6', smoke: '4' },
    size: { value: 'MiB', help: 'what a PS holds', standard: '100', smoke: '2' },
    dim: { value: 'n', help: 'values of a row', standard: '32' },
    batch: { value: 'n', help: 'keys of a push and of a pull', standard: '1000', smoke: '100' },
    calm: { value: 'seconds', help: 'load before and after', standard: '10', smoke: '0.5' },
    timeout: { value: 'seconds', help: 'for each step of the restart', standard: '30' },
    sigterm: { help: 'SIGTERM and a start, instead of "kintsugi restart --rolling"' },
  },
  (flags) => {
    const [code, ps] = [flags.texts.code, flags.whole('ps', 1)];
    const { k, r } = parseCode(code);
    const why = 'one of them is missing while it is restarted';
    if (ps < k + r + 1) throw bad(`--ps must be at least ${k + r + 1}, not ${ps}: ${why}`);
    return {
      mode: { name: code, code, k },
      ps,
      /** Bytes of data and parity on each PS before the first is restarted. */
      bytes: flags.number('size') * 2 ** 20,
      dim: flags.whole('dim', 1),
      batch: flags.whole('batch', 1),
      /** Seconds of load before and after. */
      calmSeconds: flags.numberOrZero('calm'),
      /** Limit of each step. */
      timeoutMs: flags.number('timeout') * 1000,
      /** SIGTERM and a start by the benchmark, instead of `kintsugi restart`. */
      sigterm: flags.texts.sigterm ?? false,
    };
  },
);
export type RollingOptions = OptionsOf<typeof ROLLING_OPTIONS>;

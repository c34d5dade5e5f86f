/**
 * Results of a worker, for whoever started it: one line of JSON in the file that KINTSUGI_RESULTS names. An
 * operator of Kubernetes reads it from the status of the Pod.
 */
import { writeFileSync } from 'node:fs';
import { describe } from '../../common/errors.js';
import type { Logger } from '../../net/log.js';

export interface WorkerResults {
  /** Samples that this worker trained. */
  samples?: number;
  /** Mean loss over them; null without any. */
  trainLoss?: number | null;
  /** Seconds of its training loop. */
  seconds?: number;
  /** Area under the ROC curve on the test data. NaN, which JSON has as null, when only one class occurs. */
  auc?: number;
  logloss?: number;
}

/** Writes the results. A worker whose work is done does not fail for want of a place to tell it. */
export function writeResults(file: string | undefined, results: WorkerResults, log: Logger): void {
  if (file === undefined) return;
  try {
    writeFileSync(file, `${JSON.stringify(results)}\n`);
  } catch (error) {
    log.warn('worker.results', { file, message: describe(error) });
  }
}

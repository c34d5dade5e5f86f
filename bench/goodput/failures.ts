/** Which process is lost when: at random with a mean rate, from a seed. Every way gets the same. */
import { seededRandom } from '../../src/fleet/local/kills.js';

export interface Failure {
  /** Seconds from the beginning. */
  at: number;
  role: 'ps' | 'worker';
  index: number;
}

/**
 * Failures of a job in which each process is as likely to be lost as another, in the order of their times.
 */
export function failuresOf(
  { ps, workers }: { ps: number; workers: number },
  perHour: number,
  seconds: number,
  seed: number,
): Failure[] {
  const next = seededRandom(seed);
  const uniform = () => (next() + 1) / 2 ** 32;
  const failures: Failure[] = [];
  for (let at = 0; ; ) {
    at -= (Math.log(uniform()) * 3600) / perHour;
    if (at >= seconds) return failures;
    const which = next() % (ps + workers);
    failures.push(which < ps ? { at, role: 'ps', index: which } : { at, role: 'worker', index: which - ps });
  }
}

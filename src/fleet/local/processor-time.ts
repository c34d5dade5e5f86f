/** The processor time of other processes, as the kernel counts it. */
import { readFileSync } from 'node:fs';

/** Linux counts in hundredths of a second whatever the kernel's own ticks are. */
export const TICKS_PER_SECOND = 100;

/**
 * Seconds that a process has used so far, user and system, all threads. NaN for a process that is gone, and
 * where there is no /proc.
 */
export function cpuSeconds(pid: number | undefined): number {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name may hold anything, also blanks and parentheses.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
  } catch {
    return Number.NaN;
  }
}

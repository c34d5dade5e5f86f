/** The resident memory of processes, looked at all the time: its peak, and an alarm. */
import { readFileSync } from 'node:fs';

const LOOK_MS = 50;
const KIBIBYTE = 1024;

/** Current and highest resident memory in bytes; undefined for a process that is gone. */
function residentOf(pid: number): { now: number; peak: number } | undefined {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    const bytes = (field: string) =>
      Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(status)?.[1]) * KIBIBYTE;
    const found = { now: bytes('VmRSS'), peak: bytes('VmHWM') };
    // A process that has ended and was not waited for has no memory.
    return Number.isNaN(found.now) ? undefined : found;
  } catch {
    return undefined;
  }
}

/** Memory that the machine can still give, in bytes; Infinity where it does not say. */
function availableBytes(): number {
  try {
    const found = /^MemAvailable:\s+(\d+) kB/m.exec(readFileSync('/proc/meminfo', 'utf8'))?.[1];
    return found === undefined ? Number.POSITIVE_INFINITY : Number(found) * KIBIBYTE;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}

export interface MemoryAlarm {
  /** Resident bytes of one process. */
  mostBytes: number;
  /** Bytes that the machine must have left. */
  leastAvailableBytes: number;
  /**
   * Called for a process that has more, and for every process while the machine has too little left. `bytes`:
   * what it has now.
   */
  onTooMuch(name: string, bytes: number, isMachineFull: boolean): void;
}

export class MemoryWatch {
  /** Highest resident memory by name, of all processes that had it. */
  readonly peaks = new Map<string, number>();
  private readonly timer: NodeJS.Timeout;

  /** @param processes names and process ids now */
  constructor(
    private readonly processes: () => Iterable<readonly [name: string, pid: number]>,
    private readonly alarm: MemoryAlarm,
  ) {
    this.timer = setInterval(() => this.look(), LOOK_MS);
  }

  look(): void {
    const { mostBytes, leastAvailableBytes, onTooMuch } = this.alarm;
    const isFull = availableBytes() < leastAvailableBytes;
    for (const [name, pid] of this.processes()) {
      const found = residentOf(pid);
      if (!found) continue;
      this.peaks.set(name, Math.max(this.peaks.get(name) ?? 0, found.peak));
      if (isFull || found.now > mostBytes) onTooMuch(name, found.now, isFull);
    }
  }

  stop(): void {
    clearInterval(this.timer);
  }
}

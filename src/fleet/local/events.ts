/**
 * Log records of the roles, on one time axis: `mono` is CLOCK_MONOTONIC, which all processes of a machine
 * share.
 */

export interface RoleEvent {
  /** Milliseconds of CLOCK_MONOTONIC. */
  mono: number;
  event: string;
  /** The process that wrote it: scheduler, ps-0, worker-1. */
  source: string;
  [field: string]: unknown;
}

/** A line of a role's standard error as a record; undefined for anything else a process may print there. */
export function parseEvent(line: string, source: string): RoleEvent | undefined {
  if (!line.startsWith('{')) return undefined;
  try {
    const value = JSON.parse(line) as Partial<RoleEvent>;
    if (typeof value.mono !== 'number' || typeof value.event !== 'string') return undefined;
    return { ...value, source } as RoleEvent;
  } catch {
    return undefined;
  }
}

/** A number field of a record; NaN when it is not there. */
export function numberOf(event: RoleEvent, field: string): number {
  const value = event[field];
  return typeof value === 'number' ? value : Number.NaN;
}

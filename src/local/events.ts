/** Log records of the roles, on one time axis: `mono` is CLOCK_MONOTONIC, which all processes of a machine share. */

export interface RoleEvent {
  /** Milliseconds of CLOCK_MONOTONIC. */
  mono: number;
  event: string;
  role: string;
  name: string;
  level: string;
  [field: string]: unknown;
}

/** A line of a role's standard error as a record; undefined for anything else a process may print there. */
export function parseEvent(line: string): RoleEvent | undefined {
  if (!line.startsWith('{')) return undefined;
  try {
    const value = JSON.parse(line) as Partial<RoleEvent>;
    if (typeof value.mono !== 'number' || typeof value.event !== 'string') return undefined;
    return { role: '', name: '', level: 'info', ...value } as RoleEvent;
  } catch {
    return undefined;
  }
}

/** A number field of a record; NaN when it is not there. */
export function numberOf(event: RoleEvent, field: string): number {
  const value = event[field];
  return typeof value === 'number' ? value : Number.NaN;
}

/** Bounds as they are typed: `ps=4..8,workers=1..4`. */
import { KintsugiError } from '../../common/errors.js';
import { type AutoscalePolicy, policyWith } from './decide/policy.js';

export interface Bounds {
  ps: AutoscalePolicy['ps'];
  /** Absent: workers are left alone. */
  workers?: AutoscalePolicy['workers'];
}

const MOST = 4096;

function rangeOf(text: string): { least: number; most: number } | undefined {
  const match = /^(\d{1,4})(?:\.\.(\d{1,4}))?$/.exec(text);
  const least = Number(match?.[1]);
  const most = Number(match?.[2] ?? match?.[1]);
  return match && least >= 1 && least <= most && most <= MOST ? { least, most } : undefined;
}

/** Parses bounds. A count that is not to change is one number: `ps=4`. @throws BAD_ARGUMENT */
export function parseBounds(flag: string, text: string): Bounds {
  const found: Partial<Bounds> = {};
  for (const part of text.split(',')) {
    const [name, value] = part.split('=');
    const range = rangeOf(value ?? '');
    if ((name === 'ps' || name === 'workers') && range && !found[name]) found[name] = range;
    else return bad(flag, text);
  }
  const { ps, workers } = found;
  return ps ? { ps, ...(workers && { workers }) } : bad(flag, text);
}

function bad(flag: string, text: string): never {
  throw new KintsugiError(
    'BAD_ARGUMENT',
    `${flag} must be ps=LEAST..MOST,workers=LEAST..MOST with numbers from 1 to ${MOST}, ` +
      `for example ps=4..8,workers=1..4, not "${text}"`,
  );
}

/** The usual policy within these bounds, with other times if they are given. */
export function policyOf({ ps, workers }: Bounds, times: Partial<AutoscalePolicy> = {}): AutoscalePolicy {
  return policyWith({ ...times, ps, ...(workers ? { workers } : { leaveWorkers: true }) });
}

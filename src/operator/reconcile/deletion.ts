import type { Pod } from '../objects.js';
import type { Member } from './census.js';
import type { Action } from './observed.js';

/** Without a time to end in it has the one of its Pod. */
export function deletion({ pod }: Member, graceSeconds?: number): Extract<Action, { kind: 'delete' }> {
  const { apiVersion = 'v1', kind = 'Pod', metadata } = pod as Pod;
  return {
    kind: 'delete',
    object: { apiVersion, kind, metadata },
    ...(graceSeconds ? { graceSeconds } : {}),
  };
}

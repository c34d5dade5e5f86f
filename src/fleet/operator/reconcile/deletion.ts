import type { Pod } from '../objects.js';
import type { Member } from './census.js';
import type { Action } from './observed.js';

/**
 * The action that deletes a Pod. Without `graceSeconds` the Pod has the time that its spec says. With 0 its
 * object goes at once, whatever becomes of its processes.
 */
export function deletion(
  { pod }: Pick<Member, 'pod'>,
  graceSeconds?: number,
): Extract<Action, { kind: 'delete' }> {
  const { apiVersion = 'v1', kind = 'Pod', metadata } = pod as Pod;
  return {
    kind: 'delete',
    object: { apiVersion, kind, metadata },
    ...(graceSeconds === undefined ? {} : { graceSeconds }),
  };
}

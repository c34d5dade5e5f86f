/**
 * The writer of `replicas`. It is whoever applies the field on the server, such as a tool that keeps a
 * cluster as a repository says: it would set back what a ScaleOut writes. Where nobody applies it, it is the
 * operator.
 */
import type { TrainingJob } from '../../types.js';

/** Field manager of the operator for this one field. Each role has its own, for each is applied alone. */
export const scalingManager = (role: 'ps' | 'worker'): string => `kintsugi-scaling-${role}`;

const inside = (value: unknown, name: string): unknown =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[`f:${name}`] : undefined;

/** Field manager that applies the replicas of a role. Undefined: nobody but the operator does. */
export function applierOf({ metadata }: TrainingJob, role: 'ps' | 'worker'): string | undefined {
  const path = ['spec', 'replicaSpecs', role, 'replicas'];
  return metadata.managedFields?.find(
    ({ manager, operation, subresource, fieldsV1 }) =>
      operation === 'Apply' &&
      subresource === undefined &&
      manager !== scalingManager(role) &&
      path.reduce<unknown>(inside, fieldsV1) !== undefined,
  )?.manager;
}

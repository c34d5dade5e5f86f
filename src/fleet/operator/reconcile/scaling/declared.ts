/**
 * The writer of `replicas`. It is whoever applies the field on the server, such as a tool that keeps a
 * cluster as a repository says: it would set back what a ScaleOut writes. Where nobody applies it, it is the
 * operator.
 */
import type { ManagedFields } from '../../objects.js';
import type { TrainingJob } from '../../types.js';

/** Field manager of the operator for this one field. Each role has its own, for each is applied alone. */
export const scalingManager = (role: 'ps' | 'worker'): string => `kintsugi-scaling-${role}`;

const inside = (value: unknown, name: string): unknown =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[`f:${name}`] : undefined;

const applies = (
  { manager, operation, subresource, fieldsV1 }: ManagedFields,
  role: 'ps' | 'worker',
  isWanted: (manager: string | undefined) => boolean,
): boolean =>
  operation === 'Apply' &&
  subresource === undefined &&
  isWanted(manager) &&
  ['spec', 'replicaSpecs', role, 'replicas'].reduce<unknown>(inside, fieldsV1) !== undefined;

/** Whether the operator applies the replicas of a role, beside others or alone. */
export const isHeldByOperator = ({ metadata }: TrainingJob, role: 'ps' | 'worker'): boolean =>
  metadata.managedFields?.some((one) => applies(one, role, (name) => name === scalingManager(role))) ?? false;

/** Field manager that applies the replicas of a role. Undefined: nobody but the operator does. */
export function applierOf({ metadata }: TrainingJob, role: 'ps' | 'worker'): string | undefined {
  return metadata.managedFields?.find((one) => applies(one, role, (name) => name !== scalingManager(role)))
    ?.manager;
}

/**
 * Memory of containers that were killed for want of it. Pods that are made afterwards get more, as long as
 * `resourceLimits` allows it. How much is in the status of the job, so it stays when those Pods are gone.
 */
import type { Container, Pod, PodTemplate, Terminated } from '../objects.js';
import type { TrainingJob, TrainingJobStatus } from '../types.js';
import { CONTAINER, type Replicated } from './names.js';
import { bytesOf, quantityOf } from './quantity.js';

/** Factor from the limit of a killed container to that of the next one. */
const GROWTH = 1.5;
const MIB = 2 ** 20;
/** Memory that a process needs besides what it holds: so many bytes, or this part of its limit. */
const OVERHEAD_BYTES = 192 * MIB;
const OVERHEAD_PART = 0.15;

/** Bytes that a PS may hold, of those that its processes may have. */
export const memoryBeside = (limit: number): number =>
  Math.floor(limit - Math.min(limit / 2, Math.max(OVERHEAD_BYTES, limit * OVERHEAD_PART)));

/** Memory limits of Pods that are made from now on, by role. */
export type Grown = NonNullable<TrainingJobStatus['memory']>;

const limitOf = (containers: readonly Container[] | undefined): number | undefined =>
  bytesOf(containers?.find(({ name }) => name === CONTAINER)?.resources?.limits?.memory);

/** The memory limit that its container has, in bytes. */
export const memoryOf = ({ spec }: Pod): number | undefined => limitOf(spec.containers);

/** Most memory of a container of the role, in bytes. Undefined: nobody said so, and none gets more. */
export const mostMemory = ({ spec }: TrainingJob, role: Replicated): number | undefined =>
  bytesOf(spec.resourceLimits?.[role]?.memory);

/**
 * Prospect of a Pod whose container was killed for want of memory. `grows`: the next one gets more. `spent`:
 * there is no more for it.
 */
export type Starved = 'grows' | 'spent';

export function starvedOf(
  job: TrainingJob,
  role: Replicated,
  pod: Pod,
  exit: Terminated | undefined,
): Starved | undefined {
  const most = mostMemory(job, role);
  const had = memoryOf(pod);
  // A container without a limit was killed because its machine had no memory left: a limit would not help.
  if (exit?.reason !== 'OOMKilled' || most === undefined || had === undefined) return undefined;
  return had < most ? 'grows' : 'spent';
}

/** Limit of the next container, in bytes. */
export const moreThan = (had: number, most: number): number =>
  Math.min(most, Math.ceil((GROWTH * had) / MIB) * MIB);

function resized(given: Container, bytes: number): Container {
  const { limits, requests } = given.resources ?? {};
  const before = bytesOf(limits?.memory);
  const asked = bytesOf(requests?.memory);
  const request =
    asked === undefined ? undefined : before === undefined ? asked : Math.ceil((asked * bytes) / before);
  return {
    ...given,
    resources: {
      ...given.resources,
      limits: { ...limits, memory: quantityOf(bytes) },
      ...(request === undefined
        ? {}
        : { requests: { ...requests, memory: quantityOf(Math.min(bytes, request)) } }),
    },
  };
}

/** The template with this limit. The request grows as the limit does. */
function withLimit(template: PodTemplate | undefined, bytes: number): PodTemplate {
  const containers = template?.spec?.containers ?? [];
  const given = containers.find(({ name }) => name === CONTAINER) ?? { name: CONTAINER };
  const others = containers.filter((one) => one !== given);
  return { ...template, spec: { ...template?.spec, containers: [resized(given, bytes), ...others] } };
}

/** The job from which its next Pods are made: templates have the grown limits, where these are more. */
export function withMemory(job: TrainingJob, grown: Grown | undefined): TrainingJob {
  const { replicaSpecs } = job.spec;
  const templateOf = (role: Replicated): PodTemplate | undefined => {
    const { template } = replicaSpecs[role];
    const bytes = Math.min(bytesOf(grown?.[role]) ?? 0, mostMemory(job, role) ?? 0);
    return bytes > (limitOf(template?.spec?.containers) ?? 0) ? withLimit(template, bytes) : template;
  };
  const ps = { ...replicaSpecs.ps, template: templateOf('ps') };
  const worker = { ...replicaSpecs.worker, template: templateOf('worker') };
  return { ...job, spec: { ...job.spec, replicaSpecs: { ...replicaSpecs, ps, worker } } };
}

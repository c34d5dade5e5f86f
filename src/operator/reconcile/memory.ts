/**
 * Memory of containers that were killed for want of it. Pods that are made afterwards get more, as long as
 * `resourceLimits` allows it. How much is in the status of the job, so it stays when those Pods are gone.
 */
import type { Container, Pod, PodTemplate, Terminated } from '../objects.js';
import type { TrainingJob, TrainingJobStatus } from '../types.js';
import { CONTAINER, type Replicated } from './names.js';
import { bytesOf, quantityOf } from './quantity.js';

/** So much more than a container that was killed. */
const GROWTH = 1.5;
const MIB = 2 ** 20;

/** By role: what Pods have that are made from now on. */
export type Grown = NonNullable<TrainingJobStatus['memory']>;

const limitOf = (containers: readonly Container[] | undefined): number | undefined =>
  bytesOf(containers?.find(({ name }) => name === CONTAINER)?.resources?.limits?.memory);

/** The memory limit that its container has, in bytes. */
export const memoryOf = ({ spec }: Pod): number | undefined => limitOf(spec.containers);

/** What a container of the role may have at most, in bytes. Undefined: nobody said so, and none gets more. */
export const mostMemory = ({ spec }: TrainingJob, role: Replicated): number | undefined =>
  bytesOf(spec.resourceLimits?.[role]?.memory);

/** Its container was killed for want of memory. `spent`: there is no more for it. */
export type Starved = 'grows' | 'spent';

export function starvedOf(
  job: TrainingJob,
  role: Replicated,
  pod: Pod,
  exit: Terminated | undefined,
): Starved | undefined {
  const most = mostMemory(job, role);
  const had = memoryOf(pod);
  // Without a limit of its own it was its machine that had none left: more for it would not help.
  if (exit?.reason !== 'OOMKilled' || most === undefined || had === undefined) return undefined;
  return had < most ? 'grows' : 'spent';
}

/** What the next one gets. */
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

/** The request grows as the limit does. */
function withLimit(template: PodTemplate | undefined, bytes: number): PodTemplate {
  const containers = template?.spec?.containers ?? [];
  const given = containers.find(({ name }) => name === CONTAINER) ?? { name: CONTAINER };
  const others = containers.filter((one) => one !== given);
  return { ...template, spec: { ...template?.spec, containers: [resized(given, bytes), ...others] } };
}

/** The job as its next Pods are made from it. What its templates say counts where it is more. */
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

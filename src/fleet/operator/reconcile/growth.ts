/** Gives more memory in place of Pods that were killed for want of it (memory.ts). */
import type { TrainingJob } from '../types.js';
import { type Census, inState, type Member } from './census.js';
import { type Grown, memoryOf, moreThan, mostMemory } from './memory.js';
import { REPLICATED, type Replicated } from './names.js';
import type { Action } from './observed.js';
import { bytesOf, quantityOf } from './quantity.js';

const growing = (census: Census, role: Replicated): Member[] =>
  census[role].filter(({ starved }) => starved === 'grows');

/**
 * Memory limits of Pods that are made from now on. They follow from the limits of the killed Pods, so that
 * the same ones never count twice. Undefined: no Pod of the job was ever killed for want of memory.
 */
export function grownMemory(job: TrainingJob, census: Census): Grown | undefined {
  const before = job.status?.memory;
  const wanted = REPLICATED.flatMap((role): [Replicated, string][] => {
    const most = mostMemory(job, role);
    const noted = before?.[role];
    const next = growing(census, role).map(({ pod }) => moreThan(memoryOf(pod) ?? 0, most ?? 0));
    const bytes = Math.max(bytesOf(noted) ?? 0, ...next);
    if (bytes === (bytesOf(noted) ?? 0)) return noted === undefined ? [] : [[role, noted]];
    return [[role, quantityOf(bytes)]];
  });
  return wanted.length === 0 ? before : Object.fromEntries(wanted);
}

/** Events about more memory, one for each time that it grows. */
export function growthTold(job: TrainingJob, census: Census, grown: Grown | undefined): Action[] {
  return REPLICATED.filter((role) => grown?.[role] !== job.status?.memory?.[role]).map((role) => {
    const killed = growing(census, role)
      .filter(({ pod }) => (memoryOf(pod) ?? 0) < (bytesOf(grown?.[role]) ?? 0))
      .map(({ name, pod }) => `${name}, which had ${quantityOf(memoryOf(pod) ?? 0)}`);
    const most = quantityOf(mostMemory(job, role) ?? 0);
    const message = `the next ${role} have ${grown?.[role]} of memory, of at most ${most}: killed was `;
    return {
      ...{ kind: 'event', type: 'Warning', reason: 'MoreMemory' },
      message: message + killed.slice(0, 3).join('; '),
    };
  });
}

/** Names of Pods that were killed for want of memory, whose place others are to take. */
export function starving(census: Census): Set<string> {
  const members = REPLICATED.flatMap((role) => inState(census[role], 'active'));
  return new Set(members.filter(({ starved }) => starved !== undefined).map(({ name }) => name));
}

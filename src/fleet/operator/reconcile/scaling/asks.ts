/**
 * Requests to the job. The job empties PS, balances and takes back; the operator says how many there are to
 * be, or which ones are to go. Every request may be made twice.
 */
import { type Census, inState, type Member } from '../census.js';
import type { Action, ChangeReport, ObservedJob, ObservedRequest } from '../observed.js';
import type { Current, ScalingGoal } from './goal.js';

/** Milliseconds until a change that the job took back, or refused, is asked for again. */
const ASK_AGAIN_MS = 30_000;
/** The same for a drain: one more PS may be there soon, so that this one can be spared. */
const DRAIN_AGAIN_MS = 5_000;
/** The same for a request that did not reach the job. */
const REACH_AGAIN_MS = 2_000;

type ScalingRequest = Extract<Action, { kind: 'ask' }>;
type ScalingJob = Pick<ObservedJob, 'report' | 'asked'>;

/** Prefix of the keys of requests for an attempt of a ScaleOut or ScaleIn. */
export const attemptKey = ({ scaler }: Current): string =>
  `${scaler.metadata.uid}/${scaler.status?.attempt ?? 0}/`;

export const askedFor = ({ asked }: ScalingJob, key: string): ObservedRequest | undefined =>
  asked?.find((one) => one.key === key);

export const runningScale = ({ report }: ScalingJob): ChangeReport | undefined =>
  report?.changes.find(({ kind, state }) => kind === 'scale' && state === 'running');

/** PS of the job whose Pods have not ended. */
export function joined(observed: ScalingJob, members: readonly Member[]): Member[] {
  const alive = new Set(observed.report?.nodes.filter((one) => one.alive).map(({ name }) => name));
  return inState(members, 'active').filter(({ name }) => alive.has(name));
}

/** Pods that stay, of those that have not ended. */
export const staying = (members: readonly Member[], { leaving }: Pick<ScalingGoal, 'leaving'>): Member[] =>
  inState(members, 'active').filter(({ name }) => !leaving.has(name));

/** The request, unless it is under way, or was refused a moment ago. */
function ask(observed: ObservedJob, wanted: Omit<ScalingRequest, 'kind'>, againMs = ASK_AGAIN_MS): Action[] {
  const before = askedFor(observed, wanted.key);
  if (before?.underWay) return [];
  const at = (before?.at ?? 0) + (before?.unheard ? REACH_AGAIN_MS : againMs);
  if (before?.problem !== undefined && observed.now < at) return [{ kind: 'wake', at }];
  return [{ kind: 'ask', ...wanted }];
}

/**
 * Changes of this attempt that the job knows. A job that was restored from a checkpoint knows none of them,
 * and has others under the same numbers.
 */
export function changesOf({ report }: ScalingJob, { scaler, to, podNames }: Current): ChangeReport[] {
  const noted = new Set<number>(scaler.status?.changes);
  const fits = ({ kind, to: goesTo, leaving }: ChangeReport): boolean =>
    podNames.length > 0
      ? kind === 'drain' && leaving.some((name) => podNames.includes(name))
      : kind === 'scale' && goesTo === to;
  return report?.changes.filter((one) => noted.has(one.id) && fits(one)) ?? [];
}

/**
 * Whether shards move, or are about to leave a machine that goes. An eviction of a PS waits for that, until
 * the PS is empty, or the job has said that it cannot be emptied.
 */
export function isMoving(observed: ObservedJob, census: Census, { leaving }: ScalingGoal): boolean {
  const moves = ({ state, kind, shardsLeft }: ChangeReport): boolean =>
    state === 'running' && (kind === 'drain' || shardsLeft > 0);
  if (observed.report?.changes.some(moves)) return true;
  return joined(observed, census.ps).some(
    (one) => leaving.has(one.name) && askedFor(observed, drainKey(one))?.problem === undefined,
  );
}

const isEmptied = ({ report }: ScalingJob, name: string): boolean =>
  report?.changes.some(
    (one) => one.kind === 'drain' && one.state === 'running' && one.leaving.includes(name),
  ) ?? false;

/** Requests of a ScaleOut or ScaleIn, once for each attempt: how that went decides about the next one. */
function ofScaler(observed: ObservedJob, census: Census, goal: ScalingGoal, current: Current): Action[] {
  const { scaler, to, podNames } = current;
  const prefix = attemptKey(current);
  const timeoutMs = scaler.spec.timeoutSeconds * 1000;
  const once = (key: string, change: ScalingRequest['change']): Action[] => {
    const before = askedFor(observed, key);
    if (before && !before.unheard) return [];
    return ask(observed, { key, change, timeoutMs });
  };
  if (podNames.length > 0)
    return joined(observed, census.ps)
      .filter(({ name }) => podNames.includes(name) && !isEmptied(observed, name))
      .flatMap(({ name }) => once(`${prefix}${name}`, { kind: 'drain', node: name }));
  if (changesOf(observed, current).length > 0) return [];
  const there = staying(census.ps, goal).length;
  // Pods that never joined go first, and the job need not be asked for them.
  if (scaler.kind === 'ScaleIn' && there > 0 && joined(observed, census.ps).length <= to) return [];
  return once(`${prefix}${to}`, { kind: 'scale', ps: to });
}

/** Asks for a number of PS, when the job has more, or goes for another number. */
function ofCounts(observed: ObservedJob, census: Census, goal: ScalingGoal): Action[] {
  const running = runningScale(observed);
  if (running?.to === goal.ps) return [];
  const serving = joined(observed, census.ps);
  // PS that are to go are known by name, and the job would choose others.
  if (serving.some(({ name }) => goal.leaving.has(name))) return [];
  if (!running && (serving.length <= goal.ps || observed.report?.changing)) return [];
  const timeoutMs = observed.job.spec.drainTimeoutSeconds * 1000;
  return ask(observed, { key: `scale ${goal.ps}`, change: { kind: 'scale', ps: goal.ps }, timeoutMs });
}

/**
 * Drains PS that are to go for other reasons than a ScaleIn: those of at most r machines at once, because a
 * machine may go before it is empty.
 */
function ofLeaving(observed: ObservedJob, census: Census, goal: ScalingGoal): Action[] {
  const named = new Set(goal.current?.back ? [] : goal.current?.podNames);
  const going = joined(observed, census.ps).filter(({ name }) => goal.leaving.has(name) && !named.has(name));
  const machineOf = ({ pod }: Member): string => pod.spec.nodeName ?? '';
  const isGoing = (one: Member): boolean =>
    isEmptied(observed, one.name) || askedFor(observed, drainKey(one))?.underWay === true;
  const busy = new Set(going.filter(isGoing).map(machineOf));
  const timeoutMs = observed.job.spec.drainTimeoutSeconds * 1000;
  const actions: Action[] = [];
  for (const one of going) {
    const machine = machineOf(one);
    if (!busy.has(machine) && busy.size >= Math.max(1, observed.job.spec.code.r)) continue;
    busy.add(machine);
    if (isGoing(one)) continue;
    const change = { kind: 'drain' as const, node: one.name };
    actions.push(...ask(observed, { key: drainKey(one), change, timeoutMs }, DRAIN_AGAIN_MS));
  }
  return actions;
}

const drainKey = ({ name }: Member): string => `drain ${name}`;

export function asks(observed: ObservedJob, census: Census, goal: ScalingGoal): Action[] {
  const { report } = observed;
  if (!report || report.redundancy === 'forming') return [];
  const { current } = goal;
  const own =
    current && !current.back && current.scaler.spec.role === 'ps'
      ? ofScaler(observed, census, goal, current)
      : ofCounts(observed, census, goal);
  return [...own, ...ofLeaving(observed, census, goal)];
}

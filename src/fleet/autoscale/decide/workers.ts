/** Workers: more are tried and taken back, idle ones leave, slow ones are replaced. */

import { median } from '../../../common/statistics.js';
import type { Decision, History, Observation, TakenTime } from './observation.js';
import type { AutoscalePolicy } from './policy.js';
import { busyPs, grown, recent, throughput } from './trend.js';

/** Most times that a worker is said to be slower than the median: one that does nothing at all. */
const MOST_TIMES = 1000;
/** Data is short when workers have nothing to train for a larger share of their time. */
const SHORT = 0.02;

type Count = Extract<Decision, { kind: 'workers' }>;

function counts(taken: readonly TakenTime[]): (TakenTime & { decision: Count })[] {
  return taken.filter((one): one is TakenTime & { decision: Count } => one.decision.kind === 'workers');
}

/** Observations of the `window` before a time, and of the `window` after it has settled. */
function around(seen: readonly Observation[], at: number, policy: AutoscalePolicy) {
  return {
    before: seen.filter((one) => one.at >= at - policy.window && one.at <= at),
    after: recent(seen, policy.window),
  };
}

/** Ends of the last `count` windows of `seconds`, the newest last; empty where not so many were seen. */
function windowsOf(seen: readonly Observation[], seconds: number, count: number): Observation[] {
  const ends = [seen.at(-1)!];
  while (ends.length <= count) {
    const before = seen.findLast(({ at }) => at <= ends[0]!.at - seconds);
    if (!before) return [];
    ends.unshift(before);
  }
  return ends;
}

/**
 * Seconds that a sample took in a window, for each worker that had work. A worker that reported neither work
 * nor idleness was not idle: all of the window counts.
 */
function costs(from: Observation, to: Observation): Map<string, number> {
  const found = new Map<string, number>();
  for (const { id, before, after } of grown(from.workers, to.workers)) {
    const busy = after.busy - before.busy;
    const silent = busy <= 0 && after.idle <= before.idle;
    if (busy > 0 || silent)
      found.set(id, (silent ? to.at - from.at : busy) / Math.max(1, after.samples - before.samples));
  }
  return found;
}

/** Replaces a worker whose samples took so much longer than the median's, in each of the last windows. */
export function stragglers({ seen, taken }: History, policy: AutoscalePolicy): Decision | undefined {
  const now = seen.at(-1)!;
  // With two workers neither is the typical one.
  if (now.workers.length < 3) return undefined;
  const last = taken.findLast(({ decision }) => decision.kind === 'replace')?.at;
  if (last !== undefined && now.at - last < policy.window) return undefined;
  const ends = windowsOf(seen, policy.stragglerWindow, policy.stragglerWindows);
  let slow: Map<string, number> | undefined;
  for (let i = 1; i < ends.length; i++) {
    const each = costs(ends[i - 1]!, ends[i]!);
    const typical = median([...each.values()]);
    const here = [...each].filter(([, cost]) => cost > policy.straggler * typical);
    const known = slow;
    slow = new Map(
      here.flatMap(([id, cost]) =>
        known && !known.has(id) ? [] : [[id, Math.min(cost / typical, known?.get(id) ?? MOST_TIMES)]],
      ),
    );
  }
  const [worst] = [...(slow ?? [])].sort((a, b) => b[1] - a[1]);
  if (!worst) return undefined;
  return {
    kind: 'replace',
    worker: worst[0],
    name: now.workers.find(({ id }) => id === worst[0])?.name ?? worst[0],
    reason: `its samples took more than ${policy.straggler} times the median in each of the last windows`,
    numbers: { timesMedian: worst[1], windows: policy.stragglerWindows },
  };
}

/** Seconds in which workers had nothing to train, and in which they worked, in these observations. */
function spent(seen: readonly Observation[]): { nothing: number; work: number } {
  const each = grown(seen[0]?.workers ?? [], seen.at(-1)?.workers ?? []);
  return {
    nothing: each.reduce((sum, { before, after }) => sum + after.idle - before.idle, 0),
    work: each.reduce((sum, { before, after }) => sum + after.busy - before.busy, 0),
  };
}

/** Removes workers when there is too little to train for them. */
export function idle({ seen }: History, policy: AutoscalePolicy): Decision | undefined {
  const now = seen.at(-1)!;
  const { nothing, work } = spent(recent(seen, policy.window));
  const count = now.workers.length;
  const share = nothing + work > 0 ? nothing / (nothing + work) : 0;
  if (share < policy.idleWorkers) return undefined;
  // A tenth is left for what comes next.
  const to = Math.max(policy.workers.least, Math.ceil((count * (1 - share)) / 0.9));
  if (to >= count) return undefined;
  return {
    kind: 'workers',
    from: count,
    to,
    reason: 'workers have nothing to train',
    numbers: { idleShare: share },
  };
}

/** Number of tries, the last ones in a row, that were taken back. */
function takenBack(decisions: readonly Count[]): number {
  let times = 0;
  for (let i = decisions.length - 1; i >= 0; i--) {
    const one = decisions[i]!;
    if (one.numbers.tried === 1) {
      if (i === decisions.length - 1 || decisions[i + 1]!.numbers.takenBack !== 1) break;
    } else if (one.numbers.takenBack === 1) times++;
    else break;
  }
  return times;
}

/**
 * Judges the last try when that is due; otherwise begins the next one. A try is a decision for more workers,
 * marked by `tried`, that no later decision has judged.
 */
export function workers({ seen, taken }: History, policy: AutoscalePolicy): Decision | undefined {
  const now = seen.at(-1)!;
  const count = now.workers.length;
  if (now.pendingWorkers > 0 || now.pendingPs > 0) return undefined;
  const made = counts(taken);
  const last = made.at(-1);
  const window = recent(seen, policy.window);
  const steady = window.every((one) => one.workers.length === count && !one.changing);
  if (!steady || now.at - window[0]!.at < policy.window * 0.9) return undefined;
  // Workers that wait for data already would only wait more.
  const short = spent(window).nothing > SHORT * count * policy.window;
  let eager = last === undefined;
  if (last && last.decision.numbers.tried === 1 && last.decision.to === count) {
    const { before, after } = around(seen, last.at, policy);
    const was = throughput(before);
    const is = throughput(after);
    const share = count / last.decision.from - 1;
    const gain = was > 0 ? (is / was - 1) / share : Number.NaN;
    // Without a "before" (PS came and went) there is no verdict, and the workers stay.
    if (gain < policy.worth) {
      return {
        kind: 'workers',
        from: count,
        to: Math.max(policy.workers.least, last.decision.from),
        reason: 'the last workers brought less than they are worth',
        numbers: { before: was, after: is, gain, takenBack: 1, ...(short && { short: 1 }) },
      };
    }
    eager = gain > 0.8;
  }
  if (last && last.decision.numbers.takenBack === 1) {
    const times = Math.min(3, takenBack(made.map(({ decision }) => decision)) - 1);
    // Where data was short the workers were not at fault, and nobody sees that there is more of it again.
    const wait = last.decision.numbers.short === 1 ? policy.retry / 2 : policy.retry * 2 ** times;
    const moved = taken.some(({ at, decision }) => at > last.at && decision.kind !== 'replace');
    if (now.at - last.at < wait && !moved) return undefined;
  }
  const hottest = Math.max(0, ...busyPs(window).map((one) => one.busy));
  if (hottest > policy.hot) return undefined;
  if (short) return undefined;
  const to = Math.min(
    policy.workers.most,
    Math.max(count + 1, Math.round(count * (1 + (eager ? policy.eager : policy.step)))),
  );
  if (to <= count) return undefined;
  return {
    kind: 'workers',
    from: count,
    to,
    reason: 'a try: more workers stay when they bring at least half of their share',
    numbers: { tried: 1, throughput: throughput(window) },
  };
}

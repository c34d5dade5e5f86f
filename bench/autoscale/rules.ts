/**
 * Published autoscalers, as rules on the same observations and the same machinery. Only their decisions are
 * compared: the barrier behind which DES closes its sessions, and the checkpoint from which DLRover restarts,
 * are left out, which favours them.
 */
import { decide } from '../../src/fleet/autoscale/decide/decide.js';
import type { Decision, History } from '../../src/fleet/autoscale/decide/observation.js';
import type { AutoscalePolicy } from '../../src/fleet/autoscale/decide/policy.js';
import { busyPs, recent, throughput } from '../../src/fleet/autoscale/decide/trend.js';

export interface Rule {
  name: string;
  first: { ps: number; workers: number };
  decide(history: History): Decision[];
}

const MINUTE = 60;

const numbers = {};
const ps = (from: number, to: number, reason: string): Decision[] =>
  to === from ? [] : [{ kind: 'ps', from, to, reason, numbers }];
const workers = (from: number, to: number, reason: string): Decision[] =>
  to === from ? [] : [{ kind: 'workers', from, to, reason, numbers }];

export function ours(policy: AutoscalePolicy): Rule {
  return {
    name: 'kintsugi',
    first: { ps: policy.ps.least, workers: policy.workers.least },
    decide: (history) => decide(history, policy),
  };
}

/**
 * DES: a PS fuller than 0.8: two more; half fuller than 0.6: twice as many up to 4, else 1.2 times; most
 * below 0.4 twice: half; at most 100; five minutes apart. It has no rule for workers, so it gets those of
 * DLRover.
 */
export function des(policy: AutoscalePolicy): Rule {
  return {
    name: 'DES',
    first: { ps: policy.ps.least, workers: policy.workers.least },
    decide(history) {
      const now = history.seen.at(-1);
      if (!now || now.pendingPs > 0 || now.changing) return [];
      const last = history.taken.findLast(({ decision }) => decision.kind === 'ps')?.at ?? -Infinity;
      const to = now.at - last >= 5 * MINUTE ? desPs(history) : now.ps.length;
      const most = Math.max(policy.ps.least, Math.min(policy.ps.most, to));
      if (most !== now.ps.length) return ps(now.ps.length, most, 'memory');
      return plateau(history, policy);
    },
  };
}

function desPs({ seen }: History): number {
  const now = seen.at(-1)!;
  const count = now.ps.length;
  const above = (list: typeof now.ps, level: number): number =>
    list.filter(({ bytes, limit }) => bytes / limit > level).length;
  if (above(now.ps, 0.8) > 0) return count + 2;
  if (above(now.ps, 0.6) * 2 >= count) return count <= 4 ? count * 2 : Math.ceil(count * 1.2);
  const before = seen.findLast(({ at }) => at <= now.at - 5 * MINUTE);
  const low = (list: typeof now.ps): boolean => above(list, 0.4) * 2 < list.length;
  return before && low(before.ps) && low(now.ps) ? Math.ceil(count / 2) : count;
}

/**
 * DLRover's workers: n = ceil(0.85 / use x n), use being that of the PS, at most 8 more; a PS above 0.99:
 * one less; no more once (dv / dn) / (v / n) < 0.2; steady for 60 s, plans 300 s apart.
 */
function plateau({ seen, taken }: History, policy: AutoscalePolicy): Decision[] {
  const now = seen.at(-1)!;
  const made = taken.filter(({ decision }) => decision.kind === 'workers');
  const last = made.at(-1);
  if (now.pendingWorkers > 0 || now.at - (last?.at ?? -Infinity) < 300 || now.at < 300) return [];
  const count = now.workers.length;
  const use = Math.max(0, ...busyPs(recent(seen, MINUTE)).map(({ busy }) => busy));
  if (use > 0.99) return workers(count, Math.max(policy.workers.least, count - 1), 'a PS above 0.99');
  if (last && last.decision.kind === 'workers' && last.decision.to > last.decision.from) {
    const { from, to } = last.decision;
    const before = throughput(seen.filter(({ at }) => at <= last.at && at >= last.at - MINUTE));
    const after = throughput(recent(seen, MINUTE));
    if ((after - before) / (to - from) / (before / from) < 0.2) return [];
  }
  if (use <= 0) return [];
  const to = Math.min(policy.workers.most, count + 8, Math.ceil((0.85 / use) * count));
  return to > count ? workers(count, to, 'PS have time') : [];
}

/**
 * DLRover: begins with 1 and 1 (here: the least of the bounds). A PS above 0.8 of its processor in the
 * mean of 3 samples gets more of it, as 32 over w; a PS here is one thread, so there are more PS. Brain's
 * memory rule, at 0.9: where the fullest is far above the mean, memory x 2, else PS x 2; a PS has the
 * memory that it has, so PS x 2 in both. Changes of PS are at most hourly, as each is a migration.
 */
export function dlrover(policy: AutoscalePolicy): Rule {
  return {
    name: 'DLRover',
    first: { ps: policy.ps.least, workers: policy.workers.least },
    decide(history) {
      const { seen, taken } = history;
      const now = seen.at(-1);
      if (!now || now.pendingPs > 0 || now.changing) return [];
      const count = now.ps.length;
      const last = taken.findLast(({ decision }) => decision.kind === 'ps')?.at ?? -Infinity;
      if (now.at - last >= 60 * MINUTE) {
        const full = now.ps.some(({ bytes, limit }) => bytes / limit > 0.9);
        if (full && count < policy.ps.most)
          return ps(count, Math.min(policy.ps.most, count * 2), 'a PS above 0.9 of its memory');
        const busy = busyPs(recent(seen, 3 * MINUTE)).map((one) => one.busy);
        const mean = busy.reduce((sum, one) => sum + one, 0) / Math.max(1, busy.length);
        if (busy.length > 0 && Math.max(...busy) > 0.8) {
          const most = Math.min(policy.ps.most, Math.ceil((count * 32) / Math.max(1, now.workers.length)));
          const wanted = Math.ceil((count * Math.max(mean, 0.8)) / 0.6);
          const to = Math.max(count, Math.min(most, wanted));
          if (to > count) return ps(count, to, 'a PS above 0.8 of its processor');
        }
      }
      return plateau(history, policy);
    },
  };
}

/**
 * Measures what the loss of a PS costs on this machine: one of a small idle job with 4+1 gets a SIGKILL, and
 * one that held nothing takes its place. Processor time is the kernel's, as in measure.ts.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { KintsugiError } from '../../common/errors.js';
import { DEFAULT_SCHEDULER_POLICY } from '../../core/shared/policy.js';
import type { Client } from '../../library/client/client.js';
import { monotonicMs } from '../../net/log.js';
import type { PlannerRates } from '../planner/rates.js';
import type { RoleEvent } from './events.js';
import { failuresOf, inOrder, type KillRecord, type ReportedFailure } from './report.js';

export interface LossJob {
  client: Client;
  /** Records of all roles, so far. */
  events: readonly RoleEvent[];
  /** Kills this PS. */
  kill(name: string): void;
  /** Processor seconds of the PS that stay; `idle`: what they take in a second when nothing happens. */
  cpu(): number;
  idle: number;
}

/** Rates of a loss. */
export type Loss = Pick<PlannerRates, 'detection' | 'serving' | 'recoveryBytes'>;

const LIMIT_MS = 60_000;
const POLL_MS = 20;
/** Least seconds of a step: what drowns in the noise still took some time. */
const LEAST = 0.001;

/**
 * `lostBytes`: bytes of the rows and the parities that `name` holds. A process that dies is missed as soon as
 * its connections close; a machine that vanishes is given up `vanishedMs` after it was last heard, which
 * counts.
 * @throws TIMEOUT when the job is not redundant again after a minute
 */
export async function measureLoss(job: LossJob, name: string, lostBytes: number): Promise<Loss> {
  const record = recordOf(job.client, name);
  const before = job.cpu();
  job.kill(name);
  for (;;) {
    await sleep(POLL_MS);
    const [failure] = failuresOf(inOrder(job.events), [record]);
    if (failure && isOver(failure)) {
      const { detectedMs, keysReadyMs } = failure;
      const busy = job.cpu() - before - (job.idle * (monotonicMs() - record.mono)) / 1000;
      return {
        detection: (DEFAULT_SCHEDULER_POLICY.vanishedMs + detectedMs) / 1000,
        serving: Math.max(LEAST, (keysReadyMs - detectedMs) / 1000),
        recoveryBytes: lostBytes / Math.max(LEAST, busy),
      };
    }
    if (monotonicMs() - record.mono > LIMIT_MS)
      throw new KintsugiError('TIMEOUT', `a lost PS was not made good within ${LIMIT_MS / 1000} s`);
  }
}

type Over = ReportedFailure & { detectedMs: number; keysReadyMs: number };

function isOver(failure: ReportedFailure): failure is Over {
  return failure.detectedMs !== null && failure.keysReadyMs !== null && failure.redundantMs !== null;
}

/** A kill that is about to happen. */
function recordOf({ clusterMap }: Client, name: string): KillRecord {
  const node = clusterMap.nodes.find((entry) => entry.name === name)!;
  const shards = clusterMap.groups.flatMap((group) =>
    group.data.flatMap(({ node: owner, gen }, member) =>
      owner === node.id ? [{ group: group.id, member, gen }] : [],
    ),
  );
  return { role: 'ps', name, inc: node.inc, mono: monotonicMs(), shards };
}

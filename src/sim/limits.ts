/** Limits and timers of the nodes of a schedule: small, so that a short schedule reaches them. */
import { DEFAULT_POLICY, type Policy } from '../core/shared/policy.js';
import { type SimConfig, silentClients } from './config.js';
import { Random } from './random.js';
import { turnLimits } from './turns.js';

export const MAX_STEPS = 60_000;

/** `retry`: protocol timers, in steps. */
export function limitsOf(config: SimConfig, retry: number): Policy {
  return {
    ...DEFAULT_POLICY,
    retryMs: retry,
    heartbeatMs: Math.ceil(retry / 2),
    parkedPullMs: MAX_STEPS,
    recoveryWindow: 4,
    recoveryChunk: 2,
    sinkStallMs: retry * 8,
    maxReaderBytes: 2048,
    readerSilentMs: retry * 8,
    sessionCheckMs: retry * 6,
    saveChunkBytes: 4096,
    segmentBytes: 8192,
    checkpointBytes: config.saveBytes,
    requireRedundancy: config.requireRedundancy,
    ...answerLimits(config.answers, retry),
    ...turnLimits(config.turns),
    ...evictionLimits(config.evictions, retry),
  };
}

/** Room for a few evictions or for all, which are forgotten soon or late, from a seed of its own. */
function evictionLimits(seed: number, retry: number): Partial<Policy> {
  if (seed === 0) return {};
  const random = new Random(seed);
  const maxEvictedBytes = random.pick([40, 200, DEFAULT_POLICY.maxEvictedBytes]);
  return { maxEvictedBytes, evictedMs: retry * random.pick([2, 10, 1000]) };
}

/**
 * Room for a few answers of one row or for some more, and for deltas and content, drawn from a seed of its
 * own; 0 = the defaults.
 */
function answerLimits(seed: number, retry: number): Partial<Policy> {
  if (seed === 0) return {};
  const random = new Random(seed);
  // A silent client that holds one answer takes all the room in some schedules, until it is hung up.
  const limits = silentClients({ answers: seed }) > 0 ? [50, 100, 200, 600] : [200, 600, 2000, 6000];
  return {
    maxAnswerBytes: random.pick(limits),
    answerStallMs: retry * random.pick([1, 3]),
    maxDeltaBytes: random.pick([1 << 12, 1 << 15, DEFAULT_POLICY.maxDeltaBytes]),
    // Each push has room in a batch of its own.
    maxBatchBytes: random.pick([1 << 13, DEFAULT_POLICY.maxBatchBytes]),
  };
}

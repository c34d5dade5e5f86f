/**
 * The classes of memory of a PS, with the share of `--memory` that each may take, and what happens there.
 * Every byte that a PS holds for a while belongs to one class, and is charged before it is taken. What
 * belongs to none is `unaccounted`: resident memory beyond the classes and beyond that of the empty process.
 */
import type { MemoryPart } from '../../protocol/telemetry.js';
import type { Policy } from './policy.js';

type ByteLimit =
  | 'maxDeltaBytes'
  | 'maxParkedBytes'
  | 'maxAnswerBytes'
  | 'maxReceivedBytes'
  | 'checkpointBytes'
  | 'maxReaderBytes'
  | 'maxEvictedBytes';

interface MemoryClass {
  /** The limit that bounds the class; classes with the same one share it. */
  readonly limit: '--memory' | ByteLimit;
  /**
   * The behaviour at the limit. `refuse`: an error names the limit. `drop`: bytes are dropped, and the
   * protocol repeats them, or tells of a gap. `wait`: nothing is taken until there is room. `charge`: bytes
   * are counted and never refused.
   */
  readonly atLimit: 'refuse' | 'drop' | 'wait' | 'charge';
}

export const MEMORY_CLASSES: Readonly<Record<MemoryPart, MemoryClass>> = {
  data: { limit: '--memory', atLimit: 'refuse' },
  parity: { limit: '--memory', atLimit: 'charge' },
  snapshots: { limit: 'checkpointBytes', atLimit: 'refuse' },
  files: { limit: 'checkpointBytes', atLimit: 'wait' },
  deltas: { limit: 'maxDeltaBytes', atLimit: 'wait' },
  sinkLogs: { limit: 'maxDeltaBytes', atLimit: 'wait' },
  outgoing: { limit: 'maxDeltaBytes', atLimit: 'wait' },
  waiting: { limit: 'maxParkedBytes', atLimit: 'drop' },
  answers: { limit: 'maxAnswerBytes', atLimit: 'wait' },
  received: { limit: 'maxReceivedBytes', atLimit: 'refuse' },
  readers: { limit: 'maxReaderBytes', atLimit: 'drop' },
  evicted: { limit: 'maxEvictedBytes', atLimit: 'drop' },
};

/** The share of `--memory` that a limit is, where it would be more otherwise. */
export const MEMORY_SHARES: Readonly<Partial<Record<ByteLimit, number>>> = {
  maxDeltaBytes: 1 / 8,
  maxParkedBytes: 1 / 16,
  maxAnswerBytes: 1 / 4,
  maxReceivedBytes: 1 / 8,
  checkpointBytes: 1 / 8,
};

/** No share is less, so that a PS with little memory does its work. */
const LEAST_BYTES = 32 << 20;

/** `policy` with limits that fit `memoryBytes` (0: none was said), except those that `chosen` has. */
export function policyWithin(policy: Policy, memoryBytes: number, chosen: Partial<Policy> = {}): Policy {
  const all = { ...policy, ...chosen };
  if (memoryBytes === 0) return all;
  for (const [name, share] of Object.entries(MEMORY_SHARES) as [ByteLimit, number][])
    if (chosen[name] === undefined)
      all[name] = Math.min(all[name], Math.max(LEAST_BYTES, Math.floor(memoryBytes * share)));
  return all;
}

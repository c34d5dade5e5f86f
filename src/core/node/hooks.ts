/** Hooks of the runtime, or of the simulator, that a node calls in the middle of a step. */
import type { PeerId } from '../../protocol/map.js';
import type { ProcessTelemetry, SentKind } from '../../protocol/telemetry.js';
import type { AnswerMemory } from '../shard/host.js';

/** Telemetry that only the process around a node has: of the process, and of its connections. */
export interface Surroundings extends ProcessTelemetry {
  sentBytes: Record<SentKind, number>;
  /** Resident memory of the process when it began to serve. */
  startRssBytes: number;
  /** Bytes of frames that are not complete. */
  receivedBytes: number;
  /** Bytes that clients and replicas have not taken. */
  readerBytes: number;
}

const NOTHING_KNOWN: Surroundings = {
  upSeconds: 0,
  cpuSeconds: 0,
  rssBytes: 0,
  sentBytes: { answers: 0, deltas: 0, recovery: 0, replicas: 0, other: 0 },
  startRssBytes: 0,
  receivedBytes: 0,
  readerBytes: 0,
};

/** Each hook has a default, so that a node runs alone. */
export interface NodeHooks {
  /**
   * Takes bytes that only effects of this step still refer to (`CoreHost.discard`). Default: ignores them.
   */
  discard(bytes: Uint8Array): void;
  /** Memory for an answer of so many bytes. Default: of the garbage collector. */
  answerMemory(bytes: number): AnswerMemory;
  /**
   * The same for content of blocks: a frame is built around what is put there. Undefined: sockets hold too
   * much of it. Default: of the garbage collector.
   */
  contentMemory(bytes: number): AnswerMemory | undefined;
  /** True if `proof` is that of the session, which is a range's. Default: every proof is. */
  holds(session: PeerId, proof: Uint8Array | undefined): boolean;
  /**
   * Milliseconds for which the machine of a peer has acknowledged nothing of what it was sent; undefined:
   * there is no link to the peer. The caller asks repeatedly, so a link without traffic is pinged. Default:
   * no links.
   */
  unacknowledgedMs(peer: PeerId, inc: number): number | undefined;
  /** A shard of the job has a new owner: work begins that this process seldom does. Default: nothing. */
  disturbed(): void;
  /** Telemetry of the process. Default: zeros. */
  surroundings(): Surroundings;
}

const collected = (bytes: number): AnswerMemory => {
  return { memory: new Uint8Array(bytes), at: 0, took: () => {}, drop: () => {} };
};

export const DEFAULT_HOOKS: NodeHooks = {
  discard: () => {},
  answerMemory: collected,
  contentMemory: collected,
  holds: () => true,
  unacknowledgedMs: () => undefined,
  disturbed: () => {},
  surroundings: () => NOTHING_KNOWN,
};

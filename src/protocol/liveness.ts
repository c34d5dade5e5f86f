/**
 * Messages about nodes that may be gone. Rule 33: a machine that has vanished acknowledges nothing to the
 * scheduler, nor to any of the nodes that are asked. Rule 44: a process whose event loop is late still sends
 * pulses. And what nodes are told of the job's own time.
 */
import type { PeerId } from './map.js';

/** Asks whether the machine of `node` still acknowledges what the receiver sends it. */
export interface ReachMessage {
  t: 'reach';
  node: PeerId;
  inc: number;
  /** Number of the question: the answer proves that the receiver lived when it came. */
  round?: number;
}
/**
 * Time for which the machine has acknowledged nothing to the sender; absent: the sender has no link to it.
 */
export interface Reached {
  t: 'reached';
  node: PeerId;
  inc: number;
  round?: number;
  silentMs?: number;
}

/** The word for what is known of the process of a node: rule 44 says what each means. */
export type Life = 'turning' | 'stopped' | 'gone';

/**
 * Proof of life of a process: a thread of its own sends it, on a connection of its own, so no request stands
 * before it. It is the first message of that connection, and the only kind.
 */
export interface PulseMessage {
  t: 'pulse';
  node: PeerId;
  inc: number;
  job: string;
  /** Milliseconds since the last turn of the process's event loop, as far as the thread has seen. */
  ageMs: number;
  /** Longest time between two turns since the pulse before. */
  gapMs: number;
}

/**
 * The seconds that the job has had: they pass while its scheduler runs, and tables whose policies count
 * seconds go by them. A node takes the highest number that it hears. A scheduler that takes over goes on from
 * what heartbeats name.
 */
export interface TimeMessage {
  t: 'time';
  seconds: number;
}

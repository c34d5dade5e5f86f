/**
 * The actors of a schedule: each process with its machine, its connection to the scheduler, its questions.
 */
import type { PsClientCore } from '../core/client/client.js';
import type { PsNode } from '../core/node/node.js';
import type { PeerId } from '../protocol/map.js';
import type { Store } from './sections.js';

export interface NodeActor {
  name: string;
  up: boolean;
  /** The process never comes back, and its address does not answer. */
  gone: boolean;
  node: PsNode | undefined;
  identity: { id: PeerId; inc: number } | undefined;
  /** Number of its connection to the scheduler; 0 = none. */
  link: number;
  /** Time before which the node does not come back to the scheduler. */
  awayUntil: number;
}

export interface ClientActor {
  core: PsClientCore;
  /** Number of the process among those of all clients of the schedule. */
  process: number;
  id: PeerId | undefined;
  link: number;
  /** Pushes that the client has still to make. */
  left: number;
  /** Ticket -> pull under way. */
  pulls: Map<number, { store: Store; shard: number; acknowledged: number }>;
  /** Ticket -> number of sections of a push under way. */
  pushes: Map<number, number>;
  /** Ticket -> the check under way, in words. */
  checks: Map<number, string>;
  /** The client begins no push before `until`, or `resume`; `told`: it has told that none is under way. */
  hold: { id: number; until: number; told: boolean } | undefined;
  /** A shard told the client that its session has ended. */
  expired: boolean;
}

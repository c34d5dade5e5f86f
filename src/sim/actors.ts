/** What a schedule keeps of each process: its machine, its connection to the scheduler, what it waits for. */
import type { PsClientCore } from '../core/client/client.js';
import type { PsNode } from '../core/node/node.js';
import type { PeerId } from '../protocol/map.js';
import type { Store } from './sections.js';

export interface NodeActor {
  name: string;
  up: boolean;
  /** It never comes back, and nothing answers at its address. */
  gone: boolean;
  node: PsNode | undefined;
  identity: { id: PeerId; inc: number } | undefined;
  /** Number of its connection to the scheduler; 0 = none. */
  link: number;
  /** It does not come back to the scheduler before this time. */
  awayUntil: number;
}

export interface ClientActor {
  core: PsClientCore;
  /** Number of the process among those of all clients of the schedule. */
  process: number;
  id: PeerId | undefined;
  link: number;
  left: number;
  pulls: Map<number, { store: Store; shard: number; acknowledged: number }>;
  pushes: Map<number, number>;
  checks: Map<number, string>;
  /** It begins no push before this time, or `resume`; `told`: it has said so. */
  hold: { id: number; until: number; told: boolean } | undefined;
  /** A shard said that its session has ended. */
  expired: boolean;
}

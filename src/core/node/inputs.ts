/** What a node is told, and what its surroundings lend to it. */
import type { NativeShard } from '../../native.js';
import type { PeerId } from '../../protocol/map.js';
import type { Message } from '../../protocol/messages.js';
import type { Role } from '../../protocol/senders.js';
import type { FetchAnswer } from './loading.js';
import type { StoreAnswer } from './saving.js';
import { NOTHING_KNOWN, type Surroundings } from './telemetry.js';

export type NodeInput =
  /** `role`: of the connection that it came on. */
  | { kind: 'message'; from: PeerId; role: Role; message: Message; parts: readonly Uint8Array[] }
  /** A connection to this peer is up (again). */
  | { kind: 'peerUp'; peer: PeerId }
  | { kind: 'flush' }
  /** Background work goes on, while `needsTurn`. */
  | { kind: 'turn' }
  /** What became of an effect `store`. */
  | StoreAnswer
  /** What became of an effect `fetch`. */
  | FetchAnswer
  | { kind: 'tick'; now: number };

/** Memory that a node does not manage itself. */
export interface NodeHooks {
  /** Nothing but effects of this step refers to these bytes any more (`CoreHost.discard`). */
  discard(bytes: Uint8Array): void;
  /** Has the engine answer a section of a pull: rows, or a status. Default: in memory of its own. */
  pull(shard: NativeShard, section: Uint8Array): Uint8Array | number;
  /** `proof` is that of the session of a range. Default: anything is. */
  holds(session: PeerId, proof: Uint8Array | undefined): boolean;
  /**
   * For how long the machine of a peer has acknowledged nothing of what it was sent; undefined: there is no
   * link to it. The caller asks repeatedly, so a link without traffic is pinged. Default: no links.
   */
  unacknowledgedMs(peer: PeerId, inc: number): number | undefined;
  /** What is known of the process, for whoever observes it. Default: nothing. */
  surroundings(): Surroundings;
}

export const DEFAULT_HOOKS: NodeHooks = {
  discard: () => {},
  pull: (shard, section) => shard.pull(section),
  holds: () => true,
  unacknowledgedMs: () => undefined,
  surroundings: () => NOTHING_KNOWN,
};

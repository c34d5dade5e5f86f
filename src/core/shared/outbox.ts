/**
 * Effects: the answers of a machine of the core to an input. Machines never touch the network, a clock or a
 * disk: they collect effects, and the runtime (or the simulator) carries them out.
 */

import type { FilterState } from '../../engine/snapshots.js';
import type { SegmentRef } from '../../protocol/checkpoints.js';
import type { PeerId } from '../../protocol/map.js';
import type { DedupEntry, Message } from '../../protocol/messages.js';

export interface SendEffect {
  kind: 'send';
  to: PeerId;
  message: Message;
  /** Opaque bytes. Nobody changes them once they are in an effect. */
  parts: readonly Uint8Array[];
}

/**
 * An event that a person or a report wants to know of. The runtime logs it with its own clock.
 */
export interface EventEffect {
  kind: 'event';
  name: string;
  fields: Record<string, unknown>;
}

/** Rows of one table in a file of a checkpoint. The n-th arrays of each list belong together. */
export interface StoredTable {
  name: string;
  keys: BigUint64Array[];
  values: Float32Array[];
  /** The arrays are empty where the optimizer has no state, or only values are saved. */
  state: Float32Array[];
  /** Keys that have no row any more; none of `keys`. */
  removed?: BigUint64Array[];
  /** Some slots of the filter of a table that has one, in a full job. */
  filter?: StoredFilter;
}

/** Slots of a filter as the engine gives them. */
export interface StoredFilter {
  state: FilterState;
  slots: BigUint64Array[];
  counters: Uint8Array[];
}

/**
 * The runtime encodes these rows as a segment and puts it into the place `url` under `name`, durably. It
 * answers with the input `stored`, when the file is there, or `storeFailed`, after its own retries. Nobody
 * changes the arrays any more.
 */
export interface StoreEffect {
  kind: 'store';
  token: number;
  url: string;
  name: string;
  /** True for an export: only values are stored, without the optimizer's state. */
  valuesOnly: boolean;
  tables: StoredTable[];
  /**
   * De-duplication state of the shard at `position`. Only the last segment of a shard in a full job has it.
   */
  sessions?: DedupEntry[];
  /** The shard of these rows, and the position in its stream that they are of. */
  group: number;
  member: number;
  position: number;
}

/**
 * The runtime reads this file from the place `url`, and checks that it has the size, the digest and the shard
 * that the manifest says. It answers with the input `fetched` or `fetchFailed`.
 */
export interface FetchEffect {
  kind: 'fetch';
  token: number;
  url: string;
  segment: SegmentRef;
  /** The shard that the file belongs to in the checkpoint. */
  pool: string;
  group: number;
  member: number;
}

/**
 * The runtime closes the connection to this peer and drops the bytes that the peer has not read: the peer
 * needs none of them.
 */
export interface HangUpEffect {
  kind: 'hangUp';
  peer: PeerId;
}

export type Effect = SendEffect | EventEffect | StoreEffect | FetchEffect | HangUpEffect;

export class Outbox {
  /** Effects since the last `take`, in the order in which they are to be carried out. */
  private effects: Effect[] = [];

  send(to: PeerId, message: Message, parts: readonly Uint8Array[] = []): void {
    this.effects.push({ kind: 'send', to, message, parts });
  }

  event(name: string, fields: Record<string, unknown> = {}): void {
    this.effects.push({ kind: 'event', name, fields });
  }

  store(effect: Omit<StoreEffect, 'kind'>): void {
    this.effects.push({ kind: 'store', ...effect });
  }

  fetchFile(effect: Omit<FetchEffect, 'kind'>): void {
    this.effects.push({ kind: 'fetch', ...effect });
  }

  hangUp(peer: PeerId): void {
    this.effects.push({ kind: 'hangUp', peer });
  }

  take(): Effect[] {
    const taken = this.effects;
    this.effects = [];
    return taken;
  }
}

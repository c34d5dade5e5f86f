/**
 * What a machine of the core answers to an input. Machines never touch the network, a clock or a disk: they
 * collect effects, and the runtime (or the simulator) carries them out.
 */

import type { SegmentRef } from '../../protocol/checkpoints.js';
import type { PeerId } from '../../protocol/map.js';
import type { DedupEntry, Message } from '../../protocol/messages.js';

export interface SendEffect {
  kind: 'send';
  to: PeerId;
  message: Message;
  /** Opaque bytes; nobody changes them after they were handed over. */
  parts: readonly Uint8Array[];
}

/**
 * Something that happened and that a person or a report wants to know; the runtime logs it with its own
 * clock.
 */
export interface EventEffect {
  kind: 'event';
  name: string;
  fields: Record<string, unknown>;
}

/** Rows of one table in a file of a checkpoint. The n-th arrays of each list belong together. */
export interface SavedTable {
  name: string;
  keys: BigUint64Array[];
  values: Float32Array[];
  /** Empty arrays where the optimizer has no state, or only values are saved. */
  state: Float32Array[];
}

/**
 * Encode these rows as a segment and put it into the place `url` under `name`, durably. The runtime answers
 * with the input `stored`, when the file is there, or `storeFailed`, after its own retries. Nobody changes
 * the arrays any more.
 */
export interface StoreEffect {
  kind: 'store';
  token: number;
  url: string;
  name: string;
  /** Of the values only, without state: an export. */
  valuesOnly: boolean;
  tables: SavedTable[];
  /** De-duplication state of the shard at `position`: of its last segment in a full job. */
  sessions?: DedupEntry[];
  /** Whose rows these are, and at which position of its stream. */
  group: number;
  member: number;
  position: number;
}

/**
 * Read this file from the place `url`, and check that it is what the manifest says it is: of this size and
 * digest, and of this shard. The runtime answers with the input `fetched` or `fetchFailed`.
 */
export interface FetchEffect {
  kind: 'fetch';
  token: number;
  url: string;
  segment: SegmentRef;
  /** Whose file it is, in the checkpoint. */
  pool: string;
  group: number;
  member: number;
}

/**
 * Close the connection to this peer and drop the bytes that the peer has not read: the peer needs none of
 * them.
 */
export interface HangUpEffect {
  kind: 'hangUp';
  peer: PeerId;
}

export type Effect = SendEffect | EventEffect | StoreEffect | FetchEffect | HangUpEffect;

export class Outbox {
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

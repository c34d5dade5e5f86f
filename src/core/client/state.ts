/**
 * Inputs and effects of the client machine, and its records of pushes, tickets and
 * shards.
 */
import type { ErrorCode } from '../../common/errors.js';
import type { PeerId } from '../../protocol/map.js';
import type { Message, MessageOf } from '../../protocol/messages.js';
import { joined, type Span } from '../shared/bytes.js';
import type { EventEffect, SendEffect } from '../shared/outbox.js';
import { Retry } from '../shared/retry.js';

export interface ShardSection {
  g: number;
  m: number;
  section: Uint8Array;
}

/** Sections of a request that lie one after the other; those of one node, as far as its sender knows. */
export interface SectionList {
  /** (g, m, bytes) of each. */
  places: Uint32Array;
  bytes: Uint8Array;
}

/** Words of a section in `SectionList.places`. */
export const PLACE_WORDS = 3;

/** Sections that were made one by one, as a list. */
export function listSections(items: readonly ShardSection[]): SectionList[] {
  const places = items.flatMap(({ g, m, section }) => [g, m, section.byteLength]);
  const spans = items.map(({ section }) => ({ memory: section, start: 0, size: section.byteLength }));
  return [{ places: Uint32Array.from(places), bytes: joined(spans) }];
}

/** A request that any answer settles, to the owner of a shard or to a given node. */
export interface Query {
  to: { g: number; m: number } | { node: PeerId };
  message: MessageOf<'keys' | 'evictions' | 'shardStats' | 'check' | 'observe'>;
}

export type ClientInput =
  | { kind: 'message'; from: PeerId; message: Message; parts: readonly Uint8Array[] }
  | { kind: 'peerUp'; peer: PeerId }
  /** `client`: the session whose numbers are used, when it is not this client's own. */
  | { kind: 'push'; ticket: number; lists: readonly SectionList[]; client?: PeerId }
  /** Another worker has used these numbers of a session, and their pushes are durable: go on after them. */
  | { kind: 'skip'; client: PeerId; items: { g: number; m: number; count: number }[] }
  /** Ends pushing under this session, and gives up the pushes that are under way. */
  | { kind: 'leave'; client: PeerId }
  | { kind: 'pull'; ticket: number; lists: readonly SectionList[] }
  | { kind: 'query'; ticket: number; query: Query }
  /** Nobody waits for this ticket any more. A push that has its number is still delivered. */
  | { kind: 'forget'; ticket: number }
  | { kind: 'tick'; now: number; busy?: Busy };

/** Nodes whose connection is slower than what goes over it. */
export interface Busy {
  /** Bytes to these nodes are not sent yet. */
  sending: ReadonlySet<PeerId>;
  /** Bytes from these nodes are coming in, perhaps of an answer that is not complete. */
  receiving: ReadonlySet<PeerId>;
}

export type ClientEffect =
  | SendEffect
  | EventEffect
  /**
   * Rows of sections of a pull, one after the other; a view that ends with the call. `items`: (section,
   * bytes) of each. Sections are numbered in the order of all lists of the pull.
   */
  | { kind: 'rows'; ticket: number; items: Uint32Array; rows: Uint8Array }
  | { kind: 'answer'; ticket: number; message: Message; parts: readonly Uint8Array[] }
  /**
   * No section of this push is kept any more, whether its ticket is done or not: each is acknowledged or
   * given up.
   */
  | { kind: 'released'; ticket: number }
  | { kind: 'done'; ticket: number; error?: { code: ErrorCode; message: string } };

/** When a client repeats its requests. */
export interface ClientPolicy {
  /** Repeat what is not answered after this time, doubling up to `maxRetryMs`. */
  retryMs: number;
  maxRetryMs: number;
  /** Wait this long before asking again at a node that is not (yet) the owner. */
  wrongOwnerMs: number;
  /**
   * A request that is overdue is not repeated while it, or its answer, may still be on the way over a slow
   * connection: a copy would only make the connection slower. After this time it is repeated all the same,
   * because it may have been dropped.
   */
  maxBusyMs: number;
}

export const DEFAULT_CLIENT_POLICY: ClientPolicy = {
  retryMs: 500,
  maxRetryMs: 8000,
  wrongOwnerMs: 20,
  maxBusyMs: 10_000,
};

export const IDLE: Busy = { sending: new Set(), receiving: new Set() };

/**
 * Stands for the section of a withdrawn push. The acknowledgement of such a push is not counted, because its
 * caller was told that it failed.
 */
export const NOTHING = new Uint8Array(0);

/** A push, whether somebody still waits for it or not. */
export interface PushTicket {
  readonly id: number;
  /** Shards that have not acknowledged. */
  left: number;
  /** Sections that are still kept. */
  kept: number;
  /** Somebody waits for it. */
  awaited: boolean;
}

/** A section, which lies in its list. NOTHING: withdrawn, and only its number is still to be delivered. */
export interface PendingPush extends Span {
  cseq: number;
  readonly ticket: PushTicket;
}

export interface ShardState {
  g: number;
  m: number;
  /** Session whose numbers are used; undefined: this client's own. */
  client: PeerId | undefined;
  next: number;
  unacknowledged: PendingPush[];
  /** Pushes that are not acknowledged. */
  readonly retry: Retry;
  /** Counted independently of the protocol's own tables, for audits. */
  acknowledged: number;
  refused: number;
  /** Version of the group in which its owner called the shard lost; -1: never. */
  lostIn: number;
  /** Gaps in a row that ask for acknowledged pushes. A single one may be a message that came late. */
  forgotten: number;
}

/** After so many gaps in a row the shard does not know this client any more. */
export const FORGOTTEN_LIMIT = 4;

export interface ShardCounts {
  g: number;
  m: number;
  sent: number;
  acknowledged: number;
  refused: number;
}

export function countsOf({ g, m, next, acknowledged, refused }: ShardState): ShardCounts {
  return { g, m, sent: next - 1, acknowledged, refused };
}

export function newShard(
  g: number,
  m: number,
  client: PeerId | undefined,
  { retryMs: waitMs, maxRetryMs: maxWaitMs }: ClientPolicy,
): ShardState {
  return {
    g,
    m,
    client,
    next: 1,
    unacknowledged: [],
    retry: new Retry({ waitMs, maxWaitMs }),
    acknowledged: 0,
    refused: 0,
    lostIn: -1,
    forgotten: 0,
  };
}

export const lostText = (g: number, m: number): string =>
  `shard ${g}/${m} lost more than its code can restore`;

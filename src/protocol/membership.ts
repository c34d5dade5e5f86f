/** Messages about who is a member, which sessions are open, and the map. */
import type { ClusterMap, Group, NodeEntry, PeerId, TableSpec } from './map.js';

export interface Join {
  t: 'join';
  name: string;
  host: string;
  address: string;
  /** Processes on one machine share it. */
  machine?: string;
  standby: boolean;
  /** Set when this process reconnects: it keeps its identity, in the job that gave it. */
  id?: PeerId;
  inc?: number;
  job?: string;
}
export interface Welcome {
  t: 'welcome';
  id: PeerId;
  inc: number;
  map: ClusterMap;
  /** For a client: shows to nodes, and to the scheduler later, that this id is its own. */
  proof?: Uint8Array;
}
/** A process whose node name was taken over by a newer one, or a client without a session: it must stop. */
export interface Stale {
  t: 'stale';
  code: 'STALE_NODE' | 'SESSION_EXPIRED' | 'LIMIT';
}
/**
 * This scheduler does not lead the job. On a new connection: the receiver must connect to another scheduler.
 * On a connection that was welcomed before: another scheduler may lead by now, and the receiver looks for it
 * but keeps this connection meanwhile.
 */
export interface Redirect {
  t: 'redirect';
  /** Address of the leader; "" when nobody is known to lead. */
  to: string;
}
export interface Attach {
  t: 'attach';
  /** Set when this client reconnects: its session goes on, in the job that opened it. */
  id?: PeerId;
  job?: string;
  proof?: Uint8Array;
}
/** This client is done: its session ends now. */
export interface Detach {
  t: 'detach';
}
/** A node asks which sessions are open. */
export interface SessionsRequest {
  t: 'sessions';
}
/** Of all ids below `next` only these are open sessions, ascending. */
export interface OpenSessions {
  t: 'openSessions';
  next: PeerId;
  open: PeerId[];
}
/** Ascending ranges of ids, none of which is that of an open session. Sent after sessions have ended. */
export interface SessionsEnded {
  t: 'sessionsEnded';
  ranges: [first: PeerId, last: PeerId][];
}
export interface MapMessage {
  t: 'map';
  map: ClusterMap;
}
/**
 * The changes of the map by the scheduler's last decision. A receiver that has another map than `from` asks
 * for a whole one.
 */
export interface MapDiff {
  t: 'mapDiff';
  from: number;
  to: number;
  /** Changed and new ones. */
  groups: Group[];
  /** Changed and new ones. */
  nodes: NodeEntry[];
  removed: PeerId[];
  /** New ones. */
  tables: TableSpec[];
}
/** The sender lacks diffs after this epoch, or an answer is overdue that a newer map would explain. */
export interface MapRequest {
  t: 'mapRequest';
  epoch: number;
}

export type MembershipMessage =
  | Join
  | Welcome
  | Redirect
  | Stale
  | Attach
  | Detach
  | SessionsRequest
  | OpenSessions
  | SessionsEnded
  | MapMessage
  | MapDiff
  | MapRequest;

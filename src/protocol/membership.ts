/** Messages about the processes of a job, open sessions, and the map. */
import type { ClusterMap, Group, NodeEntry, PeerId, TableSpec } from './map.js';

export interface Join {
  t: 'join';
  name: string;
  host: string;
  address: string;
  /** Name of the machine, which its processes share. */
  machine?: string;
  standby: boolean;
  /** Set with `inc` and `job` when this process reconnects: it keeps its identity in that job. */
  id?: PeerId;
  inc?: number;
  job?: string;
}
export interface Welcome {
  t: 'welcome';
  id: PeerId;
  inc: number;
  map: ClusterMap;
  /** Proof for a client, which shows it to nodes and later to the scheduler: the id is its own. */
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
  /** Set with `job` when this client reconnects: its session continues in that job. */
  id?: PeerId;
  job?: string;
  proof?: Uint8Array;
}
/** The sender leaves: its session ends now. */
export interface Detach {
  t: 'detach';
}
/** A node asks for the open sessions. */
export interface SessionsRequest {
  t: 'sessions';
}
/** All open sessions among the ids below `next`, ascending. */
export interface OpenSessions {
  t: 'openSessions';
  next: PeerId;
  open: PeerId[];
}
/** Ascending ranges of ids without open sessions. Sent after sessions have ended. */
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
  /** Changed and new groups. */
  groups: Group[];
  /** Changed and new nodes. */
  nodes: NodeEntry[];
  /** Ids of nodes that are gone. */
  removed: PeerId[];
  /** Changed and new tables. */
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

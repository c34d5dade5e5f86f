/**
 * Every message on the wire: a small header (encoded by frame.ts) and raw payload parts that only the engine
 * reads. Fields have short names, because they travel with every message; each means one thing:
 *
 * - `t` kind of the message
 * - `g` group; `m` member: data shard m of the group; `sid` sink, an id that is never reused
 * - `gen` generation of the ownership of a data shard: older owners are fenced by it
 * - `sgen` generation of the stream that a sink follows; 0: none
 * - `v` version of the group's entry in the sender's map: a receiver keeps messages of a newer version until
 *   it has that map, and ignores claims of an older one
 * - `epoch` version of the map; `inc` incarnation of a process, new at every start
 * - `peer`, `client`, `node` ids of processes; id 0 is the scheduler
 * - `cseq` number of a push of one client to one shard, from 1 without gaps
 * - `seq` position in a shard's stream; `base` position where a stream starts or is resumed
 * - `applied` one sink has every delta up to this position; `committed` all sinks that acknowledge have them
 * - `attempt` number of an Open of one owner to one sink
 * - `id` number that a question and its answer share
 * - `dedup` de-duplication state at a position; `extents` highest used slot + 1 of each table
 * - `index` parity index; `lacking` members that do not have a block
 * - `servedRatio` requests that a node serves now, as a part of those it serves when nothing is missing
 */
import type { ErrorCode } from '../common/errors.js';
import type { Extent, TableStats } from '../engine/native.js';
import type { EventMessage } from './events.js';
import type { PulseMessage, Reached, ReachMessage, TimeMessage } from './liveness.js';
import type { PeerId } from './map.js';
import type { MembershipMessage } from './membership.js';
import type { ReplicaMessage } from './replicas.js';
import type { SampleMessage } from './samples.js';
import type { SavingMessage } from './saving.js';
import type { ScalingMessage } from './scaling.js';
import type { RecoveryStats, StatusReply, StatusRequest } from './status.js';
import type { TableMessage } from './tables.js';
import type { TelemetryMessage } from './telemetry.js';

export type {
  ChangeStatus,
  JobStatus,
  JobSummary,
  MoveStatus,
  NodeStatus,
  PlanStatus,
  RecoveryStats,
  Redundancy,
  ReplicaStatus,
  RestoreStatus,
  SavedCopy,
  ScalingStatus,
} from './status.js';

export type Refusal = ErrorCode;
/** A push: client, its number, and the reason if it was refused. */
export type PushId = [client: PeerId, cseq: number, refused?: Refusal];
/** A tombstone: the sessions first..last have ended, and their pushes are refused from here on (rule 31). */
export type EndedSessions = [first: PeerId, last: PeerId, mark: 'ENDED'];
/** A skip: the shard has forgotten pushes of this client up to `last`; the next number is taken (rule 41). */
export type SkippedPushes = [client: PeerId, last: number, mark: 'SKIPPED'];
/** An entry in the header of a batch, beside its delta. */
export type StreamId = PushId | EndedSessions | SkippedPushes;
/**
 * De-duplication state of one client at one stream position: its last number and recent refusals; or a
 * tombstone of ended sessions.
 */
export type DedupEntry =
  | [client: PeerId, cseq: number, refused: [cseq: number, code: Refusal][]]
  | EndedSessions;

interface ShardOf {
  g: number;
  m: number;
}
interface StreamOf extends ShardOf {
  sid: number;
  gen: number;
}

// ---- caller -> called
/** The first message on a connection to a node or a replica. */
export interface Hello {
  t: 'hello';
  peer: PeerId;
  inc: number;
  job: string;
  /** Proof of a client that the scheduler gave it the id `peer`. */
  proof?: Uint8Array;
}

// ---- client -> owner
/**
 * `items`: (g, m, cseq, bytes), packed (items.ts). part: their REQUEST sections, one after the other. Rule 5:
 * a client numbers its pushes for each shard from 1 without gaps. A push with an empty section was withdrawn:
 * if it is not applied already, it only uses up its number and is refused with ABORTED. `client`: the session
 * under which the pushes are numbered, when it is not that of the sender. Batches of a range of samples have
 * the session of the range, and its `proof`.
 */
export interface Push {
  t: 'push';
  epoch: number;
  client?: PeerId;
  proof?: Uint8Array;
  items: Uint8Array;
}
/**
 * `items`: (g, m, bytes), packed. part: their REQUEST sections, one after the other. `first`: id of the first
 * message that asked for these rows, or for others of the same request; default: this one is it.
 */
export interface Pull {
  t: 'pull';
  epoch: number;
  id: number;
  first?: number;
  items: Uint8Array;
}
/**
 * A page of the keys of a table of one shard: in the order of their slots, from slot `from` on, or in the
 * order of the keys, from key `from` on. Slots and keys do not change when the shard moves or is recovered,
 * so the next page may be asked of another owner.
 */
export interface Keys extends ShardOf {
  t: 'keys';
  epoch: number;
  id: number;
  table: number;
  order: 'slot' | 'key';
  /** Below 2^64; a number where it is exact. */
  from: number | bigint;
  max: number;
}
/**
 * Evictions of a table of one shard from number `from` of generation `gen` on, at most `max`; `gen` 0: those
 * from now on. The first question begins to keep them (rule 49).
 */
export interface Evictions extends ShardOf {
  t: 'evictions';
  epoch: number;
  id: number;
  table: number;
  gen: number;
  from: number;
  max: number;
}
export interface ShardStats extends ShardOf {
  t: 'shardStats';
  epoch: number;
  id: number;
}

// ---- owner -> client
/** `items`: (g, m, cseq), packed. `refused`: index in `items` and reason of each push that was refused. */
export interface PushAck {
  t: 'pushAck';
  client?: PeerId;
  items: Uint8Array;
  refused?: [index: number, code: Refusal][];
}
/** `rewound`: the shard may have forgotten pushes that were answered. The client answers with `skipTo`. */
export interface Gap extends ShardOf {
  t: 'gap';
  client?: PeerId;
  expected: number;
  rewound?: true;
}
/**
 * `items`: (index into the pull's items, bytes), packed. part: their ROWS sections, one after the other.
 */
export interface RowsMessage {
  t: 'rows';
  id: number;
  items: Uint8Array;
}
/**
 * Items of a pull, by index, that cannot be served here; another question has item 0. WRONG_OWNER: the client
 * asks another node.
 */
export interface Reject {
  t: 'reject';
  id: number;
  items: [index: number, code: Refusal | 'WRONG_OWNER'][];
}
/** The shard cannot serve pushes in this version of its group: its lost blocks are beyond the code. */
export interface Lost extends ShardOf {
  t: 'lost';
  client?: PeerId;
  v: number;
}
/** parts: u64 keys */
export interface KeysPage {
  t: 'keysPage';
  id: number;
  /** `from` of the next page; -1: there is none. */
  next: number | bigint;
}
/**
 * parts: u64 keys, and a u8 for the reason of each. They begin at `from` of generation `gen`; another place
 * than was asked for tells of a gap. `end`: number of the next eviction to come.
 */
export interface Evicted extends ShardOf {
  t: 'evicted';
  id: number;
  table: number;
  gen: number;
  from: number;
  end: number;
}
export interface ShardStatsReply {
  t: 'shardStatsReply';
  id: number;
  extents: Extent[];
  tables: TableStats[];
}

// ---- owner <-> sink
export interface Open extends StreamOf {
  t: 'open';
  v: number;
  /** Number of this Open of the owner to the sink, from 1. */
  attempt: number;
}
export interface OpenAck extends StreamOf {
  t: 'openAck';
  /** The sink has no stream of this member. */
  none: boolean;
  sgen: number;
  applied: number;
  /** Number of the Open that this answers. */
  attempt: number;
}
export interface Start extends StreamOf {
  t: 'start';
  v: number;
  base: number;
  dedup: DedupEntry[];
  extents: Extent[];
}
export interface StartAck extends StreamOf {
  t: 'startAck';
  applied: number;
  dedup: DedupEntry[];
  extents: Extent[];
}
/** parts: DELTA section */
export interface Delta extends StreamOf {
  t: 'delta';
  seq: number;
  ids: StreamId[];
  committed: number;
}
/** All deltas up to `committed` are durable; sent when no delta says so for a while. */
export interface Committed extends StreamOf {
  t: 'committed';
  committed: number;
}
export interface Applied extends StreamOf {
  t: 'applied';
  applied: number;
  /** The sink's node has no room for more deltas: the owner waits for its batches to be committed. */
  atLimit?: boolean;
}
/** parts: BLOCKS */
export interface Want extends StreamOf {
  t: 'want';
  v: number;
}
/** parts: BLOCKS, bytes */
export interface Content extends StreamOf {
  t: 'content';
  seq: number;
  /** Requests that the giver serves now, as a part of its baseline; absent: the giver gets none. */
  servedRatio?: number | undefined;
}
/** parts: BLOCKS */
export interface Lacking extends StreamOf {
  t: 'lacking';
  seq: number;
  v: number;
}
/**
 * parts: BLOCKS. `extents`: extents of the tables of these blocks, because the sink may not know a table
 * whose only deltas it never got, or rolled back.
 */
export interface Recover extends StreamOf {
  t: 'recover';
  seq: number;
  v: number;
  extents: Extent[];
}
/** parts: BLOCKS, bytes */
export interface Equation extends ShardOf {
  t: 'equation';
  gen: number;
  sid: number;
  v: number;
  index: number;
  lacking: [member: number, gen: number][];
  ok: boolean;
}
/** parts: BLOCKS, bytes */
export interface Install extends ShardOf {
  t: 'install';
  gen: number;
}

// ---- checks of the parity equation
export interface CheckMessage {
  t: 'check';
  epoch: number;
  id: number;
  g: number;
  sid: number;
}
export interface Checked {
  t: 'checked';
  id: number;
  g: number;
  sid: number;
  checked: number;
  unprotected: number;
  mismatched: number;
  /** True: this node does not hold the sink. */
  unknown: boolean;
}

// ---- scheduler
/**
 * The changes since the last heartbeat. Every 15th heartbeat, and the first one after a whole map, has
 * everything (rule 29).
 */
export interface Heartbeat {
  t: 'heartbeat';
  inc: number;
  epoch: number;
  /** Sinks that include every block of every member. */
  completeSinks: number[];
  /** (group, member, gen) of owners that are ACTIVE and lack nothing. */
  completeShards: [g: number, m: number, gen: number][];
  /** All recoveries of this node; absent: as in the last heartbeat that had them. */
  recoveries?: RecoveryStats[];
  /** Rows of each data shard that is complete. */
  owned: [g: number, m: number, rows: number][];
  bytes: number;
  /** Bytes of its budget of memory; absent: it has none, or an older program. */
  limit?: number;
  rows: number;
  /** The newest `time` that it was told; absent: none. */
  seconds?: number;
  /**
   * The seats of this node: `seat` is m for data shard m, k + j for parity j; `load` counts requests and
   * deltas.
   */
  held?: [g: number, seat: number, bytes: number, load: number][];
}
export interface UnrecoverableReport extends ShardOf {
  t: 'unrecoverable';
  gen: number;
  v: number;
  blocks: number;
}
/**
 * A sink of this owner's stream has not answered for `sinkStallMs`: acknowledgements wait for it. It is told
 * again and again. `forMs`: for so long.
 */
export interface Stalled extends StreamOf {
  t: 'stalled';
  v: number;
  forMs?: number;
}
/** The system refused this node memory for the shard, which was dropped before it was complete. */
export interface ShardRefused extends ShardOf {
  t: 'shardRefused';
  gen: number;
  /** Sid of a complete mirror of the shard on the same node. */
  mirror?: number;
}
/** Asks to drop a sink whose bytes are wrong, and to build it anew. */
export interface ReplaceSink {
  t: 'replaceSink';
  id: number;
  g: number;
  sid: number;
}
export interface SinkReplaced {
  t: 'sinkReplaced';
  id: number;
  done: boolean;
}
/**
 * The scheduler confirms that the report was made with the newest version of the group: the absent blocks of
 * the shard are beyond repair (rule 26).
 */
export interface ConfirmedLost extends ShardOf {
  t: 'confirmedLost';
  gen: number;
  v: number;
}
export type Message =
  | Hello
  | Push
  | Pull
  | Keys
  | Evictions
  | ShardStats
  | PushAck
  | Gap
  | RowsMessage
  | Reject
  | Lost
  | KeysPage
  | Evicted
  | ShardStatsReply
  | Open
  | OpenAck
  | Start
  | StartAck
  | Delta
  | Committed
  | Applied
  | Want
  | Content
  | Lacking
  | Recover
  | Equation
  | Install
  | CheckMessage
  | Checked
  | MembershipMessage
  | Heartbeat
  | ReachMessage
  | Reached
  | PulseMessage
  | TimeMessage
  | UnrecoverableReport
  | Stalled
  | ShardRefused
  | ReplaceSink
  | SinkReplaced
  | ConfirmedLost
  | ScalingMessage
  | StatusRequest
  | StatusReply
  | SampleMessage
  | SavingMessage
  | ReplicaMessage
  | TableMessage
  | TelemetryMessage
  | EventMessage;

export type MessageOf<T extends Message['t']> = Extract<Message, { t: T }>;

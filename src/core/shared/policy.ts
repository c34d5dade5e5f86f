/**
 * The named limits and timers of the core, in one place. Times in milliseconds of the clock that inputs
 * carry.
 */
export interface Policy {
  /** Repeat an unanswered Open, Start, Recover or Want after this time. */
  retryMs: number;
  /**
   * An owner stops applying pushes while its uncommitted batches hold more than this; it goes on when acks
   * come.
   */
  maxUncommittedBytes: number;
  /**
   * What deltas may take of a node's memory: uncommitted batches, logs of sinks and what connections have to
   * send. At the limit a shard applies one batch at a time, when the one before is committed.
   */
  maxDeltaBytes: number;
  /**
   * A larger section of a push is refused with LIMIT: its delta (up to 4 times as large) would not fit a
   * frame.
   */
  maxSectionBytes: number;
  /** An open batch of more than this is sent before another push joins it. */
  maxOpenBytes: number;
  /**
   * Rows of one shard in one pull beyond this are refused with LIMIT; one message carries at most so much.
   */
  maxRowsBytes: number;
  /** An owner tells the scheduler of a sink that has not answered for so long. */
  sinkStallMs: number;
  /**
   * Pushes of one client that wait at one shard for lost blocks; further ones are dropped and resent by the
   * client.
   */
  maxHeldPushes: number;
  /**
   * Pushes and pulls that wait at one shard before it serves; beyond it pulls are rejected, pushes dropped
   * and resent.
   */
  maxParked: number;
  /**
   * Bytes of all messages, pushes and pulls that wait on one node; beyond it as with `maxParked`. Pushes may
   * take 3/4 of it.
   */
  maxParkedBytes: number;
  /** A parked pull is answered TIMEOUT after this time. */
  parkedPullMs: number;
  /**
   * Blocks that one owner asks for and has not received, and that one sink wants from one member; a fraction
   * of it while requests are served. On demand there is no limit but that of requests.
   */
  recoveryWindow: number;
  /** Blocks in one Recover or Want; likewise. */
  recoveryChunk: number;
  /**
   * Bytes per second that one owner or one sink asks for in the background; 0 = the pace that leaves room for
   * requests.
   */
  recoveryRate: number;
  /** Bytes per second that a node takes in for planned moves; 0 = as fast as leaves room for requests. */
  moveRate: number;
  /**
   * Copies of rows that changed before a checkpoint had read them, and files of the checkpoint that are not
   * stored yet. From half of the limit on, reading ignores its pace. At the limit the attempt fails, because
   * pushes do not wait for it.
   */
  checkpointBytes: number;
  /** Rows that are read for a checkpoint in one turn. */
  saveChunkBytes: number;
  /** A file of a checkpoint is closed when it has so much, so that it is written in one request. */
  segmentBytes: number;
  /**
   * Deltas of one shard that may be on their way to a replica. Beyond this the owner forgets the replica,
   * which begins again.
   */
  maxReaderBytes: number;
  /** A replica that has not asked where a shard is for so long is not sent its deltas any more. */
  readerSilentMs: number;
  heartbeatMs: number;
  /**
   * Interval at which a node whose shards remember clients asks the scheduler which sessions are open: a
   * message about ended sessions may have been lost.
   */
  sessionCheckMs: number;
  /** Refuse pushes while a group has no sink at all, instead of acknowledging unprotected ones. */
  requireRedundancy: boolean;
}

export const DEFAULT_POLICY: Policy = {
  retryMs: 250,
  maxUncommittedBytes: 64 << 20,
  maxDeltaBytes: 1 << 30,
  maxSectionBytes: 12 << 20,
  maxOpenBytes: 8 << 20,
  maxRowsBytes: 32 << 20,
  sinkStallMs: 3000,
  maxHeldPushes: 64,
  maxParked: 4096,
  maxParkedBytes: 256 << 20,
  parkedPullMs: 30_000,
  recoveryWindow: 1024,
  recoveryChunk: 128,
  recoveryRate: 0,
  moveRate: 0,
  checkpointBytes: 256 << 20,
  saveChunkBytes: 1 << 20,
  segmentBytes: 15 << 20,
  maxReaderBytes: 4 << 20,
  readerSilentMs: 2000,
  heartbeatMs: 200,
  sessionCheckMs: 60_000,
  requireRedundancy: false,
};

/** Limits and times of the scheduler. */
export interface SchedulerPolicy {
  /** A node whose connection closed and that did not come back is dead after this time. */
  reconnectMs: number;
  /** A node that sends nothing is dead after this time. */
  silentMs: number;
  /** A node whose machine acknowledges nothing, to nobody who has a link to it, is dead after this time. */
  vanishedMs: number;
  /**
   * Nodes that are dead or have left, and that hold nothing, are remembered up to this number; beyond it,
   * those with the lowest ids are forgotten. A process that comes back under a forgotten identity stops with
   * STALE_NODE, and joins as a new node when it is started again.
   */
  maxAbsentNodes: number;
  /** A peer that lacks what was decided so long ago gets a whole map, at most one in this time. */
  lateMapMs: number;
  maxTables: number;
  /** The session of a client that is not connected to the scheduler ends after this time. */
  sessionMs: number;
  /** Nodes are told at most so often which sessions have ended, of clients and of ranges of samples. */
  sessionEndsMs: number;
  /**
   * While so many sessions are open, a further client ends that of the one that is away for longest; when
   * none is away for `reconnectMs`, it is refused with LIMIT.
   */
  maxSessions: number;
  /** While so many answers and other effects wait for the store, requests of clients are refused. */
  maxHeldEffects: number;
  /** A node whose sink stalled, or that was refused memory for a shard, gets nothing new for this time. */
  avoidMs: number;
  /** Planned moves that are under way at once, each in another group. */
  maxMoves: number;
  /**
   * At most one move per `groupsPerMove` groups, but always at least one. A moving shard sends its deltas to
   * an extra sink.
   */
  groupsPerMove: number;
  /** A PS that joins a running job, and is no standby, gets its share without being asked for. */
  balanceJoining: boolean;
  /** A worker's lease on a range of samples that it does not report on is lost after this time. */
  leaseMs: number;
  /** Failures at one batch after which its range of samples is set aside. */
  maxRangeFailures: number;
  /** Reported batches of a range that need not be durable yet. */
  maxUnsavedBatches: number;
  /** A node is asked again for shards of a checkpoint that it has not saved after this time. */
  saveRetryMs: number;
  /** A checkpoint that comes no further for so long has failed. */
  saveStallMs: number;
  /** Clients hold their pushes back for a checkpoint with a barrier at most for so long; then it fails. */
  barrierMs: number;
  /** Files of a shard that a checkpoint may need beside those with all its rows; then it is saved in full. */
  maxIncrements: number;
}

export const DEFAULT_SCHEDULER_POLICY: SchedulerPolicy = {
  reconnectMs: 1000,
  silentMs: 5000,
  vanishedMs: 700,
  maxAbsentNodes: 1024,
  lateMapMs: 1000,
  maxTables: 4096,
  sessionMs: 600_000,
  sessionEndsMs: 1000,
  maxSessions: 16_384,
  maxHeldEffects: 65_536,
  avoidMs: 10_000,
  maxMoves: 4,
  groupsPerMove: 8,
  balanceJoining: true,
  leaseMs: 30_000,
  maxRangeFailures: 3,
  maxUnsavedBatches: 16,
  saveRetryMs: 1000,
  saveStallMs: 60_000,
  barrierMs: 5000,
  maxIncrements: 64,
};

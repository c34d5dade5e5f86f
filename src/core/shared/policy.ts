/**
 * The named limits and timers of the core, in one place. Times in milliseconds of the clock that inputs
 * carry.
 */
import { MAX_FRAME_BYTES, MAX_HEADER_BYTES } from '../../protocol/frame.js';

/** Limits and timers of a core; each has its default in `DEFAULT_POLICY`. */
export interface Policy {
  /** An unanswered Open, Start, Recover or Want is repeated after this time. */
  retryMs: number;
  /**
   * An owner applies no pushes while its uncommitted batches have more bytes than this; it goes on when
   * acknowledgements come.
   */
  maxUncommittedBytes: number;
  /**
   * Bytes that deltas may take on a node: uncommitted batches, logs of sinks and bytes that connections have
   * to send. At the limit a shard applies a batch only when the one before is committed.
   */
  maxDeltaBytes: number;
  /**
   * A larger section of a push is refused with LIMIT: of a table without a filter its delta, up to 4 times as
   * large, would not fit a frame.
   */
  maxSectionBytes: number;
  /** An open batch of more than this is sent before another push joins it. */
  maxOpenBytes: number;
  /**
   * A delta is never larger. A push that would make it so waits for the next batch, and one that might do so
   * alone is refused with LIMIT. The standard fits a frame beside the largest header, and is the most.
   */
  maxBatchBytes: number;
  /**
   * Bytes of rows of one shard in one pull. More are refused with LIMIT: they would not fit a message.
   */
  maxRowsBytes: number;
  /**
   * Bytes of answers to pulls that are gathered and that sockets have not taken. Further pulls wait. One
   * client may hold a quarter of it. Default: 128 MiB, and at most a quarter of `--memory`.
   */
  maxAnswerBytes: number;
  /**
   * A client whose socket has taken nothing of its answers for this time is disconnected when others wait for
   * room.
   */
  answerStallMs: number;
  /**
   * Rows of requests that are served in one turn of the event loop. Further requests wait for the next turn.
   * A larger push has a turn for itself, and a larger answer is gathered in several. A row costs some 100 ns,
   * so a turn takes a processor for a millisecond or so. On a busy machine that lasts several times as long,
   * and a request of another client may wait for a turn at each of its hops.
   */
  maxTurnRows: number;
  /**
   * Bytes of pushes, and of answers to pulls, in one turn of the event loop, as with `maxTurnRows`. They are
   * copied a few times at about 4 GB/s.
   */
  maxTurnBytes: number;
  /** An owner reports a sink that has not answered for this time to the scheduler. */
  sinkStallMs: number;
  /**
   * Pushes of one client that may wait at one shard. Further ones are dropped, and the client resends them.
   */
  maxHeldPushes: number;
  /**
   * Pulls that may wait at one shard, and clients whose pushes may. Further pulls are rejected, and pushes of
   * further clients are dropped and resent.
   */
  maxParked: number;
  /**
   * Bytes of all messages, pushes and pulls that wait on one node. At the limit pulls are rejected and pushes
   * dropped, as with `maxParked`. Pushes may take 3/4 of it.
   */
  maxParkedBytes: number;
  /**
   * Bytes of frames on their way to the node: half for the windows of its links, half for frames that are
   * larger. A client that sends more than it was granted is hung up with LIMIT.
   */
  maxReceivedBytes: number;
  /** A waiting pull is answered TIMEOUT after this time. */
  parkedPullMs: number;
  /**
   * Blocks that one owner may have asked for and not received, and one sink from one member; a fraction of it
   * while requests are served. An owner may have twice as many under way on demand.
   */
  recoveryWindow: number;
  /** Blocks in one Recover or Want; a fraction of it while requests are served. */
  recoveryChunk: number;
  /**
   * Bytes per second that one owner or one sink asks for in the background; 0: the pace of the node, which
   * leaves room for requests.
   */
  recoveryRate: number;
  /**
   * Part of the requests that background work may cost a node: recovery in the background, moves and
   * checkpoints slow down while fewer than the others are served. Blocks that requests wait for are no
   * background. Above 0, below 1.
   */
  backgroundShare: number;
  /** Bytes per second that a node takes in for planned moves; 0: the pace of the node. */
  moveRate: number;
  /**
   * Bytes of rows that the engine keeps because they changed before a checkpoint had read them, and of files
   * of the checkpoint that are not stored yet. From half of the limit on, reading ignores its pace. At the
   * limit the attempt fails, because pushes do not wait for it.
   */
  checkpointBytes: number;
  /** Bytes of rows that are read for a checkpoint in one turn. */
  saveChunkBytes: number;
  /** A file of a checkpoint is closed at this size, so that it is written in one request. */
  segmentBytes: number;
  /**
   * Bytes of deltas of one shard that may be on their way to a replica. Beyond this the owner forgets the
   * replica, which begins again.
   */
  maxReaderBytes: number;
  /** An owner forgets a replica that has not asked for the position of the shard for this time. */
  readerSilentMs: number;
  /**
   * Bytes of evictions that a node keeps for who asks for them, in equal parts for each shard and table. At
   * the limit the oldest are forgotten, and readers are told of a gap.
   */
  maxEvictedBytes: number;
  /** An owner keeps evictions of a table until nobody has asked for them for this time. */
  evictedMs: number;
  /** A node sends a heartbeat at this interval. */
  heartbeatMs: number;
  /**
   * Interval at which a node whose shards remember clients asks the scheduler which sessions are open: a
   * message about ended sessions may have been lost.
   */
  sessionCheckMs: number;
  /** Pushes wait while their group has no parity at all, instead of being acknowledged unprotected. */
  requireRedundancy: boolean;
}

export const DEFAULT_POLICY: Policy = {
  retryMs: 250,
  maxUncommittedBytes: 64 << 20,
  maxDeltaBytes: 1 << 30,
  maxSectionBytes: 12 << 20,
  maxOpenBytes: 8 << 20,
  maxBatchBytes: MAX_FRAME_BYTES - MAX_HEADER_BYTES,
  maxRowsBytes: 32 << 20,
  maxAnswerBytes: 128 << 20,
  answerStallMs: 2000,
  maxTurnRows: 8192,
  maxTurnBytes: 1 << 20,
  sinkStallMs: 3000,
  maxHeldPushes: 64,
  maxParked: 4096,
  maxParkedBytes: 256 << 20,
  maxReceivedBytes: 4 * (1 << 30),
  parkedPullMs: 30_000,
  recoveryWindow: 1024,
  recoveryChunk: 128,
  recoveryRate: 0,
  backgroundShare: 0.03,
  moveRate: 0,
  checkpointBytes: 256 << 20,
  saveChunkBytes: 1 << 20,
  segmentBytes: 15 << 20,
  maxReaderBytes: 4 << 20,
  readerSilentMs: 2000,
  maxEvictedBytes: 16 << 20,
  evictedMs: 60_000,
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
  /** A node whose process sends pulses while its event loop does not turn is dead after this time. */
  stoppedMs: number;
  /** A node whose event loop turns late for this time is overloaded, which is told and changes nothing. */
  overloadedMs: number;
  /** A node whose machine acknowledges nothing, to nobody who has a link to it, is dead after this time. */
  vanishedMs: number;
  /**
   * Nodes that are dead or have left, and that hold nothing, are remembered up to this number; beyond it,
   * those with the lowest ids are forgotten. A process that comes back under a forgotten identity stops with
   * STALE_NODE, and joins as a new node when it is started again.
   */
  maxAbsentNodes: number;
  /** A peer whose map lacks a decision older than this gets a whole map, at most one in this time. */
  lateMapMs: number;
  /** A second of the job's own time. */
  secondMs: number;
  maxTables: number;
  /** The session of a client that is not connected to the scheduler ends after this time. */
  sessionMs: number;
  /** Nodes are told of ended sessions, of clients and of ranges of samples, at most once in this time. */
  sessionEndsMs: number;
  /**
   * Most open sessions. At the limit, a further client ends the session of the client that is away for
   * longest. When none is away for `reconnectMs`, the further client is refused with LIMIT.
   */
  maxSessions: number;
  /**
   * Most answers and other effects that wait for the store. At the limit, requests of clients are refused.
   */
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
  /**
   * Failures at one batch after which its range of samples is set aside. A lease that expired may be one
   * (src/core/scheduler/samples/doubts.ts).
   */
  maxRangeFailures: number;
  /** Reported batches of a range that need not be durable yet. */
  maxUnsavedBatches: number;
  /** A node is asked again for shards of a checkpoint that it has not saved after this time. */
  saveRetryMs: number;
  /** A checkpoint without progress for this time has failed. */
  saveStallMs: number;
  /** Longest time for which clients hold their pushes back for a barrier. Then the checkpoint fails. */
  barrierMs: number;
  /** Increments that a checkpoint may need for a shard; then the shard is saved in full. */
  maxIncrements: number;
}

export const DEFAULT_SCHEDULER_POLICY: SchedulerPolicy = {
  reconnectMs: 1000,
  silentMs: 5000,
  stoppedMs: 30_000,
  overloadedMs: 10_000,
  vanishedMs: 700,
  maxAbsentNodes: 1024,
  lateMapMs: 1000,
  secondMs: 1000,
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

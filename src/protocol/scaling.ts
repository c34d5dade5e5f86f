/**
 * Messages about changes: scale, drain, rebalance. Each is answered with a ChangeReply, and its progress is
 * in the status.
 */
import type { ErrorCode } from '../common/errors.js';
import type { MoveStatus } from './status.js';

/**
 * Asks for `ps` PS that serve. `timeoutMs` sets the pace of the moves: they are to be done in this time, and
 * a change that makes no progress for this time is taken back. 0: never, and the moves leave room for
 * requests.
 */
export interface ScaleMessage {
  t: 'scale';
  id: number;
  ps: number;
  timeoutMs: number;
}
/**
 * A node is to be emptied and to leave; `node` is its name or its id, and "" is the sender. `change`: the
 * number that an earlier answer gave. A change of this number that was taken back is not begun again.
 * `restart`: the process is to be started again, so as many PS are wanted as before.
 */
export interface Drain {
  t: 'drain';
  id: number;
  node: string;
  timeoutMs: number;
  change?: number;
  restart?: boolean;
}
/** `dryRun`: the answer has the moves, and none is made. */
export interface Rebalance {
  t: 'rebalance';
  id: number;
  dryRun: boolean;
  timeoutMs: number;
}
export interface ChangeReply {
  t: 'changeReply';
  id: number;
  /** Number of the change; 0 when there is none. */
  change: number;
  /** The moves of a dry run; else none. */
  moves: MoveStatus[];
  code?: ErrorCode;
  message?: string;
}
/**
 * Tells a node that takes in moves the rate that a change needs to be done in time. It holds for a moment.
 */
export interface MovePace {
  t: 'movePace';
  bytesPerSecond: number;
}
/** The answer to `movePace`: incomplete targets of moves on this node, and the blocks that each lacks. */
export interface MoveProgress {
  t: 'moveProgress';
  items: [sid: number, blocksLeft: number][];
}
/** Tells an emptied node that it is not part of the job any more. `restart`: it is to be started again. */
export interface Leave {
  t: 'leave';
  inc: number;
  restart?: boolean;
}

export type ScalingMessage = ScaleMessage | Drain | Rebalance | ChangeReply | MovePace | MoveProgress | Leave;

/**
 * Messages about changes of what serves. Each change is answered with a ChangeReply; its progress is in the
 * status.
 */
import type { ErrorCode } from '../errors.js';
import type { MoveStatus } from './status.js';

/**
 * So many PS are to serve. `timeoutMs` sets the pace of the moves: they are to be done in this time. A change
 * that makes no progress for so long is taken back; 0: never, and the moves leave room for requests.
 */
export interface Scale {
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
/** `dryRun`: only say what would move. */
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
  /** Of a dry run. */
  moves: MoveStatus[];
  code?: ErrorCode;
  message?: string;
}
/** To a node that takes in moves: what a change that is to be done in time needs. It holds for a moment. */
export interface MovePace {
  t: 'movePace';
  bytesPerSecond: number;
}
/** The answer: incomplete targets of moves on this node, and the blocks that each does not have. */
export interface MoveProgress {
  t: 'moveProgress';
  items: [sid: number, blocksLeft: number][];
}
/** To a node that holds nothing any more: it is not part of the job. `restart`: it is to be started again. */
export interface Leave {
  t: 'leave';
  inc: number;
  restart?: boolean;
}

export type ScalingMessage = Scale | Drain | Rebalance | ChangeReply | MovePace | MoveProgress | Leave;

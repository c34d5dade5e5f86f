/**
 * Messages about changes of what serves. Each change is answered with a ChangeReply; its progress is in the
 * status.
 */
import type { ErrorCode } from '../errors.js';
import type { MoveStatus } from './status.js';

/** So many PS are to serve. `timeoutMs` 0: it is never taken back. */
export interface Scale {
  t: 'scale';
  id: number;
  ps: number;
  timeoutMs: number;
}
/** A node is to be emptied and to leave; `node` is its name or its id, and "" is the sender. */
export interface Drain {
  t: 'drain';
  id: number;
  node: string;
  timeoutMs: number;
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
/** To a node that holds nothing any more: it is not part of the job. */
export interface Leave {
  t: 'leave';
  inc: number;
}

/** Changes of what serves, asked for by a client: scale, drain, rebalance; and how they go. */

import { KintsugiError } from '../../common/errors.js';
import {
  checkFunction,
  checkInteger,
  checkOptions,
  checkText,
  checkTimeout,
  type OptionKeys,
} from '../../common/options.js';
import type { ChangeStatus, JobStatus, MessageOf, MoveStatus } from '../../protocol/messages.js';
import type { Client } from '../client/client.js';
import { internalsOf } from '../client/connected.js';

/** Options of {@link scale}, {@link drain} and {@link rebalance}. */
export interface ChangeOptions {
  /**
   * Milliseconds in which the change is to be done: they set the pace of its moves. Without any progress for
   * so long the scheduler takes it back. When no scheduler answers for so long, and for a second at least,
   * this ends with UNREACHABLE; a change that was begun goes on. 0: its moves leave room for requests, it is
   * never taken back, and an answer is waited for as long as it takes. Default: 0.
   */
  timeoutMs?: number | undefined;
  /** Called with every new state of the change. */
  onProgress?: ((change: ChangeStatus, status: JobStatus) => void) | undefined;
}

const CHANGE_OPTIONS = { timeoutMs: true, onProgress: checkFunction } satisfies OptionKeys<ChangeOptions>;

const POLL_MS = 100;
/** An answer takes a moment even where moves have less. */
const LEAST_ANSWER_MS = 1000;

/** For how long the scheduler is waited for; undefined: as long as it takes. */
function answerMs(timeoutMs: number): number | undefined {
  return timeoutMs === 0 ? undefined : Math.max(LEAST_ANSWER_MS, timeoutMs);
}

/** The status, for whoever waits `timeoutMs` for a change. @throws UNREACHABLE, CLOSED */
export function statusIn(client: Client, timeoutMs: number): Promise<JobStatus> {
  return internalsOf(client).session.status(answerMs(timeoutMs));
}

/**
 * Makes `ps` PS serve. Resolves when they do, and what they hold is balanced.
 * @throws NOT_ENOUGH_NODES, TIMEOUT (it was taken back), UNREACHABLE, LIMIT, BAD_ARGUMENT, CLOSED
 */
export async function scale(client: Client, ps: number, options: ChangeOptions = {}): Promise<ChangeStatus> {
  checkInteger('scale: ps', ps, 0);
  return change(client, options, (id, timeoutMs) => ({ t: 'scale', id, ps, timeoutMs }));
}

/**
 * Empties a node, by its name, or by an id that is nobody's name. Resolves when it holds nothing and was told
 * to leave.
 * @throws NOT_ENOUGH_NODES, TIMEOUT (it was taken back), UNREACHABLE, LIMIT, BAD_ARGUMENT, CLOSED
 */
export async function drain(
  client: Client,
  node: string,
  options: ChangeOptions = {},
): Promise<ChangeStatus> {
  checkText('drain: node', node);
  return change(client, options, (id, timeoutMs) => ({ t: 'drain', id, node, timeoutMs }));
}

/** The same, and its process ends with the code that has its supervisor start it again. */
export async function drainToRestart(
  client: Client,
  node: string,
  options: ChangeOptions,
): Promise<ChangeStatus> {
  return change(client, options, (id, timeoutMs) => ({ t: 'drain', id, node, timeoutMs, restart: true }));
}

/**
 * Evens out what the nodes hold, by bytes and by load.
 * @throws TIMEOUT (it was taken back), UNREACHABLE, LIMIT, BAD_ARGUMENT, CLOSED
 */
export async function rebalance(client: Client, options: ChangeOptions = {}): Promise<ChangeStatus> {
  return change(client, options, (id, timeoutMs) => ({ t: 'rebalance', id, dryRun: false, timeoutMs }));
}

/**
 * The moves that `rebalance` would make now; of the options `timeoutMs` counts. @throws UNREACHABLE, LIMIT,
 * CLOSED
 */
export async function plannedMoves(client: Client, options: ChangeOptions = {}): Promise<MoveStatus[]> {
  const timeoutMs = timeoutOf(options);
  const { moves } = await ask(client, timeoutMs, (id) => ({
    t: 'rebalance',
    id,
    dryRun: true,
    timeoutMs: 0,
  }));
  return moves;
}

/**
 * Asks for so many PS, or for a PS to be emptied, and does not wait for it: resolves with the number of the
 * change as soon as the scheduler has it. What runs already is not begun again.
 * @throws NOT_ENOUGH_NODES, UNREACHABLE, LIMIT, BAD_ARGUMENT, CLOSED
 */
export async function beginChange(
  client: Client,
  wanted: { kind: 'scale'; ps: number } | { kind: 'drain'; node: string },
  timeoutMs: number,
): Promise<number> {
  const reply = await ask(client, timeoutMs, (id) =>
    wanted.kind === 'scale'
      ? { t: 'scale', id, ps: wanted.ps, timeoutMs }
      : { t: 'drain', id, node: wanted.node, timeoutMs },
  );
  return reply.change;
}

type ChangeRequest = MessageOf<'scale'> | MessageOf<'drain'> | MessageOf<'rebalance'>;

async function change(
  client: Client,
  options: ChangeOptions,
  build: (id: number, timeoutMs: number) => ChangeRequest,
): Promise<ChangeStatus> {
  const timeoutMs = timeoutOf(options);
  const reply = await ask(client, timeoutMs, (id) => build(id, timeoutMs));
  return waitForChange(client, reply.change, timeoutMs, options);
}

/** Validates here: the scheduler treats a malformed message as a broken peer and closes the connection. */
function timeoutOf(options: ChangeOptions): number {
  checkOptions('a change', options, CHANGE_OPTIONS);
  const timeoutMs = options.timeoutMs ?? 0;
  checkTimeout('a change: timeoutMs', timeoutMs);
  return timeoutMs;
}

/** @throws the code of a refusal, UNREACHABLE */
async function ask(
  client: Client,
  timeoutMs: number,
  build: (id: number) => ChangeRequest,
): Promise<MessageOf<'changeReply'>> {
  const reply = await internalsOf(client).session.ask(build, answerMs(timeoutMs));
  if (reply.t !== 'changeReply') throw new KintsugiError('INTERNAL', `unexpected answer "${reply.t}"`);
  if (reply.code) throw new KintsugiError(reply.code, reply.message ?? reply.code);
  return reply;
}

/** The number that a running scaling goes for, or the one that is wanted. */
export function targetOf({ scaling }: JobStatus): number {
  const running = scaling.changes.find((change) => change.kind === 'scale' && change.state === 'running');
  return running?.to ?? scaling.wanted;
}

async function waitForChange(
  client: Client,
  id: number,
  timeoutMs: number,
  options: ChangeOptions,
): Promise<ChangeStatus> {
  let before = '';
  for (;;) {
    const status = await statusIn(client, timeoutMs);
    const change = status.scaling.changes.find((entry) => entry.id === id);
    if (!change)
      throw new KintsugiError('CLOSED', `change ${id} ended too long ago: its result is forgotten`);
    const now = JSON.stringify(change);
    if (now !== before) options.onProgress?.(change, status);
    before = now;
    if (change.state === 'done') return change;
    if (change.state === 'cancelled') throw new KintsugiError('TIMEOUT', change.reason);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/**
 * A rolling restart: one PS after the other is emptied, ends, is started again by its supervisor and joins
 * as an empty node. Its shards are elsewhere meanwhile, so redundancy is complete all the time. The node that
 * has come back takes in what the next one hands over, so each shard moves about once; in the end what is
 * left uneven is balanced.
 */

import { KintsugiError } from '../../common/errors.js';
import {
  checkArray,
  checkFunction,
  checkOptions,
  checkText,
  checkTimeout,
  type OptionKeys,
} from '../../common/options.js';
import { nodeNamed } from '../../protocol/map.js';
import type { JobStatus, NodeStatus } from '../../protocol/messages.js';
import type { Client } from '../client/client.js';
import { drainToRestart, rebalance, statusIn } from './scaling.js';

/** Options of {@link restart}. */
export interface RestartOptions {
  /** Names of PS, or ids that are nobody's name, in their order. Default: all, those without shards first. */
  nodes?: readonly string[] | undefined;
  /**
   * Milliseconds for each step: to empty a node, which sets the pace of the moves, until it is back, and to
   * balance in the end. When no scheduler answers for so long this ends with UNREACHABLE. Default: 60,000.
   */
  timeoutMs?: number | undefined;
  /** Called when a node is back. */
  onRestarted?: ((node: RestartedNode) => void) | undefined;
}

const RESTART_OPTIONS = {
  nodes: true,
  timeoutMs: true,
  onRestarted: checkFunction,
} satisfies OptionKeys<RestartOptions>;

/** One step of {@link restart}. */
export interface RestartedNode {
  /** Name of the node that was emptied and ended. */
  name: string;
  /** Name of the node that joined afterwards: the same, unless its supervisor gives it another. */
  back: string;
  shardsMoved: number;
  bytesMoved: number;
  /** Milliseconds until it was empty. */
  drainMs: number;
  /** Milliseconds from then until a node joined. */
  awayMs: number;
}

const POLL_MS = 100;

/**
 * Restarts PS one after the other. Resolves when all are back and what they hold is balanced.
 * @throws NOT_ENOUGH_NODES when the job cannot do without one of them, TIMEOUT when a node cannot be emptied
 * or does not come back, or redundancy is not complete before a step; then nothing is lost, and no further PS
 * ends. UNREACHABLE when no scheduler answers. BAD_ARGUMENT, CLOSED
 */
export async function restart(client: Client, options: RestartOptions = {}): Promise<RestartedNode[]> {
  checkOptions('restart', options, RESTART_OPTIONS);
  const { timeoutMs = 60_000, nodes } = options;
  checkTimeout('restart: timeoutMs', timeoutMs, 1);
  if (nodes !== undefined) checkArray('restart: nodes', nodes);
  for (const node of nodes ?? []) checkText('restart: nodes', node);
  const targets = chosen(await statusIn(client, timeoutMs), nodes);
  const done: RestartedNode[] = [];
  for (const target of targets) {
    const before = await until(client, timeoutMs, ({ redundancy, reasons }) =>
      redundancy === 'full' ? undefined : `${target.name} was not restarted: ${reasons.join('; ')}`,
    );
    // The node was started again, or has left, since this began.
    if (!before.nodes.some((node) => node.alive && isSame(node, target))) continue;
    const begun = performance.now();
    const { shardsMoved, bytesMoved } = await drainToRestart(client, target.name, { timeoutMs });
    const empty = performance.now();
    const back = await comeBack(client, target, before, timeoutMs);
    const [drainMs, awayMs] = [empty - begun, performance.now() - empty];
    const restarted = { name: target.name, back, shardsMoved, bytesMoved, drainMs, awayMs };
    done.push(restarted);
    options.onRestarted?.(restarted);
  }
  await rebalance(client, { timeoutMs });
  return done;
}

/** @throws BAD_ARGUMENT */
function chosen({ nodes }: JobStatus, names: readonly string[] | undefined): NodeStatus[] {
  const alive = nodes.filter((node) => node.alive);
  if (names === undefined) return [...alive].sort((a, b) => Number(b.standby) - Number(a.standby));
  return names.map((name) => {
    const node = nodeNamed(alive, name);
    if (node) return node;
    throw new KintsugiError('BAD_ARGUMENT', `no PS "${name}" is up in this job`);
  });
}

function isSame(a: NodeStatus, b: NodeStatus): boolean {
  return a.id === b.id && a.inc === b.inc;
}

/** Waits for a process that was not there before. Its name: with `--name` that of the one that ended. */
async function comeBack(
  client: Client,
  { name }: NodeStatus,
  before: JobStatus,
  timeoutMs: number,
): Promise<string> {
  const newcomer = ({ nodes }: JobStatus) =>
    nodes.find((node) => node.alive && !before.nodes.some((known) => isSame(known, node)));
  const limit = `${timeoutMs / 1000} s`;
  const status = await until(client, timeoutMs, (now) =>
    newcomer(now)
      ? undefined
      : `${name} was emptied and ended, and no PS has joined in ${limit}: nothing is lost, and the other ` +
        'PS were left alone; start it again, or see to its supervisor',
  );
  return newcomer(status)!.name;
}

/** The first status in which nothing is `missing`. @throws TIMEOUT with what is */
async function until(
  client: Client,
  timeoutMs: number,
  missing: (status: JobStatus) => string | undefined,
): Promise<JobStatus> {
  const end = performance.now() + timeoutMs;
  for (;;) {
    const status = await statusIn(client, Math.max(1, Math.ceil(end - performance.now())));
    const problem = missing(status);
    if (problem === undefined) return status;
    if (performance.now() > end) throw new KintsugiError('TIMEOUT', problem);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/**
 * Changes of what serves, asked for from outside: more nodes, fewer, others, better balanced; and how they
 * go.
 */
import type { Client } from '../client/client.js';
import { KintsugiError } from '../errors.js';
import type { ChangeStatus, JobStatus, MoveStatus } from '../protocol/messages.js';

export interface ChangeOptions {
  /** The scheduler takes the change back when it is not done in this time; 0 = never. Default 0. */
  timeoutMs?: number | undefined;
  /** Called with every new state of the change. */
  onProgress?: ((change: ChangeStatus, status: JobStatus) => void) | undefined;
}

const POLL_MS = 100;

/**
 * So many PS are to serve. Resolves when they do, and what they hold is balanced. @throws NOT_ENOUGH_NODES,
 * TIMEOUT
 */
export async function scale(client: Client, ps: number, options: ChangeOptions = {}): Promise<ChangeStatus> {
  const timeoutMs = options.timeoutMs ?? 0;
  const { change } = await client.change((id) => ({ t: 'scale', id, ps, timeoutMs }));
  return waitForChange(client, change, options);
}

/**
 * Empties a node, by name or id. Resolves when it holds nothing and was told to leave. @throws BAD_ARGUMENT,
 * NOT_ENOUGH_NODES, TIMEOUT
 */
export async function drain(
  client: Client,
  node: string,
  options: ChangeOptions = {},
): Promise<ChangeStatus> {
  const timeoutMs = options.timeoutMs ?? 0;
  const { change } = await client.change((id) => ({ t: 'drain', id, node, timeoutMs }));
  return waitForChange(client, change, options);
}

/** Evens out what the nodes hold, by bytes and by load. @throws TIMEOUT */
export async function rebalance(client: Client, options: ChangeOptions = {}): Promise<ChangeStatus> {
  const timeoutMs = options.timeoutMs ?? 0;
  const { change } = await client.change((id) => ({ t: 'rebalance', id, dryRun: false, timeoutMs }));
  return waitForChange(client, change, options);
}

/** What `rebalance` would move now. */
export async function plannedMoves(client: Client): Promise<MoveStatus[]> {
  const { moves } = await client.change((id) => ({ t: 'rebalance', id, dryRun: true, timeoutMs: 0 }));
  return moves;
}

/** The number that a running scaling goes for, or the one that is wanted. */
export function targetOf({ scaling }: JobStatus): number {
  const running = scaling.changes.find((change) => change.kind === 'scale' && change.state === 'running');
  return running?.to ?? scaling.wanted;
}

async function waitForChange(client: Client, id: number, options: ChangeOptions): Promise<ChangeStatus> {
  let before = '';
  for (;;) {
    const status = await client.status();
    const change = status.scaling.changes.find((entry) => entry.id === id);
    if (!change) throw new KintsugiError('CLOSED', `change ${id} is too long ago: nobody knows how it went`);
    const now = JSON.stringify(change);
    if (now !== before) options.onProgress?.(change, status);
    before = now;
    if (change.state === 'done') return change;
    if (change.state === 'cancelled') throw new KintsugiError('TIMEOUT', change.reason);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

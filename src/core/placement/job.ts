/** The shape of a job: from a code and a number of nodes to its pools. */
import { KintsugiError } from '../../common/errors.js';

export interface CodeSpec {
  /** Data shards of a group. */
  k: number;
  /** Parities of a group, and the number of nodes that it can lose. */
  r: number;
}

/** A pool of a new job: `groups` groups of k data shards and r parities. */
export interface PoolOptions {
  name: string;
  k: number;
  r: number;
  groups: number;
}

export const MAX_K = 32;
export const MAX_R = 4;
export const MAX_GROUPS = 4096;

/** "4+1", or "none" for no redundancy. @throws BAD_ARGUMENT */
export function parseCode(text: string): CodeSpec {
  if (text === 'none') return { k: 1, r: 0 };
  const match = /^(\d{1,3})\+(\d{1,3})$/.exec(text);
  const k = Number(match?.[1]);
  const r = Number(match?.[2]);
  if (!match || k < 1 || k > MAX_K || r > MAX_R) {
    throw new KintsugiError(
      'BAD_ARGUMENT',
      `"${text}" is not a code: write k+r with k from 1 to ${MAX_K} and r from 0 to ${MAX_R}, for ` +
        `example 4+1, or none`,
    );
  }
  return { k, r };
}

/**
 * Default number of data shards on a PS: the least, the most, and in between one for each `NODES_PER_SHARD`
 * nodes of the job.
 */
const LEAST_SHARDS = 4;
const MOST_SHARDS = 16;
const NODES_PER_SHARD = 6;

/**
 * Groups of the embedding pool by default: 4 data shards on a PS in a small job, up to 16 in one of a hundred
 * nodes. The shards of a lost PS are decoded by as many nodes as there are shards, so a larger job has more
 * shards on a PS. Each shard costs memory and a part of every request. A PS is one thread, so its cores do
 * not count.
 *
 * The number is a multiple of the nodes where the code allows it, so that data and parity rotate evenly.
 */
export function defaultGroups({ k }: CodeSpec, nodes: number): number {
  if (k > MOST_SHARDS) return Math.max(1, Math.floor((nodes * MOST_SHARDS) / k));
  const wanted = Math.min(MOST_SHARDS, Math.max(LEAST_SHARDS, Math.floor(nodes / NODES_PER_SHARD)));
  const perNode = Math.max(Math.ceil(LEAST_SHARDS / k), Math.floor(wanted / k));
  return Math.min(MAX_GROUPS, nodes * perNode);
}

/**
 * The two pools of a job: `embedding` with the given code, and `mirrored`, r copies, for small tables whose
 * lost rows are to be there without decoding.
 * @throws NOT_ENOUGH_NODES, BAD_ARGUMENT
 */
export function poolsFor(
  code: CodeSpec,
  nodes: number,
  groups: number = defaultGroups(code, nodes),
): PoolOptions[] {
  if (!Number.isInteger(nodes) || nodes < 1)
    throw new KintsugiError('BAD_ARGUMENT', 'a job needs at least one PS');
  if (nodes < code.k + code.r) {
    throw new KintsugiError(
      'NOT_ENOUGH_NODES',
      `code ${code.k}+${code.r} needs ${code.k + code.r} PS nodes, and there are ${nodes}`,
    );
  }
  if (!Number.isInteger(groups) || groups < 1 || groups > MAX_GROUPS) {
    throw new KintsugiError('BAD_ARGUMENT', `groups must be an integer from 1 to ${MAX_GROUPS}`);
  }
  return [
    { name: 'embedding', k: code.k, r: code.r, groups },
    { name: 'mirrored', k: 1, r: code.r, groups: Math.min(groups, nodes) },
  ];
}

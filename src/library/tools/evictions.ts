/** Rows of a table that a policy would let go, counted without a change to them. */
import { KintsugiError } from '../../common/errors.js';
import { checkInteger, checkOptions, checkSignal, type OptionKeys } from '../../common/options.js';
import { loadNative } from '../../engine/native.js';
import { policyOfShard, policyProblem, type TablePolicy } from '../../engine/policies.js';
import { shardCount } from '../../protocol/map.js';
import type { Client } from '../client/client.js';
import { poolOfTable } from '../client/scan.js';
import { showTable } from './tables.js';

/** Options of {@link plannedEvictions}. */
export interface PlannedEvictionsOptions {
  /** Default: the policy of the table. */
  policy?: TablePolicy | undefined;
  /** As if so many steps had passed in which no row was seen. Default: 0. */
  steps?: number | undefined;
  /** Ends the count with ABORTED. */
  signal?: AbortSignal | undefined;
}

/** Rows of a table under a policy. */
export interface PlannedEvictions {
  policy: TablePolicy;
  steps: number;
  /** Rows that are there now. */
  rows: number;
  /** Rows of these that would go by `ttl`. */
  expired: number;
  /** Rows of these that would go by `minFrequency`. */
  rare: number;
  /** Rows of these that would go by `l2Below`. */
  faint: number;
  /** Rows of these that would go because more are left in a shard than its part of `maxRows`. */
  displaced: number;
  /** Rows that stay, and that `counter` would not admit yet. */
  refused: number;
  /** Rows that the table's own policy has let go, and whose memory is not free yet, about. */
  waiting: number;
  /** Bytes of the rows that would go, with their optimizer state, without keys, index and parity. */
  bytes: number;
}

const PLANNED_OPTIONS = {
  policy: true,
  steps: true,
  signal: checkSignal,
} satisfies OptionKeys<PlannedEvictionsOptions>;

/**
 * Counts rows of a table that would go under a policy, by reason. It reads all rows as {@link Client.scan}
 * does, and changes none. Of a table that is trained meanwhile the counts are about right. By `memory` rows
 * go only when new ones come, so it adds nothing.
 *
 * @example
 * ```ts
 * const { rows, expired, rare } = await plannedEvictions(client, 'items', { policy: { ttl: 5000 } });
 * ```
 * @throws BAD_ARGUMENT for a table without a policy, whose rows have neither age nor sightings, and for a
 * policy that is not valid; UNKNOWN_TABLE, ABORTED, CLOSED
 */
export async function plannedEvictions(
  client: Client,
  name: string,
  options: PlannedEvictionsOptions = {},
): Promise<PlannedEvictions> {
  checkOptions('plannedEvictions', options, PLANNED_OPTIONS);
  const { steps = 0, signal } = options;
  checkInteger('plannedEvictions: steps', steps, 0);
  const problem = policyProblem(options.policy);
  if (problem) throw new KintsugiError('BAD_ARGUMENT', `plannedEvictions: ${problem}`);
  const { spec } = client.table(name);
  if (!spec.policy)
    throw new KintsugiError(
      'BAD_ARGUMENT',
      `table "${name}" has no policy: its rows have neither an age nor sightings`,
    );
  const policy = options.policy ?? spec.policy;
  const found = { rows: 0, expired: 0, rare: 0, faint: 0, displaced: 0, refused: 0 };
  const width = client.rowWidth(spec);
  const shards = shardCount(poolOfTable(client.clusterMap, spec));
  /** Rows that are left, by shard. */
  const left = new Array<number>(shards).fill(0);
  for await (const { keys, rows } of client.scan(name, { select: 'rows', signal })) {
    const words = new Uint32Array(rows.buffer, rows.byteOffset, rows.length);
    found.rows += keys.length;
    const { order, starts } = loadNative().partition(keys, shards);
    for (let shard = 0; shard < shards; shard++) {
      for (const at of order.subarray(starts[shard]!, starts[shard + 1]!)) {
        const end = (at + 1) * width;
        const values = rows.subarray(end - width, end - width + spec.dim);
        const reason = reasonOf(policy, words[end - 2]! + steps, words[end - 1]!, values);
        if (reason) found[reason]++;
        if (!reason || reason === 'refused') left[shard]!++;
      }
    }
  }
  const most = policyOfShard(policy, shards).maxRows ?? Number.POSITIVE_INFINITY;
  found.displaced = left.reduce((sum, rows) => sum + Math.max(0, rows - most), 0);
  const { table } = await showTable(client, name);
  const gone = found.expired + found.rare + found.faint + found.displaced;
  const bytes = table.rows > 0 ? Math.round(table.bytes / table.rows) * gone : 0;
  return { policy, steps, ...found, waiting: Math.max(0, table.rows - found.rows), bytes };
}

/** The reason for which a row goes, or is not admitted; as the engine has it (native/engine/rule.h). */
function reasonOf(
  { ttl, minFrequency, l2Below, counter }: TablePolicy,
  age: number,
  sightings: number,
  values: Float32Array,
): 'expired' | 'rare' | 'faint' | 'refused' | undefined {
  const isRare = minFrequency !== undefined && sightings < minFrequency.sightings;
  const most = Math.min(
    ttl ?? Number.POSITIVE_INFINITY,
    isRare ? minFrequency.ttl : Number.POSITIVE_INFINITY,
  );
  if (age > most) return isRare ? 'rare' : 'expired';
  if (l2Below && age > l2Below.ttl && isFaint(values, Math.fround(l2Below.norm))) return 'faint';
  return counter !== undefined && sightings < counter ? 'refused' : undefined;
}

function isFaint(values: Float32Array, norm: number): boolean {
  let squares = 0;
  for (const value of values) squares += value * value;
  return squares < norm * norm;
}

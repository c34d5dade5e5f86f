/** Rows of a table that a policy would let go, counted without a change to them. */
import { KintsugiError } from '../../common/errors.js';
import { checkInteger, checkOptions, checkSignal, type OptionKeys } from '../../common/options.js';
import { loadNative } from '../../engine/native.js';
import {
  decayedSightings,
  type FrequencyPolicy,
  policyOfShard,
  type TablePolicy,
} from '../../engine/policies.js';
import { shardCount } from '../../protocol/map.js';
import { policyChangeProblem } from '../../protocol/policy-changes.js';
import type { Client } from '../client/client.js';
import { internalsOf } from '../client/connected.js';
import { poolOfTable } from '../client/scan.js';
import { showTable } from './tables.js';

/** Options of {@link plannedEvictions}. */
export interface PlannedEvictionsOptions {
  /** Default: the policy of the table. Another one is a policy that the table could have. */
  policy?: TablePolicy | undefined;
  /** As if so many steps had passed in which no row was seen. Default: 0. For tables that count steps. */
  steps?: number | undefined;
  /** The same in seconds, for tables whose policy has `clock: 'seconds'`. */
  seconds?: number | undefined;
  /** Ends the count with ABORTED. */
  signal?: AbortSignal | undefined;
}

/** Rows of a table under a policy. */
export interface PlannedEvictions {
  policy: TablePolicy;
  /** As given; 0 for a table that counts seconds. */
  steps: number;
  /** As given; absent for a table that counts steps. */
  seconds?: number;
  /** Rows that are there now. */
  rows: number;
  /** Rows of these that would go by `ttl`, without those that `keep` holds back. */
  expired: number;
  /** Rows of these that would go by `minFrequency`; with `decay` about so many. */
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
  seconds: true,
  signal: checkSignal,
} satisfies OptionKeys<PlannedEvictionsOptions>;

/**
 * Counts rows of a table that would go under a policy, by reason. It reads all rows as {@link Client.scan}
 * does, and changes none. Of a table that is trained meanwhile the counts are about right. By `memory` rows
 * go only when new ones come, so it adds nothing. Rows have the sightings that they had when they were last
 * seen, and do not say at which multiples of `every` they decayed since: the nearest number of them counts.
 *
 * @example
 * ```ts
 * const { rows, expired, rare } = await plannedEvictions(client, 'items', { policy: { ttl: 5000 } });
 * ```
 * @throws BAD_ARGUMENT for a table without a policy, whose rows have neither age nor sightings, for a policy
 * that the table cannot have, as `set` of the table, and for steps or seconds that are not counted as the
 * table counts; UNKNOWN_TABLE, ABORTED, CLOSED
 */
export async function plannedEvictions(
  client: Client,
  name: string,
  options: PlannedEvictionsOptions = {},
): Promise<PlannedEvictions> {
  internalsOf(client);
  checkOptions('plannedEvictions', options, PLANNED_OPTIONS);
  const { spec } = client.table(name);
  const { policy, passed } = checkedPlan(name, spec.policy, options);
  const width = client.rowWidth(spec);
  const shards = shardCount(poolOfTable(client.clusterMap, spec));
  const found = { rows: 0, expired: 0, rare: 0, faint: 0, displaced: 0, refused: 0 };
  const { ttl = Number.POSITIVE_INFINITY, ...withoutTtl } = policy;
  const counted = Array.from({ length: shards }, () => new JudgedRows(found));
  for await (const { keys, rows } of client.scan(name, { select: 'rows', signal: options.signal })) {
    const words = new Uint32Array(rows.buffer, rows.byteOffset, rows.length);
    found.rows += keys.length;
    const { order, starts } = loadNative().partition(keys, shards);
    for (let shard = 0; shard < shards; shard++) {
      for (const at of order.subarray(starts[shard]!, starts[shard + 1]!)) {
        const end = (at + 1) * width;
        const values = rows.subarray(end - width, end - width + spec.dim);
        const [age, sightings] = [words[end - 2]! + passed, words[end - 1]!];
        if (policy.keep === undefined || age <= ttl)
          counted[shard]!.add(outcomeOf(policy, age, sightings, values));
        else counted[shard]!.addOld(age, outcomeOf(withoutTtl, age, sightings, values));
      }
    }
  }
  const { keep = 0, maxRows = Number.POSITIVE_INFINITY } = policyOfShard(policy, shards);
  for (const rows of counted) found.displaced += Math.max(0, rows.left(keep) - maxRows);
  const { table } = await showTable(client, name);
  const gone = found.expired + found.rare + found.faint + found.displaced;
  const bytes = table.rows > 0 ? Math.round(table.bytes / table.rows) * gone : 0;
  const shown = spec.policy?.clock ? { steps: 0, seconds: passed } : { steps: passed };
  return { policy, ...shown, ...found, waiting: Math.max(0, table.rows - found.rows), bytes };
}

/** The policy, and the time that passes as if. @throws BAD_ARGUMENT */
function checkedPlan(
  name: string,
  own: TablePolicy | undefined,
  { policy: given, steps, seconds }: PlannedEvictionsOptions,
): { policy: TablePolicy; passed: number } {
  const bad = (message: string): KintsugiError => new KintsugiError('BAD_ARGUMENT', message);
  checkInteger('plannedEvictions: steps', steps ?? 0, 0);
  checkInteger('plannedEvictions: seconds', seconds ?? 0, 0);
  const problem = given === undefined ? undefined : policyChangeProblem(own, given);
  if (problem) throw bad(`table "${name}": ${problem}`);
  if (!own) throw bad(`table "${name}" has no policy: its rows have neither an age nor sightings`);
  const counts = `table "${name}" counts the ages of its rows in ${own.clock ?? 'steps'}`;
  if (own.clock && steps) throw bad(`${counts}: it takes seconds, not steps`);
  if (!own.clock && seconds) throw bad(`${counts}: it takes steps, not seconds`);
  return { policy: given ?? own, passed: (own.clock ? seconds : steps) ?? 0 };
}

/** Why a row goes. `refused`: it stays and is not admitted. Undefined: it stays. */
type RowOutcome = 'expired' | 'rare' | 'faint' | 'refused' | undefined;

const stays = (outcome: RowOutcome): boolean => outcome === undefined || outcome === 'refused';

/** Rows of a shard. Which of the old ones `keep` holds back is known when all rows are. */
class JudgedRows {
  private stayed = 0;
  /** Rows older than `ttl`, by their ages: how many have each outcome if `ttl` says nothing. */
  private readonly old = new Map<number, Map<RowOutcome, number>>();

  constructor(private readonly found: Record<Exclude<RowOutcome, undefined>, number>) {}

  add(outcome: RowOutcome, rows = 1): void {
    if (outcome) this.found[outcome] += rows;
    if (stays(outcome)) this.stayed += rows;
  }

  addOld(age: number, kept: RowOutcome): void {
    const counts = this.old.get(age) ?? new Map<RowOutcome, number>();
    this.old.set(age, counts.set(kept, (counts.get(kept) ?? 0) + 1));
  }

  /** Rows that are left where `ttl` holds back those of which fewer than `keep` were seen later. */
  left(keep: number): number {
    for (const [, counts] of [...this.old].sort(([a], [b]) => a - b)) {
      const isKept = this.stayed < keep;
      for (const [kept, rows] of counts) this.add(isKept || !stays(kept) ? kept : 'expired', rows);
    }
    return this.stayed;
  }
}

/** The outcome of a row, as the engine has it (native/engine/rule.h). */
function outcomeOf(
  { ttl = Number.POSITIVE_INFINITY, minFrequency, l2Below, counter }: TablePolicy,
  age: number,
  sightings: number,
  values: Float32Array,
): RowOutcome {
  const isRare = minFrequency !== undefined && isSeldom(minFrequency, age, sightings);
  if (age > Math.min(ttl, isRare ? minFrequency.ttl : ttl)) return isRare ? 'rare' : 'expired';
  if (l2Below && age > l2Below.ttl && isFaint(values, Math.fround(l2Below.norm))) return 'faint';
  return counter !== undefined && sightings < counter ? 'refused' : undefined;
}

function isSeldom({ sightings: least, decay }: FrequencyPolicy, age: number, sightings: number): boolean {
  if (sightings < least || !decay) return sightings < least;
  return decayedSightings(sightings, decay, Math.round(age / decay.every)) < least;
}

function isFaint(values: Float32Array, norm: number): boolean {
  let squares = 0;
  for (const value of values) squares += value * value;
  return squares < norm * norm;
}

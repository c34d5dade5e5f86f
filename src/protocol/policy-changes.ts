/**
 * How the policy of a table changes while the job trains. Rows of a table with a policy have words for their
 * age and sightings, and those of one without have none: so a table has a policy from its creation on, or
 * never. Nor does `bloom` change, because its filter has the first slots of the rows, nor `score`, which is a
 * word of a row, nor `clock`, because rows have the step or the second in which they were last seen. Each
 * shard begins with a new policy in its next push, or second (native/engine/rule.h).
 */
import { hasTtl, isSamePolicy, type TablePolicy } from '../engine/policies.js';
import { onlyKnownPolicy, policyProblem } from '../engine/policy-checks.js';
import type { EarlierSettings, TableSpec } from './map.js';

type Governed = Pick<TableSpec, 'policy' | keyof EarlierSettings>;

/** Why a table with this policy cannot have another one, in one line; undefined when it can. */
export function policyChangeProblem(policy: TablePolicy | undefined, given: TablePolicy): string | undefined {
  const problem = policyProblem(given);
  if (problem) return problem;
  if (!policy)
    return 'it has no policy, and its rows have no words for one: a table has a policy from its creation on';
  if (policy.score && !given.score)
    return 'its rows have a word for their score: a table keeps score from its creation on';
  if (!policy.score && given.score)
    return 'its rows have no word for a score: a table has score from its creation on, or never';
  if (policy.clock !== given.clock) return clockText(policy, given);
  if (isSamePolicy(filterOf(policy), filterOf(given))) return undefined;
  return 'its rows begin behind its filter: a table has the bloom of its creation, or none';
}

/** Why the clock of a table stays, as the end of a sentence. */
function clockText({ clock }: TablePolicy, given: TablePolicy): string {
  if (!clock)
    return 'the ages of its rows are steps: ttls of seconds need a table that was created with such a policy';
  const wanted = hasTtl(given)
    ? 'ttls of its policy are, too'
    : 'its policy has a ttl, for example a long one';
  return `the ages of its rows are seconds from its creation on: ${wanted}`;
}

function filterOf({ bloom }: TablePolicy): TablePolicy {
  return bloom ? { bloom } : {};
}

/**
 * The table with a valid policy; that which it had is an earlier one from now on. `most`: policies that it
 * remembers.
 */
export function withPolicy<T extends Governed>(table: T, given: TablePolicy | undefined, most: number): T {
  const { policy, earlierPolicies = [], policyVersion = 1 } = table;
  if (!policy || !given || isSamePolicy(policy, given)) return table;
  const isNew = !hadPolicy(table, policy) && earlierPolicies.length < most;
  return {
    ...table,
    policy: onlyKnownPolicy(given),
    earlierPolicies: isNew ? [...earlierPolicies, policy] : earlierPolicies,
    policyVersion: policyVersion + 1,
  };
}

/** True: the table remembers this policy. */
export function hadPolicy(
  { earlierPolicies = [] }: EarlierSettings,
  policy: TablePolicy | undefined,
): boolean {
  return earlierPolicies.some((each) => isSamePolicy(each, policy));
}

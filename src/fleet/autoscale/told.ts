/** A decision as an event of the job. */
import type { EventFields, ToldKind } from '../../protocol/events.js';
import { type DecisionRecord, decisionText } from './autoscaler.js';

/**
 * `ps` and `workers` are the counts after the decision; `reason` has all numbers, `value` the first finite
 * one.
 */
function eventOf(
  { decision, ps, workers }: DecisionRecord,
  dryRun: boolean,
): { kind: ToldKind; fields: EventFields } {
  const { kind, numbers } = decision;
  const action =
    kind === 'replace' ? `replace ${decision.name}` : kind === 'rebalance' ? kind : `scale ${kind}`;
  const value = Object.values(numbers).find(Number.isFinite);
  return {
    kind: numbers.takenBack === 1 ? 'autoscale.tookBack' : 'autoscale.decided',
    fields: {
      ...{ action, reason: decisionText(decision), psBefore: ps, workersBefore: workers, dryRun },
      ps: kind === 'ps' ? decision.to : ps,
      workers: kind === 'workers' ? decision.to : workers,
      ...(value !== undefined && { value }),
    },
  };
}

/** Tells the job of a decision. A decision that cannot be told is carried out all the same. */
export function tellDecision(
  client: { tellEvent(kind: ToldKind, fields: EventFields): Promise<number> },
  record: DecisionRecord,
  dryRun = false,
): void {
  const { kind, fields } = eventOf(record, dryRun);
  client.tellEvent(kind, fields).catch(() => {});
}

/**
 * How redundant the job is, kept up to date with the facts: what is computed of it is kept until something
 * changes.
 */
import type { JobSummary } from '../../protocol/messages.js';
import type { ClusterFacts } from './facts.js';
import type { Ledger } from './ledger.js';
import { RedundancyIndex } from './redundancy.js';
import type { Reports } from './reports.js';
import { type Condition, type ConditionInput, summaryOf } from './status.js';

export class Standing {
  private readonly redundancy = new RedundancyIndex();
  /** The newest condition, and the version of the facts that it was computed from. */
  private computed: { condition: Condition; version: number } | undefined;

  constructor(
    private readonly ledger: Ledger,
    private readonly facts: ClusterFacts,
    private readonly reports: Reports,
  ) {}

  /** No member of any group lacks anything by the latest reports, but for groups that are beyond repair. */
  get settled(): boolean {
    const { ledger, reports } = this;
    this.update(this.input());
    return this.redundancy.isSettled((g) => reports.isLost(ledger.map.groups[g]!));
  }

  get condition(): Condition {
    const { computed } = this;
    const { version } = this.facts;
    if (computed?.version === version && computed.condition.map === this.ledger.map)
      return computed.condition;
    const input = this.input();
    this.update(input);
    const condition = this.redundancy.condition(input);
    this.computed = { condition, version };
    return condition;
  }

  /** Costs nothing while nothing happens. */
  summary(): JobSummary {
    return summaryOf(this.condition);
  }

  private update(input: ConditionInput): void {
    this.redundancy.update(input, this.facts.index, this.reports.takeTouched());
  }

  private input(): ConditionInput {
    const { ledger, facts, reports } = this;
    const { lost } = reports;
    return { state: ledger.state, view: facts.view(), lost, rows: (g, m) => reports.rows(g, m) };
  }
}

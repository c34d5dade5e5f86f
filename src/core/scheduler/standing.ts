/**
 * How the job stands: its redundancy and its status, put together from the parts of the scheduler when
 * somebody asks. What is computed of the redundancy is kept until something changes.
 */
import type { JobStatus, JobSummary } from '../../protocol/messages.js';
import type { GroupIndex } from '../placement/group-index.js';
import type { ClusterView } from '../placement/health.js';
import type { Ledger } from './ledger.js';
import { RedundancyIndex } from './redundancy.js';
import type { Replicas } from './replicas.js';
import type { Reports } from './reports.js';
import type { Restorer } from './saving/restorer.js';
import type { Saver } from './saving/saver.js';
import type { Scaler } from './scaling/scaler.js';
import { type Condition, conditionOf, type StatusInput, statusOf, summaryOf } from './status.js';

/** What the scheduler lends. */
export interface StandingParts {
  ledger: Ledger;
  reports: Reports;
  replicas: Replicas;
  saver: Saver;
  restorer: Restorer;
  scaler(): Scaler;
  view(): ClusterView;
  index(): GroupIndex;
}

export class Standing {
  private readonly redundancy = new RedundancyIndex();
  /** Undefined when something changed since. */
  private computed: Condition | undefined;

  constructor(private readonly parts: StandingParts) {}

  changed(): void {
    this.computed = undefined;
  }

  /** No group lacks anything that it may still get. */
  get settled(): boolean {
    const { ledger, reports } = this.parts;
    this.update(this.input());
    return this.redundancy.isSettled((g) => reports.isLost(ledger.map.groups[g]!));
  }

  get condition(): Condition {
    if (this.computed?.map === this.parts.ledger.map) return this.computed;
    const input = this.input();
    this.update(input);
    this.computed = this.redundancy.condition(input);
    return this.computed;
  }

  /** Costs nothing while nothing happens. */
  summary(): JobSummary {
    return summaryOf(this.condition);
  }

  /** Work for every node and group: for people. `warnings`: of the scheduler itself. */
  status(now: number, warnings: readonly string[]): JobStatus {
    const input = this.input();
    const [saving, restoring] = [this.parts.saver.status(), this.parts.restorer.status()];
    const replicas = this.parts.replicas.status(now);
    const status = {
      ...statusOf(input, conditionOf(input)),
      ...(saving && { saving }),
      ...(restoring && { restoring }),
      ...(replicas.length > 0 && { replicas }),
    };
    return { ...status, warnings: [...status.warnings, ...warnings] };
  }

  private update(input: StatusInput): void {
    const { index, reports } = this.parts;
    this.redundancy.update(input, index(), reports.takeTouched());
  }

  private input(): StatusInput {
    const { ledger, reports, saver, scaler, view } = this.parts;
    return {
      state: ledger.state,
      view: view(),
      lost: reports.lost,
      reports: reports.nodes,
      rows: (g, m) => reports.rows(g, m),
      saved: (g, m) => saver.newestWith(g, m),
      scaling: () => scaler().status(),
    };
  }
}

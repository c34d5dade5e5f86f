/** The status of the job for people, put together from all parts when somebody asks. */
import type { JobStatus } from '../../protocol/messages.js';
import type { ClusterFacts } from './facts.js';
import type { Ledger } from './ledger.js';
import type { Membership } from './membership.js';
import type { Replicas } from './replicas.js';
import type { Reports } from './reports.js';
import type { Restorer } from './saving/restorer.js';
import type { Saver } from './saving/saver.js';
import type { Scaler } from './scaling/scaler.js';
import { conditionOf, type StatusInput, statusOf } from './status.js';

export class Overview {
  constructor(
    private readonly ledger: Ledger,
    private readonly facts: ClusterFacts,
    private readonly reports: Reports,
    private readonly replicas: Replicas,
    private readonly saver: Saver,
    private readonly restorer: Restorer,
    private readonly scaler: Scaler,
    private readonly membership: Pick<Membership, 'lifeOf' | 'isOverloaded'>,
  ) {}

  /** Work for every node and group. `warnings`: of the scheduler itself, after those about the cluster. */
  status(now: number, warnings: readonly string[]): JobStatus {
    const { ledger, facts, reports, saver, scaler } = this;
    const input: StatusInput = {
      state: ledger.state,
      view: facts.view(),
      lost: reports.lost,
      rows: (g, m) => reports.rows(g, m),
      reports: reports.nodes,
      saved: (g, m) => saver.newestWith(g, m),
      life: (node) => this.membership.lifeOf(node),
      overloaded: (node) => this.membership.isOverloaded(node),
      scaling: () => scaler.status(),
    };
    const [saving, restoring] = [saver.status(), this.restorer.status()];
    const replicas = this.replicas.status(now);
    const status = {
      ...statusOf(input, conditionOf(input)),
      ...(saving && { saving }),
      ...(restoring && { restoring }),
      ...(replicas.length > 0 && { replicas }),
    };
    return { ...status, warnings: [...status.warnings, ...warnings] };
  }
}

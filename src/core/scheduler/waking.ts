/**
 * A scheduler that resumes a job does not know yet what is complete: it comes back with the heartbeats of the
 * nodes (rule 29). Until every living node has reported, or is late, it tells nobody how redundant the job is
 * and which recoveries are over. What is decided does not depend on this.
 */
import type { NodeEntry } from '../../protocol/map.js';
import type { SchedulerPolicy } from '../shared/policy.js';
import type { Ledger } from './ledger.js';
import type { Liveness } from './liveness.js';
import type { Recoveries } from './recoveries.js';
import type { Reports } from './reports.js';

export class Waking {
  /** Milliseconds of the first tick. */
  private begunAt: number | undefined;
  private now = 0;

  constructor(
    private readonly ledger: Ledger,
    private readonly policy: Pick<SchedulerPolicy, 'silentMs'>,
    private readonly liveness: Liveness,
    private readonly reports: Reports,
    private readonly recoveries: Recoveries,
    /** True: the job was made by an earlier scheduler, and its nodes have not all reported yet. */
    private resumed: boolean,
  ) {}

  tick(now: number): void {
    const { ledger } = this;
    if (this.begunAt === undefined && this.resumed)
      ledger.now({ kind: 'event', name: 'scheduler.resumed', fields: { epoch: ledger.map.epoch } });
    this.begunAt ??= now;
    this.now = now;
  }

  /** True: the condition of the job is not to be told yet. */
  get isAsleep(): boolean {
    if (!this.resumed) return false;
    const { ledger, policy, liveness, reports, now, begunAt = now } = this;
    const isAwaited = ({ id, inc }: NodeEntry) => liveness.isAlive(id, inc) && !reports.nodes.has(id);
    if (now - begunAt <= policy.silentMs && ledger.map.nodes.some(isAwaited)) return true;
    this.resumed = false;
    this.recoveries.resume(reports.recoveries());
    return false;
  }
}

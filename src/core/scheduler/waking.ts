/**
 * A scheduler that resumes a job does not know yet what is complete: it comes back with the heartbeats of the
 * nodes (rule 29). Until every living node has reported, or is late, it tells nobody how redundant the job is
 * and which recoveries are over. What is decided does not depend on this.
 */
import type { NodeEntry, PeerId } from '../../protocol/map.js';
import type { SchedulerPolicy } from '../shared/policy.js';
import type { Ledger } from './ledger.js';
import type { Recoveries } from './recoveries.js';
import type { Reports } from './reports.js';

export interface WakingHost {
  readonly ledger: Ledger;
  readonly policy: Pick<SchedulerPolicy, 'silentMs'>;
  readonly reports: Pick<Reports, 'nodes' | 'recoveries'>;
  readonly recoveries: Pick<Recoveries, 'resume'>;
  isAlive(node: PeerId, inc: number): boolean;
}

export class Waking {
  private begunAt: number | undefined;
  private now = 0;

  constructor(
    private readonly host: WakingHost,
    /** The job was made by an earlier scheduler, and is not known yet. */
    private resumed: boolean,
  ) {}

  tick(now: number): void {
    const { ledger } = this.host;
    if (this.begunAt === undefined && this.resumed)
      ledger.now({ kind: 'event', name: 'scheduler.resumed', fields: { epoch: ledger.map.epoch } });
    this.begunAt ??= now;
    this.now = now;
  }

  /** Nobody is to be told yet. */
  get isAsleep(): boolean {
    if (!this.resumed) return false;
    const { host, now, begunAt = now } = this;
    const isAwaited = ({ id, inc }: NodeEntry) => host.isAlive(id, inc) && !host.reports.nodes.has(id);
    if (now - begunAt <= host.policy.silentMs && host.ledger.map.nodes.some(isAwaited)) return true;
    this.resumed = false;
    host.recoveries.resume(host.reports.recoveries());
    return false;
  }
}

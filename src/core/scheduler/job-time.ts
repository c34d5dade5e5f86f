/**
 * The seconds of the job (rule 50), for tables whose policies count seconds. They pass while a scheduler runs
 * and such a table is there. No machine's clock is in them: a scheduler that takes over goes on from the
 * highest number that a node has heard, and every shard keeps its own in its rows.
 */
import type { TableSpec } from '../../protocol/map.js';
import type { SchedulerPolicy } from '../shared/policy.js';
import type { Ledger } from './ledger.js';
import type { Liveness } from './liveness.js';

export class JobTime {
  private seconds = 0;
  /** Milliseconds of the next second that have passed. */
  private passed = 0;
  /** Milliseconds of the newest tick; undefined: none yet. */
  private tickedAt: number | undefined;
  /** The tables of the newest map, and whether one of them counts seconds. */
  private looked: { tables: readonly TableSpec[]; counts: boolean } = { tables: [], counts: false };

  constructor(
    private readonly ledger: Ledger,
    private readonly policy: Pick<SchedulerPolicy, 'secondMs'>,
    private readonly liveness: Liveness,
  ) {}

  /** `slept`: milliseconds in which this process did not run, and time of the job did not pass. */
  tick(now: number, slept: number): void {
    const { ledger, policy, liveness, tickedAt = now } = this;
    this.tickedAt = now;
    if (!this.counts) return;
    this.passed += Math.max(0, now - tickedAt - slept);
    const whole = Math.floor(this.passed / policy.secondMs);
    if (whole === 0) return;
    this.passed -= whole * policy.secondMs;
    this.seconds += whole;
    const message = { t: 'time' as const, seconds: this.seconds };
    for (const { id, inc } of ledger.map.nodes)
      if (liveness.isAlive(id, inc)) ledger.now({ kind: 'send', to: id, message, parts: [] });
  }

  /** A node was told this by the scheduler before. */
  heard(seconds: number): void {
    if (seconds > this.seconds) this.seconds = seconds;
  }

  private get counts(): boolean {
    const { tables } = this.ledger.map;
    if (tables !== this.looked.tables)
      this.looked = { tables, counts: tables.some(({ policy }) => policy?.clock === 'seconds') };
    return this.looked.counts;
  }
}

/** What a role tells of its process. Roles of one process (`startLocalCluster`) tell the same. */
import type { Scheduler } from '../core/scheduler/scheduler.js';
import { VERSION } from '../package-root.js';
import type { Observed, ProcessTelemetry } from '../protocol/telemetry.js';
import { monotonicMs } from './log.js';

export function processTelemetry(): ProcessTelemetry {
  const { user, system } = process.cpuUsage();
  return {
    upSeconds: process.uptime(),
    cpuSeconds: (user + system) / 1e6,
    rssBytes: process.memoryUsage.rss(),
    version: VERSION,
    clockMs: Date.now(),
  };
}

/** The scheduler's answer to whoever observes it. */
export function observedOf({ workers }: Scheduler, id: number): Observed {
  const scheduler = { ...processTelemetry(), ...workers.telemetry(monotonicMs()) };
  return { t: 'observed', id, scheduler };
}

/** Telemetry of the process of a role. Roles of one process (`startLocalCluster`) tell the same. */

import { VERSION } from '../common/package-root.js';
import type { Scheduler } from '../core/scheduler/scheduler.js';
import { monotonicMs } from '../net/log.js';
import type { ObservedProcess, ProcessTelemetry } from '../protocol/telemetry.js';

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
export function observedOf({ workers }: Scheduler, id: number): ObservedProcess {
  const scheduler = { ...processTelemetry(), ...workers.telemetry(monotonicMs()) };
  return { t: 'observed', id, scheduler };
}

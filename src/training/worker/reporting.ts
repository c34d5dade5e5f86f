/**
 * Reports of a worker about itself to the scheduler. Nobody can call a worker, so this is how it is observed.
 */
import { internalsOf } from '../../library/client/connected.js';
import type { WorkerReport } from '../../protocol/telemetry.js';

const REPORT_MS = 5000;

/** Reports now, every few seconds, and a last time when it is ended. */
export function startReporting(client: object, report: () => WorkerReport): { end(): void } {
  const { session } = internalsOf(client);
  const tell = (over?: true) =>
    session.tell({ t: 'workerReport', report: { ...report(), ...(over && { over }) } });
  const timer = setInterval(() => tell(), REPORT_MS).unref();
  tell();
  return {
    end: () => {
      clearInterval(timer);
      tell(true);
    },
  };
}

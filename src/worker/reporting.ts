/** What a worker tells the scheduler of itself: nobody can call it, and so it can be observed. */
import { internalsOf } from '../client/internals.js';
import type { WorkerReport } from '../protocol/telemetry.js';

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

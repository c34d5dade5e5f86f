/** Makes the input of decisions from a snapshot of the job. */
import type { JobSnapshot } from '../../library/client/observe.js';
import { targetOf } from '../../library/tools/scaling.js';
import { WORKER_PHASES, type WorkerTelemetry } from '../../protocol/telemetry.js';
import type { Observation, WorkerSeen } from './decide/observation.js';

function workerOf({ id, name, samples, phaseSeconds, idleSeconds }: WorkerTelemetry): WorkerSeen {
  const all = WORKER_PHASES.reduce((sum, phase) => sum + phaseSeconds[phase], 0);
  return { id: `${id}`, name, samples, busy: Math.max(0, all - idleSeconds), idle: idleSeconds };
}

/**
 * Undefined while a PS does not answer: without its bytes nothing can be said of memory. `workers`: number of
 * workers that run or are about to.
 */
export function observationOf(snapshot: JobSnapshot, workers: number): Observation | undefined {
  const { status, scheduler, nodes } = snapshot;
  const known = new Map(nodes.map(({ id, telemetry }) => [id, telemetry]));
  const serving = status.nodes.filter((node) => node.alive && !node.standby);
  const ps = serving.flatMap(({ id, name, inc, overloaded }) => {
    const telemetry = known.get(id);
    if (!telemetry) return [];
    const { usedBytes, limitBytes } = telemetry.memory;
    // A process that was started again counts from 0, so it has another id.
    const seen = { id: `${name}/${inc}`, cpu: telemetry.cpuSeconds, bytes: usedBytes, limit: limitBytes };
    return [overloaded ? { ...seen, overloaded } : seen];
  });
  if (ps.length < serving.length || ps.length === 0) return undefined;
  return {
    at: snapshot.at / 1000,
    samples: scheduler.runs.reduce((sum, run) => sum + run.samples, 0),
    ps,
    workers: snapshot.workers.map(workerOf),
    pendingPs: Math.max(0, targetOf(status) - ps.length),
    pendingWorkers: Math.max(0, workers - snapshot.workers.length),
    changing:
      status.redundancy === 'forming' ||
      status.redundancy === 'recovering' ||
      status.scaling.changes.some(({ state }) => state === 'running'),
  };
}

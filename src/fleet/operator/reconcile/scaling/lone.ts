/** ScaleOut and ScaleIn whose job is not there. */
import type { ScalerObject, ScalerStatus } from '../../types.js';
import type { Action } from '../observed.js';
import { sameValue } from '../same.js';
import { timeOf } from '../time.js';
import { hasBegun, isOver } from './goal.js';
import { FINALIZER } from './scalers.js';

export type LoneAction = Extract<Action, { kind: 'letGo' | 'scalerStatus' }>;

/** Objects that had begun have failed. The others wait for the job. */
export function withoutJob(scalers: readonly ScalerObject[], now: number): LoneAction[] {
  return scalers.flatMap((scaler): LoneAction[] => {
    const { metadata, spec } = scaler;
    const held = metadata.finalizers?.includes(FINALIZER) ?? false;
    if (isOver(scaler) || metadata.deletionTimestamp !== undefined)
      return held ? [{ kind: 'letGo', scaler }] : [];
    const why = { reason: 'NoJob', message: `there is no TrainingJob ${spec.selector.name}` };
    const status = (
      hasBegun(scaler)
        ? { ...scaler.status, ...why, phase: 'ScaleFailed', completionTime: timeOf(now) }
        : { phase: 'Pending', ...why }
    ) as ScalerStatus;
    return sameValue(status, scaler.status) ? [] : [{ kind: 'scalerStatus', scaler, status }];
  });
}

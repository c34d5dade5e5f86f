/** The cluster of a run: the roles of `kintsugi local`, with as many shards in every mode. */
import type { LocalOptions } from '../../../src/fleet/local/options.js';
import { groupsOf, type TrainingMode } from './modes.js';

export interface ClusterShape {
  ps: number;
  recoveryRate?: string | undefined;
  backgroundShare?: number | undefined;
}

export function localOptions(
  { ps, recoveryRate, backgroundShare }: ClusterShape,
  mode: TrainingMode,
): LocalOptions {
  return {
    ps,
    code: mode.code,
    groups: groupsOf(mode, ps),
    recoveryRate,
    moveRate: undefined,
    backgroundShare,
    workers: 0,
    standby: 0,
    data: [],
    test: [],
    epochs: 0,
    workerArgs: [],
    seed: 1,
    deterministic: false,
    audit: true,
    kills: [],
    scales: [],
    respawnMs: undefined,
    memory: undefined,
    resume: undefined,
    save: undefined,
    log: undefined,
  };
}

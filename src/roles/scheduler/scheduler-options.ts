/** How the process of a scheduler is told what to do. */

import type { KintsugiError } from '../../common/errors.js';
import type { PoolOptions } from '../../core/placement/job.js';
import type { SchedulerPolicy } from '../../core/shared/policy.js';
import type { Logger } from '../../net/log.js';
import type { ServerTls } from '../../net/transport/index.js';
import type { SavePlan } from '../../protocol/saving.js';
import type { StateStore } from '../../stores/decisions/index.js';
import type { JobOwner } from './owner.js';

/** A checkpoint that a new job begins with. */
export interface RestoreOptions {
  /** URL of the place. */
  url: string;
  /** Default: the newest one there. */
  number?: number | undefined;
  /** The groups of the pools were asked for. Default: they are as many as the checkpoint has. */
  groups?: boolean | undefined;
}

export interface SchedulerOptions {
  listen?: string | undefined;
  /** host or host:port at which others reach this scheduler, where several use one store. */
  advertise?: string | undefined;
  token?: string | undefined;
  /** Shared by the scheduler and the PS only; default: `token` serves them, too. */
  nodeToken?: string | undefined;
  /** Opens /metrics; without it they are open on loopback and refused beyond it. */
  metricsToken?: string | undefined;
  tls?: ServerTls | undefined;
  store: StateStore;
  job: string;
  /** The job that this scheduler is for. Undefined: nobody has said, and any state is gone on with. */
  owner?: JobOwner | undefined;
  /** True: the job has begun, so without its state nothing begins. Default: false. */
  mustResume?: boolean | undefined;
  /** Nodes that must have joined before the job starts. */
  nodes: number;
  pools: PoolOptions[];
  policy?: Partial<SchedulerPolicy> | undefined;
  /** Plan of checkpoints, unless the job has or had one. Default: nothing is saved. */
  checkpoint?: SavePlan | undefined;
  /** The caller has written to the place of that plan a moment ago. Default: false. */
  placeTried?: boolean | undefined;
  /** Checkpoint that the job begins with, if the store has no job. Default: the job begins empty. */
  restore?: RestoreOptions | undefined;
  log: Logger;
  /**
   * Called once when this scheduler has ended by itself: its store failed (STORE_FAILED), another scheduler
   * leads (DEPOSED), or an invariant is broken (INTERNAL). It takes no connections any more.
   */
  onFailed?: ((error: KintsugiError) => void) | undefined;
}

export interface RunningScheduler {
  readonly address: string;
  /**
   * Has a last checkpoint made where the job has a save plan of everything, before an orderly end. Resolves
   * also when there is none, after its limit at the latest.
   */
  finish(): Promise<void>;
  close(): Promise<void>;
}

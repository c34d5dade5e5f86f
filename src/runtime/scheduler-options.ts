/** How the process of a scheduler is told what to do. */
import type { SchedulerPolicy } from '../core/shared/policy.js';
import type { KintsugiError } from '../errors.js';
import type { SavePlan } from '../protocol/saving.js';
import type { StateStore } from '../storage/index.js';
import type { ServerTls } from '../transport/index.js';
import type { Logger } from './log.js';

export interface PoolOptions {
  name: string;
  k: number;
  r: number;
  groups: number;
}

/** A checkpoint that a new job begins with. */
export interface RestoreOptions {
  /** Of the place. */
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
  /** Nodes that must have joined before the job starts. */
  nodes: number;
  pools: PoolOptions[];
  policy?: Partial<SchedulerPolicy> | undefined;
  /** What is saved how often, unless the job has or had a save plan. Default: nothing. */
  checkpoint?: SavePlan | undefined;
  /** What the job begins with, if the store has none. Default: empty. */
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

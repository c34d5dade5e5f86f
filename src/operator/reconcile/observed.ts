/** What a decision is made of, and what it may ask for. */

import type { KubeNode, KubeObject, Manifest, Pod } from '../objects.js';
import type { Scaler, ScalerStatus, TrainingJob, TrainingJobStatus } from '../types.js';

/** What the job itself says. */
export interface JobReport {
  redundancy: string;
  /** Why it is not full. */
  reasons: readonly string[];
  /** PS that have joined and not left. */
  nodes: readonly { name: string; alive: boolean }[];
  /** A scale, drain, rebalance or join is under way. */
  changing: boolean;
  /** The newest changes, oldest first. */
  changes: readonly ChangeReport[];
  progress?: NonNullable<TrainingJobStatus['progress']>;
  lastCheckpoint?: NonNullable<TrainingJobStatus['lastCheckpoint']>;
  /** Its checkpoints; null: it makes none. Absent: not known. */
  plan?: PlanReport | null;
}

/** Place, times and number of checkpoints. */
export interface PlanReport {
  url: string;
  everySeconds: number;
  keep: number;
}

/** A change of what serves, as the job tells of it. */
export interface ChangeReport {
  id: number;
  kind: 'scale' | 'drain' | 'rebalance' | 'join';
  /** PS before and afterwards. */
  from: number;
  to: number;
  state: 'running' | 'done' | 'cancelled';
  /** What it waits for, or why it was cancelled. */
  reason: string;
  /** Names of the PS that it empties. */
  leaving: readonly string[];
  shardsMoved: number;
  /** Those that move, too. */
  shardsLeft: number;
  bytesMoved: number;
}

/** How a change goes that the job was asked for. It is forgotten when the operator is. */
export interface Asked {
  /** Of its action. */
  key: string;
  /** When it was asked for, or when it ended. Milliseconds since 1970. */
  at: number;
  underWay: boolean;
  /** As the job numbers it; absent until it has answered. */
  id?: number;
  /** It was refused, or taken back. */
  problem?: string;
  /** The job did not hear it. */
  unheard?: boolean;
}

/** How the newest checkpoint that the operator asked for went. */
export interface Saved {
  /** Of the spec for which it was asked. */
  generation: number;
  /** Milliseconds since 1970. */
  at: number;
  underWay: boolean;
  number?: number;
  problem?: string;
}

/** How the newest change of the plan of checkpoints went that the operator asked for. */
export interface Planned {
  /** Of the spec for which it was asked. */
  generation: number;
  /** Milliseconds since 1970. */
  at: number;
  underWay: boolean;
  problem?: string;
}

/** All of one namespace. Some may be older than other parts. */
export interface Observed {
  /** Milliseconds since 1970. */
  now: number;
  job: TrainingJob;
  /** Pods that belong to the job. */
  pods: readonly Pod[];
  /** Other objects that belong to the job: Services, StatefulSets, PodDisruptionBudgets and so on. */
  owned: readonly KubeObject[];
  /** Kinds of others whose custom resource is there. */
  extras?: ReadonlySet<string> | undefined;
  nodes: readonly KubeNode[];
  /** The Secret with the tokens exists. */
  secret: boolean;
  /** Absent: the job does not answer. */
  report?: JobReport | undefined;
  /** What the job was asked for, one for each key. */
  asked?: readonly Asked[] | undefined;
  saved?: Saved | undefined;
  planned?: Planned | undefined;
  /** Every ScaleOut and ScaleIn of the job. */
  scalers?: readonly Scaler[] | undefined;
}

export type Action =
  /** Written before anything else happens, on the version that was observed. */
  | { kind: 'status'; status: TrainingJobStatus }
  /** Makes the Secret, with random values for these keys. */
  | { kind: 'secret'; object: Manifest; keys: readonly string[] }
  /** Server-side apply. */
  | { kind: 'apply'; object: Manifest }
  /** One that exists already is left as it is. */
  | { kind: 'create'; object: Manifest }
  /** `asObserved`: only if nothing about it has changed since. */
  | {
      kind: 'delete';
      object: Pick<KubeObject, 'apiVersion' | 'kind' | 'metadata'>;
      graceSeconds?: number;
      asObserved?: true;
    }
  /** Asks the job for a change: it empties PS, and those end by themselves. Once for each key. */
  | {
      kind: 'ask';
      key: string;
      change: { kind: 'scale'; ps: number } | { kind: 'drain'; node: string };
      timeoutMs: number;
    }
  /** Asks the job for a checkpoint. How it goes is `saved`, with this generation. */
  | { kind: 'checkpoint'; generation: number }
  /** Asks the job for another plan of its checkpoints; null: for none. How it goes is `planned`. */
  | { kind: 'plan'; generation: number; plan: PlanReport | null }
  /** Writes the spec of the job, on the version that was observed. */
  | { kind: 'resize'; role: 'ps' | 'worker'; replicas: number }
  /** Writes the condition that is a readiness gate of the Pod. */
  | { kind: 'gate'; pod: Pod; open: boolean }
  /** Makes it the job's, and holds it until it is let go. */
  | { kind: 'adopt'; scaler: Scaler }
  | { kind: 'letGo'; scaler: Scaler }
  | { kind: 'scalerStatus'; scaler: Scaler; status: ScalerStatus }
  | { kind: 'event'; type: 'Normal' | 'Warning'; reason: string; message: string }
  /** Look again then. Milliseconds since 1970. */
  | { kind: 'wake'; at: number };

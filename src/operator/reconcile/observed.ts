/** What a decision is made of, and what it may ask for. */
import type { KubeNode, KubeObject, Manifest, Pod } from '../objects.js';
import type { TrainingJob, TrainingJobStatus } from '../types.js';

/** What the job itself says. */
export interface JobReport {
  redundancy: string;
  /** Why it is not full. */
  reasons: readonly string[];
  /** PS that have joined and not left. */
  nodes: readonly { name: string; alive: boolean }[];
  /** A scale, drain, rebalance or join is under way. */
  changing: boolean;
  progress?: NonNullable<TrainingJobStatus['progress']>;
  lastCheckpoint?: NonNullable<TrainingJobStatus['lastCheckpoint']>;
}

/** How the newest change that the operator asked for went. */
export interface Asked {
  ps: number;
  /** Milliseconds since 1970. */
  at: number;
  /** Absent while it is under way, and when it is done. */
  problem?: string;
  underWay: boolean;
}

/** All of one namespace. Some may be older than other parts. */
export interface Observed {
  /** Milliseconds since 1970. */
  now: number;
  job: TrainingJob;
  /** Pods that belong to the job. */
  pods: readonly Pod[];
  /** Services, StatefulSets and PodDisruptionBudgets that belong to the job. */
  owned: readonly KubeObject[];
  nodes: readonly KubeNode[];
  /** The Secret with the tokens exists. */
  secret: boolean;
  /** Absent: the job does not answer. */
  report?: JobReport | undefined;
  asked?: Asked | undefined;
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
  | { kind: 'delete'; object: Pick<KubeObject, 'apiVersion' | 'kind' | 'metadata'>; graceSeconds?: number }
  /** Asks the job for so many PS: it empties those that are too many, and they end by themselves. */
  | { kind: 'scale'; ps: number; timeoutMs: number }
  | { kind: 'event'; type: 'Normal' | 'Warning'; reason: string; message: string }
  /** Look again then. Milliseconds since 1970. */
  | { kind: 'wake'; at: number };

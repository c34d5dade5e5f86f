/** Input of a pass: what was observed. Its output: actions. */

import type { KubeNode, KubeObject, ObjectManifest, Pod } from '../objects.js';
import type { ScalerObject, ScalerStatus, TrainingJob, TrainingJobStatus } from '../types.js';

/** Report of the job about itself. */
export interface JobReport {
  redundancy: string;
  /** Why the redundancy is not full. */
  reasons: readonly string[];
  /** PS that have joined and not left. */
  nodes: readonly { name: string; alive: boolean }[];
  /** True: a scale, drain, rebalance or join is under way. */
  changing: boolean;
  /** The newest changes, oldest first. */
  changes: readonly ChangeReport[];
  progress?: NonNullable<TrainingJobStatus['progress']>;
  lastCheckpoint?: NonNullable<TrainingJobStatus['lastCheckpoint']>;
  /** Why there is no checkpoint newer than the last one. Absent: none has failed since. */
  checkpointProblem?: string;
  /** Plan of its checkpoints; null: it makes none. Absent: not known. */
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
  /** Why the change waits, or why it was cancelled. */
  reason: string;
  /** Names of the PS that it empties. */
  leaving: readonly string[];
  shardsMoved: number;
  /** Shards that are still to move, those that move now included. */
  shardsLeft: number;
  bytesMoved: number;
}

/** State of a request to the job for a change. A new operator knows nothing of it. */
export interface ObservedRequest {
  /** Key of its action. */
  key: string;
  /** When it was asked for, or when it ended. Milliseconds since 1970. */
  at: number;
  underWay: boolean;
  /** Number of the change in the job; absent until the job has answered. */
  id?: number;
  /** Why it was refused, or taken back. */
  problem?: string;
  /** True: the job did not hear it. */
  unheard?: boolean;
}

/** State of the newest checkpoint that the operator asked for. */
export interface ObservedCheckpoint {
  /** Generation of the spec for which it was asked. */
  generation: number;
  /** Milliseconds since 1970. */
  at: number;
  underWay: boolean;
  number?: number;
  problem?: string;
}

/** State of the newest change of the plan of checkpoints that the operator asked for. */
export interface Planned {
  /** Generation of the spec for which it was asked. */
  generation: number;
  /** Milliseconds since 1970. */
  at: number;
  underWay: boolean;
  problem?: string;
}

/** The answer of a job that is at its end. */
export interface JobFindings {
  results: NonNullable<TrainingJobStatus['results']>;
  /** Sections of the whole report, by name: plain values of JSON. */
  report: Record<string, unknown>;
  /** Sentence about what is missing. */
  problem?: string;
}

/** State of the last question to a job. */
export interface ObservedEnd {
  /** When the answer came, or why there is none. Milliseconds since 1970. */
  at: number;
  underWay: boolean;
  findings?: JobFindings;
  problem?: string;
}

/** An object that the API server did not take when the operator last tried to make it. */
export interface RefusedObject {
  object: KubeObject;
  /** HTTP status of the answer. */
  status: number;
  message: string;
  /** True: each attempt was refused, so nobody has ever had this object. */
  unmade: boolean;
  /** True: the server was only asked whether it would take it. */
  tried?: boolean;
}

/** Everything that a pass knows of a job. Some parts may be older than others. */
export interface ObservedJob {
  /** Milliseconds since 1970. */
  now: number;
  job: TrainingJob;
  /** Pods that belong to the job. */
  pods: readonly Pod[];
  /** Other objects that belong to the job: Services, StatefulSets, PodDisruptionBudgets and so on. */
  owned: readonly KubeObject[];
  /** Objects that an earlier job of the same name has left, each as kind and name. */
  earlier?: readonly string[] | undefined;
  /** Kinds of other software that the server has. */
  extras?: ReadonlySet<string> | undefined;
  nodes: readonly KubeNode[];
  /** Where the operator runs. Absent: in the namespace of the job. */
  operatorNamespace?: string | undefined;
  /** The Secret with the tokens exists. */
  secret: boolean;
  /** Absent: the job does not answer. */
  report?: JobReport | undefined;
  /** When the job answered last. Absent: not since this operator asks. Milliseconds since 1970. */
  heardAt?: number | undefined;
  /** True: it was asked for the first time, and may still answer. */
  asking?: boolean | undefined;
  /** Requests to the job, one for each key. */
  asked?: readonly ObservedRequest[] | undefined;
  saved?: ObservedCheckpoint | undefined;
  planned?: Planned | undefined;
  /** State of the question what came of the job. Absent: it was not asked. */
  told?: ObservedEnd | undefined;
  refusals?: readonly RefusedObject[] | undefined;
  /** Roles of which this operator has asked for a Pod, refused or not. Absent: all. */
  attempted?: ReadonlySet<string> | undefined;
  /** Names of Pods that this operator has asked for, while the status says that any are made. Absent: all. */
  askedFor?: ReadonlySet<string> | undefined;
  /** Words of machines about Pods that they cannot start, by name of the Pod. */
  troubles?: ReadonlyMap<string, string> | undefined;
  /** Every ResourceFlavor and WorkloadPriorityClass of Kueue. */
  flavors?: readonly KubeObject[] | undefined;
  priorities?: readonly KubeObject[] | undefined;
  /** Every ScaleOut and ScaleIn of the job. */
  scalers?: readonly ScalerObject[] | undefined;
}

export type Action =
  /** Writes the status, before anything else happens, on the version that was observed. */
  | { kind: 'status'; status: TrainingJobStatus }
  /** Makes the Secret, with random values for these keys. */
  | { kind: 'secret'; object: ObjectManifest; keys: readonly string[] }
  /** Applies an object on the server. */
  | { kind: 'apply'; object: ObjectManifest }
  /**
   * Applies the report of a job that has ended, or the ConfigMap of one that has formed. Where it is refused,
   * nothing that comes after it is done.
   */
  | { kind: 'report'; object: ObjectManifest }
  /** Creates a Pod. One that exists already is left as it is. */
  | { kind: 'create'; object: ObjectManifest }
  /** Asks whether the API server would take a Pod that somebody else is to make. */
  | { kind: 'try'; object: ObjectManifest }
  /**
   * Deletes an object. `asObserved`: only if nothing about it has changed since. `ifGone`: only if the
   * machine of this name is gone (`isGone`) when the server is asked.
   */
  | {
      kind: 'delete';
      object: Pick<KubeObject, 'apiVersion' | 'kind' | 'metadata'>;
      graceSeconds?: number;
      asObserved?: true;
      ifGone?: string;
    }
  /** Asks the job for a change: it empties PS, and those end by themselves. Once for each key. */
  | {
      kind: 'ask';
      key: string;
      change: { kind: 'scale'; ps: number } | { kind: 'drain'; node: string };
      timeoutMs: number;
    }
  /** Asks the job for a checkpoint. Its state is `saved`, with this generation. */
  | { kind: 'checkpoint'; generation: number }
  /** Asks the job what came of it. The state of that is `told`. */
  | { kind: 'gather'; digest: boolean }
  /** Asks the job for another plan of its checkpoints; null: for none. Its state is `planned`. */
  | { kind: 'plan'; generation: number; plan: PlanReport | null }
  /** Applies the count of a role, on the version of the job that was observed. */
  | { kind: 'resize'; role: 'ps' | 'worker'; replicas: number }
  /** Writes the condition that is a readiness gate of the Pod. */
  | { kind: 'gate'; pod: Pod; open: boolean }
  /** Holds the job where it is deleted, or lets it go. */
  | { kind: 'hold'; held: boolean }
  /** Makes a ScaleOut or ScaleIn the job's, and holds it until it is let go. */
  | { kind: 'adopt'; scaler: ScalerObject }
  | { kind: 'letGo'; scaler: ScalerObject }
  | { kind: 'scalerStatus'; scaler: ScalerObject; status: ScalerStatus }
  /** Tells of something in an event. `counted`: it may go on, and then one event counts it. */
  | { kind: 'event'; type: 'Normal' | 'Warning'; reason: string; message: string; counted?: true }
  /** Writes the status of the Workload of Kueue, on the version that was observed. */
  | { kind: 'queueStatus'; workload: KubeObject; status: object }
  /** Lets go of a Workload of Kueue, whose quota the job does not use any more. */
  | { kind: 'release'; workload: KubeObject }
  /** Asks for another pass at a time. Milliseconds since 1970. */
  | { kind: 'wake'; at: number };

/** The ConfigMap of this name that the API server did not take when it was last asked to. */
export const refusedConfigMap = (
  { refusals = [] }: Pick<ObservedJob, 'refusals'>,
  name: string,
): RefusedObject | undefined =>
  refusals.find(({ object }) => object.kind === 'ConfigMap' && object.metadata.name === name);

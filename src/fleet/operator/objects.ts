/** Objects of Kubernetes, as far as the operator reads and writes them. */

export interface OwnerReference {
  apiVersion: string;
  kind: string;
  name: string;
  uid: string;
  controller?: boolean;
  blockOwnerDeletion?: boolean;
}

/** The owner of fields, as the API server keeps it. `fieldsV1`: their names, each behind "f:". */
export interface ManagedFields {
  manager?: string;
  operation?: string;
  subresource?: string;
  fieldsV1?: Record<string, unknown>;
}

export interface Meta {
  name: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  generation?: number;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ownerReferences?: OwnerReference[];
  creationTimestamp?: string;
  deletionTimestamp?: string;
  deletionGracePeriodSeconds?: number;
  finalizers?: string[];
  managedFields?: ManagedFields[];
}

export interface KubeObject {
  apiVersion: string;
  kind: string;
  metadata: Meta;
}

export interface EnvVar {
  name: string;
  value?: string;
  valueFrom?: object;
}

export interface Container {
  name: string;
  image?: string;
  imagePullPolicy?: string;
  command?: string[];
  args?: string[];
  env?: EnvVar[];
  ports?: { name: string; containerPort: number }[];
  resources?: { limits?: Record<string, string | number>; requests?: Record<string, string | number> };
  volumeMounts?: { name: string; mountPath: string }[];
  securityContext?: object;
  readinessProbe?: object;
  terminationMessagePath?: string;
  terminationMessagePolicy?: string;
  restartPolicy?: string;
}

export interface PodSpec {
  containers?: Container[];
  initContainers?: Container[];
  volumes?: { name: string }[];
  restartPolicy?: string;
  terminationGracePeriodSeconds?: number;
  tolerations?: { key?: string; operator?: string; effect?: string; tolerationSeconds?: number }[];
  topologySpreadConstraints?: object[];
  readinessGates?: { conditionType: string }[];
  securityContext?: object;
  nodeName?: string;
  [other: string]: unknown;
}

/** The part of a Pod that users give. */
export interface PodTemplate {
  metadata?: { labels?: Record<string, string>; annotations?: Record<string, string> };
  spec?: PodSpec;
}

export interface ObjectCondition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
  lastTransitionTime?: string;
  /** Generation of the spec that it tells of. */
  observedGeneration?: number;
}

export interface Terminated {
  exitCode: number;
  signal?: number;
  reason?: string;
  message?: string;
  startedAt?: string;
  finishedAt?: string;
}

export interface ContainerStatus {
  name: string;
  ready: boolean;
  restartCount: number;
  state?: {
    running?: { startedAt?: string };
    waiting?: { reason?: string; message?: string };
    terminated?: Terminated;
  };
  lastState?: { terminated?: Terminated };
}

export interface Pod extends KubeObject {
  spec: PodSpec;
  status?: {
    phase?: 'Pending' | 'Running' | 'Succeeded' | 'Failed' | 'Unknown';
    podIP?: string;
    reason?: string;
    message?: string;
    conditions?: ObjectCondition[];
    containerStatuses?: ContainerStatus[];
    initContainerStatuses?: ContainerStatus[];
  };
}

export interface KubeNode extends KubeObject {
  spec?: { unschedulable?: boolean; taints?: { key: string; effect: string }[] };
  status?: { conditions?: ObjectCondition[] };
}

/** An object with further fields, as an API takes it. */
export type ObjectManifest = KubeObject & Record<string, unknown>;

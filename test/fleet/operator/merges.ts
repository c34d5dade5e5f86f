/** Strategic merge patches of Pods: this program and kubectl come to the same. */

/** The spec of a Pod, the fields that a template gives, and what comes of both. */
export interface Merge {
  what: string;
  base: Record<string, unknown>;
  given: Record<string, unknown>;
  merged: Record<string, unknown>;
  /** The patch for kubectl, where it needs directives that say what this program knows from the types. */
  patch?: Record<string, unknown>;
}

const container = (fields: object) => ({ containers: [{ name: 'kintsugi', image: 'k:1', ...fields }] });
const named = (fields: object) => ({ containers: [{ name: 'kintsugi', ...fields }] });

export const MERGES: readonly Merge[] = [
  {
    what: 'a map by its fields',
    base: { securityContext: { runAsNonRoot: true, runAsUser: 1000, seccompProfile: { type: 'A' } } },
    given: { securityContext: { fsGroup: 7, seccompProfile: { localhostProfile: 'p' } } },
    merged: {
      securityContext: {
        ...{ runAsNonRoot: true, runAsUser: 1000, fsGroup: 7 },
        seccompProfile: { type: 'A', localhostProfile: 'p' },
      },
    },
  },
  {
    what: 'null takes a field away',
    base: { securityContext: { runAsUser: 1000, runAsNonRoot: true }, priorityClassName: 'p' },
    given: { securityContext: { runAsUser: null }, priorityClassName: null, hostname: null },
    merged: { securityContext: { runAsNonRoot: true } },
  },
  {
    what: 'false is a value',
    base: { securityContext: { runAsNonRoot: true } },
    given: { securityContext: { runAsNonRoot: false } },
    merged: { securityContext: { runAsNonRoot: false } },
  },
  {
    what: 'containers by name',
    base: container({ terminationMessagePolicy: 'FallbackToLogsOnError' }),
    given: {
      containers: [
        { name: 'side', image: 's:1' },
        { name: 'kintsugi', image: 'k:2' },
      ],
    },
    merged: {
      containers: [
        { name: 'kintsugi', image: 'k:2', terminationMessagePolicy: 'FallbackToLogsOnError' },
        { name: 'side', image: 's:1' },
      ],
    },
  },
  {
    what: "a container's security by its fields, and its capabilities by theirs",
    base: container({
      securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } },
    }),
    given: named({ securityContext: { readOnlyRootFilesystem: false, capabilities: { add: ['X'] } } }),
    merged: container({
      securityContext: {
        ...{ allowPrivilegeEscalation: false, readOnlyRootFilesystem: false },
        capabilities: { drop: ['ALL'], add: ['X'] },
      },
    }),
  },
  {
    what: 'a list without a merge key as a whole',
    base: container({ args: ['a', 'b'], securityContext: { capabilities: { drop: ['ALL'] } } }),
    given: named({ args: ['c'], securityContext: { capabilities: { drop: ['NET_RAW'] } } }),
    merged: container({ args: ['c'], securityContext: { capabilities: { drop: ['NET_RAW'] } } }),
  },
  {
    what: 'variables by name',
    base: container({
      env: [
        { name: 'A', value: '1' },
        { name: 'B', value: '2' },
      ],
    }),
    given: named({
      env: [
        { name: 'C', value: '3' },
        { name: 'B', value: '4' },
      ],
    }),
    merged: container({
      env: [
        { name: 'A', value: '1' },
        { name: 'B', value: '4' },
        { name: 'C', value: '3' },
      ],
    }),
  },
  {
    what: 'a variable has one source',
    base: container({ env: [{ name: 'A', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } }] }),
    given: named({ env: [{ name: 'A', value: '1' }] }),
    merged: container({ env: [{ name: 'A', value: '1' }] }),
    patch: named({ env: [{ name: 'A', value: '1', valueFrom: null }] }),
  },
  {
    what: 'another source of a variable takes the place of the one before',
    base: container({
      env: [
        { name: 'A', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } },
        { name: 'B', valueFrom: { secretKeyRef: { name: 's', key: 'k', optional: true } } },
      ],
    }),
    given: named({
      env: [
        { name: 'A', valueFrom: { secretKeyRef: { name: 'mine', key: 'k' } } },
        { name: 'B', valueFrom: { secretKeyRef: { name: 'mine', key: 'k' } } },
      ],
    }),
    merged: container({
      env: [
        { name: 'A', valueFrom: { secretKeyRef: { name: 'mine', key: 'k' } } },
        { name: 'B', valueFrom: { secretKeyRef: { name: 'mine', key: 'k' } } },
      ],
    }),
    patch: named({
      env: [
        { name: 'A', valueFrom: { secretKeyRef: { name: 'mine', key: 'k' }, fieldRef: null } },
        { name: 'B', valueFrom: { secretKeyRef: { name: 'mine', key: 'k', optional: null } } },
      ],
    }),
  },
  {
    what: 'mounts by path, devices by path, ports by number',
    base: container({
      volumeMounts: [{ name: 'tmp', mountPath: '/tmp' }],
      ports: [{ name: 'http', containerPort: 7100 }],
    }),
    given: named({
      volumeMounts: [
        { name: 'mine', mountPath: '/tmp' },
        { name: 'data', mountPath: '/data', readOnly: true },
      ],
      volumeDevices: [{ name: 'raw', devicePath: '/dev/x' }],
      ports: [
        { name: 'web', containerPort: 7100 },
        { name: 'more', containerPort: 9 },
      ],
    }),
    merged: container({
      volumeMounts: [
        { name: 'mine', mountPath: '/tmp' },
        { name: 'data', mountPath: '/data', readOnly: true },
      ],
      volumeDevices: [{ name: 'raw', devicePath: '/dev/x' }],
      ports: [
        { name: 'web', containerPort: 7100 },
        { name: 'more', containerPort: 9 },
      ],
    }),
  },
  {
    what: 'volumes by name, each with one source',
    base: {
      volumes: [
        { name: 'tmp', emptyDir: {} },
        { name: 'tls', secret: { secretName: 's' } },
      ],
    },
    given: { volumes: [{ name: 'tmp', persistentVolumeClaim: { claimName: 'c' } }] },
    merged: {
      volumes: [
        { name: 'tmp', persistentVolumeClaim: { claimName: 'c' } },
        { name: 'tls', secret: { secretName: 's' } },
      ],
    },
    patch: {
      volumes: [
        {
          ...{ name: 'tmp', persistentVolumeClaim: { claimName: 'c' } },
          $retainKeys: ['name', 'persistentVolumeClaim'],
        },
      ],
    },
  },
  {
    what: 'a volume of the same source by its fields',
    base: { volumes: [{ name: 'tmp', emptyDir: { sizeLimit: '1Gi' } }] },
    given: { volumes: [{ name: 'tmp', emptyDir: { medium: 'Memory' } }] },
    merged: { volumes: [{ name: 'tmp', emptyDir: { sizeLimit: '1Gi', medium: 'Memory' } }] },
  },
  {
    what: 'a probe by its fields',
    base: container({ readinessProbe: { httpGet: { path: '/readyz', port: 7100 }, periodSeconds: 2 } }),
    given: named({ readinessProbe: { timeoutSeconds: 9 } }),
    merged: container({
      readinessProbe: { httpGet: { path: '/readyz', port: 7100 }, periodSeconds: 2, timeoutSeconds: 9 },
    }),
  },
  {
    what: 'a probe has one action',
    base: container({ readinessProbe: { httpGet: { path: '/readyz', port: 7100 }, periodSeconds: 2 } }),
    given: named({ readinessProbe: { exec: { command: ['true'] } } }),
    merged: container({ readinessProbe: { exec: { command: ['true'] }, periodSeconds: 2 } }),
    patch: named({ readinessProbe: { exec: { command: ['true'] }, httpGet: null } }),
  },
  {
    what: 'image pull secrets by name, host aliases by address',
    base: { imagePullSecrets: [{ name: 'a' }], hostAliases: [{ ip: '1.1.1.1', hostnames: ['x'] }] },
    given: {
      imagePullSecrets: [{ name: 'a' }, { name: 'b' }],
      hostAliases: [{ ip: '1.1.1.1', hostnames: ['y'] }],
    },
    merged: {
      imagePullSecrets: [{ name: 'a' }, { name: 'b' }],
      hostAliases: [{ ip: '1.1.1.1', hostnames: ['y'] }],
    },
  },
  {
    what: 'resources and selectors by name',
    base: {
      nodeSelector: { disk: 'fast' },
      ...container({ resources: { limits: { memory: '1Gi' }, requests: { cpu: '1' } } }),
    },
    given: { nodeSelector: { zone: 'a' }, ...named({ resources: { limits: { cpu: '2' } } }) },
    merged: {
      nodeSelector: { disk: 'fast', zone: 'a' },
      ...container({ resources: { limits: { memory: '1Gi', cpu: '2' }, requests: { cpu: '1' } } }),
    },
  },
];

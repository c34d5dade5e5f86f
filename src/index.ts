/** Public API of kintsugi-ps. */
export {
  type Client,
  type ConnectOptions,
  connect,
  type PullRequest,
  type PushCounts,
  type PushRequest,
  type RequestOptions,
  type Table,
  type TableOptions,
} from './client/client.js';
export { ERROR_CODES, type ErrorCode, KintsugiError } from './errors.js';
export type { InitializerSpec } from './native.js';
export { type OptimizerKind, type OptimizerSpec, optimizerOf } from './optimizers.js';
export type { ClusterMap, TableSpec } from './protocol/map.js';
export type {
  ChangeStatus,
  JobStatus,
  MoveStatus,
  NodeStatus,
  Redundancy,
  ScalingStatus,
} from './protocol/messages.js';
export { type LocalCluster, type LocalClusterOptions, startLocalCluster } from './runtime/cluster.js';
export type { Logger } from './runtime/log.js';
export { type ChangeOptions, drain, plannedMoves, rebalance, scale } from './tools/scaling.js';
export type {
  Batch,
  DenseTensor,
  Model,
  ModelFactory,
  ModelOptions,
  SparseTable,
  StepResult,
} from './train/trainer.js';
export type { ClientTls, RoleTls, ServerTls } from './transport/index.js';

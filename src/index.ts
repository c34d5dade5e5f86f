/**
 * The library of kintsugi-ps: connect to a job, pull rows and push gradients, look after the job, and train
 * models of your own.
 *
 * @packageDocumentation
 */

export { ERROR_CODES, type ErrorCode, KintsugiError } from './common/errors.js';
export type { ClientPolicy } from './core/client/client.js';
export type { Policy, SchedulerPolicy } from './core/shared/policy.js';
export { keyOf } from './data/keys.js';
export { parseSchema, readSchema } from './data/parse-schema.js';
export type {
  DenseColumn,
  KeyKind,
  Label,
  NumberedKeyKind,
  Pooling,
  Schema,
  SchemaTable,
  SparseColumn,
  TextEncoding,
  Transform,
} from './data/schema.js';
export {
  batchesOf,
  type Source,
  type SourceFactory,
  type SourceOptions,
  type SourcePart,
  type SourceRange,
} from './data/source.js';
export type { EngineTable, InitializerSpec } from './engine/native.js';
export {
  type OptimizerChanges,
  type OptimizerExtras,
  type OptimizerKind,
  type OptimizerSpec,
  optimizerOf,
} from './engine/optimizers.js';
export type {
  BloomPolicy,
  EvictionReason,
  FrequencyDecay,
  FrequencyPolicy,
  LifeCounts,
  TablePolicy,
} from './engine/policies.js';
export type { ScheduleKind, ScheduleSpec } from './engine/schedules.js';
export {
  type CheckpointResult,
  type Client,
  type ConnectOptions,
  connect,
  type EventsOptions,
  type EvictionBatch,
  type EvictionPosition,
  type EvictionsOptions,
  type JobSnapshot,
  type ObservedNode,
  type ObserveOptions,
  type PullInto,
  type PullOptions,
  type PullRequest,
  type PushCounts,
  type PushOptions,
  type PushRequest,
  type ReplicaAnswer,
  type ReplicaOptions,
  type RequestOptions,
  type RestoredLost,
  type RestoreLostOptions,
  type ScanBatch,
  type ScanOptions,
  type Table,
  type TableChanges,
  type TableOptions,
} from './library/client/client.js';
export { type Observable, Observer, type ObserverOptions } from './library/observe/observer.js';
export {
  type JobRates,
  type NodeRates,
  type OpRates,
  quantile,
  ratesBetween,
  type ServingRates,
  type ShardRates,
  type TableRates,
  type WorkerRates,
} from './library/observe/rates.js';
export { Export, type ExportOptions, type ExportStatus, openExport } from './library/serving/exports.js';
export { type ClientCounts, checkPushes, type PushAudit } from './library/tools/audit.js';
export { type Digest, digest } from './library/tools/digest.js';
export {
  type PlannedEvictions,
  type PlannedEvictionsOptions,
  plannedEvictions,
} from './library/tools/evictions.js';
export {
  type ImportOptions,
  type ImportProgress,
  type ImportResult,
  importRows,
} from './library/tools/import.js';
export { type LoadOptions, type LoadProgress, type LoadResult, load } from './library/tools/load.js';
export type { ParityCheck, SinkCheck } from './library/tools/parity.js';
export { type RestartedNode, type RestartOptions, restart } from './library/tools/restart.js';
export { type SaveOptions, type SaveProgress, type SaveResult, save } from './library/tools/save.js';
export { type ChangeOptions, drain, plannedMoves, rebalance, scale } from './library/tools/scaling.js';
export { type ScrubOptions, type ScrubReport, scrub } from './library/tools/scrub.js';
export {
  type ListTablesOptions,
  listTables,
  showTable,
  type TableInfo,
  type TableLife,
  type TablePage,
} from './library/tools/tables.js';
export type { LogFields, Logger } from './net/log.js';
export type { ClientTls, RoleTls, ServerTls } from './net/transport/index.js';
export type { SavedTable } from './protocol/checkpoints.js';
export type { EventFields, EventKind, JobEvent, ToldKind } from './protocol/events.js';
export type { Life } from './protocol/liveness.js';
export type {
  DataEntry,
  FrozenMap as ClusterMap,
  Group,
  NodeEntry,
  PeerId,
  Pool,
  SinkEntry,
  TableSpec,
} from './protocol/map.js';
export type {
  ChangeStatus,
  JobStatus,
  MoveStatus,
  NodeStatus,
  PlanStatus,
  RecoveryStats,
  Redundancy,
  ReplicaStatus,
  RestoreStatus,
  SavedCopy,
  ScalingStatus,
} from './protocol/messages.js';
export type { ServedRows } from './protocol/saving.js';
export type {
  BackgroundKind,
  Histogram,
  MemoryPart,
  MemoryTelemetry,
  NodeTelemetry,
  OpTelemetry,
  ProcessTelemetry,
  RunTelemetry,
  SchedulerTelemetry,
  SentKind,
  ShardTelemetry,
  SinkTelemetry,
  TableTelemetry,
  WorkerPhase,
  WorkerReport,
  WorkerTelemetry,
} from './protocol/telemetry.js';
export { type LocalCluster, type LocalClusterOptions, startLocalCluster } from './roles/cluster.js';
export type { Departed } from './roles/ps/departure.js';
export type { RunningPs } from './roles/ps/ps.js';
export type {
  Batch,
  DenseTensor,
  Model,
  ModelFactory,
  ModelOptions,
  SparseTable,
  SparseValues,
  StepResult,
} from './training/models/trainer.js';

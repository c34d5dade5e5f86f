/**
 * Every metric of every role, declared once: what roles give (`Readings`), what /metrics tells and
 * docs/metrics.md derive from it. Counters and durations are those that `observe` tells of
 * (src/protocol/telemetry.ts).
 */
export interface Metric {
  kind: 'gauge' | 'counter' | 'histogram';
  help: string;
  labels?: readonly string[];
  /** Name of the metric in the release before, under which it is told once more. */
  was?: string;
}

const REFUSED = {
  kind: 'counter',
  help: 'Messages that their sender had no right to send.',
  labels: ['kind'],
  was: 'kintsugi_refused_messages',
} as const;
const EPOCH = { kind: 'gauge', help: 'Epoch of the newest map.' } as const;
const CONNECTED = { kind: 'gauge', help: '1 while there is a connection to the scheduler.' } as const;
const AUTH_FAILURES = {
  kind: 'counter',
  help: 'Connections that were refused because they did not show the token of the job.',
} as const;

const SCHEDULER = {
  kintsugi_leads: { kind: 'gauge', help: '1 when this scheduler leads the job, 0 when it stands by.' },
  kintsugi_store_reachable: {
    kind: 'gauge',
    help: '1 when decisions become durable, 0 while the store cannot be reached.',
  },
  kintsugi_store_write_duration_seconds: {
    kind: 'histogram',
    help: 'Time until a decision was durable.',
  },
  kintsugi_epoch: EPOCH,
  kintsugi_nodes_alive: { kind: 'gauge', help: 'PS nodes that are alive.' },
  kintsugi_nodes_known: { kind: 'gauge', help: 'PS nodes of the map, dead ones included.' },
  kintsugi_node_up: {
    kind: 'gauge',
    help: '1 while this PS is alive, 0 when it is not and was not replaced by a process of its name.',
    labels: ['node', 'host'],
  },
  kintsugi_node_overloaded: {
    kind: 'gauge',
    help: '1 while this PS is overloaded: its event loop has turned late for `overloadedMs`, and still does.',
    labels: ['node', 'host'],
  },
  kintsugi_node_losses_total: { kind: 'counter', help: 'PS that were given up.' },
  kintsugi_redundant: { kind: 'gauge', help: '1 when every group can lose r nodes.' },
  kintsugi_redundancy: {
    kind: 'gauge',
    help: '1 for the state that the job is in: forming, full, recovering, degraded or lost.',
    labels: ['state'],
  },
  kintsugi_recovery_duration_seconds: {
    kind: 'histogram',
    help:
      'From the last sign of a PS until it was given up (detection). From there until the data shards that ' +
      'it had served again (keys), until all data shards had all their rows (data), and until every group ' +
      'could lose r nodes again (redundancy).',
    labels: ['phase'],
  },
  kintsugi_shards: {
    kind: 'gauge',
    help:
      'Data shards that have everything (whole), that lack blocks (recovering), and that are beyond repair ' +
      '(lost).',
    labels: ['state'],
  },
  kintsugi_unrecoverable_rows: { kind: 'gauge', help: 'Rows of data shards that are beyond repair.' },
  kintsugi_change_shards_left: {
    kind: 'gauge',
    help: 'Shards that are still to move for a scale, drain, rebalance or join.',
  },
  kintsugi_tables: { kind: 'gauge', help: 'Tables of the job.' },
  kintsugi_workers: { kind: 'gauge', help: 'Workers that report.', labels: ['run'] },
  kintsugi_run_samples_total: {
    kind: 'counter',
    help:
      'Samples that workers have pushed, by their reports; those of workers that are gone included. A ' +
      'scheduler that begins to lead knows those that report to it: its count begins anew, and jumps once.',
    labels: ['run'],
  },
  kintsugi_dataset_samples_total: {
    kind: 'counter',
    help: 'Samples of finished ranges, of all epochs.',
    labels: ['run'],
  },
  kintsugi_dataset_redone_samples_total: {
    kind: 'counter',
    help: 'Samples of batches that were begun again after a worker was lost.',
    labels: ['run'],
  },
  kintsugi_dataset_ranges: {
    kind: 'gauge',
    help: 'Ranges of samples that are finished, open, waiting or set aside.',
    labels: ['run', 'state'],
  },
  kintsugi_goodput: {
    kind: 'gauge',
    help: 'Seconds of compute in batches that counted once, as a part of the seconds that workers existed.',
    labels: ['run'],
  },
  kintsugi_checkpoint_number: {
    kind: 'gauge',
    help: 'Number of the newest checkpoint since the start, by save plan.',
    labels: ['kind'],
  },
  kintsugi_checkpoint_age_seconds: {
    kind: 'gauge',
    help: 'Time since it was complete, by save plan.',
    labels: ['kind'],
  },
  kintsugi_checkpoint_seconds: {
    kind: 'gauge',
    help: 'Time that it took, by save plan.',
    labels: ['kind'],
  },
  kintsugi_checkpoint_bytes: {
    kind: 'gauge',
    help: 'Bytes of its own files, by save plan.',
    labels: ['kind'],
  },
  kintsugi_checkpoint_failing: {
    kind: 'gauge',
    help: '1 when the newest attempt has failed, by save plan.',
    labels: ['kind'],
  },
  kintsugi_refused_messages_total: REFUSED,
  kintsugi_auth_failures_total: AUTH_FAILURES,
  kintsugi_build_info: {
    kind: 'gauge',
    help: '1, with the versions of this package and of Node, and the library that serves connections.',
    labels: ['version', 'node', 'transport'],
  },
} as const satisfies Record<string, Metric>;

const PS = {
  kintsugi_requests_total: {
    kind: 'counter',
    help: 'Pulls and pushes; one of each shard that a message names. The code is OK, or why it was refused.',
    labels: ['op', 'code'],
  },
  kintsugi_request_rows_total: {
    kind: 'counter',
    help: 'Rows that pulls and pushes named.',
    labels: ['op', 'table'],
  },
  kintsugi_request_duration_seconds: {
    kind: 'histogram',
    help: 'From the arrival of a request to its answer (pull), or to its being applied or refused (push).',
    labels: ['op'],
  },
  kintsugi_push_commit_duration_seconds: {
    kind: 'histogram',
    help: 'From a push being applied until all sinks had it.',
  },
  kintsugi_table_rows: { kind: 'gauge', help: 'Rows in the data shards of this node.', labels: ['table'] },
  kintsugi_table_removed_rows_total: {
    kind: 'counter',
    help:
      'Rows that went from the data shards of this node, of tables with a policy and tables of which rows ' +
      'were deleted: by ttl (expired), by minFrequency (below_frequency), by l2Below (below_norm), for new ' +
      'rows by maxRows or memory (for_room), or because somebody deleted them (deleted). Tables beyond the ' +
      'first hundred are summed in the table "(others)".',
    labels: ['table', 'reason'],
  },
  kintsugi_table_dropped_gradients_total: {
    kind: 'counter',
    help:
      'Gradients that changed nothing in the same tables: of rows that were not admitted yet, and of new ' +
      'rows for which a PS had no memory (memory of the policy).',
    labels: ['table', 'reason'],
  },
  kintsugi_owners: { kind: 'gauge', help: 'Data shards on this node.' },
  kintsugi_sinks: { kind: 'gauge', help: 'Parities and mirrors on this node.' },
  kintsugi_recovering_shards: { kind: 'gauge', help: 'Data shards that lack blocks.' },
  kintsugi_recovery_blocks_total: {
    kind: 'counter',
    help: 'Lost blocks that are there again: those that requests waited for, and others.',
    labels: ['source'],
  },
  kintsugi_move_bytes_total: { kind: 'counter', help: 'Bytes of blocks that planned moves brought here.' },
  kintsugi_memory_bytes: {
    kind: 'gauge',
    help:
      'Memory by class (ARCHITECTURE.md, "Memory of a PS"). unaccounted: resident memory beyond all ' +
      'classes and beyond that of the process when it joined.',
    labels: ['part'],
  },
  kintsugi_memory_limit_bytes: { kind: 'gauge', help: 'Limit of tables and parity; 0: none.' },
  kintsugi_memory_used_bytes: { kind: 'gauge', help: 'What counts against the limit.' },
  kintsugi_engine_bytes: {
    kind: 'gauge',
    help: 'As kintsugi_memory_used_bytes, with rows kept for a checkpoint; for one release more.',
  },
  kintsugi_uncommitted_bytes: { kind: 'gauge', help: 'Deltas that not all sinks have.' },
  kintsugi_sink_lag_bytes: {
    kind: 'gauge',
    help: 'The same of the data shard that has most of them: how far its slowest sink is behind.',
  },
  kintsugi_parked_requests: {
    kind: 'gauge',
    help: 'Requests that wait for lost blocks, for room, or for a newer map.',
  },
  kintsugi_background_rate_bytes: {
    kind: 'gauge',
    help: 'Bytes per second that recovery, planned moves and checkpoints may use while there are requests.',
    labels: ['kind'],
  },
  kintsugi_epoch: EPOCH,
  kintsugi_scheduler_connected: CONNECTED,
  kintsugi_network_sent_bytes_total: {
    kind: 'counter',
    help: 'Payload bytes sent to peers: answers, deltas, recovery, replicas, other.',
    labels: ['kind'],
  },
  kintsugi_sent_payload_bytes: {
    kind: 'gauge',
    help: 'The sum of kintsugi_network_sent_bytes_total; for one release more.',
  },
  kintsugi_sent_messages_total: {
    kind: 'counter',
    help: 'Messages sent to peers.',
    was: 'kintsugi_sent_messages',
  },
  kintsugi_sent_frames_total: {
    kind: 'counter',
    help: 'Frames that carried them.',
    was: 'kintsugi_sent_frames',
  },
  kintsugi_refused_messages_total: REFUSED,
  kintsugi_auth_failures_total: AUTH_FAILURES,
  kintsugi_checkpoint_files_total: {
    kind: 'counter',
    help: 'Files of checkpoints that were stored.',
    was: 'kintsugi_checkpoint_files',
  },
  kintsugi_checkpoint_file_bytes_total: {
    kind: 'counter',
    help: 'Bytes of these files.',
    was: 'kintsugi_checkpoint_file_bytes',
  },
  kintsugi_checkpoint_failed_files_total: {
    kind: 'counter',
    help: 'Files of checkpoints that could not be stored.',
    was: 'kintsugi_checkpoint_failed_files',
  },
  kintsugi_shard_requests_total: {
    kind: 'counter',
    help: 'Pulls and pushes of each data shard since this node owns it; with --metrics-per-shard.',
    labels: ['pool', 'shard'],
  },
  kintsugi_shard_bytes: {
    kind: 'gauge',
    help: 'Memory of each data shard on this node; with --metrics-per-shard.',
    labels: ['pool', 'shard'],
  },
} as const satisfies Record<string, Metric>;

const WORKER = {
  kintsugi_samples_total: { kind: 'counter', help: 'Samples trained.', was: 'kintsugi_samples' },
  kintsugi_loss: { kind: 'gauge', help: 'Loss over the newest batches.' },
  kintsugi_step_duration_seconds: {
    kind: 'histogram',
    help: 'What each batch waited for or took: to be read, its rows, the model, room for another push.',
    labels: ['phase'],
  },
  kintsugi_productive_seconds_total: {
    kind: 'counter',
    help: 'Seconds of compute in batches that nobody had begun before.',
  },
  kintsugi_wait_seconds_total: {
    kind: 'counter',
    help: 'Seconds in which the loop waited: to read, for rows, for room for another push, for a range.',
    labels: ['for'],
  },
  kintsugi_staleness_batches: { kind: 'gauge', help: 'Batches that are begun and not durable.' },
  kintsugi_pushes_in_flight: { kind: 'gauge', help: 'Pushes that are not durable yet.' },
  kintsugi_spool_lead_bytes: { kind: 'gauge', help: 'Bytes in the spool that no worker has taken.' },
} as const satisfies Record<string, Metric>;

const REPLICA = {
  kintsugi_followed_shards: { kind: 'gauge', help: 'Data shards that it is to hold.' },
  kintsugi_complete_shards: { kind: 'gauge', help: 'Those of which it has a state.' },
  kintsugi_lag_ms: {
    kind: 'gauge',
    help: 'Age of the oldest state of a shard in milliseconds, by pool; -1: it is not known.',
    labels: ['kind'],
  },
  kintsugi_lag_positions: {
    kind: 'gauge',
    help: 'Batches of shards that it knows of and does not have, by pool.',
    labels: ['kind'],
  },
  kintsugi_pulls_total: { kind: 'counter', help: 'Pulls that were answered.', was: 'kintsugi_pulls' },
  kintsugi_refused_pulls_total: {
    kind: 'counter',
    help: 'Pulls that were refused, by code.',
    labels: ['kind'],
    was: 'kintsugi_refused_pulls',
  },
  kintsugi_engine_bytes: { kind: 'gauge', help: 'Memory held by the engine in bytes.' },
  kintsugi_epoch: EPOCH,
  kintsugi_scheduler_connected: CONNECTED,
} as const satisfies Record<string, Metric>;

const OPERATOR = {
  kintsugi_operator_leads: { kind: 'gauge', help: '1 when this operator leads, 0 when it stands by.' },
  kintsugi_operator_jobs: { kind: 'gauge', help: 'Training jobs.', labels: ['phase'] },
  kintsugi_operator_passes_total: {
    kind: 'counter',
    help: 'Looks at a job that ended (done, or failed and repeated), while this operator leads.',
    labels: ['outcome'],
  },
  kintsugi_operator_waiting_jobs: { kind: 'gauge', help: 'Jobs whose next look is due, or waits its time.' },
  kintsugi_operator_api_requests_total: {
    kind: 'counter',
    help: 'Requests that the API server has answered, by verb and HTTP status.',
    labels: ['verb', 'status'],
  },
} as const satisfies Record<string, Metric>;

export const METRICS = {
  ...{ scheduler: SCHEDULER, ps: PS, worker: WORKER, replica: REPLICA },
  operator: OPERATOR,
} as const;

export type MetricRole = keyof typeof METRICS;
export type MetricName<R extends MetricRole> = keyof (typeof METRICS)[R] & string;

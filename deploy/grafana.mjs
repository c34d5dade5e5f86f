// Writes grafana.json, the dashboard of a job: `node deploy/grafana.mjs`. Rows: job, training, PS, recovery
// and data. Losses of PS are annotations. test/deploy compares the file with this, and has Prometheus
// evaluate every expression against a job in which a PS dies and the number of PS changes.
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const DATASOURCE = { type: 'prometheus', uid: `\${datasource}` };
const PER = '[$__rate_interval]';
const OF = 'instance=~"$instance"';
const [WIDTH, HEIGHT] = [8, 7];

/** An expression and what its lines are called. */
const line = (expr, legendFormat = '') => ({ expr, legendFormat });
const rate = (metric, by, labels = OF) => `sum by (${by}) (rate(${metric}{${labels}}${PER}))`;
const quantile = (part, metric, by) =>
  `histogram_quantile(${part}, sum by (le, ${by}) (rate(${metric}_bucket{${OF}}${PER})))`;
const mean = (metric, by) =>
  `sum by (${by}) (rate(${metric}_sum{${OF}}${PER})) / sum by (${by}) (rate(${metric}_count{${OF}}${PER}))`;

const REQUESTS = rate('kintsugi_requests_total', 'op');

/** Row -> panels: [title, unit, lines, description]. */
const ROWS = {
  Job: [
    [
      'Redundancy',
      'short',
      [line('kintsugi_redundancy', '{{state}}')],
      'The state with 1 is that of the job.',
    ],
    [
      'PS',
      'short',
      [line('kintsugi_nodes_alive', 'alive'), line('kintsugi_nodes_known', 'in the map')],
      'Those that are alive, and those of the map.',
    ],
    ['Shards', 'short', [line('kintsugi_shards', '{{state}}')], 'Data shards by what they have.'],
    [
      'Goodput',
      'percentunit',
      [line('kintsugi_goodput', '{{run}}')],
      'Compute that counted, of all seconds of workers.',
    ],
    [
      'Rows beyond repair',
      'short',
      [line('kintsugi_unrecoverable_rows', 'rows')],
      'Anything but 0 needs a person.',
    ],
    ['Workers', 'short', [line('kintsugi_workers', '{{run}}')], 'Those that report.'],
  ],
  Training: [
    [
      'Samples per second',
      'short',
      [line(rate('kintsugi_samples_total', 'name'), '{{name}}')],
      'Of each worker.',
    ],
    ['Loss', 'short', [line('kintsugi_loss', '{{name}}')], 'Over the newest batches.'],
    [
      'Seconds per step',
      's',
      [line(mean('kintsugi_step_duration_seconds', 'phase'), '{{phase}}')],
      'What a batch waits for or takes.',
    ],
    [
      'Part of the time that counts',
      'percentunit',
      [line(rate('kintsugi_productive_seconds_total', 'name'), '{{name}}')],
      'Compute in batches that nobody had begun before.',
    ],
    [
      'Waiting',
      'percentunit',
      [line(rate('kintsugi_wait_seconds_total', 'for'), '{{for}}')],
      'What loops wait for.',
    ],
    [
      'Batches that are not durable',
      'short',
      [line('kintsugi_staleness_batches', '{{name}}')],
      'Pulls may miss their gradients.',
    ],
  ],
  PS: [
    [
      'Requests per second',
      'reqps',
      [line(rate('kintsugi_requests_total', 'op'), '{{op}}')],
      'One for each shard that a message names.',
    ],
    [
      'Rows per second',
      'short',
      [line(rate('kintsugi_request_rows_total', 'op, table'), '{{op}} {{table}}')],
      '',
    ],
    [
      'Refused requests per second',
      'reqps',
      [line(`${REQUESTS} - ${rate('kintsugi_requests_total', 'op', `code="OK", ${OF}`)}`, '{{op}}')],
      'WRONG_OWNER, for a moment after each loss and move, is asked again elsewhere.',
    ],
    [
      'Durations of requests',
      's',
      [
        line(quantile(0.5, 'kintsugi_request_duration_seconds', 'op'), '{{op}} 50 %'),
        line(quantile(0.99, 'kintsugi_request_duration_seconds', 'op'), '{{op}} 99 %'),
      ],
      'On the PS, without the network.',
    ],
    [
      'Until a push is durable',
      's',
      [
        line(quantile(0.5, 'kintsugi_push_commit_duration_seconds', 'role'), '50 %'),
        line(quantile(0.99, 'kintsugi_push_commit_duration_seconds', 'role'), '99 %'),
      ],
      'From its being applied until all sinks have it.',
    ],
    [
      'CPU',
      'percentunit',
      [line(rate('process_cpu_seconds_total', 'name', `role="ps", ${OF}`), '{{name}}')],
      '1 is a whole core.',
    ],
    [
      'Memory',
      'bytes',
      [line(`sum by (part) (kintsugi_memory_bytes{${OF}})`, '{{part}}')],
      'By what it is used for.',
    ],
    [
      'Memory against the limit',
      'bytes',
      [
        line(`kintsugi_memory_used_bytes{${OF}}`, '{{name}}'),
        line(`max(kintsugi_memory_limit_bytes)`, 'limit'),
      ],
      'A limit of 0 is none.',
    ],
    [
      'Sent bytes per second',
      'Bps',
      [line(rate('kintsugi_network_sent_bytes_total', 'kind'), '{{kind}}')],
      'Payload by what it was for.',
    ],
    [
      'Deltas that not all sinks have',
      'bytes',
      [
        line(`sum(kintsugi_uncommitted_bytes{${OF}})`, 'all'),
        line(`max by (name) (kintsugi_sink_lag_bytes{${OF}})`, '{{name}}, worst shard'),
      ],
      'A slow sink shows here.',
    ],
    [
      'Requests that wait',
      'short',
      [line(`sum by (name) (kintsugi_parked_requests{${OF}})`, '{{name}}')],
      '',
    ],
    ['Rows', 'short', [line(`sum by (table) (kintsugi_table_rows{${OF}})`, '{{table}}')], 'In data shards.'],
    [
      'Hottest shards',
      'reqps',
      [line(`topk(10, ${rate('kintsugi_shard_requests_total', 'pool, shard')})`, '{{pool}} {{shard}}')],
      'Where PS are started with --metrics-per-shard.',
    ],
  ],
  Recovery: [
    ['Losses', 'short', [line(`increase(kintsugi_node_losses_total${PER})`, 'PS')], 'PS that were given up.'],
    [
      'PS that are up',
      'short',
      [line('kintsugi_node_up', '{{node}} on {{host}}')],
      '0: it is dead and not replaced.',
    ],
    [
      'Duration of recoveries',
      's',
      [
        line(
          'kintsugi_recovery_duration_seconds_sum / (kintsugi_recovery_duration_seconds_count > 0)',
          '{{phase}}, mean',
        ),
      ],
      'Until a PS was given up; from then until its shards served, had all rows, and were redundant.',
    ],
    ['Shards that lack blocks', 'short', [line(`sum(kintsugi_recovering_shards{${OF}})`, 'shards')], ''],
    [
      'Recovered blocks per second',
      'short',
      [line(rate('kintsugi_recovery_blocks_total', 'source'), '{{source}}')],
      'Those that requests waited for, and others.',
    ],
    [
      'Moves',
      'Bps',
      [line(`sum(rate(kintsugi_move_bytes_total{${OF}}${PER}))`, 'bytes per second')],
      'Of a scale, drain, rebalance or join.',
    ],
    ['Shards that are still to move', 'short', [line('kintsugi_change_shards_left', 'shards')], ''],
    [
      'What the background may use',
      'Bps',
      [line(`sum by (kind) (kintsugi_background_rate_bytes{${OF}})`, '{{kind}}')],
      'While there are requests.',
    ],
  ],
  Data: [
    ['Ranges of samples', 'short', [line('kintsugi_dataset_ranges', '{{run}} {{state}}')], ''],
    [
      'Samples',
      'short',
      [
        line('kintsugi_dataset_samples_total', '{{run}} finished'),
        line('kintsugi_dataset_redone_samples_total', '{{run}} begun again'),
      ],
      'Of finished ranges, and those that lost workers had begun.',
    ],
    ['Age of the newest checkpoint', 's', [line('kintsugi_checkpoint_age_seconds', '{{kind}}')], ''],
    [
      'Checkpoints that fail',
      'short',
      [line('kintsugi_checkpoint_failing', '{{kind}}')],
      '1 when the newest attempt has failed.',
    ],
    [
      'Until a decision is durable',
      's',
      [line(quantile(0.99, 'kintsugi_store_write_duration_seconds', 'role'), '99 %')],
      'Of the scheduler.',
    ],
  ],
};

function panelsOf(rows) {
  const panels = [];
  let y = 0;
  for (const [title, own] of Object.entries(rows)) {
    panels.push({ type: 'row', title, collapsed: false, gridPos: { h: 1, w: 24, x: 0, y }, panels: [] });
    y += 1;
    for (const [i, [name, unit, lines, description]] of own.entries()) {
      panels.push({
        type: 'timeseries',
        title: name,
        description,
        datasource: DATASOURCE,
        gridPos: { h: HEIGHT, w: WIDTH, x: (i % 3) * WIDTH, y: y + Math.floor(i / 3) * HEIGHT },
        fieldConfig: { defaults: { unit, min: 0, custom: { fillOpacity: 8, lineWidth: 1 } }, overrides: [] },
        options: { legend: { displayMode: 'list', placement: 'bottom' }, tooltip: { mode: 'multi' } },
        targets: lines.map((each, n) => ({
          refId: String.fromCharCode(65 + n),
          datasource: DATASOURCE,
          ...each,
        })),
      });
    }
    y += Math.ceil(own.length / 3) * HEIGHT;
  }
  return panels.map((panel, i) => ({ id: i + 1, ...panel }));
}

const instance = 'label_values(kintsugi_scheduler_connected, instance)';

export const dashboard = {
  title: 'Kintsugi',
  uid: 'kintsugi',
  tags: ['kintsugi'],
  schemaVersion: 39,
  editable: true,
  graphTooltip: 1,
  refresh: '10s',
  time: { from: 'now-30m', to: 'now' },
  templating: {
    list: [
      { name: 'datasource', label: 'Data source', type: 'datasource', query: 'prometheus' },
      {
        name: 'instance',
        label: 'PS or worker',
        type: 'query',
        datasource: DATASOURCE,
        definition: instance,
        query: { query: instance, refId: 'instance' },
        includeAll: true,
        multi: true,
        allValue: '.*',
        current: { text: 'All', value: '$__all' },
        refresh: 2,
      },
    ],
  },
  annotations: {
    list: [
      {
        name: 'Losses of PS',
        datasource: DATASOURCE,
        enable: true,
        iconColor: 'red',
        expr: 'increase(kintsugi_node_losses_total[$__rate_interval]) > 0',
        titleFormat: 'A PS was lost',
      },
    ],
  },
  panels: panelsOf(ROWS),
};

export const text = `${JSON.stringify(dashboard, null, 2)}\n`;

const path = fileURLToPath(new URL('grafana.json', import.meta.url));
if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(path, text);

/** `kintsugi status`: nodes, shards, redundancy and recoveries of a running job. */
import { type Command, Option } from 'commander';
import { bytesText, harmless, percentText, table, timeText } from '../fleet/local/text.js';
import type {
  ChangeStatus,
  JobStatus,
  NodeStatus,
  PlanStatus,
  ReplicaStatus,
  RestoreStatus,
} from '../protocol/messages.js';
import { agesText, missingProblem, type ServedRows, unfitProblem } from '../protocol/saving.js';
import type { SavedCopy } from '../protocol/status.js';
import { askStatus } from '../roles/ask-status.js';
import type { ConnectFlags } from './connected.js';
import { clientTlsOf, DEFAULT_SCHEDULER, tokenOf, withScheduler } from './flags.js';
import { hint } from './hints.js';
import { progressLine } from './scale.js';
import {
  lifeLines,
  looked,
  type SizedTables,
  sizedTables,
  TABLES_SHOWN,
  type TableLives,
  tableLines,
  tableLives,
  tablesAsked,
  withLives,
} from './status-tables.js';

interface StatusFlags extends ConnectFlags {
  tables: number;
  json: boolean;
}

/** Details of {@link renderStatus}. */
export interface StatusShown {
  /** Flags for commands that are named. Default: those of a job on this machine. */
  flags?: ConnectFlags;
  /** Tables that are shown at most. Default: 20. */
  tables?: number;
  /** Sizes of the tables, if there are more of them. */
  sized?: SizedTables | undefined;
  /** Rows that went from the tables. */
  lives?: TableLives | undefined;
}

function stateOf(node: NodeStatus, leaving: ReadonlySet<string>): string {
  if (!node.alive) return 'dead';
  if (leaving.has(node.name)) return 'leaving';
  return node.standby ? 'standby' : 'alive';
}

function changeLine(change: ChangeStatus): string {
  const numbers = change.from === change.to ? '' : ` from ${change.from} to ${change.to} PS`;
  return `  ${change.kind}${numbers}: ${progressLine(change) ?? 'beginning'}`;
}

function restoreLine({ url, number, onlyLost, atLeastOnce, shardsLeft, failure }: RestoreStatus): string {
  const why = failure ? `: ${failure.code}: ${failure.message}` : '';
  const lost = onlyLost ? 'lost shards from ' : '';
  const again = atLeastOnce ? '; some samples are trained again' : '';
  return `loading ${lost}checkpoint ${number} of ${url}, ${shardsLeft} shards are left${again}${why}`;
}

/** A save plan: its place, the age of its newest checkpoint, why there is no newer one, and what it lacks. */
function planLine(plan: PlanStatus, { tables }: JobStatus): string {
  const { name, url, everyMs, last, underWay, failure } = plan;
  const parts = [everyMs === 0 ? `to ${url} when asked for` : `to ${url} every ${timeText(everyMs)}`];
  if (last) {
    const { number, bytes, tookMs, agoMs } = last;
    parts.push(`${number} (${bytesText(bytes)} in ${timeText(tookMs)}) ${timeText(agoMs)} ago`);
  } else parts.push('none yet');
  if (underWay) parts.push(`${underWay.number} has ${underWay.saved} of ${underWay.shards} shards`);
  if (failure) parts.push(`${failure.number} failed: ${failure.code}: ${failure.message}`);
  const missing = missingProblem(plan.tables, tables);
  if (missing !== undefined) parts.push(missing);
  return `${name} ${parts.join('; ')}`;
}

function replicaRow(replica: ReplicaStatus, unfit: string | undefined): string[] {
  const { address, share, tables, served, shards, lagMs, behind } = replica;
  const ready = unfit === undefined ? replica.complete : 0;
  const lag = lagMs === Number.MAX_SAFE_INTEGER ? 'unknown' : timeText(lagMs);
  const part = `${share[0]}/${share[1]}`;
  const names = tables?.join(',') ?? 'all';
  return [address, part, names, rowsText(served), `${ready}`, `${shards}`, lag, `${behind}`];
}

/** Rows that a replica serves, as its flags say it. */
function rowsText(served: ServedRows = {}): string {
  const { minFrequency } = served;
  const age = agesText(served);
  const parts = [
    ...(minFrequency === undefined ? [] : [`min-frequency ${minFrequency}`]),
    ...(age === undefined ? [] : [`max-age ${age}`]),
  ];
  return parts.length > 0 ? parts.join(', ') : 'all';
}

const LOCAL: ConnectFlags = { scheduler: DEFAULT_SCHEDULER, connectTimeout: 0 };

/** Text for people; programs use --json. */
export function renderStatus(status: JobStatus, shown: StatusShown = {}): string {
  const { flags = LOCAL, tables = TABLES_SHOWN, sized, lives } = shown;
  const lines = [`job ${status.job}  map epoch ${status.epoch}  redundancy ${status.redundancy}`];
  for (const reason of status.reasons) lines.push(`  ${reason}`);
  for (const warning of status.warnings) lines.push(`  warning: ${warning}`);
  const running = status.scaling.changes.filter((change) => change.state === 'running');
  for (const change of running) lines.push(changeLine(change));
  if (status.restoring) lines.push(`  ${restoreLine(status.restoring)}`);
  for (const plan of status.saving ?? []) lines.push(`  ${planLine(plan, status)}`);
  const leaving = new Set(running.flatMap((change) => change.leaving));
  lines.push('');
  const nodes = status.nodes.map((node) => [
    node.name,
    node.host,
    node.address,
    stateOf(node, leaving),
    node.overloaded ? `${node.life}, overloaded` : node.life,
    `${node.dataShards}`,
    `${node.parityShards}`,
    // A scheduler that took the job over has not heard of this node yet.
    ...(node.reported === false ? ['not known yet', '-'] : [`${node.rows}`, bytesText(node.bytes)]),
  ]);
  lines.push(
    ...table(['node', 'host', 'address', 'state', 'life', 'data', 'parity', 'rows', 'memory'], nodes, 5),
    '',
  );
  const pools = status.pools.map((pool) => [pool.name, pool.code, `${pool.groups}`, `${pool.shards}`]);
  lines.push(...table(['pool', 'code', 'groups', 'shards'], pools, 2), '');
  const listed = tableLines(status, tables, sized, flags);
  if (listed.length > 0) lines.push(...listed, '');
  const gone = lifeLines(lives, tables);
  if (gone.length > 0) lines.push(...gone, '');
  const known = (status.replicas ?? []).map((each) => [each, unfitProblem(each, status.tables)] as const);
  const replicas = known.map(([each, unfit]) => replicaRow(each, unfit));
  const misfits = known.flatMap(([{ address }, unfit]) =>
    unfit === undefined ? [] : [`replica ${address} is not ready: ${unfit}`],
  );
  const heads = ['replica', 'share', 'tables', 'rows', 'ready', 'shards', 'lag', 'batches behind'];
  if (replicas.length > 0) lines.push(...table(heads, replicas, 4), ...misfits, '');
  const recovering = status.recoveries.filter((each) => each.blocksPresent < each.blocksLost);
  for (const { g, m, blocksLost, blocksPresent, blocksOnDemand } of recovering) {
    const done = percentText(blocksPresent / Math.max(1, blocksLost));
    lines.push(
      `recovering group ${g} shard ${m}: ${done} of ${blocksLost} blocks, ${blocksOnDemand} on demand`,
    );
  }
  for (const { g, m, blocks, rows, checkpoint } of status.unrecoverable) {
    lines.push(`beyond repair: group ${g} shard ${m}, ${blocks} blocks, ${rows} rows`);
    if (checkpoint) lines.push(`  ${copyLine(checkpoint, flags)}`);
  }
  return `${lines.join('\n').trimEnd()}\n`;
}

function copyLine({ url, number, rows, agoMs }: SavedCopy, flags: ConnectFlags): string {
  const from = `checkpoint ${number} has ${rows} rows of it, ${timeText(agoMs)} old`;
  return `${from}: ${hint(['restore', `${url}@${number}`, '--only-lost'], flags)}`;
}

async function run(flags: StatusFlags): Promise<void> {
  const status = await askStatus({
    scheduler: flags.scheduler,
    token: tokenOf(flags),
    tls: clientTlsOf(flags),
    connectTimeoutMs: flags.connectTimeout,
  });
  const look = await looked(status, flags);
  const lives = tableLives(look);
  if (flags.json) {
    process.stdout.write(`${JSON.stringify(withLives(status, lives), null, 2)}\n`);
    return;
  }
  const { tables } = flags;
  const sized = status.tables.length > tables ? sizedTables(look) : undefined;
  process.stdout.write(harmless(renderStatus(status, { flags, tables, sized, lives })));
}

export function registerStatus(program: Command): void {
  withScheduler(
    program.command('status').description('Show nodes, shards, redundancy and recoveries of a running job.'),
  )
    .addOption(
      new Option('--tables <n>', 'tables that are shown, the largest ones where there are more; or "all"')
        .argParser(tablesAsked)
        .default(TABLES_SHOWN),
    )
    .option('--json', 'print JSON, with all tables', false)
    .action(run);
}

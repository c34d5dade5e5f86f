/** The screen of `kintsugi top`: a pure function of two looks at a job and of its newest events. */

import { bytesText, countText, harmless, percentText, table, timeText } from '../fleet/local/text.js';
import { isAuditTable } from '../library/client/audit.js';
import type { JobSnapshot } from '../library/client/observe.js';
import type { JobRates, OpRates, WorkerRates } from '../library/observe/rates.js';
import type { JobEvent } from '../protocol/events.js';
import type { NodeStatus } from '../protocol/messages.js';
import { WORKER_PHASES } from '../protocol/telemetry.js';
import { eventLine } from './events.js';
import { progressLine } from './scale.js';

const rate = (value: number): string => (value > 0 && value < 10 ? value.toFixed(1) : countText(value));
/** Times below 10 ms have a digit more: most pulls take less than a millisecond. */
function secondsText(seconds: number | undefined): string {
  if (seconds === undefined) return '-';
  return seconds < 0.01 ? `${(seconds * 1000).toFixed(1)} ms` : timeText(seconds * 1000);
}
const latency = ({ p50Seconds, p99Seconds }: OpRates): string =>
  `${secondsText(p50Seconds)} / ${secondsText(p99Seconds)}`;

/** Lines of any width. */
export function screenOf(
  { status, nodes, missing, workers }: JobSnapshot,
  rates: JobRates,
  events: readonly JobEvent[] = [],
): string[] {
  const { job } = rates;
  const alive = status.nodes.filter((node) => node.alive).length;
  const away = status.nodes.length - alive;
  const lines = [
    `job ${status.job}  epoch ${status.epoch}  redundancy ${status.redundancy}  ` +
      `${alive} PS${away > 0 ? ` and ${away} dead` : ''}  ${workers.length} workers`,
    `${rate(job.samplesPerSecond)} samples/s  ${job.cpus.toFixed(1)} processors  ` +
      `${bytesText(job.sentBytesPerSecond)}/s sent`,
    `${rate(job.pull.requestsPerSecond)} pulls/s, ${latency(job.pull)}  ` +
      `${rate(job.push.requestsPerSecond)} pushes/s, ${latency(job.push)}, ` +
      `durable ${secondsText(job.commitP50Seconds)} / ${secondsText(job.commitP99Seconds)}`,
  ];
  for (const reason of status.reasons.slice(0, 4)) lines.push(`  ${reason}`);
  if (status.reasons.length > 4) lines.push(`  and ${status.reasons.length - 4} groups more`);
  for (const warning of status.warnings) lines.push(`  warning: ${warning}`);
  for (const name of missing) lines.push(`  ${name} does not answer`);
  for (const change of status.scaling.changes)
    if (change.state === 'running') lines.push(`  ${change.kind}: ${progressLine(change) ?? 'beginning'}`);
  const telemetry = new Map(nodes.map((node) => [node.id, node.telemetry]));
  const byNode = new Map(rates.nodes.map((node) => [node.id, node]));
  const nodeRow = (node: NodeStatus): string[] => {
    const [now, seen] = [telemetry.get(node.id), byNode.get(node.id)];
    const limit = now?.memory.limitBytes ?? 0;
    return [
      ...[node.name, node.host, node.alive ? (node.standby ? 'standby' : 'alive') : 'dead'],
      `${node.dataShards}+${node.parityShards}`,
      ...[countText(node.rows), bytesText(now?.memory.usedBytes ?? node.bytes)],
      limit > 0 ? percentText(now!.memory.usedBytes / limit) : '-',
      seen ? seen.cpus.toFixed(2) : '-',
      seen ? rate(seen.pull.requestsPerSecond) : '-',
      seen ? secondsText(seen.pull.p99Seconds) : '-',
      seen ? rate(seen.push.requestsPerSecond) : '-',
      seen ? secondsText(seen.commitP99Seconds) : '-',
      now ? bytesText(now.sinkLagBytes) : '-',
    ];
  };
  const nodeHeads = ['PS', 'host', 'state', 'shards', 'rows', 'memory', 'full', 'cpu'];
  const loadHeads = ['pulls/s', 'p99', 'pushes/s', 'durable p99', 'lag'];
  lines.push('', ...table([...nodeHeads, ...loadHeads], status.nodes.map(nodeRow), 3));
  if (rates.workers.length > 0) {
    const heads = ['worker', 'run', 'samples/s', ...WORKER_PHASES, 'cpu', 'productive', 'idle'];
    lines.push('', ...table(heads, rates.workers.map(workerRow), 2));
  }
  const tables = rates.tables.filter(({ name }) => !isAuditTable(name));
  if (tables.length > 0) {
    const rows = tables.map((each) => [
      ...[each.name, countText(each.rows), rate(each.rowsPerSecond)],
      ...[rate(each.pulledRowsPerSecond), rate(each.pushedRowsPerSecond)],
    ]);
    lines.push('', ...table(['table', 'rows', 'new/s', 'pulled/s', 'pushed/s'], rows, 1));
  }
  if (events.length > 0) lines.push('', ...events.map(eventLine));
  return lines.map((line) => harmless(line.replaceAll('\n', ' ')));
}

function workerRow(worker: WorkerRates): string[] {
  return [
    ...[worker.name, worker.run, rate(worker.samplesPerSecond)],
    ...WORKER_PHASES.map((phase) => secondsText(worker.stepSeconds[phase])),
    worker.cpus.toFixed(2),
    ...[percentText(worker.productiveRatio), percentText(worker.idleRatio)],
  ];
}

/** Draws the lines over the old ones without clearing the screen, so that nothing flickers. */
export function inPlace(lines: readonly string[], columns: number, rows: number): string {
  const shown = lines.slice(0, Math.max(1, rows - 1));
  return `\x1b[H${shown.map((line) => `${line.slice(0, columns)}\x1b[K`).join('\n')}\x1b[J`;
}

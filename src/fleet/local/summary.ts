/** The end of a run in a few lines for a person. */
import type { AutoscaleReport } from './autoscale.js';
import type { RestoredReport } from './checkpoints.js';
import { goodputLine } from './goodput.js';
import { checkpointLines } from './killed.js';
import type { ReportedFailure, RunReport, ScalingReport, TableReport } from './report.js';
import type { SamplesReport } from './samples.js';
import type { SavedReport } from './saving.js';
import { bytesText, countText, lifeText, percentText, table, timeText } from './text.js';

function orDash(value: number | null, text: (value: number) => string): string {
  return value === null ? '-' : text(value);
}

function failureLines(failures: readonly ReportedFailure[]): string[] {
  if (failures.length === 0) return [];
  const rows = failures.map((failure) => [
    failure.node,
    `${failure.atSeconds.toFixed(1)} s`,
    orDash(failure.detectedMs, timeText),
    orDash(failure.keysReadyMs, timeText),
    orDash(failure.firstServedMs, timeText),
    orDash(failure.redundantMs, timeText),
    countText(failure.blocksLost),
    countText(failure.blocksDecodedOnDemand),
    orDash(failure.meanThroughputRatio, percentText),
  ]);
  const head = [
    'lost',
    'at',
    'detected',
    'keys ready',
    'first served',
    'redundant',
    'blocks',
    'on demand',
    'throughput',
  ];
  return ['', ...table(head, rows, 1)];
}

function scalingLines(scalings: readonly ScalingReport[]): string[] {
  if (scalings.length === 0) return [];
  const rows = scalings.map((scaling) => [
    `${scaling.from} to ${scaling.to} PS`,
    `${scaling.at.toFixed(1)} s`,
    `${scaling.seconds.toFixed(2)} s`,
    countText(scaling.shardsMoved),
    percentText(scaling.shareMoved),
    bytesText(scaling.bytesMoved),
    orDash(scaling.worstWindow, percentText),
    scaling.ok ? 'yes' : 'no',
  ]);
  const head = ['scaled', 'at', 'took', 'shards', 'share', 'bytes', 'worst second', 'done'];
  return ['', ...table(head, rows, 1)];
}

function autoscaleLines(decisions: readonly AutoscaleReport[] | null): string[] {
  if (!decisions) return [];
  if (decisions.length === 0) return ['', 'the autoscaler has decided nothing'];
  const rows = decisions.map(({ at, decision, seconds, problem }) => [
    `${at.toFixed(1)} s`,
    problem === null ? orDash(seconds, (value) => `${value.toFixed(2)} s`) : 'failed',
    problem === null ? decision : `${decision}; ${problem}`,
  ]);
  return ['', ...table(['at', 'took', 'the autoscaler decided'], rows, 3)];
}

function samplesLine({ inFiles, epochs, trained, redone, setAside, exactlyOnce }: SamplesReport): string {
  const verdict =
    exactlyOnce === null ? 'not audited' : exactlyOnce ? 'each exactly once' : 'NOT exactly once';
  const counts = `${countText(trained)} of ${countText(inFiles)} x ${epochs} trained, ${verdict}`;
  return `samples     ${counts}, ${countText(redone)} redone, ${setAside} ranges set aside`;
}

function restoredLines(restored: RestoredReport | null): string[] {
  if (!restored) return [];
  const { number, place, samples, bytes, seconds, atLeastOnce } = restored;
  const took = orDash(seconds, (value) => timeText(value * 1000));
  const content = `${countText(samples)} samples, ${bytesText(bytes)} in ${took}`;
  const again = atLeastOnce ? '; what came after it began may be trained twice' : '';
  return [`restored    checkpoint ${number} of ${place}: ${content}${again}`];
}

function savedLines(saved: SavedReport | null): string[] {
  if (!saved) return [];
  const { place, code, message } = saved;
  return [`saved       ${code === null ? `in ${place}` : `nothing in ${place}: ${code}: ${message}`}`];
}

function lifeLine({ name, rows, ...life }: TableReport): string {
  return `rows        ${countText(rows)} in table ${name}; ${lifeText(life)}`;
}

export function renderSummary(report: RunReport): string {
  const { pushes, parity, failures, crashes } = report;
  const loss = orDash(report.trainLoss, (value) => value.toFixed(4));
  const lines = [
    `trained ${countText(report.samples.trained)} samples in ${report.seconds.toFixed(1)} s ` +
      `(${countText(report.samplesPerSecond)}/s), loss ${loss}`,
  ];
  if (report.testAuc !== null) {
    lines.push(
      `test AUC ${report.testAuc.toFixed(4)}, ` +
        `log loss ${orDash(report.testLogLoss, (value) => value.toFixed(4))}`,
    );
  }
  lines.push(
    ...failureLines(failures),
    ...crashes.map(({ atSeconds, message }) => `crashed     at ${atSeconds.toFixed(1)} s: ${message}`),
    ...scalingLines(report.scalings),
    ...autoscaleLines(report.autoscale),
    '',
  );
  const audit = pushes.lost === null ? 'not audited' : `${pushes.lost} lost, ${pushes.duplicated} duplicated`;
  lines.push(
    samplesLine(report.samples),
    goodputLine(report.goodput),
    `pushes      ${countText(pushes.acked)} acknowledged, ${audit}`,
    `parity      ${countText(parity.blocksChecked)} of ${countText(parity.blocksExpected)} blocks checked, ` +
      `${parity.mismatched} mismatched, ${countText(parity.blocksUnprotected)} unprotected`,
    `redundancy  ${report.redundancy}`,
    ...checkpointLines(report.checkpoints),
    ...restoredLines(report.restored),
    ...savedLines(report.saved),
    `digest      ${report.digest} over ${countText(report.rows)} rows`,
    ...report.tables.map(lifeLine),
    `nodes       ${report.nodes.map((node) => `${node.id} ${bytesText(node.bytes)}`).join(', ')}`,
  );
  return `${lines.join('\n')}\n`;
}

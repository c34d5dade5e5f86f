/**
 * Throughput over time as one HTML file with an inline SVG: no scripts, no fonts, nothing loaded, readable in
 * light and dark. Pure: from a run's events to text.
 */
import type { RoleEvent } from './events.js';
import {
  type KillRecord,
  progressPoints,
  type ReportedFailure,
  type RunReport,
  trainingSpan,
} from './report.js';
import { bytesText, countText, percentText, timeText } from './text.js';
import { Throughput } from './throughput.js';

const WIDTH = 960;
const HEIGHT = 400;
const MARGIN = { top: 48, right: 24, bottom: 52, left: 84 };
const PLOT = { width: WIDTH - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom };
/**
 * A point every STEP_MS, each the mean over SPAN_MS: fine enough to see a dip, wide enough not to show every
 * batch.
 */
const STEP_MS = 100;
const SPAN_MS = 500;

export interface Picture {
  report: RunReport;
  events: readonly RoleEvent[];
  kills: readonly KillRecord[];
  /** The run, in one line. */
  subtitle: string;
}

interface PictureScale {
  /** Seconds and samples per second at the ends of the axes. */
  maxX: number;
  maxY: number;
}

const x = (scale: PictureScale, seconds: number) =>
  (MARGIN.left + (seconds / scale.maxX) * PLOT.width).toFixed(1);
const y = (scale: PictureScale, rate: number) =>
  (MARGIN.top + (1 - rate / scale.maxY) * PLOT.height).toFixed(1);

export function escapeHtml(text: string): string {
  const entities: Record<string, string> = {
    '&': '&amp;',
    '<': '&lt;',
    '>': '&gt;',
    '"': '&quot;',
    "'": '&#39;',
  };
  return text.replace(/[&<>"']/g, (character) => entities[character]!);
}

/** About `count` round steps up to at least `max`: 1, 2 or 5 times a power of ten. */
export function ticks(max: number, count: number): number[] {
  const raw = Math.max(max, 1e-9) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = ([1, 2, 5, 10].find((factor) => factor * power >= raw) ?? 10) * power;
  const values: number[] = [];
  for (let index = 0; (index - 1) * step < max; index++) values.push(index * step);
  return values;
}

function axes(scale: PictureScale, maxSeconds: number): string {
  const bottom = MARGIN.top + PLOT.height;
  const parts: string[] = [];
  for (const value of ticks(scale.maxY, 5).filter((tick) => tick <= scale.maxY)) {
    const at = y(scale, value);
    parts.push(
      `<line class="grid" x1="${MARGIN.left}" x2="${MARGIN.left + PLOT.width}" y1="${at}" y2="${at}"/>`,
      `<text class="tick" x="${MARGIN.left - 8}" y="${at}" dy="4" text-anchor="end">` +
        `${countText(value)}</text>`,
    );
  }
  for (const value of ticks(maxSeconds, 10).filter((tick) => tick <= maxSeconds)) {
    const label = Number(value.toFixed(3));
    parts.push(
      `<text class="tick" x="${x(scale, value)}" y="${bottom + 18}" text-anchor="middle">${label}</text>`,
    );
  }
  parts.push(
    `<line class="axis" x1="${MARGIN.left}" x2="${MARGIN.left + PLOT.width}" y1="${bottom}" y2="${bottom}"/>`,
    `<text class="label" x="${MARGIN.left + PLOT.width / 2}" y="${HEIGHT - 10}" text-anchor="middle">` +
      'seconds since training began</text>',
    `<text class="label" transform="translate(18 ${MARGIN.top + PLOT.height / 2}) rotate(-90)" ` +
      'text-anchor="middle">samples per second</text>',
  );
  return parts.join('\n');
}

/** The span from the failure to redundancy, with a line and a label at its start. */
function failureMark(scale: PictureScale, failure: ReportedFailure, row: number): string {
  const from = failure.atSeconds;
  const to =
    failure.redundantMs === null ? scale.maxX : Math.min(scale.maxX, from + failure.redundantMs / 1000);
  const left = Number(x(scale, from));
  const right = Number(x(scale, to));
  // A label that would leave the picture goes to the other side of its line.
  const flip = left > MARGIN.left + PLOT.width * 0.6;
  const end =
    failure.redundantMs === null ? 'not redundant again' : `redundant after ${timeText(failure.redundantMs)}`;
  const text = escapeHtml(`${failure.node} killed; ${end}`);
  const labelX = flip ? left - 6 : left + 6;
  const labelY = MARGIN.top - 10 - row * 16;
  const width = Math.max(1, right - left).toFixed(1);
  const [top, bottom] = [MARGIN.top, MARGIN.top + PLOT.height];
  return [
    `<rect class="recovery" x="${left}" y="${top}" width="${width}" height="${PLOT.height}"/>`,
    `<line class="failure" x1="${left}" x2="${left}" y1="${top - 16 - row * 16}" y2="${bottom}"/>`,
    failure.redundantMs === null
      ? ''
      : `<line class="redundant" x1="${right}" x2="${right}" y1="${top}" y2="${bottom}"/>`,
    `<text class="mark" x="${labelX}" y="${labelY}" text-anchor="${flip ? 'end' : 'start'}">${text}</text>`,
  ].join('\n');
}

/** The SVG alone. */
function throughputSvg(picture: Picture): string {
  const span = trainingSpan(picture.events) ?? { start: 0, end: 1 };
  const throughput = new Throughput(progressPoints(picture.events));
  const seconds = Math.max(0.001, (span.end - span.start) / 1000);
  const points: { seconds: number; rate: number }[] = [];
  for (let at = span.start; at <= span.end; at += STEP_MS) {
    const from = Math.max(span.start, at - SPAN_MS / 2);
    const to = Math.min(span.end, at + SPAN_MS / 2);
    points.push({ seconds: (at - span.start) / 1000, rate: throughput.rate(from, to) });
  }
  const top = points.reduce((most, { rate }) => Math.max(most, rate), 1);
  // Recovery may end after training has: the axis shows both.
  const ends = picture.report.failures.map(
    (failure) => failure.atSeconds + (failure.redundantMs ?? 0) / 1000,
  );
  const maxX = Math.max(seconds, ...ends);
  const scale: PictureScale = { maxX, maxY: ticks(top, 5).at(-1)! };
  const line = points.map(({ seconds: at, rate }) => `${x(scale, at)},${y(scale, rate)}`).join(' ');
  const marks = picture.report.failures.map((failure, index) => failureMark(scale, failure, index % 2));
  return [
    `<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="Training throughput over time">`,
    ...marks,
    axes(scale, maxX),
    `<polyline class="throughput" points="${line}"/>`,
    '</svg>',
  ].join('\n');
}

const STYLE = `
:root { color-scheme: light dark; --back: #fbfaf7; --text: #22252a; --faint: #6b7078; --grid: #e2e0da;
  --line: #1d5fa8; --gold: #b8860b; --band: #b8860b2e; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --back: #16181c; --text: #e6e4df; --faint: #9aa0a8;
  --grid: #2d3138; --line: #7db4f0; --gold: #e0b252; --band: #e0b25233; --bad: #ff8a80; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0; } p { margin: .3rem 0 1rem; color: var(--faint); }
svg { width: 100%; height: auto; display: block; } text { fill: var(--text); font-size: 13px; }
.tick { fill: var(--faint); font-size: 12px; } .grid { stroke: var(--grid); } .axis { stroke: var(--faint); }
.throughput { fill: none; stroke: var(--line); stroke-width: 2; stroke-linejoin: round; }
.recovery { fill: var(--band); } .failure { stroke: var(--bad); stroke-width: 2; }
.redundant { stroke: var(--gold); stroke-width: 2; stroke-dasharray: 5 4; } .mark { font-weight: 600; }
table { border-collapse: collapse; margin-top: 1rem; }
td { padding: .2rem 1.2rem .2rem 0; vertical-align: top; }
td:first-child { color: var(--faint); }
`;

function facts({ report }: Picture): [string, string][] {
  const rows: [string, string][] = [
    [
      'trained',
      `${countText(report.samples.trained)} samples in ${report.seconds.toFixed(1)} s, ` +
        `${countText(report.samplesPerSecond)} per second`,
    ],
  ];
  if (report.testAuc !== null) rows.push(['test AUC', report.testAuc.toFixed(4)]);
  for (const failure of report.failures) {
    const ms = (value: number | null) => (value === null ? '-' : timeText(value));
    rows.push([
      `${failure.node} killed`,
      `noticed after ${ms(failure.detectedMs)}, every lost shard served again after ` +
        `${ms(failure.keysReadyMs)}, redundant after ${ms(failure.redundantMs)}; ` +
        `${countText(failure.blocksLost)} blocks lost and decoded, ` +
        `${countText(failure.blocksDecodedOnDemand)} of them because training needed them at once`,
    ]);
    if (failure.meanThroughputRatio !== null) {
      rows.push(['throughput meanwhile', `${percentText(failure.meanThroughputRatio)} of before on average`]);
    }
  }
  const { pushes, parity } = report;
  rows.push(
    [
      'pushes',
      `${countText(pushes.acked)} acknowledged, ${pushes.lost ?? '-'} lost, ` +
        `${pushes.duplicated ?? '-'} duplicated`,
    ],
    [
      'parity',
      `${countText(parity.blocksChecked)} of ${countText(parity.blocksExpected)} blocks checked, ` +
        `${parity.mismatched} mismatched`,
    ],
    ['nodes', report.nodes.map((node) => `${node.id} ${bytesText(node.bytes)}`).join(', ')],
    ['digest', report.digest],
  );
  return rows;
}

export function renderPicture(picture: Picture): string {
  const rows = facts(picture).map(
    ([name, value]) => `<tr><td>${escapeHtml(name)}</td><td>${escapeHtml(value)}</td></tr>`,
  );
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Kintsugi: training through the loss of a parameter server</title>
<style>${STYLE}</style>
</head>
<body>
<h1>Training through the loss of a parameter server</h1>
<p>${escapeHtml(picture.subtitle)}</p>
${throughputSvg(picture)}
<table>
${rows.join('\n')}
</table>
</body>
</html>
`;
}

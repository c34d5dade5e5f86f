/**
 * Throughput of all modes on one time axis, from the kill on: one HTML file with an inline SVG per size, or
 * one SVG file for one size. No scripts, no fonts, nothing loaded, readable in light and dark. Pure.
 */
import { escapeHtml, ticks } from '../../src/local/picture.js';
import { countText, timeText } from '../../src/local/text.js';
import { WINDOW_MS } from './measure.js';
import type { RunResult } from './run.js';

const WIDTH = 960;
const HEIGHT = 400;
const MARGIN = { top: 48, right: 24, bottom: 52, left: 84 };
const PLOT = { width: WIDTH - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom };
const COLORS = 6;

interface Scale {
  minX: number;
  maxX: number;
}

const x = ({ minX, maxX }: Scale, seconds: number) =>
  (MARGIN.left + ((seconds - minX) / (maxX - minX)) * PLOT.width).toFixed(1);
const MAX_Y = 1.25;
const y = (ratio: number) => (MARGIN.top + (1 - Math.min(ratio, MAX_Y) / MAX_Y) * PLOT.height).toFixed(1);

function axes(scale: Scale): string {
  const parts: string[] = [];
  for (const value of [0, 0.25, 0.5, 0.75, 1]) {
    const at = y(value);
    parts.push(
      `<line class="grid" x1="${MARGIN.left}" x2="${MARGIN.left + PLOT.width}" y1="${at}" y2="${at}"/>`,
      `<text class="tick" x="${MARGIN.left - 8}" y="${at}" dy="4" text-anchor="end">${value * 100} %</text>`,
    );
  }
  for (const value of ticks(scale.maxX, 10).filter((tick) => tick <= scale.maxX)) {
    const at = x(scale, value);
    const label = Number(value.toFixed(3));
    parts.push(
      `<text class="tick" x="${at}" y="${HEIGHT - MARGIN.bottom + 18}" text-anchor="middle">${label}</text>`,
    );
  }
  const middle = MARGIN.left + PLOT.width / 2;
  parts.push(
    `<text class="label" x="${middle}" y="${HEIGHT - 10}" text-anchor="middle">seconds since the SIGKILL</text>`,
    `<text class="label" transform="translate(18 ${MARGIN.top + PLOT.height / 2}) rotate(-90)" text-anchor="middle">new samples, of steady</text>`,
  );
  return parts.join('\n');
}

/**
 * Most points of a line: neighbouring windows are taken together, or a long run would be drawn as a thick
 * band.
 */
const MAX_POINTS = 120;

function line(run: RunResult, together: number): [seconds: number, ratio: number][] {
  const points: [number, number][] = [];
  for (let i = 0; i + together <= run.windows.length; i += together) {
    const rates = run.windows.slice(i, i + together);
    const mean = rates.reduce((sum, rate) => sum + rate, 0) / together;
    const seconds = (run.firstWindowMs + (i + together / 2) * WINDOW_MS) / 1000;
    points.push([seconds, mean / run.steadySamplesPerSecond]);
  }
  return points;
}

/** One line per mode that trains; a circle where training was back where it had been. */
export function overlaySvg(all: readonly RunResult[], attributes = ''): string {
  const runs = all.filter((run) => run.windows.some((rate) => rate > 0) && !run.mode.endsWith('/idle'));
  const ends = runs.map((run) => (run.firstWindowMs + run.windows.length * WINDOW_MS) / 1000);
  const starts = runs.map((run) => run.firstWindowMs / 1000);
  const scale = { minX: Math.min(0, ...starts), maxX: Math.max(1, ...ends) };
  const kill = x(scale, 0);
  const longest = Math.max(1, ...runs.map((run) => run.windows.length));
  const together = Math.max(1, Math.ceil(longest / MAX_POINTS));
  const lines = runs.map((run, index) => {
    const color = `mode${index % COLORS}`;
    const points = line(run, together).map(([seconds, ratio]) => `${x(scale, seconds)},${y(ratio)}`);
    const back = run.backMs === null ? undefined : x(scale, run.backMs / 1000);
    return [
      `<polyline class="line ${color}" points="${points.join(' ')}"/>`,
      back === undefined ? '' : `<circle class="back ${color}" cx="${back}" cy="${y(0)}" r="5"/>`,
      `<text class="legend ${color}" x="${MARGIN.left + 8 + index * 170}" y="24">${escapeHtml(run.mode)}</text>`,
    ].join('\n');
  });
  return [
    `<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="Throughput of each mode around the failure"${attributes}>`,
    axes(scale),
    `<line class="failure" x1="${kill}" x2="${kill}" y1="${MARGIN.top - 10}" y2="${HEIGHT - MARGIN.bottom}"/>`,
    ...lines,
    '</svg>',
  ].join('\n');
}

/** The largest size of `runs`, as a file of its own. */
export function recoverySvg(runs: readonly RunResult[]): string {
  const rows = Math.max(...runs.map((run) => run.rows));
  const svg = overlaySvg(
    runs.filter((run) => run.rows === rows),
    ' xmlns="http://www.w3.org/2000/svg"',
  );
  const back = `<rect width="${WIDTH}" height="${HEIGHT}" rx="8" style="fill: var(--back)"/>`;
  return `${svg.replace('>', `>\n<style>${STYLE}text { font: 13px system-ui, sans-serif; }</style>\n${back}`)}\n`;
}

export const STYLE = `
:root { color-scheme: light dark; --back: #fbfaf7; --text: #22252a; --faint: #6b7078; --grid: #e2e0da; --bad: #b3261e;
  --c0: #b8860b; --c1: #1d5fa8; --c2: #7a4fa3; --c3: #2e7d4f; --c4: #b3541e; --c5: #5b6770; }
@media (prefers-color-scheme: dark) { :root { --back: #16181c; --text: #e6e4df; --faint: #9aa0a8; --grid: #2d3138; --bad: #ff8a80;
  --c0: #e0b252; --c1: #7db4f0; --c2: #c3a2e6; --c3: #7fcf9f; --c4: #f0a070; --c5: #aab4bc; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.1rem; } p { color: var(--faint); }
svg { width: 100%; height: auto; display: block; } text { fill: var(--text); font-size: 13px; }
.tick { fill: var(--faint); font-size: 12px; } .grid { stroke: var(--grid); } .failure { stroke: var(--bad); stroke-width: 2; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; } .legend { font-weight: 600; }
${Array.from({ length: COLORS }, (_, i) => `.line.mode${i} { stroke: var(--c${i}); } .legend.mode${i}, .back.mode${i} { fill: var(--c${i}); }`).join('\n')}
table { border-collapse: collapse; } th, td { padding: .2rem 1rem .2rem 0; text-align: right; }
th { color: var(--faint); font-weight: normal; } th:first-child, td:first-child { text-align: left; }
`;

const ms = (value: number | null) => (value === null ? '-' : timeText(value));
const ratio = (value: number | null) => (value === null ? '-' : value.toFixed(2));

/** What is shown of each run, in the picture and on the terminal. */
export const COLUMNS: [head: string, cell: (run: RunResult) => string][] = [
  ['mode', (run) => run.mode],
  ['steady/s', (run) => countText(run.steadySamplesPerSecond)],
  ['detected', (run) => ms(run.detectedMs)],
  ['first served', (run) => ms(run.firstServedMs)],
  ['all can serve', (run) => ms(run.keysReadyMs)],
  ['training is back', (run) => ms(run.backMs)],
  ['redundant', (run) => ms(run.redundantMs)],
  ['worst second before', (run) => ratio(run.worstSecondBefore)],
  ['worst second', (run) => ratio(run.worstSecond)],
  ['mean', (run) => ratio(run.mean)],
  ['rebuild GB/s', (run) => ratio(run.rebuildGBPerSecond)],
  ['PS CPU', (run) => (run.psCpuSeconds === null ? '-' : `${run.psCpuSeconds.toFixed(1)} s`)],
  ['samples redone', (run) => countText(run.samplesRedone)],
  ['rows lost', (run) => countText(run.rowsLost)],
];

function facts(runs: readonly RunResult[]): string {
  const row = (tag: string, cells: string[]) =>
    `<tr>${cells.map((cell) => `<${tag}>${escapeHtml(cell)}</${tag}>`).join('')}</tr>`;
  const heads = COLUMNS.map(([head]) => head);
  const rows = runs.map((run) =>
    row(
      'td',
      COLUMNS.map(([, cell]) => cell(run)),
    ),
  );
  return `<table>${row('th', heads)}${rows.join('\n')}</table>`;
}

export function recoveryHtml(runs: readonly RunResult[], subtitle: string): string {
  const sizes = [...new Set(runs.map((run) => run.rows))];
  const sections = sizes.map((rows) => {
    const own = runs.filter((run) => run.rows === rows);
    return `<h2>${countText(rows)} rows</h2>\n${overlaySvg(own)}\n${facts(own)}`;
  });
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Kintsugi: recovery of a lost parameter server</title>
<style>${STYLE}</style>
</head>
<body>
<h1>Recovery of a lost parameter server</h1>
<p>${escapeHtml(subtitle)}. Throughput in windows of 100 ms; samples that are trained a second time do not count. Circle: training is where it was at the SIGKILL, and goes on.</p>
${sections.join('\n')}
</body>
</html>
`;
}

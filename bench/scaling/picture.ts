/**
 * Throughput while a job grows and shrinks, as one HTML file with an inline SVG: no scripts, nothing loaded.
 * Pure.
 */
import { escapeHtml, ticks } from '../../src/local/picture.js';
import { bytesText, countText } from '../../src/local/text.js';
import { STYLE } from '../recovery/picture.js';
import { type MeasuredScaling, WINDOW_MS } from './measure.js';
import type { ScalingResult } from './run.js';

const WIDTH = 960;
const HEIGHT = 360;
const MARGIN = { top: 40, right: 24, bottom: 52, left: 84 };
const PLOT = { width: WIDTH - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom };
const MAX_Y = 1.25;

export function scalingSvg({ scalings, windows, from }: ScalingResult): string {
  const steady = scalings[0]?.steadySamplesPerSecond ?? 1;
  const seconds = Math.max(1, (windows.length * WINDOW_MS) / 1000);
  const x = (at: number) => (MARGIN.left + (at / seconds) * PLOT.width).toFixed(1);
  const y = (ratio: number) => (MARGIN.top + (1 - Math.min(ratio, MAX_Y) / MAX_Y) * PLOT.height).toFixed(1);
  const grid = [0, 0.25, 0.5, 0.75, 1].flatMap((value) => [
    `<line class="grid" x1="${MARGIN.left}" x2="${WIDTH - MARGIN.right}" y1="${y(value)}" y2="${y(value)}"/>`,
    `<text class="tick" x="${MARGIN.left - 8}" y="${y(value)}" dy="4" text-anchor="end">${value * 100} %</text>`,
  ]);
  const marks = ticks(seconds, 10)
    .filter((tick) => tick <= seconds)
    .map(
      (tick) =>
        `<text class="tick" x="${x(tick)}" y="${HEIGHT - MARGIN.bottom + 18}" text-anchor="middle">${Number(tick.toFixed(3))}</text>`,
    );
  const bands = scalings.flatMap(({ begun, ended, from: few, to }) => {
    const [start, end] = [(begun - from) / 1000, (ended - from) / 1000];
    const width = Math.max(2, ((end - start) / seconds) * PLOT.width).toFixed(1);
    return [
      `<rect class="band" x="${x(start)}" width="${width}" y="${MARGIN.top}" height="${PLOT.height}"/>`,
      `<text class="tick" x="${x(start)}" y="${MARGIN.top - 8}">${few} to ${to} PS</text>`,
    ];
  });
  const points = windows.map((rate, i) => `${x(((i + 0.5) * WINDOW_MS) / 1000)},${y(rate / steady)}`);
  return [
    `<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="Throughput while the number of PS changes">`,
    ...grid,
    ...marks,
    ...bands,
    `<polyline class="line mode1" points="${points.join(' ')}"/>`,
    `<text class="label" x="${MARGIN.left + PLOT.width / 2}" y="${HEIGHT - 10}" text-anchor="middle">seconds</text>`,
    '</svg>',
  ].join('\n');
}

/** What is shown of each scaling, in the picture and on the terminal. */
export const COLUMNS: [head: string, cell: (scaling: MeasuredScaling) => string][] = [
  ['scaled', ({ from, to }) => `${from} to ${to} PS`],
  ['took', ({ seconds }) => `${seconds.toFixed(2)} s`],
  ['shards moved', ({ shardsMoved }) => countText(shardsMoved)],
  ['bytes moved', ({ bytesMoved }) => bytesText(bytesMoved)],
  [
    'steady before, after',
    ({ steadySamplesPerSecond: before, steadyAfterSamplesPerSecond: after }) =>
      `${countText(before)}/s, ${countText(after)}/s`,
  ],
  [
    'worst calm second before, after',
    ({ worstSecondBefore: before, worstSecondAfter: after }) => `${before.toFixed(2)}, ${after.toFixed(2)}`,
  ],
  ['worst second', ({ worstSecond }) => worstSecond.toFixed(2)],
  ['of steady after', ({ worstSecondOfAfter }) => worstSecondOfAfter.toFixed(2)],
  ['mean', ({ mean }) => mean.toFixed(2)],
  ['slowest request before', ({ slowestBeforeMs }) => `${slowestBeforeMs.toFixed(0)} ms`],
  ['slowest request', ({ slowestMs }) => `${slowestMs.toFixed(0)} ms`],
];

export function scalingHtml(result: ScalingResult, subtitle: string): string {
  const row = (tag: string, cells: string[]) =>
    `<tr>${cells.map((cell) => `<${tag}>${escapeHtml(cell)}</${tag}>`).join('')}</tr>`;
  const heads = row(
    'th',
    COLUMNS.map(([head]) => head),
  );
  const rows = result.scalings.map((scaling) =>
    row(
      'td',
      COLUMNS.map(([, cell]) => cell(scaling)),
    ),
  );
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Kintsugi: growing and shrinking while training</title>
<style>${STYLE}.band { fill: var(--c0); opacity: .18; }</style>
</head>
<body>
<h1>Growing and shrinking while training</h1>
<p>${escapeHtml(subtitle)}. Throughput in windows of 100 ms, of the steady one before; shaded: shards move.</p>
${scalingSvg(result)}
<table>${heads}${rows.join('\n')}</table>
</body>
</html>
`;
}

/** Throughput while a job grows and shrinks, as one HTML file with a picture. Pure. */
import { bytesText, countText } from '../../src/fleet/local/text.js';
import { htmlPage, htmlTable, Plot } from '../common/picture.js';
import { type MeasuredScaling, WINDOW_MS } from './measure.js';
import type { ScalingResult } from './run.js';

/** A line for the throughput; a band where shards move. */
function scalingSvg({ scalings, windows, from }: ScalingResult): string {
  const steady = scalings[0]?.steadySamplesPerSecond ?? 1;
  const maxSeconds = Math.max(1, (windows.length * WINDOW_MS) / 1000);
  const plot = new Plot({ minSeconds: 0, maxSeconds, label: 'seconds' });
  const bands = scalings.flatMap(({ begun, ended, from: few, to }) => {
    const x = plot.x((begun - from) / 1000);
    const width = Math.max(2, plot.width((ended - begun) / 1000)).toFixed(1);
    return [
      `<rect class="band" x="${x}" width="${width}" y="${plot.top}" height="${plot.height}"/>`,
      `<text class="tick" x="${x}" y="${plot.top - 8}">${few} to ${to} PS</text>`,
    ];
  });
  const points = windows.map(
    (rate, i) => `${plot.x(((i + 0.5) * WINDOW_MS) / 1000)},${plot.y(rate / steady)}`,
  );
  const line = `<polyline class="line mode1" points="${points.join(' ')}"/>`;
  return plot.svg('Throughput while the number of PS changes', [...bands, line]);
}

/** Columns of a scaling, in the picture and on the terminal. */
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
  const cells = result.scalings.map((scaling) => COLUMNS.map(([, cell]) => cell(scaling)));
  const facts = htmlTable(
    COLUMNS.map(([head]) => head),
    cells,
  );
  const windows = 'Throughput in windows of 100 ms, of the steady one before; shaded: shards move';
  const body = `${scalingSvg(result)}\n${facts}`;
  return htmlPage('Growing and shrinking while training', `${subtitle}. ${windows}.`, body);
}

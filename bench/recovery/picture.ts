/**
 * Throughput of all modes on one time axis, from the kill on. One HTML file has a picture per size; one SVG
 * file has one size. Pure.
 */
import { escapeHtml } from '../../src/fleet/local/picture.js';
import { countText, timeText } from '../../src/fleet/local/text.js';
import { COLORS, htmlPage, htmlTable, Plot, standalone } from '../common/picture.js';
import { WINDOW_MS } from './measure.js';
import type { RoundsResult } from './rounds.js';
import type { RunResult } from './run.js';

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
export function overlaySvg(all: readonly RunResult[]): string {
  const runs = all.filter((run) => run.windows.some((rate) => rate > 0) && !run.mode.endsWith('/idle'));
  const ends = runs.map((run) => (run.firstWindowMs + run.windows.length * WINDOW_MS) / 1000);
  const starts = runs.map((run) => run.firstWindowMs / 1000);
  const plot = new Plot({
    minSeconds: Math.min(0, ...starts),
    maxSeconds: Math.max(1, ...ends),
    label: 'seconds since the SIGKILL',
  });
  const longest = Math.max(1, ...runs.map((run) => run.windows.length));
  const together = Math.max(1, Math.ceil(longest / MAX_POINTS));
  const lines = runs.map((run, index) => {
    const color = `mode${index % COLORS}`;
    const points = line(run, together).map(([seconds, ratio]) => `${plot.x(seconds)},${plot.y(ratio)}`);
    const back = run.backMs === null ? undefined : plot.x(run.backMs / 1000);
    const left = plot.left + 8 + index * 170;
    return [
      `<polyline class="line ${color}" points="${points.join(' ')}"/>`,
      back === undefined ? '' : `<circle class="back ${color}" cx="${back}" cy="${plot.y(0)}" r="5"/>`,
      `<text class="legend ${color}" x="${left}" y="24">${escapeHtml(run.mode)}</text>`,
    ].join('\n');
  });
  const [kill, top] = [plot.x(0), plot.top - 10];
  const bottom = plot.top + plot.height;
  const failure = `<line class="failure" x1="${kill}" x2="${kill}" y1="${top}" y2="${bottom}"/>`;
  return plot.svg('Throughput of each mode around the failure', [failure, ...lines]);
}

/** The largest size of `runs`, as a file of its own. */
export function recoverySvg(runs: readonly RunResult[]): string {
  const rows = Math.max(...runs.map((run) => run.rows));
  return standalone(overlaySvg(runs.filter((run) => run.rows === rows)));
}

const ms = (value: number | null) => (value === null ? '-' : timeText(value));
const fixed = (value: number | null) => (value === null ? '-' : value.toFixed(2));

/** A ratio, and between what it was in the rounds. */
function ratio(run: RunResult, name: RatioField): string {
  const [least, most] = (run as Partial<RoundsResult>).spread?.[name] ?? [];
  const isOne = least === most || least === undefined || most === undefined;
  return isOne ? fixed(run[name]) : `${fixed(run[name])} (${fixed(least)} to ${fixed(most)})`;
}
type RatioField = 'worstSecondBefore' | 'firstTwoSeconds' | 'otherSeconds' | 'meanUntilDecoded' | 'mean';

/** Columns of a run, in the picture and on the terminal. */
export const COLUMNS: [head: string, cell: (run: RunResult) => string][] = [
  ['mode', (run) => run.mode],
  ['steady/s', (run) => countText(run.steadySamplesPerSecond)],
  ['detected', (run) => ms(run.detectedMs)],
  ['first served', (run) => ms(run.firstServedMs)],
  ['all can serve', (run) => ms(run.keysReadyMs)],
  ['training is back', (run) => ms(run.backMs)],
  ['redundant', (run) => ms(run.redundantMs)],
  ['worst second before', (run) => ratio(run, 'worstSecondBefore')],
  ['first two s', (run) => ratio(run, 'firstTwoSeconds')],
  ['other s', (run) => ratio(run, 'otherSeconds')],
  ['mean until decoded', (run) => ratio(run, 'meanUntilDecoded')],
  ['mean', (run) => ratio(run, 'mean')],
  ['calm p99', (run) => ms(run.calmP99Ms)],
  ['p99', (run) => ms(run.p99Ms)],
  ['rebuild GB/s', (run) => fixed(run.rebuildGBPerSecond)],
  ['PS CPU', (run) => (run.psCpuSeconds === null ? '-' : `${run.psCpuSeconds.toFixed(1)} s`)],
  ['samples redone', (run) => countText(run.samplesRedone)],
  ['rows lost', (run) => countText(run.rowsLost)],
];

export function recoveryHtml(runs: readonly RunResult[], subtitle: string): string {
  const sizes = [...new Set(runs.map((run) => run.rows))];
  const sections = sizes.map((rows) => {
    const own = runs.filter((run) => run.rows === rows);
    const cells = own.map((run) => COLUMNS.map(([, cell]) => cell(run)));
    const facts = htmlTable(
      COLUMNS.map(([head]) => head),
      cells,
    );
    return `<h2>${countText(rows)} rows</h2>\n${overlaySvg(own)}\n${facts}`;
  });
  const windows = 'Throughput in windows of 100 ms; samples that are trained a second time do not count';
  const circle = 'Circle: training is where it was at the SIGKILL, and goes on';
  const explanation = `${subtitle}. ${windows}. ${circle}.`;
  return htmlPage('Recovery of a lost parameter server', explanation, sections.join('\n'));
}

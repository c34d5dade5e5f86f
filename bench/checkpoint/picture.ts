/** All ways to make checkpoints on one time axis. Pure. */
import { COLORS, Plot, standalone } from '../common/picture.js';
import { type Watched, WINDOW_MS } from './ways.js';

/** Neighbouring windows are taken together, or lines would be thick bands. */
const MAX_POINTS = 150;

export function checkpointSvg(watched: readonly Watched[]): string {
  const steady = watched.find(({ way }) => way === 'none')!.samplesPerSecond;
  const longest = Math.max(1, ...watched.map(({ windows }) => windows.length));
  const together = Math.max(1, Math.ceil(longest / MAX_POINTS));
  const maxSeconds = (longest * WINDOW_MS) / 1000;
  const plot = new Plot({
    minSeconds: 0,
    maxSeconds,
    label: 'seconds; a checkpoint begins at each interval',
  });
  const lines = watched.map(({ way, windows }, index) => {
    const color = `mode${index % COLORS}`;
    const points: string[] = [];
    for (let i = 0; i + together <= windows.length; i += together) {
      const mean = windows.slice(i, i + together).reduce((sum, rate) => sum + rate, 0) / together;
      points.push(`${plot.x(((i + together / 2) * WINDOW_MS) / 1000)},${plot.y(mean / steady)}`);
    }
    return [
      `<polyline class="line ${color}" points="${points.join(' ')}"/>`,
      `<text class="legend ${color}" x="${plot.left + 8 + index * 170}" y="24">${way}</text>`,
    ].join('\n');
  });
  return standalone(plot.svg('Throughput while checkpoints are made', lines));
}

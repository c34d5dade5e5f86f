/** Goodput against the rate of failures: lines of the simulated jobs, circles of the real ones. Pure. */
import { COLORS, Plot, standalone } from '../common/picture.js';

export interface Curve {
  name: string;
  points: { perHour: number; goodput: number }[];
  /** Result of a job of processes. */
  real?: { perHour: number; goodput: number } | undefined;
}

export function goodputSvg(curves: readonly Curve[]): string {
  const rates = curves.flatMap(({ points, real }) => [...points, ...(real ? [real] : [])]);
  const plot = new Plot({
    minSeconds: 0,
    maxSeconds: Math.max(1, ...rates.map(({ perHour }) => perHour)),
    label: 'failures of an hour; lines: simulated, circles: real processes',
    side: 'goodput',
  });
  const lines = curves.map(({ name, points, real }, index) => {
    const color = `mode${index % COLORS}`;
    const places = points.map(({ perHour, goodput }) => `${plot.x(perHour)},${plot.y(goodput)}`);
    const circle = real && `cx="${plot.x(real.perHour)}" cy="${plot.y(real.goodput)}" r="6"`;
    return [
      `<polyline class="line ${color}" points="${places.join(' ')}"/>`,
      circle === undefined ? '' : `<circle class="back ${color}" ${circle}/>`,
      `<text class="legend ${color}" x="${plot.left + 8 + index * 170}" y="24">${name}</text>`,
    ].join('\n');
  });
  return standalone(plot.svg('Goodput under failures', lines));
}

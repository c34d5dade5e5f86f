/**
 * Throughput over time as SVG and HTML: no scripts, no fonts, nothing loaded, readable in light and dark. The
 * horizontal axis is seconds, the vertical one is throughput as a part of the steady one, unless it is said
 * otherwise. Pure.
 */
import { escapeHtml, ticks } from '../../src/fleet/local/picture.js';

const WIDTH = 960;
const HEIGHT = 400;
const MARGIN = { top: 48, right: 24, bottom: 52, left: 84 };
const RIGHT = WIDTH - MARGIN.right;
const BOTTOM = HEIGHT - MARGIN.bottom;
/** Ratios above this are drawn at the top. */
const MAX_RATIO = 1.25;

/** Colours of lines; further lines begin anew. */
export const COLORS = 6;

export interface TimeAxis {
  minSeconds: number;
  maxSeconds: number;
  label: string;
  /** Label of the vertical axis; absent: throughput. */
  side?: string;
}

/** Places of seconds and ratios, and the elements that every picture has. */
export class Plot {
  readonly top = MARGIN.top;
  readonly left = MARGIN.left;
  readonly height = BOTTOM - MARGIN.top;

  constructor(private readonly time: TimeAxis) {}

  x(seconds: number): string {
    return (MARGIN.left + this.width(seconds - this.time.minSeconds)).toFixed(1);
  }

  /** Width of a stretch of time. */
  width(seconds: number): number {
    const { minSeconds, maxSeconds } = this.time;
    return (seconds / (maxSeconds - minSeconds)) * (RIGHT - MARGIN.left);
  }

  y(ratio: number): string {
    return (BOTTOM - (Math.min(ratio, MAX_RATIO) / MAX_RATIO) * this.height).toFixed(1);
  }

  /** The picture; `attributes` go into its svg element. */
  svg(title: string, elements: readonly string[], attributes = ''): string {
    const open = `<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${title}"${attributes}>`;
    return [open, ...this.axes(), ...elements, '</svg>'].join('\n');
  }

  private axes(): string[] {
    const { maxSeconds, label, side: name = 'new samples, of steady' } = this.time;
    const [middle, side] = [(MARGIN.left + RIGHT) / 2, (MARGIN.top + BOTTOM) / 2];
    const ratios = [0, 0.25, 0.5, 0.75, 1].flatMap((ratio) => {
      const y = this.y(ratio);
      const place = `x="${MARGIN.left - 8}" y="${y}" dy="4" text-anchor="end"`;
      return [
        `<line class="grid" x1="${MARGIN.left}" x2="${RIGHT}" y1="${y}" y2="${y}"/>`,
        `<text class="tick" ${place}>${ratio * 100} %</text>`,
      ];
    });
    const times = ticks(maxSeconds, 10)
      .filter((seconds) => seconds <= maxSeconds)
      .map((seconds) => {
        const place = `x="${this.x(seconds)}" y="${BOTTOM + 18}" text-anchor="middle"`;
        return `<text class="tick" ${place}>${Number(seconds.toFixed(3))}</text>`;
      });
    const upright = `transform="translate(18 ${side}) rotate(-90)" text-anchor="middle"`;
    return [
      ...ratios,
      ...times,
      `<text class="label" x="${middle}" y="${HEIGHT - 10}" text-anchor="middle">${label}</text>`,
      `<text class="label" ${upright}>${name}</text>`,
    ];
  }
}

/** A picture that is a file of its own brings its style and its background along. */
export function standalone(svg: string): string {
  const back = `<rect width="${WIDTH}" height="${HEIGHT}" rx="8" style="fill: var(--back)"/>`;
  const style = `<style>${STYLE}text { font: 13px system-ui, sans-serif; }</style>`;
  const named = svg.replace('>', ' xmlns="http://www.w3.org/2000/svg">');
  return `${named.replace('>', `>\n${style}\n${back}`)}\n`;
}

const colorRules = (i: number): string =>
  [
    `.line.mode${i} { stroke: var(--c${i}); }`,
    `.legend.mode${i}, .back.mode${i} { fill: var(--c${i}); }`,
  ].join(' ');

const STYLE = `
:root { color-scheme: light dark;
  --back: #fbfaf7; --text: #22252a; --faint: #6b7078; --grid: #e2e0da; --bad: #b3261e;
  --c0: #b8860b; --c1: #1d5fa8; --c2: #7a4fa3; --c3: #2e7d4f; --c4: #b3541e; --c5: #5b6770; }
@media (prefers-color-scheme: dark) { :root {
  --back: #16181c; --text: #e6e4df; --faint: #9aa0a8; --grid: #2d3138; --bad: #ff8a80;
  --c0: #e0b252; --c1: #7db4f0; --c2: #c3a2e6; --c3: #7fcf9f; --c4: #f0a070; --c5: #aab4bc; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.1rem; } p { color: var(--faint); }
svg { width: 100%; height: auto; display: block; } text { fill: var(--text); font-size: 13px; }
.tick { fill: var(--faint); font-size: 12px; } .grid { stroke: var(--grid); }
.failure { stroke: var(--bad); stroke-width: 2; }
.band { fill: var(--c0); opacity: .18; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; } .legend { font-weight: 600; }
${Array.from({ length: COLORS }, (_, i) => colorRules(i)).join('\n')}
table { border-collapse: collapse; } th, td { padding: .2rem 1rem .2rem 0; text-align: right; }
th { color: var(--faint); font-weight: normal; } th:first-child, td:first-child { text-align: left; }
`;

/** A table of what was measured, under the heads of its columns. */
export function htmlTable(heads: readonly string[], rows: readonly (readonly string[])[]): string {
  const row = (tag: string, cells: readonly string[]) =>
    `<tr>${cells.map((cell) => `<${tag}>${escapeHtml(cell)}</${tag}>`).join('')}</tr>`;
  return `<table>${row('th', heads)}${rows.map((cells) => row('td', cells)).join('\n')}</table>`;
}

/** `body` is HTML; title and explanation are text. */
export function htmlPage(title: string, explanation: string, body: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Kintsugi: ${escapeHtml(title.toLowerCase())}</title>
<style>${STYLE}</style>
</head>
<body>
<h1>${escapeHtml(title)}</h1>
<p>${escapeHtml(explanation)}</p>
${body}
</body>
</html>
`;
}

/** Throughput and latency over the last minutes, with what happened marked below. */
import { brief, clock, duration } from './format.js';
import { html } from './html.js';
import { useEffect, useMemo, useRef, useState } from './vendor/hooks.mjs';
import uPlot from './vendor/uplot.mjs';

const SPANS = [2, 5, 15];
/** Room for the numbers of the axes; styles use the same (--axis, --end). */
const AXIS = 58;
const END = 14;
/** A longer pause between two points is a gap. */
const GAP_SECONDS = 5;
/** The chart is no wider than what there is to show, and shows this at least. */
const LEAST_SECONDS = 60;

const dark = matchMedia('(prefers-color-scheme: dark)');

function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Columns for uPlot. A pause is drawn as one. */
export function columnsOf(points) {
  const columns = [[], [], [], [], []];
  let last;
  for (const { at, pulledRows, pushedRows, pullP99Ms = null, pushP99Ms = null } of points) {
    const seconds = at / 1000;
    if (last !== undefined && seconds - last > GAP_SECONDS)
      [last + 1, null, null, null, null].forEach((value, i) => {
        columns[i].push(value);
      });
    [seconds, pulledRows, pushedRows, pullP99Ms, pushP99Ms].forEach((value, i) => {
      columns[i].push(value);
    });
    last = seconds;
  }
  return columns;
}

/** From zero, with a little room above. */
const fromZero = { range: (_, _min, max) => [0, Math.max(max * 1.12, 10)] };
/** Powers of ten: one slow second does not flatten all others. */
const logarithmic = {
  distr: 3,
  range: (_, min, max) => [
    10 ** Math.floor(Math.log10(min ?? 1)),
    10 ** Math.ceil(Math.log10((max ?? 1) * 1.01)),
  ],
};
const powers = (_, __, min, max) => {
  const from = Math.round(Math.log10(min));
  return Array.from({ length: Math.round(Math.log10(max)) - from + 1 }, (_, i) => 10 ** (from + i));
};

function options(width, height, { value, scale, isLast }) {
  const grid = { stroke: ink('--line'), width: 1 };
  const axis = { stroke: ink('--dim'), grid, ticks: { show: false }, font: '11px system-ui, sans-serif' };
  const line = (color, dash) => ({ stroke: ink(color), width: 1.75, points: { show: false }, ...dash });
  const times = (_, ticks) => ticks.map((at) => clock(at * 1000));
  const numbers = (_, ticks) => ticks.map((tick) => (tick === null ? '' : value(tick)));
  return {
    width,
    height,
    padding: [8, END, isLast ? 0 : 8, 0],
    cursor: { sync: { key: 'time' }, y: false, drag: { setScale: false } },
    legend: { show: false },
    scales: { x: { time: true }, y: scale },
    axes: [
      { ...axis, show: isLast, space: 90, values: times, size: 26 },
      { ...axis, size: AXIS, space: 34, values: numbers, ...(scale.distr && { splits: powers }) },
    ],
    series: [{}, line('--blue'), line('--gold', { dash: [7, 3] })],
  };
}

/** One plot. `data`: x and two lines. `onPoint`: index of the point under the cursor, or none. */
function Plot({ data, span, spec, onPoint, name }) {
  const box = useRef();
  const plot = useRef();
  useEffect(() => {
    const build = () => {
      plot.current?.destroy();
      const made = new uPlot(options(box.current.clientWidth, spec.height, spec), data, box.current);
      made.hooks.setCursor = [(self) => onPoint(self.cursor.idx ?? undefined)];
      plot.current = made;
    };
    build();
    const resized = new ResizeObserver(() =>
      plot.current.setSize({ width: box.current.clientWidth, height: spec.height }),
    );
    resized.observe(box.current);
    dark.addEventListener('change', build);
    return () => {
      resized.disconnect();
      dark.removeEventListener('change', build);
      plot.current.destroy();
    };
  }, []);
  useEffect(() => {
    plot.current.batch(() => {
      plot.current.setData(data, false);
      plot.current.setScale('x', { min: span[0], max: span[1] });
    });
  }, [data, span[0], span[1]]);
  return html`<div class="plot" ref=${box} data-plot=${name}></div>`;
}

const ROWS = { height: 170, value: brief, scale: fromZero, isLast: false };
const TIMES_TITLE = '99 % are faster than; pushes until they are durable';
const TIMES = { height: 140, value: (ms) => duration(ms), scale: logarithmic, isLast: true };

function Key({ title, values, format }) {
  return html`<div class="key">
    <span>${title}</span>
    ${['pull', 'push'].map(
      (op, i) =>
        html`<span class="line ${op}">${op} <b>${values[i] == null ? '–' : format(values[i])}</b></span>`,
    )}
  </div>`;
}

export function Chart({ points, marks }) {
  const [minutes, setMinutes] = useState(5);
  const [under, setUnder] = useState();
  const columns = useMemo(() => columnsOf(points), [points]);
  const [times, pulled, pushed, pullMs, pushMs] = columns;
  const end = times.at(-1) ?? Date.now() / 1000;
  const seconds = Math.min(minutes * 60, Math.max(LEAST_SECONDS, end - (times[0] ?? end)));
  const span = [end - seconds, end];
  const at = under ?? times.length - 1;
  const rows = useMemo(() => [times, pulled, pushed], [columns]);
  const latency = useMemo(() => [times, pullMs, pushMs], [columns]);
  return html`<section class="panel chart" aria-labelledby="chart-title">
    <div class="panel-head">
      <h2 id="chart-title">Throughput and latency</h2>
      <span class="dim">${under !== undefined && times[at] ? `at ${clock(times[at] * 1000)}` : ''}</span>
      <div class="spans" role="group" aria-label="how far back">
        ${SPANS.map(
          (each) => html`<button
            class="quiet"
            aria-pressed=${each === minutes}
            onClick=${() => setMinutes(each)}
          >${each} min</button>`,
        )}
      </div>
    </div>
    <${Key} title="Rows per second" values=${[pulled[at], pushed[at]]} format=${brief} />
    <${Plot} name="rows" data=${rows} span=${span} spec=${ROWS} onPoint=${setUnder} />
    <${Key} title=${TIMES_TITLE} values=${[pullMs[at], pushMs[at]]} format=${duration} />
    <${Plot} name="times" data=${latency} span=${span} spec=${TIMES} onPoint=${setUnder} />
    ${marks && html`<${Lane} marks=${marks} span=${span} />`}
  </section>`;
}

/** Tones, the worst first: that one is drawn where several marks lie. */
const TONES = ['bad', 'warn'];
/** Marks closer than this, in parts of the lane, are one. */
const CLOSE = 0.012;

/** Marks on the same axis of time as the plots; those that would lie on each other are counted. */
function Lane({ marks, span: [from, to] }) {
  const stacks = [];
  for (const mark of marks) {
    const place = (mark.at / 1000 - from) / (to - from);
    if (place < 0 || place > 1.02) continue;
    const near = stacks.find((stack) => Math.abs(stack.place - place) < CLOSE);
    if (near) near.list.push(mark);
    else stacks.push({ place: Math.min(place, 1), list: [mark] });
  }
  return html`<ol class="lane" aria-label="what happened">
    ${stacks.map(({ place, list }) => {
      const worst = TONES.map((each) => list.find(({ tone }) => tone === each)).find(Boolean) ?? list[0];
      const text = list
        .map(({ at, text: words }) => `${clock(at)} ${words}`)
        .reverse()
        .join('\n');
      return html`<li
        key=${list.at(-1).number}
        class="mark ${worst.tone}"
        style=${{ left: `${place * 100}%` }}
        title=${text}
        aria-label=${text}
      >${worst.mark}${list.length > 1 && html`<sub>${list.length}</sub>`}</li>`;
    })}
  </ol>`;
}

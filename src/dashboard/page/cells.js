/**
 * Hosts, nodes and their shards. A small job shows every shard; a large one shows a tile per host, and the
 * shards of the host that is opened. A cell's state is in its colour, its shape and its sign.
 */
import { brief, bytes, count, percent, plural } from './format.js';
import { html } from './html.js';
import { useMemo, useState } from './vendor/hooks.mjs';

/** So many nodes are drawn shard by shard. */
const MOST_NODES = 48;
const STATES = ['lost', 'waiting', 'recovering', 'moving', 'arriving', 'whole'];
const WORDS = {
  whole: 'whole',
  recovering: 'recovering',
  moving: 'moving away',
  arriving: 'arriving',
  waiting: 'without a home',
  lost: 'beyond repair',
};
const SIGNS = { whole: '', recovering: '↻', moving: '→', arriving: '←', waiting: '', lost: '×' };

function words({ kind, pool, group, index, state, percent, demand, other }) {
  const parts = [`${pool} group ${group}, ${kind} ${index}: ${WORDS[state]}`];
  if (percent !== undefined)
    parts.push(`${percent} % is there${demand === undefined ? '' : `, ${demand} % on demand`}`);
  if (other) parts.push(state === 'moving' ? `to ${other}` : `from ${other}`);
  return parts.join(', ');
}

function Cell({ cell }) {
  const { kind, state, percent } = cell;
  const text = words(cell);
  const sign = state === 'recovering' && percent !== undefined ? percent : SIGNS[state];
  // In steps of 10, because styles may not be inline.
  const level = state === 'recovering' ? `fill-${Math.floor((percent ?? 0) / 10)}` : '';
  return html`<span
    class="cell ${kind} ${state} ${level}"
    data-state=${state}
    role="img"
    tabindex="-1"
    aria-label=${text}
    title=${text}
  >${sign}</span>`;
}

/** How many are in each state, as a bar and in words. */
export function Bar({ counts }) {
  const all = STATES.reduce((sum, state) => sum + counts[state], 0);
  const present = STATES.filter((state) => counts[state] > 0);
  const text = present.map((state) => `${count(counts[state])} ${WORDS[state]}`).join(', ');
  return html`<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label=${text}>
    <title>${text}</title>
    ${segments(counts, all).map(
      ([state, x, width]) =>
        html`<rect class=${state} x=${x} y="0" width=${Math.max(width - 0.6, 0.6)} height="6" />`,
    )}
  </svg>`;
}

function segments(counts, all) {
  let x = 0;
  return STATES.filter((state) => counts[state] > 0).map((state) => {
    const width = (counts[state] / all) * 100;
    x += width;
    return [state, x - width, width];
  });
}

const limitText = (load) => (load?.limitBytes > 0 ? `of ${bytes(load.limitBytes)}` : 'there is no limit');

/** How much of its limit a node has used; beyond nine tenths it is a warning, in words, too. */
function Full({ load: { usedBytes, limitBytes } }) {
  const share = usedBytes / limitBytes;
  const isMuch = share > 0.9;
  return html`<span class=${isMuch ? 'warning' : 'dim'}> ${percent(share)}${isMuch && ' full'}</span>`;
}

/** What the numbers of a node are. */
const Heads = () => html`<div class="node heads" aria-hidden="true">
  <span>node</span><span></span><span class="n">rows</span><span class="n">memory</span>
  <span class="n">processor</span><span class="n">requests/s</span><span></span>
</div>`;

const keyOf = ({ kind, pool, group, index }) => `${kind} ${pool} ${group}.${index}`;
const NODE_STATES = { down: 'down', leaving: 'leaving', standby: 'standby' };

function Node({ node, load, onDrain }) {
  const { name, state, rows, cells } = node;
  return html`<div class="node ${state}" data-node=${name} data-state=${state}>
    <div class="node-name">
      <span class="name">${name}</span>
      ${NODE_STATES[state] && html`<span class="tag ${state}">${NODE_STATES[state]}</span>`}
    </div>
    <div class="cells" role="group" aria-label=${`shards of ${name}`}>
      ${cells.map((cell) => html`<${Cell} key=${keyOf(cell)} cell=${cell} />`)}
      ${cells.length === 0 && html`<span class="none">holds nothing</span>`}
    </div>
    ${
      state === 'down'
        ? html`<span class="n gone"></span>`
        : html`<span class="n">${brief(rows)}</span>
            <span class="n" title=${limitText(load)}>
              ${bytes(load?.usedBytes ?? node.bytes)}${load?.limitBytes > 0 && html`<${Full} load=${load} />`}
            </span>
            <span class="n">${load ? percent(load.cpus) : '–'}</span>
            <span class="n">${load ? brief(load.requestsPerSecond) : '–'}</span>`
    }
    <div class="node-do">
      ${
        state === 'alive' &&
        html`<button class="quiet" aria-label=${`Drain ${name}`} onClick=${() => onDrain(node)}>
          Drain…
        </button>`
      }
    </div>
  </div>`;
}

function Host({ host, isAlone, loads = {}, onDrain, onClose }) {
  return useMemo(
    () => html`<section class="host" data-host=${host.name} aria-label=${`host ${host.name}`}>
      ${
        !isAlone &&
        html`<h3>
          ${host.name}
          <span class="dim">${plural(host.nodes.length, 'node')}</span>
          ${onClose && html`<button class="quiet" onClick=${onClose}>Close</button>`}
        </h3>`
      }
      ${host.nodes.map(
        (node) => html`<${Node} key=${node.id} node=${node} load=${loads[node.id]} onDrain=${onDrain} />`,
      )}
    </section>`,
    [host, isAlone, loads],
  );
}

function Tile({ host, isOpen, onOpen }) {
  const { name, nodes, down, counts } = host;
  return useMemo(() => {
    const worst = STATES.find((state) => counts[state] > 0);
    const trouble = down > 0 ? `${down} down` : worst !== 'whole' && worst && WORDS[worst];
    return html`<button
      class="tile ${down > 0 ? 'has-down' : ''} ${worst ?? ''}"
      data-host=${name}
      aria-expanded=${isOpen}
      onClick=${() => onOpen(isOpen ? undefined : name)}
    >
      <span class="tile-name">${name}</span>
      <span class="tile-note">${trouble || plural(nodes.length, 'node')}</span>
      <${Bar} counts=${counts} />
    </button>`;
  }, [host, isOpen]);
}

const LEGEND = ['whole', 'recovering', 'moving', 'arriving', 'waiting', 'lost'];

function Legend() {
  return html`<ul class="legend" aria-label="what the cells mean">
    ${LEGEND.map(
      (state) => html`<li>
        <span class="cell data ${state} ${state === 'recovering' ? 'fill-5' : ''}" aria-hidden="true"
          >${state === 'recovering' ? '' : SIGNS[state]}</span
        >
        ${WORDS[state]}
      </li>`,
    )}
    <li><span class="cell parity whole" aria-hidden="true"></span> parity</li>
  </ul>`;
}

/** Arrow keys go from cell to cell: one stop of the tab key for each node. */
function walk(event) {
  const cells = [...event.currentTarget.querySelectorAll('.node .cell')];
  const at = cells.indexOf(document.activeElement);
  const rows = [...event.currentTarget.querySelectorAll('.cells')];
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const jump = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (at < 0 || (step ?? jump) === undefined) return;
  event.preventDefault();
  if (step) return cells[at + step]?.focus();
  const row = rows.indexOf(cells[at].parentElement);
  const place = [...rows[row].children].indexOf(cells[at]);
  for (let next = row + jump; rows[next]; next += jump) {
    const found = rows[next].querySelectorAll('.cell');
    if (found.length > 0) return found[Math.min(place, found.length - 1)].focus();
  }
}

export function ShardMap({ hosts, nodes, loads, onDrain }) {
  const [open, setOpen] = useState();
  const [only, setOnly] = useState(false);
  const isLarge = nodes > MOST_NODES;
  // A host that is its only node's is not worth a heading.
  const isAlone = hosts.every((host) => host.nodes.length === 1);
  const troubled = hosts.filter((host) => host.down > 0 || host.counts.whole < sum(host.counts));
  const shown = only ? troubled : hosts;
  const tile = (host) =>
    html`<${Tile} key=${host.name} host=${host} isOpen=${host.name === open} onOpen=${setOpen} />`;
  const draw = (host, onClose) => html`<${Host}
    key=${host.name}
    ...${{ host, loads, onDrain, onClose }}
    isAlone=${isAlone && !onClose}
  />`;
  const opened = hosts.find((host) => host.name === open);
  return html`<section class="panel map" aria-labelledby="map-title" onKeyDown=${walk}>
    <div class="panel-head">
      <h2 id="map-title">Shards</h2>
      <${Legend} />
      ${
        isLarge &&
        html`<label class="check"
          ><input type="checkbox" checked=${only} onChange=${() => setOnly(!only)} />
          only hosts where something is amiss (${count(troubled.length)})</label
        >`
      }
    </div>
    ${
      isLarge
        ? html`<div class="tiles">
              ${shown.map(tile)}
              ${shown.length === 0 && html`<p class="none">Nothing is amiss on any host.</p>`}
            </div>
            ${opened && html`<${Heads} />${draw(opened, () => setOpen())}`}`
        : html`<${Heads} />${hosts.map((host) => draw(host))}`
    }
  </section>`;
}

const sum = (counts) => STATES.reduce((all, state) => all + counts[state], 0);

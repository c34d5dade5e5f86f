/**
 * Hosts, nodes and their shards. A small job shows every shard; a large one shows a tile per host, and the
 * shards of the host that is opened. A cell's state is in its colour, its shape and its sign.
 */
import { brief, bytes, count, percent, plural } from './format.js';
import { useGrid } from './grid.js';
import { html } from './html.js';
import { Button } from './panels.js';
import { useMemo, useState } from './vendor/hooks.mjs';

/** A job with more nodes shows a tile for each host in place of every shard. */
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

/** A click, and Enter or the space bar. */
const opening = (open) => ({
  onClick: open,
  onKeyDown: (event) => {
    if (event.key !== 'Enter' && event.key !== ' ') return;
    event.preventDefault();
    open();
  },
});

function Cell({ cell, node, col, onCell }) {
  const { kind, state, percent } = cell;
  const text = words(cell);
  const sign = state === 'recovering' && percent !== undefined ? percent : SIGNS[state];
  // In steps of 10, because styles may not be inline.
  const level = state === 'recovering' ? `fill-${Math.floor((percent ?? 0) / 10)}` : '';
  return html`<span
    class="cell ${kind} ${state} ${level}"
    data-state=${state}
    data-item=${`${node} ${keyOf(cell)}`}
    data-shard=${keyOf(cell)}
    data-col=${col}
    role="gridcell"
    tabindex="-1"
    aria-label=${text}
    title=${text}
    ...${opening(() => onCell(node, keyOf(cell)))}
  >${sign}</span>`;
}

/** Shards in each state, as a bar and in words. */
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

/** Headings of the numbers of a node. Each number names its heading itself. */
const Heads = () => html`<div class="node heads" aria-hidden="true">
  <span>node</span><span></span><span class="n">rows</span><span class="n">memory</span>
  <span class="n">processor</span><span class="n">requests/s</span><span></span>
</div>`;

const keyOf = ({ kind, pool, group, index }) => `${kind} ${pool} ${group}.${index}`;
const NODE_STATES = { down: 'down', leaving: 'leaving', standby: 'standby' };

/** A number of a node. Without `text` it is not known yet. */
function Amount({ node, col, text, title, children }) {
  const words = `${col}: ${text ?? 'not known yet'}`;
  return html`<span
    class="n"
    role="gridcell"
    tabindex="-1"
    data-item=${`${node} ${col}`}
    data-col=${col}
    aria-label=${title ? `${words}, ${title}` : words}
    title=${text === undefined ? 'not known yet' : title}
  >${text ?? '–'}${children}</span>`;
}

const isLimited = (load) => load?.limitBytes > 0;

function Numbers({ node: { name, rows, bytes: reported }, load }) {
  const used = load?.usedBytes ?? reported;
  const known = (value, format) => (value === undefined ? undefined : format(value));
  return html`<${Amount} node=${name} col="rows" text=${known(rows, brief)} />
    <${Amount} node=${name} col="memory" text=${known(used, bytes)} title=${load && limitText(load)}>
      ${isLimited(load) && html`<${Full} load=${load} />`}
    </${Amount}>
    <${Amount} node=${name} col="processor" text=${known(load?.cpus, percent)} />
    <${Amount} node=${name} col="requests/s" text=${known(load?.requestsPerSecond, brief)} />`;
}

function Node({ node, load, onDrain, onCell }) {
  const { name, state, cells } = node;
  return html`<div class="node ${state}" role="row" data-row=${name} data-node=${name} data-state=${state}>
    <div class="node-name" role="rowheader">
      <span class="name">${name}</span>
      ${NODE_STATES[state] && html`<span class="tag ${state}">${NODE_STATES[state]}</span>`}
    </div>
    <div class="cells" role="presentation">
      ${cells.map(
        (cell, col) => html`<${Cell} key=${keyOf(cell)} node=${name} ...${{ cell, col, onCell }} />`,
      )}
      ${cells.length === 0 && html`<span class="none" role="gridcell">holds nothing</span>`}
    </div>
    ${
      state === 'down'
        ? html`<span class="n gone" role="presentation"></span>`
        : html`<${Numbers} node=${node} load=${load} />`
    }
    <div class="node-do" role="gridcell">
      ${
        state === 'alive' &&
        html`<${Button}
          quiet=${true}
          tabindex="-1"
          data-item=${`${name} drain`}
          data-col="drain"
          aria-label=${`Drain ${name}`}
          onClick=${() => onDrain(node)}
        >Drain…</${Button}>`
      }
    </div>
  </div>`;
}

function Host({ host, isAlone, loads = {}, onDrain, onCell, onClose }) {
  return useMemo(
    () => html`<section class="host" role="rowgroup" data-host=${host.name} aria-label=${`host ${host.name}`}>
      ${
        !isAlone &&
        html`<div role="row">
          <h3 role="rowheader">
            ${host.name}
            <span class="dim">${plural(host.nodes.length, 'node')}</span>
            ${onClose && html`<${Button} quiet=${true} onClick=${onClose}>Close</${Button}>`}
          </h3>
        </div>`
      }
      ${host.nodes.map(
        (node) =>
          html`<${Node} key=${node.id} node=${node} load=${loads[node.id]} ...${{ onDrain, onCell }} />`,
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
      data-item=${name}
      tabindex="-1"
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

/** The shard that was opened, and where the others of its group are. */
function Opened({ hosts, open: { node, key }, onClose }) {
  const nodes = hosts.flatMap((host) => host.nodes);
  const all = nodes.flatMap((each) => each.cells.map((cell) => [each.name, cell]));
  const own = all.filter(([, cell]) => keyOf(cell) === key);
  const [at, cell] = own.find(([name]) => name === node) ?? own[0] ?? [];
  const others = all.filter(
    ([name, each]) =>
      cell && each.pool === cell.pool && each.group === cell.group && (keyOf(each) !== key || name !== at),
  );
  return html`<section class="opened" aria-label="the shard that was opened">
    <div class="row-head" role="status">
      <span>${cell ? html`<b>${words(cell)}</b> on ${at}` : `${key} is not there any more`}</span>
      <${Button} quiet=${true} onClick=${onClose}>Close</${Button}>
    </div>
    ${
      others.length > 0 &&
      html`<ul>
        ${others.map(
          ([name, each]) => html`<li key=${`${name} ${keyOf(each)}`}>${words(each)}, on ${name}</li>`,
        )}
      </ul>`
    }
  </section>`;
}

const Tiles = ({ hosts, tile }) => {
  const grid = useGrid();
  return html`<div class="tiles" role="group" aria-label="hosts" ...${grid}>
    ${hosts.map(tile)}
    ${hosts.length === 0 && html`<p class="none">Nothing is amiss on any host.</p>`}
  </div>`;
};

const Nodes = ({ children }) =>
  html`<div role="grid" aria-label="shards of each node" ...${useGrid()}>${children}</div>`;

export function ShardMap({ hosts, nodes, loads, onDrain }) {
  const [open, setOpen] = useState();
  const [only, setOnly] = useState(false);
  const [cell, setCell] = useState();
  const close = () => {
    setCell();
    // The tab key stops at the cell that was opened.
    document.querySelector('.map [role="grid"] [data-item][tabindex="0"]')?.focus();
  };
  const onCell = (node, key) => setCell({ node, key });
  const onKey = ({ key }) => key === 'Escape' && cell && close();
  const isLarge = nodes > MOST_NODES;
  // Hosts of one node each need no headings.
  const isAlone = hosts.every((host) => host.nodes.length === 1);
  const troubled = hosts.filter((host) => host.down > 0 || host.counts.whole < sum(host.counts));
  const shown = only ? troubled : hosts;
  const tile = (host) =>
    html`<${Tile} key=${host.name} host=${host} isOpen=${host.name === open} onOpen=${setOpen} />`;
  const draw = (host, onClose) => html`<${Host}
    key=${host.name}
    ...${{ host, loads, onDrain, onCell, onClose }}
    isAlone=${isAlone && !onClose}
  />`;
  const opened = hosts.find((host) => host.name === open);
  return html`<section class="panel map" aria-labelledby="map-title" onKeyDown=${onKey}>
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
    ${isLarge && html`<${Tiles} hosts=${shown} tile=${tile} />`}
    ${
      (!isLarge || opened) &&
      html`<${Heads} />
        <${Nodes}>${isLarge ? draw(opened, () => setOpen()) : hosts.map((host) => draw(host))}</${Nodes}>`
    }
    ${cell && html`<${Opened} hosts=${hosts} open=${cell} onClose=${close} />`}
  </section>`;
}

const sum = (counts) => STATES.reduce((all, state) => all + counts[state], 0);

/** The page: takes patches of sections, and draws what they say. */
import * as buttons from './buttons.js';
import { ShardMap } from './cells.js';
import { bytes, clock, count } from './format.js';
import { html } from './html.js';
import { follow } from './live.js';
import { Asked, Checkpoints, Condition, Figure, Recoveries, Tables } from './panels.js';
import { useEffect, useState } from './vendor/hooks.mjs';
import { render } from './vendor/preact.mjs';

/** Sections by name after a patch; one that is null is gone. */
function patched(sections, patch, isFirst) {
  const next = isFirst ? {} : { ...sections };
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete next[name];
    else next[name] = value;
  }
  return next;
}

const byName = new Intl.Collator('en', { numeric: true }).compare;

function hostsOf(sections) {
  return Object.entries(sections)
    .filter(([name]) => name.startsWith('host/'))
    .map(([, host]) => host)
    .sort((a, b) => byName(a.name, b.name));
}

function Link({ problem, link }) {
  if (problem) return html`<span class="link down" role="status">Not connected: ${problem}</span>`;
  if (link.state === 'up') return html`<span class="link up" role="status">Live</span>`;
  const what =
    link.state === 'down' ? `No scheduler since ${clock(link.since)}` : 'Looking for the scheduler';
  return html`<span class="link down" role="status" title=${link.problem}>${what}</span>`;
}

const JobName = ({ job }) =>
  html`<span class="dim" title=${`job ${job.job}, map epoch ${job.epoch}`}>job ${job.job.slice(0, 8)}</span>`;

function Head({ sections, problem, onWish }) {
  const { job, link } = sections;
  const isReady = job && !problem && link.state === 'up';
  return html`<header>
    <div class="brand"><img src="/icon.svg" alt="" width="26" height="26" /><h1>Kintsugi</h1></div>
    ${job && html`<${JobName} job=${job} />`}
    <${Link} problem=${problem} link=${link} />
    <nav aria-label="what can be asked for">
      <button disabled=${!isReady} onClick=${() => onWish(buttons.checkpoint())}>Checkpoint now…</button>
      <button disabled=${!isReady} onClick=${() => onWish(buttons.rebalance())}>Rebalance…</button>
      <button disabled=${!isReady} onClick=${() => onWish(buttons.scale(job))}>Scale…</button>
    </nav>
  </header>`;
}

function Figures({ job }) {
  const all = Object.values(job.counts).reduce((sum, n) => sum + n, 0);
  return html`<dl class="figures">
    <${Figure} label="Nodes" value=${count(job.nodesAlive)} unit=${`of ${count(job.nodes)}`} />
    <${Figure} label="Shards whole" value=${count(job.counts.whole)} unit=${`of ${count(all)}`} />
    <${Figure} label="Rows" value=${count(job.rows)} />
    <${Figure} label="Memory" value=${bytes(job.bytes)} />
  </dl>`;
}

function App() {
  const [sections, setSections] = useState();
  const [problem, setProblem] = useState();
  const [wish, setWish] = useState();
  useEffect(() => {
    follow((patch, isFirst) => setSections((before) => patched(before, patch, isFirst)), setProblem);
  }, []);
  if (!sections) return html`<p class="boot">${problem ? `Not connected: ${problem}` : 'Connecting…'}</p>`;
  const { job, link, recoveries, changes, saving, lost, tables, actions, hello } = sections;
  const askDrain = (node) => setWish(buttons.drain(node));
  const close = () => setWish();
  const isOld = problem !== undefined || link.state !== 'up';
  return html`<${Head} sections=${sections} problem=${problem} onWish=${setWish} />
    <main class=${isOld ? 'old' : ''}>
      ${!job && html`<p class="boot">${link.problem ?? 'Waiting for the job.'}</p>`}
      ${
        job &&
        html`<${Condition} job=${job} recoveries=${recoveries} />
          <${Figures} job=${job} />
          <${ShardMap} hosts=${hostsOf(sections)} nodes=${job.nodes} onDrain=${askDrain} />
          <div class="columns">
            <${Recoveries} recoveries=${recoveries} changes=${changes} />
            <${Tables} tables=${tables} />
            <${Checkpoints} saving=${saving} lost=${lost} />
            <${Asked} actions=${actions} />
          </div>`
      }
    </main>
    ${wish && html`<${buttons.Confirm} key=${wish.title} wish=${wish} hello=${hello} onClose=${close} />`}`;
}

render(html`<${App} />`, document.getElementById('app'));

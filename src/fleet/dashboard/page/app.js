/** The page: takes patches of sections, and draws what they say. */
import * as buttons from './buttons.js';
import { ShardMap } from './cells.js';
import { Chart } from './chart.js';
import { clock } from './format.js';
import { happenings } from './happenings.js';
import { html } from './html.js';
import { follow } from './live.js';
import { Asked, Button, Checkpoints, Condition, Recoveries, Replicas } from './panels.js';
import { Tables } from './tables.js';
import { useEffect, useMemo, useState } from './vendor/hooks.mjs';
import { render } from './vendor/preact.mjs';
import { Data, Figures, Happened, Hot, Outlook, Workers } from './work.js';

/** Points that are kept: as many as the server keeps (series.ts). */
const MOST_POINTS = 900;

/** Sections by name after a patch; one that is null is gone. Points of the chart are added. */
function patched(sections, patch, isFirst) {
  const next = isFirst ? { points: [] } : { ...sections };
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete next[name];
    else if (name === 'points') next.points = [...next.points, ...value].slice(-MOST_POINTS);
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
      <${Button} off=${!isReady} onClick=${() => onWish(buttons.checkpoint())}>Checkpoint now…</${Button}>
      <${Button} off=${!isReady} onClick=${() => onWish(buttons.rebalance())}>Rebalance…</${Button}>
      <${Button} off=${!isReady} onClick=${() => onWish(buttons.scale(job))}>Scale…</${Button}>
    </nav>
  </header>`;
}

function App() {
  const [sections, setSections] = useState();
  const [problem, setProblem] = useState();
  const [wish, setWish] = useState();
  useEffect(() => {
    follow((patch, isFirst) => setSections((before) => patched(before, patch, isFirst)), setProblem);
  }, []);
  const events = sections?.events;
  const marks = useMemo(() => happenings(events), [events]);
  const isUnknown = sections?.job?.unreported > 0;
  const state = isUnknown ? 'not known yet' : sections?.job?.redundancy;
  useEffect(() => {
    document.title = state ? `${state} · Kintsugi` : 'Kintsugi';
  }, [state]);
  if (!sections) return html`<p class="boot">${problem ? `Not connected: ${problem}` : 'Connecting…'}</p>`;
  const { job, link, recoveries, changes, saving, lost, tables, actions, hello } = sections;
  const { restoring, load, nodeLoads, hot, runs, outlook, points, replicas, lastRecovery } = sections;
  const mostBytes = Math.max(0, ...Object.values(nodeLoads ?? {}).map(({ usedBytes }) => usedBytes));
  const askDrain = (node) => setWish(buttons.drain(node));
  // The browser tells of a dialog's end later: another may be open by then.
  const close = () => setWish((now) => (now === wish ? undefined : now));
  const recovery = { recoveries, changes, restoring };
  const restoreCommand = (saved) => buttons.command(['restore', saved, '--only-lost'], hello.flags);
  const checkpoints = { saving, lost, allLost: job?.counts.lost, restoreCommand };
  const isOld = problem !== undefined || link.state !== 'up';
  return html`<${Head} sections=${sections} problem=${problem} onWish=${setWish} />
    <main class=${isOld ? 'old' : ''}>
      ${!job && html`<p class="boot">${link.problem ?? 'Waiting for the job.'}</p>`}
      ${
        job &&
        html`<${Condition} job=${job} recoveries=${recoveries} missing=${load?.missing} />
          <${Figures} job=${job} load=${load} />
          <${Chart} points=${points} marks=${events && marks} />
          <${ShardMap} hosts=${hostsOf(sections)} nodes=${job.nodes} loads=${nodeLoads} onDrain=${askDrain} />
          <div class="columns">
            <${Recoveries} ...${recovery} last=${lastRecovery} isKnown=${!isUnknown} />
            <${Hot} hot=${hot} />
            <${Happened} marks=${events && marks} />
            <${Data} runs=${runs} />
            <${Outlook} outlook=${outlook} mostBytes=${mostBytes} />
            <${Checkpoints} ...${checkpoints} isKnown=${events !== undefined} />
            <${Replicas} replicas=${replicas} />
            <${Asked} actions=${actions} />
            <${Workers} training=${load?.training} />
            <${Tables} tables=${tables} server=${hello.secret} />
          </div>`
      }
    </main>
    ${wish && html`<${buttons.Confirm} key=${wish.title} wish=${wish} hello=${hello} onClose=${close} />`}`;
}

render(html`<${App} />`, document.getElementById('app'));

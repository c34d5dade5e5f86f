/** Panels beside the shards: one small panel per question. */
import { bytes, clock, count, duration, percent, plural, wholeTime } from './format.js';
import { html } from './html.js';

export function Panel({ title, note, children, name, wide }) {
  const id = `title-${name}`;
  return html`<section class="panel ${wide ? 'wide' : ''}" data-panel=${name} aria-labelledby=${id}>
    <div class="panel-head"><h2 id=${id}>${title}</h2>${note && html`<span class="dim">${note}</span>`}</div>
    ${children}
  </section>`;
}

/** Stands where something has not been looked at yet, so that it is not taken for nothing. */
export const NotKnown = ({ what }) => html`<p class="none">${what ?? 'Not known yet.'}</p>`;

/**
 * A button. While it is `off` it does nothing, and keeps the focus: a button that is disabled loses it, and
 * whoever works with the keyboard begins again at the top of the page.
 */
export function Button({ off = false, quiet, primary, type = 'button', onClick, children, ...more }) {
  const kind = quiet ? 'quiet' : primary ? 'primary' : undefined;
  const click = (event) => {
    if (off) event.preventDefault();
    else onClick?.(event);
  };
  const disabled = off ? 'true' : undefined;
  return html`<button type=${type} class=${kind} aria-disabled=${disabled} onClick=${click} ...${more}>
    ${children}
  </button>`;
}

const MOST_NAMES = 5;
const someOf = (names) =>
  names.length > MOST_NAMES ? `${names.slice(0, MOST_NAMES).join(', ')} and more` : names.join(', ');

/** One sentence about the job's redundancy, and what stands behind it. */
export function Condition({ job, recoveries = [], missing = [] }) {
  const { redundancy, reasons, warnings, counts, unreported } = job;
  const least = Math.min(...job.pools.map((pool) => Number(pool.code.split('+')[1] ?? 0)));
  const open = recoveries.length;
  const sentence = {
    forming: reasons[0] ?? 'The job has not started.',
    full:
      least > 0
        ? `Every shard is whole. Any ${plural(least, 'node')} can be lost.`
        : 'Every shard is whole. The job has no redundancy.',
    recovering:
      open > 0
        ? `${plural(open, 'shard')} being decoded; training goes on.`
        : 'Parity is being built again; training goes on.',
    degraded: 'Everything is served, but the next loss may not be repaired.',
    lost: `${plural(counts.lost, 'shard')} beyond repair; all others are served.`,
  }[redundancy];
  const isUnknown = unreported > 0 && redundancy !== 'forming';
  const shown = isUnknown || redundancy === 'full' || redundancy === 'forming' ? [] : reasons;
  const state = isUnknown ? 'unknown' : redundancy;
  return html`<div class="condition ${state}" role="status">
    <span class="sign" aria-hidden="true"></span>
    <div>
      ${
        isUnknown
          ? html`<p class="sentence"><strong data-redundancy="unknown">not known yet</strong>
              ${plural(unreported, 'node')} must report to the scheduler first.</p>`
          : html`<p class="sentence"><strong data-redundancy=${state}>${state}</strong> ${sentence}</p>`
      }
      ${warnings.map((warning) => html`<p class="warning">${warning}</p>`)}
      ${
        missing.length > 0 &&
        html`<p class="warning">${plural(missing.length, 'node')} did not answer: ${someOf(missing)}</p>`
      }
      ${
        shown.length > 0 &&
        html`<details>
          <summary>${plural(shown.length, 'reason')}</summary>
          <ul>
            ${shown.map((reason) => html`<li>${reason}</li>`)}
          </ul>
        </details>`
      }
    </div>
  </div>`;
}

export function Figure({ label, value, unit, name }) {
  return html`<div class="figure" data-figure=${name}>
    <dt>${label}</dt>
    <dd><span class="value">${value}</span>${unit && html`<span class="unit">${unit}</span>`}</dd>
  </div>`;
}

/** A bar of `value`, 0 to 1. `extra`: a part of it, or what comes on top where the tone is plain. */
export function Meter({ value, extra = 0, label, tone = 'gold' }) {
  const box = { viewBox: '0 0 100 6', preserveAspectRatio: 'none', role: 'img' };
  return html`<svg class="meter ${tone}" ...${box} aria-label=${label}>
    <rect class="back" width="100" height="6" />
    <rect class="done" width=${value * 100} height="6" />
    <rect class="demand" x=${tone === 'gold' ? 0 : value * 100} width=${extra * 100} height="6" />
  </svg>`;
}

export const RowHead = ({ left, note, right }) => html`<div class="row-head">
  <span>${left} ${note && html`<span class="dim">${note}</span>`}</span><span class="dim">${right}</span>
</div>`;

const MOST_ROWS = 8;

/** The recovery that ended last. `none`: none has ended, as far as is known. */
function lastText(last) {
  if (last === undefined) return 'Whether anything did before is not known yet.';
  if (last === 'none') return '';
  const { at, shards, tookMs, blocks, onDemand } = last;
  const text = `Last, at ${clock(at)}: ${plural(shards, 'shard')} whole again after ${duration(tookMs)}`;
  if (blocks === undefined) return `${text}.`;
  const share = blocks > 0 ? `, ${percent(onDemand / blocks)} on demand` : '';
  return `${text}, ${plural(blocks, 'block')} decoded${share}.`;
}

export function Recoveries({ recoveries, last, changes = [], restoring, isKnown }) {
  if (!isKnown || !recoveries)
    return html`<${Panel} title="Recovery and moves" name="recovery"><${NotKnown} /></${Panel}>`;
  const running = changes.filter((change) => change.state === 'running');
  const more = recoveries.length - MOST_ROWS;
  const quiet = recoveries.length === 0 && running.length === 0 && !restoring;
  return html`<${Panel} title="Recovery and moves" name="recovery">
    ${quiet && html`<p class="none">Nothing recovers or moves. ${lastText(last)}</p>`}
    ${restoring && html`<${Restoring} ...${restoring} />`}
    ${running.map(
      (change) => html`<div class="row">
        <${RowHead} left=${changeText(change)} right=${movedText(change)} />
        <${Meter} value=${movedShare(change)} label=${movedText(change)} />
        ${change.reason && html`<p class="dim">${change.reason}</p>`}
      </div>`,
    )}
    ${recoveries.slice(0, MOST_ROWS).map(({ pool, group, index, node, blocks: all, present, onDemand }) => {
      const text =
        all > 0 ? `${percent(present / all)}, ${percent(onDemand / all)} on demand` : 'blocks not known yet';
      return html`<div class="row">
        <${RowHead} left=${`${pool} ${group}.${index}`} note=${`on ${node}`} right=${text} />
        <${Meter} value=${all > 0 ? present / all : 0} extra=${all > 0 ? onDemand / all : 0} label=${text} />
      </div>`;
    })}
    ${more > 0 && html`<p class="dim">and ${plural(more, 'shard')} more</p>`}
  </${Panel}>`;
}

/** The shards of a checkpoint that are loaded. */
function Restoring({ url, number, onlyLost, atLeastOnce, shardsLeft, failure }) {
  return html`<div class="row">
    <${RowHead}
      left=${`Loading checkpoint ${number}`}
      note=${onlyLost ? 'what was lost' : ''}
      right=${`${plural(shardsLeft, 'shard')} left`}
    />
    <p class="dim path">${url}</p>
    ${atLeastOnce && html`<p class="dim">Some samples are trained again.</p>`}
    ${failure && html`<p class="warning">${failure.code}: ${failure.message}; it is tried again</p>`}
  </div>`;
}

function changeText({ kind, from, to, leaving }) {
  if (kind === 'drain') return `Draining ${leaving.join(', ')}`;
  if (kind === 'rebalance') return 'Rebalancing';
  return kind === 'join' ? 'A node joins' : `Scaling from ${from} to ${to} PS`;
}
const allOf = ({ shardsMoved, shardsMoving, shardsLeft }) => shardsMoved + shardsMoving + shardsLeft;
const movedShare = (change) => change.shardsMoved / Math.max(1, allOf(change));
const movedText = (change) =>
  allOf(change) > 0
    ? `${change.shardsMoved} of ${allOf(change)} shards, ${bytes(change.bytesMoved)}`
    : 'planning';

/**
 * `isKnown`: the events have been read, which name checkpoints of earlier schedulers. `restoreCommand`: the
 * command that loads what is lost from a checkpoint.
 */
export function Checkpoints({ saving = [], lost = [], allLost, isKnown, restoreCommand }) {
  const more = allLost - lost.length;
  const none = isKnown ? 'none yet' : 'not known yet';
  return html`<${Panel} title="Checkpoints" name="checkpoints">
    ${saving.length === 0 && html`<p class="none">None are made: see "kintsugi checkpoint set".</p>`}
    ${saving.map(
      ({ name, url, everyMs, last, underWay, failure }) => html`<div class="row">
        <${RowHead}
          left=${name}
          note=${everyMs === 0 ? 'when asked for' : `every ${duration(everyMs)}`}
          right=${last ? `${duration(last.agoMs)} ago` : none}
        />
        <p class="dim path">${url}</p>
        ${last && html`<p>Number ${last.number}: ${bytes(last.bytes)} in ${duration(last.tookMs)}</p>`}
        ${
          underWay &&
          html`<${Meter} value=${underWay.saved / Math.max(1, underWay.shards)}
            label=${`${underWay.saved} of ${underWay.shards} shards`} />`
        }
        ${failure && html`<p class="warning">${failureText(failure)}</p>`}
      </div>`,
    )}
    ${lost.map(
      ({ pool, group, index, rows, saved }) => html`<p class="warning">
        ${pool} group ${group}, data ${index} (${plural(rows, 'row')}) is beyond repair.
        ${saved ? html` <code>${restoreCommand(saved)}</code>` : ' No checkpoint has it.'}
      </p>`,
    )}
    ${more > 0 && html`<p class="warning">and ${plural(more, 'shard')} more</p>`}
  </${Panel}>`;
}

const MOST_REPLICAS = 20;

const Replica = ({ address, share: [part, of], tables, served, shards, unfit, ...state }) => {
  const { complete, lagMs, behind } = state;
  const { minFrequency, maxAge, maxAgeSeconds } = served ?? {};
  const rows = [
    minFrequency && `rows seen ${plural(minFrequency, 'time')}`,
    maxAge && `rows of the last ${plural(maxAge, 'step')}`,
    maxAgeSeconds && `rows of the last ${wholeTime(maxAgeSeconds)}`,
  ].filter(Boolean);
  const what = [of > 1 && `part ${part} of ${of}`, tables?.join(', '), rows.join(', ')].filter(Boolean);
  const age = lagMs < 0 ? 'of unknown age' : `at most ${duration(lagMs)} old`;
  return html`<div class="row">
    <${RowHead}
      left=${address}
      note=${what.join(', ')}
      right=${`${count(complete)} of ${plural(shards, 'shard')}`}
    />
    <p class="dim">${complete > 0 ? age : 'nothing yet'}, ${plural(behind, 'batch', 'batches')} behind</p>
    ${unfit && html`<p class="warning">not ready: ${unfit}</p>`}
  </div>`;
};

/** Copies that answer pulls; they protect nothing. */
export function Replicas({ replicas = [] }) {
  const more = replicas.length - MOST_REPLICAS;
  return (
    replicas.length > 0 &&
    html`<${Panel} title="Replicas" note="they answer pulls" name="replicas">
      ${replicas.slice(0, MOST_REPLICAS).map((each) => html`<${Replica} key=${each.id} ...${each} />`)}
      ${more > 0 && html`<p class="dim">and ${count(more)} more</p>`}
    </${Panel}>`
  );
}

const failureText = ({ number, code, message }) => `number ${number} failed: ${code}: ${message}`;

const STATE_WORDS = { running: 'under way', done: 'done', failed: 'failed' };

export function Asked({ actions = [] }) {
  return (
    actions.length > 0 &&
    html`<${Panel} title="Asked for here" name="asked">
      <ul class="asked">
        ${actions.map(
          ({ id, at, command, state, text }) => html`<li key=${id} data-state=${state}>
            <span class="tag ${state}">${STATE_WORDS[state]}</span> <code>${command}</code>
            <span class="dim">${clock(at)} ${text}</span>
          </li>`,
        )}
      </ul>
    </${Panel}>`
  );
}

/** Panels of the job's work and content: figures, hot shards, workers, data, tables, the planner. */
import { brief, bytes, clock, count, duration, percent, plural } from './format.js';
import { html } from './html.js';
import { Figure, Meter, NotKnown, Panel, RowHead } from './panels.js';

/** Props of a figure: its value, or that it is not known. `none` stands where there was nothing. */
function figure(isKnown, value, format, none = '–') {
  if (!isKnown) return { value: '–', unit: 'not known yet' };
  return { value: value === undefined ? none : format(value) };
}

export function Figures({ job, load }) {
  const all = Object.values(job.counts).reduce((sum, n) => sum + n, 0);
  const training = load?.training;
  const rows = load && load.pull.rowsPerSecond + load.push.rowsPerSecond;
  const rate = training
    ? { value: brief(training.samplesPerSecond), label: 'Samples/s' }
    : { ...figure(load, rows, brief), label: 'Rows/s' };
  const whole =
    job.unreported > 0 ? figure(false) : { value: brief(job.counts.whole), unit: `of ${brief(all)}` };
  const nodes = `of ${count(job.nodes)}`;
  return html`<dl class="figures">
    <${Figure} name="throughput" ...${rate} />
    <${Figure} name="pull-p99" label="Pull p99" ...${figure(load, load?.pull.p99Ms, duration)} />
    <${Figure} name="commit-p99" label="Push p99" ...${figure(load, load?.commitP99Ms, duration)} />
    ${training && html`<${Figure} name="goodput" label="Goodput" value=${percent(training.goodput)} />`}
    <${Figure} name="nodes" label="Nodes" value=${count(job.nodesAlive)} unit=${nodes} />
    <${Figure} name="whole" label="Shards whole" ...${whole} />
    <${Figure} name="rows" label="Rows" ...${figure(job.rows !== undefined, job.rows, brief)} />
    <${Figure} name="memory" label="Memory" ...${figure(job.bytes !== undefined, job.bytes, bytes)} />
  </dl>`;
}

const timesText = (times) => `${times.toFixed(1)} times the mean`;

export function Hot({ hot }) {
  const most = hot?.[0]?.requestsPerSecond ?? 1;
  return html`<${Panel} title="Hottest shards" note="requests per second" name="hot">
    ${!hot && html`<${NotKnown} />`}
    ${hot?.length === 0 && html`<p class="none">No shard is asked for anything.</p>`}
    ${hot?.map(
      ({ pool, group, index, node, requestsPerSecond, timesMean }) => html`<div class="hot-row">
        <span class="what">${pool} ${group}.${index} <span class="dim">${node}</span></span>
        <${Meter} value=${requestsPerSecond / most} tone="plain" label=${timesText(timesMean)} />
        <span class="n">${brief(requestsPerSecond)}</span>
        <span class="n dim" title="times the mean">${timesMean.toFixed(1)}×</span>
      </div>`,
    )}
  </${Panel}>`;
}

const PHASES = ['read', 'pull', 'compute', 'push'];

export function Workers({ training }) {
  if (!training) return null;
  const { list, workers, loss } = training;
  const note = `${plural(workers, 'worker')}${loss === undefined ? '' : `, loss ${loss.toFixed(4)}`}`;
  return html`<${Panel} title="Workers" note=${note} name="workers" wide=${true}>
    ${list.length === 0 && html`<p class="none">None has reported twice.</p>`}
    ${
      list.length > 0 &&
      html`<div class="scroll"><table>
        <thead>
          <tr>
            <th>worker</th><th class="n">samples/s</th>
            ${PHASES.map((phase) => html`<th class="n">${phase}</th>`)}
            <th class="n">productive</th><th class="n">staleness</th>
          </tr>
        </thead>
        <tbody>
          ${list.map(
            ({ name, samplesPerSecond, stepMs, productiveRatio, staleness }) => html`<tr key=${name}>
              <th scope="row">${name}</th>
              <td class="n">${brief(samplesPerSecond)}</td>
              ${PHASES.map((phase) => html`<td class="n">${duration(stepMs[phase])}</td>`)}
              <td class="n">${percent(productiveRatio)}</td>
              <td class="n">${count(staleness)}</td>
            </tr>`,
          )}
        </tbody>
      </table></div>`
    }
  </${Panel}>`;
}

export function Data({ runs }) {
  return html`<${Panel} title="Data" name="data">
    ${!runs && html`<${NotKnown} />`}
    ${runs?.length === 0 && html`<p class="none">No worker has opened any.</p>`}
    ${runs?.map(({ name, ranges, finished, open, samples, redone, setAside, aside, complete, epochs }) => {
      const text = `${count(finished)} of ${plural(ranges, 'range')}${complete ? ', complete' : ''}`;
      return html`<div class="row" key=${name}>
        <${RowHead} left=${name} note=${plural(epochs, 'epoch')} right=${text} />
        <${Meter} value=${finished / Math.max(1, ranges)} extra=${open / Math.max(1, ranges)} tone="plain"
          label=${`${text}, ${open} at work`} />
        <p class="dim">
          ${count(samples)} samples trained, ${count(open)} ranges at work, ${count(redone)} samples redone
        </p>
        ${setAside > 0 && html`<p class="warning">${plural(setAside, 'range')} set aside</p>`}
        ${
          aside.length > 0 &&
          html`<ul class="aside">
            ${aside.map(
              ({ fileName, begin, end, code, message }) =>
                html`<li>${fileName} bytes ${count(begin)} to ${count(end)}: ${code}: ${message}</li>`,
            )}
          </ul>`
        }
      </div>`;
    })}
  </${Panel}>`;
}

function years(seconds) {
  const value = seconds / (365.25 * 86_400);
  if (seconds === 0) return 'for ever';
  if (value >= 1000) return `${brief(value)} years`;
  return value >= 1 ? `${value.toFixed(value < 10 ? 1 : 0)} years` : duration(seconds * 1000);
}

export function Outlook({ outlook: known, mostBytes }) {
  const outlook = known === 'none' ? undefined : known;
  const facts = outlook && [
    ['Memory of a PS', `${bytes(mostBytes)} now on the fullest`, bytes(outlook.memoryBytes)],
    ['Memory after a loss', '', bytes(outlook.memoryAfterLossBytes)],
    ['Busy with requests', `${brief(outlook.keysPerSecond)} rows/s`, percent(outlook.busy)],
    ['Redundant again', 'after a loss', duration(outlook.recoverySeconds * 1000)],
    ['Until data is lost', 'a machine fails every 30 days', years(outlook.meanTimeToLossSeconds)],
  ];
  const note =
    outlook && `${outlook.code} on ${outlook.ps} PS, ${brief(outlook.rows)} rows of ${outlook.dim}`;
  return html`<${Panel} title="By the planner" note=${note} name="outlook">
    ${known === undefined && html`<${NotKnown} />`}
    ${known === 'none' && html`<p class="none">There are no rows to plan for yet.</p>`}
    ${facts?.map(
      ([what, more, value]) => html`<div class="fact">
        <span>${what} <span class="dim">${more}</span></span><span class="n">${value}</span>
      </div>`,
    )}
    ${outlook?.problems.map((problem) => html`<p class="warning">${problem}</p>`)}
  </${Panel}>`;
}

const MOST_LISTED = 100;

export function Happened({ marks }) {
  return html`<${Panel} title="What happened" name="events">
    ${!marks && html`<${NotKnown} />`}
    ${marks?.length === 0 && html`<p class="none">Nothing yet.</p>`}
    <ol class="happened" tabindex="0" aria-label="what happened, newest first">
      ${marks?.slice(0, MOST_LISTED).map(
        ({ number, at, mark, tone, text, kind }) => html`<li key=${number} data-kind=${kind}>
          <time>${clock(at)}</time>
          <span class="mark ${tone}" aria-hidden="true">${mark}</span><span>${text}</span>
        </li>`,
      )}
    </ol>
  </${Panel}>`;
}

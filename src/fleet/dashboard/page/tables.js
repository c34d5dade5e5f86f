/** The tables of the job: some at a time, the largest first, and those whose names have a text. */
import { brief, bytes, count, plural } from './format.js';
import { html } from './html.js';
import { tablesPage } from './live.js';
import { Button, NotKnown, Panel } from './panels.js';
import { useEffect, useState } from './vendor/hooks.mjs';

const NUMBERS = ['rows', 'bytes', 'pulled/s', 'pushed/s', 'new/s', 'dim'];
const rateText = (value) => (value === undefined ? html`<span title="not known yet">–</span>` : brief(value));

/** Reasons for which rows went, as people call them. */
const REASONS = {
  expired: 'expired',
  rare: 'below frequency',
  faint: 'below norm',
  displaced: 'for room',
  deleted: 'deleted',
  refused: 'gradients not admitted',
};
const goneText = (gone = {}) =>
  Object.entries(REASONS)
    .filter(([reason]) => gone[reason] > 0)
    .map(([reason, text]) => `${count(gone[reason])} ${text}`)
    .join(', ');
const hasLife = ({ policy, gone }) => policy !== undefined || gone !== undefined;

const Row = ({ table, isLiving }) => html`<tr>
  <th scope="row">${table.name}</th>
  <td class="n">${count(table.rows)}</td>
  <td class="n">${bytes(table.bytes)}</td>
  <td class="n">${rateText(table.pulledRowsPerSecond)}</td>
  <td class="n">${rateText(table.pushedRowsPerSecond)}</td>
  <td class="n">${rateText(table.newRowsPerSecond)}</td>
  <td class="n">${table.dim}</td>
  <td>${table.optimizer}</td>
  <td>${table.pool}</td>
  ${isLiving && html`<td>${table.policy ?? 'none'}</td><td>${goneText(table.gone)}</td>`}
</tr>`;

/** Policies and rows that went have columns where one of the tables has any. */
function List({ tables }) {
  const isLiving = tables.some(hasLife);
  return html`<div class="scroll"><table>
    <thead>
      <tr>
        <th>table</th>
        ${NUMBERS.map((name) => html`<th class="n">${name}</th>`)}
        <th>optimizer</th><th>pool</th>
        ${isLiving && html`<th>policy</th><th>rows gone</th>`}
      </tr>
    </thead>
    <tbody>
      ${tables.map((table) => html`<${Row} key=${table.name} table=${table} isLiving=${isLiving} />`)}
    </tbody>
  </table></div>`;
}

/** Which of the found are shown, and what goes to the others. */
function Pages({ shown: { from, found, tables }, step, onFrom }) {
  const end = from + tables.length;
  const text = found === 0 ? 'none' : `${count(from + 1)} to ${count(end)} of ${count(found)}`;
  return html`<div class="pages" role="group" aria-label="pages of tables">
    <${Button} quiet=${true} off=${from === 0} onClick=${() => onFrom(Math.max(0, from - step))}>
      Previous
    </${Button}>
    <span class="dim" role="status">${text}</span>
    <${Button} quiet=${true} off=${end >= found} onClick=${() => onFrom(end)}>Next</${Button}>
  </div>`;
}

/** The newest answer for this text and place. Tables are asked for again when the live data says so. */
function useTables(find, from, changed) {
  const [shown, setShown] = useState();
  useEffect(() => {
    let isOver = false;
    // While the page's server is away the live data says so, and comes again with everything.
    tablesPage(find, from).then(
      (page) => isOver || setShown(page),
      () => {},
    );
    return () => {
      isOver = true;
    };
  }, [find, from, changed]);
  return shown;
}

/** Tables that one answer has, as the server has it (tables.ts). */
const AT_ONCE = 50;

/** `server`: another one is another process, whose versions begin anew. */
export function Tables({ tables, server }) {
  const [find, setFind] = useState('');
  const [from, setFrom] = useState(0);
  const shown = useTables(find, from, `${server} ${tables?.version}`);
  const look = (event) => {
    setFind(event.target.value);
    setFrom(0);
  };
  const isKnown = tables !== undefined && shown !== undefined;
  const isMany = tables?.count > AT_ONCE;
  const note = isKnown && plural(tables.count, 'table');
  return html`<${Panel} title="Tables" name="tables" note=${note} wide=${true}>
    ${!isKnown && html`<${NotKnown} />`}
    ${isKnown && tables.count === 0 && html`<p class="none">The job has no tables yet.</p>`}
    ${
      isKnown &&
      isMany &&
      html`<div class="table-do">
        <label>names with <input type="search" value=${find} maxlength="256" onInput=${look} /></label>
        <${Pages} shown=${shown} step=${AT_ONCE} onFrom=${setFrom} />
      </div>`
    }
    ${isKnown && shown.tables.length > 0 && html`<${List} tables=${shown.tables} />`}
    ${isKnown && isMany && shown.found === 0 && html`<p class="none">No table has such a name.</p>`}
  </${Panel}>`;
}

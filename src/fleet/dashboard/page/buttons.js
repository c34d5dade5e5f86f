/** The buttons. Each asks for confirmation, and shows the command that does the same. */
import { html } from './html.js';
import { ask } from './live.js';
import { Button } from './panels.js';
import { useEffect, useRef, useState } from './vendor/hooks.mjs';

const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
/** The command as a shell takes it; `flags`: how it reaches the job (`hello.flags`). */
export const command = (words, flags) => ['kintsugi', ...words, ...flags].map(quoted).join(' ');

/** Wishes: the dialog of each button, its request, and the command that does the same. */
export const drain = ({ name }) => ({
  kind: 'drain',
  title: `Drain ${name}?`,
  text: 'Its shards move to other nodes while training goes on. Its process ends when it holds nothing.',
  verb: `Drain ${name}`,
  body: () => ({ node: name }),
  words: () => ['drain', name],
});
export const scale = ({ wanted, serving }) => ({
  kind: 'scale',
  title: 'Change the number of PS?',
  text:
    `${serving} PS serve now. Shards move while training goes on. To grow, start the new PS yourself with ` +
    '"kintsugi ps"; they are waited for. To shrink, the newest leave first.',
  verb: 'Scale',
  field: { label: 'PS that are to serve', value: wanted, least: 1 },
  body: (ps) => ({ ps }),
  words: (ps) => ['scale', '--ps', `${ps}`],
});
export const rebalance = () => ({
  kind: 'rebalance',
  title: 'Even out what the nodes hold?',
  text: 'Shards move from heavy nodes to light ones, by bytes and by load, while training goes on.',
  verb: 'Rebalance',
  body: () => ({}),
  words: () => ['rebalance'],
});
export const checkpoint = () => ({
  kind: 'checkpoint',
  title: 'Make a checkpoint now?',
  text: 'It goes where the job’s checkpoints go. Training goes on.',
  verb: 'Make a checkpoint',
  body: () => ({}),
  words: () => ['checkpoint', 'now'],
});

/**
 * Dialog that asks for confirmation. `wish`: one of the above. It ends by `close`, which gives the focus back
 * to the button that opened it; a dialog that is only taken away does not.
 */
export function Confirm({ wish, hello, onClose }) {
  const dialog = useRef();
  const [value, setValue] = useState(wish.field?.value);
  const [problem, setProblem] = useState();
  const [busy, setBusy] = useState(false);
  useEffect(() => dialog.current.showModal(), []);
  const bad = wish.field && !(Number.isSafeInteger(value) && value >= wish.field.least);
  const send = async (event) => {
    event.preventDefault();
    if (bad || busy) return;
    setBusy(true);
    try {
      await ask(hello.secret, wish.kind, wish.body(value));
      dialog.current.close();
    } catch (error) {
      setProblem(error.message);
      setBusy(false);
    }
  };
  return html`<dialog ref=${dialog} onClose=${onClose} aria-labelledby="confirm-title">
    <form onSubmit=${send}>
      <h2 id="confirm-title">${wish.title}</h2>
      <p>${wish.text}</p>
      ${
        wish.field &&
        html`<label class="field"
          >${wish.field.label}
          <input
            type="number"
            min=${wish.field.least}
            required
            value=${Number.isNaN(value) ? '' : value}
            onInput=${(event) => setValue(event.target.valueAsNumber)}
        /></label>`
      }
      <p class="dim">The same from a terminal:</p>
      <pre class="command"><code>${command(wish.words(bad ? '?' : value), hello.flags)}</code></pre>
      ${problem && html`<p class="warning" role="alert">${problem}</p>`}
      <div class="dialog-do">
        <${Button} onClick=${() => dialog.current.close()}>Cancel</${Button}>
        <${Button} type="submit" primary=${true} off=${bad || busy}>${wish.verb}</${Button}>
      </div>
    </form>
  </dialog>`;
}

/**
 * The live data: patches of named sections, one per line of an event stream. It is read with fetch, because
 * an EventSource cannot send the key. A connection that is lost is made again; the server then sends all
 * sections, so nothing is missed.
 */
const RETRY_MS = 1000;
/** A connection that is silent for so long is lost: the server sends something every 5 s. */
const SILENT_MS = 15_000;

/** The key from the link. It stands after "#", so that no server logs it. */
export const key = () => location.hash.slice(1);

const headers = (more = {}) => (key() ? { 'x-kintsugi-key': key(), ...more } : more);

/**
 * @param {(patch: object, isFirst: boolean) => void} onPatch
 * @param {(problem?: string) => void} onLink without a problem: the connection is there
 */
export async function follow(onPatch, onLink) {
  for (;;) {
    const abort = new AbortController();
    let timer;
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(() => abort.abort(), SILENT_MS);
    };
    try {
      alive();
      const response = await fetch('/live', { headers: headers(), signal: abort.signal });
      if (!response.ok) throw new Error((await response.text()).trim());
      await read(response.body, alive, onPatch, onLink);
      onLink('the page’s server has ended');
    } catch (error) {
      const isAway = error instanceof TypeError || error.name === 'AbortError';
      onLink(isAway ? 'the page’s server does not answer' : error.message);
    }
    clearTimeout(timer);
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

async function read(body, alive, onPatch, onLink) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let isFirst = true;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    alive();
    const events = (rest + value).split('\n\n');
    rest = events.pop();
    for (const event of events) {
      if (!event.startsWith('data: ')) continue;
      onPatch(JSON.parse(event.slice(6)), isFirst);
      if (isFirst) onLink();
      isFirst = false;
    }
  }
}

/** Some tables; `find`: those whose names have it. @throws Error */
export async function tablesPage(find, from) {
  const response = await fetch(`/tables?${new URLSearchParams({ find, from })}`, { headers: headers() });
  if (!response.ok) throw new Error((await response.text()).trim());
  return await response.json();
}

/** Asks for a change. @throws Error with what the server says */
export async function ask(secret, kind, body) {
  const response = await fetch(`/do/${kind}`, {
    method: 'POST',
    headers: headers({ 'content-type': 'application/json', 'x-kintsugi-secret': secret }),
    body: JSON.stringify(body),
  });
  if (response.ok) return;
  const text = await response.text();
  let message = text.trim();
  try {
    const refusal = JSON.parse(text);
    message = `${refusal.code}: ${refusal.message}`;
  } catch {
    // A text that is no JSON is for a person.
  }
  throw new Error(message);
}

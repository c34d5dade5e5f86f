/** Actions behind the buttons: requests to the job, the command that does the same, and how it went. */

import { describeWithCode, KintsugiError } from '../../common/errors.js';
import { checkFields, checkInteger, checkText } from '../../common/options.js';
import type { Client } from '../../library/client/client.js';
import { drain, rebalance, scale } from '../../library/tools/scaling.js';
import { limitText } from '../../protocol/limits.js';
import type { ChangeStatus } from '../../protocol/messages.js';
import type { ActionView } from './view.js';

/** A change without progress for so long is taken back, as with the commands. */
const CHANGE_LIMIT_MS = 60_000;
/** Actions that are kept to be shown; running ones are kept beyond it. */
const MAX_SHOWN = 20;
/** Actions that may run at the same time; more are refused. */
const MAX_RUNNING = 16;

/** An action, as the body of a POST. */
export type PageAction =
  | { do: 'drain'; node: string }
  | { do: 'scale'; ps: number }
  | { do: 'rebalance' }
  | { do: 'checkpoint' };

/** @throws BAD_ARGUMENT */
export function actionOf(kind: string, body: unknown): PageAction {
  if (typeof body !== 'object' || body === null || Array.isArray(body))
    throw new KintsugiError('BAD_ARGUMENT', 'the body is no object');
  if (kind === 'drain') {
    checkFields(kind, body, { node: true });
    const { node } = body as { node: string };
    checkText('drain: node', node);
    return { do: 'drain', node };
  }
  if (kind === 'scale') {
    checkFields(kind, body, { ps: true });
    const { ps } = body as { ps: number };
    checkInteger('scale: ps', ps, 1);
    return { do: 'scale', ps };
  }
  if (kind === 'rebalance' || kind === 'checkpoint') {
    checkFields(kind, body, {});
    return { do: kind };
  }
  throw new KintsugiError('BAD_ARGUMENT', `there is no "${kind}"`);
}

/** The word as a shell takes it. */
const quoted = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;

/** `kintsugi` with these words, as a shell takes them. */
export const commandLine = (words: readonly string[]): string => ['kintsugi', ...words].map(quoted).join(' ');

/** The command that does the same. `flags`: how to reach the scheduler. */
function commandOf(action: PageAction, flags: readonly string[]): string {
  const what = {
    drain: () => ['drain', (action as { node: string }).node],
    scale: () => ['scale', '--ps', `${(action as { ps: number }).ps}`],
    rebalance: () => ['rebalance'],
    checkpoint: () => ['checkpoint', 'now'],
  }[action.do]();
  return commandLine([...what, ...flags]);
}

/** Actions of this server, the newest first. */
export class Actions {
  private readonly list: ActionView[] = [];
  private next = 1;

  constructor(
    private readonly flags: readonly string[],
    private readonly client: () => Client,
    private readonly onChange: () => void,
  ) {}

  get shown(): ActionView[] {
    return this.list;
  }

  /** Begins an action; its progress is in {@link shown}. @throws LIMIT, UNREACHABLE */
  begin(action: PageAction): ActionView {
    if (this.list.filter((each) => each.state === 'running').length >= MAX_RUNNING)
      throw new KintsugiError(
        'LIMIT',
        limitText('too much is under way: wait for its end', 'maxActions', MAX_RUNNING),
      );
    const client = this.client();
    const command = commandOf(action, this.flags);
    const view: ActionView = { id: this.next++, at: Date.now(), command, state: 'running', text: '' };
    this.list.unshift(view);
    while (this.list.length > MAX_SHOWN && this.list.at(-1)!.state !== 'running') this.list.pop();
    this.perform(client, action, (text) => this.change(view, 'running', text)).then(
      (text) => this.change(view, 'done', text),
      (error: unknown) => this.change(view, 'failed', describeWithCode(error)),
    );
    this.onChange();
    return view;
  }

  private change(view: ActionView, state: ActionView['state'], text: string): void {
    view.state = state;
    view.text = text;
    this.onChange();
  }

  private async perform(client: Client, action: PageAction, tell: (text: string) => void): Promise<string> {
    const options = {
      timeoutMs: CHANGE_LIMIT_MS,
      onProgress: (change: ChangeStatus) => tell(progressText(change)),
    };
    if (action.do === 'checkpoint') {
      const { number, rows } = await client.checkpoint();
      return `checkpoint ${number} has ${rows.toLocaleString('en-US')} rows`;
    }
    if (action.do === 'drain') await drain(client, action.node, options);
    else if (action.do === 'scale') await scale(client, action.ps, options);
    else await rebalance(client, options);
    if (action.do === 'drain') return `${action.node} has left`;
    return action.do === 'scale' ? `${action.ps} PS serve` : 'balanced';
  }
}

function progressText({ reason, shardsMoved, shardsMoving, shardsLeft }: ChangeStatus): string {
  if (reason !== '') return reason;
  const all = shardsMoved + shardsMoving + shardsLeft;
  return all === 0 ? '' : `${shardsMoved} of ${all} shards moved`;
}
